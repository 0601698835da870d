//! `nrdma info`: what this build and this machine have, and the settings in force.
use std::fmt::Write;
use std::path::Path;

use nrdma::doctor::{self, Device, Gpu};
use nrdma::inventory::{self, Availability, Setting};

use crate::json::Json;
use crate::node::version;
use crate::table;

/// The version of the JSON document.
const SCHEMA: u64 = 1;

/// Text, or a JSON document.
pub(crate) fn run(json: bool) -> String {
    let root = Path::new("/");
    let found = Found {
        engines: inventory::engines(),
        ucx: inventory::ucx(),
        devices: doctor::devices(root),
        gpus: doctor::gpus(root),
        settings: inventory::settings(),
    };
    if json { found.document().document() } else { found.text() }
}

struct Found {
    engines: Vec<Availability>,
    ucx: Result<String, String>,
    devices: Vec<Device>,
    gpus: Vec<Gpu>,
    settings: Result<Vec<Setting>, String>,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Found {
    fn text(&self) -> String {
        let mut out = format!("nrdma {}, {}-{}", version(), std::env::consts::ARCH, std::env::consts::OS);
        // Writing to a string cannot fail.
        let _ = write!(out, ", features: {}\n\nEngines, best first\n", inventory::FEATURES.join(" "));
        for engine in &self.engines {
            let why = engine
                .why_not
                .as_ref()
                .map_or_else(|| "available".to_owned(), |why| format!("not available: {why}"));
            let _ = writeln!(out, "  {:<8}{why}", engine.name);
        }
        let ucx = self.ucx.as_ref().unwrap_or_else(|why| why);
        let _ = write!(out, "\nUCX\n  {ucx}\n\nRDMA devices\n");
        out.push_str(&indented(&self.device_rows(), "none"));
        out.push_str("\nGPUs\n");
        out.push_str(&indented(&self.gpu_rows(), "none"));
        out.push_str("\nSettings (from the config struct, else the environment, else the default)\n");
        match &self.settings {
            Ok(settings) => out.push_str(&indented(&setting_rows(settings), "none")),
            Err(why) => {
                let _ = writeln!(out, "  no node can be made: {why}");
            }
        }
        out
    }

    fn device_rows(&self) -> Vec<Vec<String>> {
        let mut rows =
            vec![words(&["device", "port", "state", "rate", "link", "GID in use", "MTU", "NUMA", "PCI"])];
        for device in &self.devices {
            for port in &device.ports {
                let gid =
                    port.best_gid().map_or("-".to_owned(), |gid| format!("{}: {}", gid.index, gid.text()));
                let mtu = port.roce_mtu().map_or("-".to_owned(), |mtu| mtu.to_string());
                let numa = device.numa.map_or("-".to_owned(), |numa| numa.to_string());
                let link = if port.ethernet { "Ethernet" } else { "InfiniBand" };
                let pci = device.pci.clone().unwrap_or_else(|| "-".to_owned());
                let number = port.number.to_string();
                rows.push(words(&[
                    &device.name,
                    &number,
                    &port.state,
                    &port.rate,
                    link,
                    &gid,
                    &mtu,
                    &numa,
                    &pci,
                ]));
            }
        }
        rows
    }

    fn gpu_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![words(&["GPU", "model", "UUID", "BAR1", "NUMA", "nearest RDMA device"])];
        rows.extend(self.gpus.iter().map(|gpu| {
            let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            let numa = gpu.numa.map_or("-".to_owned(), |numa| numa.to_string());
            let window = gpu.bar1.map_or("-".to_owned(), table::bytes);
            words(&[&gpu.address, &dash(&gpu.model), &dash(&gpu.uuid), &window, &numa, &dash(&gpu.nearest)])
        }));
        rows
    }

    fn document(&self) -> Json {
        let engine = |engine: &Availability| {
            Json::Object(vec![("name", engine.name.into()), ("why_not", engine.why_not.clone().into())])
        };
        let setting = |setting: &Setting| {
            Json::Object(vec![
                ("name", setting.name.into()),
                ("variable", setting.variable.map(str::to_owned).into()),
                ("value", setting.value.clone().into()),
                ("source", setting.source.into()),
            ])
        };
        // The same words as in the text, under the headings of its columns.
        let rows = |rows: Vec<Vec<String>>, names: &'static [&'static str]| {
            let object = |row: Vec<String>| {
                Json::Object(names.iter().copied().zip(row.into_iter().map(Json::Text)).collect())
            };
            Json::List(rows.into_iter().skip(1).map(object).collect())
        };
        Json::Object(vec![
            ("schema", SCHEMA.into()),
            ("version", version().into()),
            ("features", Json::List(inventory::FEATURES.iter().map(|feature| (*feature).into()).collect())),
            ("engines", Json::List(self.engines.iter().map(engine).collect())),
            ("ucx", self.ucx.clone().unwrap_or_else(|why| why).into()),
            (
                "devices",
                rows(
                    self.device_rows(),
                    &["name", "port", "state", "rate", "link", "gid", "mtu", "numa", "pci"],
                ),
            ),
            ("gpus", rows(self.gpu_rows(), &["pci", "model", "uuid", "bar1", "numa", "nearest"])),
            (
                "settings",
                match &self.settings {
                    Ok(settings) => Json::List(settings.iter().map(setting).collect()),
                    Err(why) => why.clone().into(),
                },
            ),
        ])
    }
}

fn setting_rows(settings: &[Setting]) -> Vec<Vec<String>> {
    let mut rows = vec![words(&["setting", "variable", "from", "value"])];
    let row = |setting: &Setting| {
        words(&[setting.name, setting.variable.unwrap_or("-"), setting.source, &setting.value])
    };
    rows.extend(settings.iter().map(row));
    rows
}

/// Columns to the left, two spaces in; a table without rows is a word.
fn indented(rows: &[Vec<String>], nothing: &str) -> String {
    if rows.len() < 2 {
        return format!("  {nothing}\n");
    }
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("  {cell:<width$}"));
        out.push_str(cells.collect::<String>().trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_tell_every_engine_and_setting() {
        for text in [run(false), run(true)] {
            for part in ["inproc", "shm", "tcp", "ucx", "NRDMA_TRANSPORTS", "default"] {
                assert!(text.contains(part), "{part} is missing in {text}");
            }
        }
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [words(&["a", "b"]), words(&["long", "c"])];
        assert_eq!(indented(&rows, "none"), "  a     b\n  long  c\n");
        assert_eq!(indented(&rows[..1], "none"), "  none\n");
    }
}
