//! The forms of the command `help`, and the reference documentation of the commands.

use std::fmt::Write;

use crate::command_table::{COMMANDS, CommandSpec, Process};
use crate::json;
use crate::status;

/// The state of the client and the daemon, which determines the visible commands.
#[derive(Clone, Copy, Debug)]
pub struct HelpContext {
    /// The client has logged in.
    pub authenticated: bool,
    /// A worker runs, so its commands are available.
    pub worker_runs: bool,
}

fn visible(context: HelpContext) -> impl Iterator<Item = &'static CommandSpec> {
    COMMANDS.iter().filter(move |spec| {
        (context.authenticated || spec.open) && (context.worker_runs || spec.process == Process::Manager)
    })
}

/// Returns the reply to `help`, `help -a`, `help -d` or `help <command>`; `args` are the words after `help`.
pub fn show(args: &[String], context: HelpContext) -> (u16, String) {
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
        return match visible(context).find(|spec| spec.name == name) {
            Some(spec) => (status::OK, format!("{}\n{}\n", spec.syntax, spec.help)),
            None => (status::UNKNOWN, "Unknown request.\nType 'help' for more info.\n".to_owned()),
        };
    }
    let shown = visible(context).filter(|spec| if spec.debug { debug } else { plain });
    let mut text = String::new();
    for spec in shown {
        let _ = writeln!(text, "{}", spec.syntax);
    }
    (status::OK, text)
}

/// Returns the elements of `help -j`.
pub fn show_json(context: HelpContext) -> String {
    let objects: Vec<String> = visible(context)
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

/// Returns the reference documentation as reStructuredText (`-x cli`).
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

    const ALL: HelpContext = HelpContext { authenticated: true, worker_runs: true };

    fn help(args: &[&str], context: HelpContext) -> (u16, String) {
        show(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>(), context)
    }

    #[test]
    fn flags_select_commands() {
        assert!(help(&[], ALL).1.contains("\nban.list [-j]\n"));
        assert!(!help(&[], ALL).1.contains("debug.xid"));
        assert!(help(&["-d"], ALL).1.starts_with("debug.fragfetch\n"));
        assert!(help(&["-a"], ALL).1.contains("debug.xid") && help(&["-a"], ALL).1.contains("vcl.use"));
        assert_eq!(help(&["-x"], ALL).0, 101);
        assert_eq!(help(&["vcl.load"], ALL).0, 200);
    }

    #[test]
    fn only_available_commands_are_listed() {
        let manager_only = HelpContext { worker_runs: false, ..ALL };
        assert_eq!(help(&["ban"], manager_only).0, 101);
        let unauthenticated = HelpContext { authenticated: false, worker_runs: true };
        assert_eq!(
            help(&[], unauthenticated).1,
            "auth <response>\nhelp [-j|<command>]\nping [-j] [<timestamp>]\nquit\n"
        );
        let parsed: serde_json::Value = serde_json::from_str(&format!("[{}]", show_json(ALL))).unwrap();
        assert_eq!(parsed.as_array().unwrap().len(), COMMANDS.len());
    }
}
