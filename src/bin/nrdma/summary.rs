//! What `demo` tells at its end.
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::args;
use crate::node::{Peer, Received, Stats, version};
use crate::painting::HERE;
use crate::sys;
use crate::table;
use crate::worker::Report;

/// What one host contributed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) fragments: u64,
    /// Results ahead of the last one.
    pub(crate) early: u64,
    pub(crate) bytes: u64,
    pub(crate) mapped: u64,
    pub(crate) direct: u64,
    pub(crate) staged: u64,
    pub(crate) copied: u64,
    /// Results into memory of the host's own, which cannot be mapped.
    pub(crate) wrapped: u64,
    pub(crate) wrapped_bytes: u64,
}

impl Tally {
    /// Counts a result.
    pub(crate) fn add(&mut self, bytes: u64, received: Received, wrapped: bool) {
        self.bytes += bytes;
        let kind = if received.last { &mut self.fragments } else { &mut self.early };
        *kind += 1;
        if wrapped {
            self.wrapped += 1;
            self.wrapped_bytes += bytes;
        }
        let path = match received.path {
            sys::NRDMA_PATH_MAPPED => &mut self.mapped,
            sys::NRDMA_PATH_DIRECT => &mut self.direct,
            sys::NRDMA_PATH_STAGED => &mut self.staged,
            _ => &mut self.copied,
        };
        *path += 1;
    }
}

/// What became of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The job failed.
    Incomplete {
        tiles: u64,
        done: u64,
    },
    /// Not asked for.
    Skipped,
    Compared {
        tiles: u64,
        wrong: u64,
    },
}

impl Check {
    pub(crate) fn is_fine(self) -> bool {
        matches!(self, Self::Skipped | Self::Compared { wrong: 0, .. })
    }

    fn text(self) -> String {
        match self {
            Self::Incomplete { tiles, done } => format!("INCOMPLETE: {done} of {tiles} tiles"),
            Self::Skipped => "complete, not verified".to_owned(),
            Self::Compared { tiles, wrong: 0 } => {
                format!("verified: all {tiles} tiles equal a local rendering")
            }
            Self::Compared { tiles, wrong } => {
                format!("WRONG: {wrong} of {tiles} tiles differ from a local rendering")
            }
        }
    }
}

/// Everything that is known after a run.
pub(crate) struct Summary<'a> {
    pub(crate) options: &'a args::Demo,
    pub(crate) peers: &'a [Peer],
    pub(crate) tallies: BTreeMap<u32, Tally>,
    pub(crate) stats: &'a Stats,
    /// One for each worker, None for one that did not live to tell.
    pub(crate) reports: &'a [Option<Report>],
    pub(crate) killed: Option<String>,
    pub(crate) wall: Duration,
    pub(crate) check: Check,
    pub(crate) troubles: Vec<String>,
}

impl Summary<'_> {
    pub(crate) fn text(&self) -> String {
        let scene = &self.options.scene;
        let mut text = format!(
            "nrdma {}: {}x{} pixels, {} tiles of {}x{}, {} worker processes\n\n",
            version(),
            scene.size.width,
            scene.size.height,
            scene.count(),
            scene.edge,
            scene.edge,
            self.options.hosts,
        );
        text.push_str(&table::columns(&self.host_rows()));
        text.push('\n');
        let troubles = self.troubles.iter().map(|trouble| ("trouble", trouble.clone()));
        for (name, value) in self.facts().into_iter().chain(troubles) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<14}{value}");
        }
        text
    }

    fn host_rows(&self) -> Vec<Vec<String>> {
        let heading = [
            "host",
            "engine",
            "fragments",
            "early",
            "mapped",
            "direct",
            "staged",
            "copied",
            "bytes",
            "MiB/s",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.push(self.host_row("here", "local", HERE));
        for peer in self.peers {
            let dead = self.killed.as_ref() == Some(&peer.name);
            let name = if dead { format!("{} (killed)", peer.name) } else { peer.name.clone() };
            rows.push(self.host_row(&name, &peer.transport, peer.host_id));
        }
        rows
    }

    fn host_row(&self, name: &str, engine: &str, host: u32) -> Vec<String> {
        let tally = self.tallies.get(&host).copied().unwrap_or_default();
        let mut row = vec![name.to_owned(), engine.to_owned()];
        let counts = [tally.fragments, tally.early, tally.mapped, tally.direct, tally.staged, tally.copied];
        row.extend(counts.map(table::count));
        if tally.bytes == 0 {
            row.extend(["-".to_owned(), "-".to_owned()]);
        } else {
            let rate = tally.bytes as f64 / f64::from(1 << 20) / self.wall.as_secs_f64().max(1e-9);
            row.extend([table::bytes(tally.bytes), format!("{rate:.1}")]);
        }
        row
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let all = self.remote();
        let results = all.fragments + all.early;
        let place = results - all.wrapped;
        let mapped = self.stats.bytes_mapped;
        let mut facts = vec![
            ("received", format!("{results} results, {}", table::bytes(all.bytes))),
            (
                "in place",
                format!("{} of {place} results into get_read_memory, made where they are read", all.mapped),
            ),
            (
                "wrapped",
                format!(
                    "{} results, {}, into the host's own memory (wrap_user_buffer)",
                    all.wrapped,
                    table::bytes(all.wrapped_bytes)
                ),
            ),
            ("bytes mapped", format!("{}, by the library's counter", table::bytes(mapped))),
            ("bytes copied", self.copied()),
            ("cache", self.cache()),
        ];
        if let Some(name) = &self.killed {
            let again = self.stats.fragments_retried;
            let how = if cfg!(windows) { "TerminateProcess" } else { "SIGKILL" };
            facts.push(("killed", format!("{name}, by {how}, half way; fragments run again: {again}")));
        }
        facts.push(("wall time", format!("{:.3} s", self.wall.as_secs_f64())));
        facts.push(("picture", format!("{}, {}", self.options.out.display(), self.check.text())));
        facts
    }

    /// The sum over all other hosts.
    fn remote(&self) -> Tally {
        let others = self.tallies.iter().filter(|(host, _)| **host != HERE).map(|(_, tally)| tally);
        others.fold(Tally::default(), |sum, tally| Tally {
            fragments: sum.fragments + tally.fragments,
            early: sum.early + tally.early,
            bytes: sum.bytes + tally.bytes,
            mapped: sum.mapped + tally.mapped,
            direct: sum.direct + tally.direct,
            staged: sum.staged + tally.staged,
            copied: sum.copied + tally.copied,
            wrapped: sum.wrapped + tally.wrapped,
            wrapped_bytes: sum.wrapped_bytes + tally.wrapped_bytes,
        })
    }

    /// Bytes that the library moved, by its own counters, on both sides.
    fn copied(&self) -> String {
        let here = self.stats.bytes_copied + self.stats.bytes_staged;
        let there: u64 = self.reports.iter().flatten().map(|report| report.copied).sum();
        format!("{} here, {} in the workers", table::bytes(here), table::bytes(there))
    }

    fn cache(&self) -> String {
        let (mut hits, mut misses) = (0, 0);
        for report in self.reports.iter().flatten() {
            hits += report.cache_hits;
            misses += report.cache_misses;
        }
        let own = self.stats;
        let here = format!("{} hits, {} misses here", own.cache_hits, own.cache_misses);
        format!("{here}; {hits} hits, {misses} misses in the workers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPIED: i32 = 4;

    fn received(path: i32, last: bool) -> Received {
        Received { index: 0, host_id: 7, path, last }
    }

    #[test]
    fn a_tally_counts_results_by_path() {
        let mut tally = Tally::default();
        tally.add(10, received(sys::NRDMA_PATH_MAPPED, false), false);
        tally.add(10, received(sys::NRDMA_PATH_MAPPED, true), false);
        tally.add(5, received(sys::NRDMA_PATH_STAGED, true), true);
        let expected = Tally {
            fragments: 2,
            early: 1,
            bytes: 25,
            mapped: 2,
            staged: 1,
            wrapped: 1,
            wrapped_bytes: 5,
            ..Tally::default()
        };
        assert_eq!(tally, expected);
    }

    #[test]
    fn only_a_whole_and_right_picture_is_fine() {
        assert!(Check::Skipped.is_fine());
        assert!(Check::Compared { tiles: 4, wrong: 0 }.is_fine());
        assert!(!Check::Compared { tiles: 4, wrong: 1 }.is_fine());
        assert!(!Check::Incomplete { tiles: 4, done: 3 }.is_fine());
    }

    #[test]
    fn the_summary_names_hosts_paths_and_the_victim() {
        let options = args::Demo { hosts: 1, ..args::Demo::default() };
        let peer =
            Peer { host_id: 7, alive: false, name: "worker-1".to_owned(), transport: "shm".to_owned() };
        let mut tally = Tally::default();
        tally.add(1 << 20, received(sys::NRDMA_PATH_MAPPED, true), false);
        tally.add(1 << 10, received(COPIED, true), true);
        let stats =
            Stats { bytes_mapped: 1 << 20, bytes_copied: 1 << 10, fragments_retried: 2, ..Stats::default() };
        let summary = Summary {
            options: &options,
            peers: &[peer],
            tallies: [(HERE, Tally { fragments: 3, ..Tally::default() }), (7, tally)].into(),
            stats: &stats,
            reports: &[None],
            killed: Some("worker-1".to_owned()),
            wall: Duration::from_secs(1),
            check: Check::Compared { tiles: 60, wrong: 0 },
            troubles: vec!["tile 3: why".to_owned()],
        };
        let text = summary.text();
        for part in [
            "worker-1 (killed)  shm",
            "received      2 results, 1.0 MiB",
            "in place      1 of 1 results",
            "wrapped       1 results, 1.0 KiB",
            "bytes mapped  1.0 MiB",
            "bytes copied  1.0 KiB here, 0 B in the workers",
            "fragments run again: 2",
            "wall time     1.000 s",
            "frame.png, verified: all 60 tiles",
            "trouble       tile 3: why",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }
}
