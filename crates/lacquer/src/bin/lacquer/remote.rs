//! The daemon that a command talks to: one of this machine by its name, or any by address and secret.

use std::process::ExitCode;

use lacquer_inspect::directory::Directory;
use lacquer_inspect::management::Management;
use lacquer_manager::show;
use serde_json::Value;

use crate::args::{Opt, Values};
use crate::failure::Failure;

pub const NAME: Opt = Opt::one(
    "n",
    "NAME",
    "the daemon: its option -n; default the one without a name, or the only one of lacquer run",
);
pub const ADDRESS: Opt = Opt::one("address", "HOST:PORT", "the management port of a daemon, instead of -n");
pub const SECRET: Opt =
    Opt::one("secret", "FILE", "the secret of that port: the file of the daemon's option -S");

/// Why a command cannot reach a daemon on another machine.
const IS_LOCAL: &str =
    "it reads the shared memory of a daemon on this machine, which the management port does not offer";

/// Returns the option --address or --secret of a command that needs shared memory. `instead` is what to do.
pub const fn local_only(option: &'static str, instead: &'static str) -> Opt {
    Opt::refused(option, IS_LOCAL, instead)
}

/// The older name of -n, which `reload` and `upgrade` still have.
pub const OLDER_NAME: Opt = Opt::one("name", "DIR", "the same as -n");

/// Returns the working directory that -n or its older name names.
pub fn instance(values: &Values) -> Option<&str> {
    values.one("name").or(values.one("n"))
}

/// Finds the daemon on this machine.
pub fn directory(values: &Values) -> Result<Directory, Failure> {
    Directory::find(values.one("n")).map_err(Failure::of)
}

/// Logs in to the management port.
pub fn management(values: &Values) -> Result<Management, Failure> {
    match (values.one("address"), values.one("n")) {
        (Some(_), Some(_)) => {
            Err(Failure::new("-n and --address cannot be combined")
                .hint("each names a daemon; give one of them"))
        }
        (Some(address), None) => Management::connect(address, values.one("secret")).map_err(Failure::of),
        (None, _) if values.one("secret").is_some() => Err(Failure::new("--secret needs --address")
            .hint("a daemon of this machine publishes its own secret")),
        (None, _) => Management::of(&directory(values)?).map_err(Failure::of),
    }
}

/// Prints a result: as JSON if that is wanted, else as text.
pub fn report(values: &Values, json: &Value, text: &str) -> ExitCode {
    if values.has("json") {
        show(&format!("{json}\n"));
    } else {
        show(&lacquer_inspect::page::fit(text.trim_end()));
    }
    ExitCode::SUCCESS
}

/// `lacquer cli`: sends a command of the management port, and prints the reply.
pub fn send(values: &Values) -> Result<ExitCode, Failure> {
    let words: Vec<&str> = values.operands.iter().map(String::as_str).collect();
    let (name, rest) = words.split_first().unwrap_or((&"help", &[]));
    show_reply(values, name, rest)
}

/// Runs a command of the management port whose JSON reply has the option -j, and prints the reply.
pub fn show_reply(values: &Values, name: &str, words: &[&str]) -> Result<ExitCode, Failure> {
    let mut management = management(values)?;
    let mut all = vec![name];
    if values.has("json") {
        all.push("-j");
    }
    all.extend(words);
    let text = management.words(&all).map_err(Failure::of)?;
    if management.is_truncated() {
        if values.has("json") {
            return Err(Failure::new("the reply is truncated, and no JSON without its end")
                .hint("enlarge the daemon's parameter cli_limit, the length of the longest reply"));
        }
        eprintln!("[response was truncated]");
    }
    let json = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(report(values, &json, &text))
}
