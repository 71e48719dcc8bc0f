//! `help` in its forms, and the reference documentation of the commands.

use std::fmt::Write;

use crate::command_table::{COMMANDS, CommandSpec, Home};
use crate::json;
use crate::status;

/// State of the client that asks for help, which decides what is shown.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// Has answered the challenge.
    pub authenticated: bool,
    /// The worker's commands are there.
    pub worker_runs: bool,
}

fn visible(asker: Asker) -> impl Iterator<Item = &'static CommandSpec> {
    COMMANDS.iter().filter(move |spec| {
        (asker.authenticated || spec.open) && (asker.worker_runs || spec.home == Home::Manager)
    })
}

/// `help`, `help -a`, `help -d` and `help <command>`; `args` are the words after `help`.
pub fn show(args: &[String], asker: Asker) -> (u16, String) {
    let (mut plain, mut debug) = (true, false);
    let mut args = args;
    while let [flag, rest @ ..] = args
        && flag.starts_with('-')
    {
        (plain, debug) = match flag.as_str() {
            "-a" => (true, true),
            "-d" => (false, true),
            _ => return (status::UNKNOWN, "Unknown flag\n".to_owned()),
        };
        args = rest;
    }
    if let Some(name) = args.first() {
        return match visible(asker).find(|spec| spec.name == name) {
            Some(spec) => (status::OK, format!("{}\n{}\n", spec.syntax, spec.help)),
            None => (status::UNKNOWN, "Unknown request.\nType 'help' for more info.\n".to_owned()),
        };
    }
    let shown = visible(asker).filter(|spec| if spec.debug { debug } else { plain });
    let mut text = String::new();
    for spec in shown {
        let _ = writeln!(text, "{}", spec.syntax);
    }
    (status::OK, text)
}

/// The elements of `help -j`.
pub fn show_json(asker: Asker) -> String {
    let objects: Vec<String> = visible(asker)
        .map(|spec| {
            format!(
                "  {{\n    \"request\": {},\n    \"syntax\": {},\n    \"help\": {},\n    \"minarg\": {},\n    \
                 \"maxarg\": {},\n    \"flags\": {},\n    \"json\": {}\n  }}",
                json::string(spec.name),
                json::string(spec.syntax),
                json::string(spec.help),
                spec.min,
                spec.max.map_or(-1, |max| max as i64),
                json::string(if spec.debug { "d" } else { "" }),
                spec.json
            )
        })
        .collect();
    objects.join(",\n")
}

/// Reference documentation as reStructuredText (`-x cli`).
pub fn document() -> String {
    let mut out = String::new();
    for spec in COMMANDS.iter().filter(|spec| !spec.name.starts_with("debug.")) {
        let _ = writeln!(
            out,
            ".. _ref_cli_{}:\n\n{}\n{}\n  {}",
            spec.name.replace('.', "_"),
            spec.syntax,
            "~".repeat(spec.syntax.len()),
            spec.help
        );
        if !spec.more.is_empty() {
            let _ = writeln!(out, "\n{}", spec.more);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Asker = Asker { authenticated: true, worker_runs: true };

    fn help(args: &[&str], asker: Asker) -> (u16, String) {
        show(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>(), asker)
    }

    #[test]
    fn forms() {
        assert!(help(&[], ALL).1.contains("\nban.list [-j]\n"));
        assert!(!help(&[], ALL).1.contains("debug.xid"));
        assert!(help(&["-d"], ALL).1.starts_with("debug.fragfetch\n"));
        assert!(help(&["-a"], ALL).1.contains("debug.xid") && help(&["-a"], ALL).1.contains("vcl.use"));
        assert_eq!(help(&["-x"], ALL).0, 101);
        assert_eq!(help(&["vcl.load"], ALL).0, 200);
    }

    #[test]
    fn not_everybody_sees_everything() {
        let manager_only = Asker { worker_runs: false, ..ALL };
        assert_eq!(help(&["ban"], manager_only).0, 101);
        let stranger = Asker { authenticated: false, worker_runs: true };
        assert_eq!(
            help(&[], stranger).1,
            "auth <response>\nhelp [-j|<command>]\nping [-j] [<timestamp>]\nquit\n"
        );
        let parsed: serde_json::Value = serde_json::from_str(&format!("[{}]", show_json(ALL))).unwrap();
        assert_eq!(parsed.as_array().unwrap().len(), COMMANDS.len());
    }
}
