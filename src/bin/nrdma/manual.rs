//! The man page and the shells' completions, made from what `--help` says.
use std::fmt::Write;

use crate::help;
use crate::node::version;

/// A command's name and its help, in the order of the overview.
const COMMANDS: [(&str, &str); 6] = [
    ("demo", help::DEMO),
    ("serve", help::SERVE),
    ("doctor", help::DOCTOR),
    ("info", help::INFO),
    ("bench", help::BENCH),
    ("token", help::TOKEN),
];

/// What follows "nrdma X: " in the first line.
fn summary(text: &str) -> &str {
    text.lines().next().and_then(|line| line.split_once(": ")).map_or("", |(_, rest)| rest)
}

/// The options: "--hosts N", and what it says of them in one line.
fn options(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let words = line.trim();
        if let Some(option) = line.strip_prefix("  ").filter(|option| option.starts_with("--")) {
            let (name, rest) = option.split_once("  ").unwrap_or((option, ""));
            // "--min N, --max N sizes": without a wide gap, the last option's value ends it.
            all.push((name.trim().to_owned(), rest.trim().to_owned()));
        } else if line.starts_with("       ")
            && let Some((_, text)) = all.last_mut()
        {
            text.push(' ');
            text.push_str(words);
        }
    }
    all
}

/// The names alone: "--hosts".
fn names(text: &str) -> Vec<String> {
    let words = text.lines().filter(|line| line.starts_with("  --")).flat_map(|line| {
        let head = line.trim().split("  ").next().unwrap_or_default().to_owned();
        head.split([' ', ',']).filter(|word| word.starts_with("--")).map(str::to_owned).collect::<Vec<_>>()
    });
    words.chain(["--help".to_owned()]).collect()
}

/// Text as roff takes it.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

/// `man nrdma`, section 1.
pub(crate) fn page() -> String {
    let mut out = format!(
        ".TH NRDMA 1 \"\" \"nrdma {}\" \"User Commands\"\n.SH NAME\nnrdma \\- {}\n.SH SYNOPSIS\n",
        version(),
        roff(summary(help::OVERVIEW))
    );
    // Writing to a string cannot fail.
    let _ = writeln!(out, ".B nrdma\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH COMMANDS");
    for (name, text) in COMMANDS {
        let _ = writeln!(out, ".SS nrdma {name}\n{}.", roff(summary(text)));
        let mut verbatim = false;
        for line in text.lines().skip(1) {
            let option = line.starts_with("  --") || line.starts_with("       ");
            if option {
                continue;
            }
            match line {
                "" => out.push_str(".PP\n"),
                line => {
                    let code = line.starts_with("Usage: ") || line.starts_with("  ");
                    if code != verbatim {
                        out.push_str(if code { ".nf\n" } else { ".fi\n" });
                        verbatim = code;
                    }
                    let _ = writeln!(out, "{}", roff(line.trim()));
                }
            }
        }
        if verbatim {
            out.push_str(".fi\n");
        }
        for (option, text) in options(text) {
            let _ = writeln!(out, ".TP\n.B {}\n{}", roff(&option), roff(&text));
        }
    }
    out.push_str(".SH ENVIRONMENT\n");
    for (name, text) in [
        ("NRDMA_TRANSPORTS", "comma list of engines, best first"),
        ("NRDMA_INTERFACE", "interface, address or CIDR of addresses that name none"),
        ("NRDMA_AUTH_TOKEN_FILE", "file (mode 0600) with the secret that all hosts share"),
        ("NRDMA_UCX_LIB", "the libucp.so.0 to load"),
        ("NRDMA_LOG", "error, warn, info, debug or trace: the log on stderr"),
    ] {
        let _ = writeln!(out, ".TP\n.B {name}\n{}", roff(text));
    }
    out
}

/// What a shell sources; Err names the shells that there are.
pub(crate) fn completions(shell: &str) -> Result<String, String> {
    match shell {
        "bash" => Ok(bash()),
        "zsh" => Ok(zsh()),
        "fish" => Ok(fish()),
        _ => Err("it is bash, zsh or fish".to_owned()),
    }
}

fn bash() -> String {
    let commands: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
    let mut out = format!(
        "# bash completion for nrdma\n_nrdma() {{\n    local word=${{COMP_WORDS[COMP_CWORD]}} options=\n    \
         if ((COMP_CWORD == 1)); then\n        options=\"{} --help --version\"\n    else\n        \
         case ${{COMP_WORDS[1]}} in\n",
        commands.join(" ")
    );
    for (name, text) in COMMANDS {
        let _ = writeln!(out, "        {name}) options=\"{}\" ;;", names(text).join(" "));
    }
    out.push_str(
        "        esac\n    fi\n    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n}\n\
         complete -o default -F _nrdma nrdma\n",
    );
    out
}

fn zsh() -> String {
    let mut out = "#compdef nrdma\nlocal -a commands\ncommands=(\n".to_owned();
    for (name, text) in COMMANDS {
        let _ = writeln!(out, "    '{name}:{}'", summary(text).replace('\'', "").replace(':', " -"));
    }
    out.push_str(
        ")\nif ((CURRENT == 2)); then\n    _describe command commands\n    return\nfi\ncase $words[2] in\n",
    );
    for (name, text) in COMMANDS {
        let _ = writeln!(out, "    {name}) compadd -- {} ;;", names(text).join(" "));
    }
    out.push_str("esac\n_files\n");
    out
}

fn fish() -> String {
    let mut out = "# fish completion for nrdma\n".to_owned();
    for (name, text) in COMMANDS {
        let words = summary(text).replace('\'', "");
        let _ = writeln!(out, "complete -c nrdma -n __fish_use_subcommand -a {name} -d '{words}'");
        for option in names(text) {
            let long = option.trim_start_matches('-');
            let _ = writeln!(out, "complete -c nrdma -n '__fish_seen_subcommand_from {name}' -l {long}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_overview_is_there() {
        for (name, text) in COMMANDS {
            assert!(help::OVERVIEW.contains(&format!("\n  {name} ")), "{name}");
            assert!(!summary(text).is_empty());
            for shell in ["bash", "zsh", "fish"] {
                assert!(completions(shell).unwrap().contains(name));
            }
        }
        assert!(completions("tcsh").is_err());
    }

    #[test]
    fn options_are_read_from_the_help() {
        let all = options(help::DOCTOR);
        assert_eq!(all.len(), 4);
        assert!(
            all[0].0 == "--peer ADDR" && all[0].1.ends_with("stops at the first step that fails"),
            "{all:?}"
        );
        assert_eq!(names(help::DOCTOR), ["--peer", "--strict", "--json", "--no-selftest", "--help"]);
        assert!(names(help::BENCH).contains(&"--max".to_owned()));
    }

    #[test]
    fn the_page_has_no_line_that_roff_takes_for_a_command_of_its_own() {
        let page = page();
        let known = [".TH", ".SH", ".SS", ".TP", ".B", ".I", ".PP", ".nf", ".fi"];
        for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
            assert!(known.iter().any(|command| line.starts_with(command)), "{line}");
        }
        assert!(page.contains("\\-\\-no\\-selftest"));
    }
}
