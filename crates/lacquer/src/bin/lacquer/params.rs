//! `lacquer param`: shows and sets the parameters of a daemon.

use std::process::ExitCode;

use crate::args::Values;
use crate::failure::Failure;
use crate::remote;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let words: Vec<&str> = values.operands.iter().map(String::as_str).collect();
    match (&words[..], values.has("reset")) {
        ([], false) => remote::show_reply(values, "param.show", &[]),
        ([name], false) => remote::show_reply(values, "param.show", &[name]),
        ([name], true) => {
            remote::management(values)?.words(&["param.reset", name]).map_err(Failure::of)?;
            remote::show_reply(values, "param.show", &[name])
        }
        ([name, value], false) => {
            remote::management(values)?.words(&["param.set", name, value]).map_err(Failure::of)?;
            remote::show_reply(values, "param.show", &[name])
        }
        _ => Err(Failure::new("`param` accepts a name and a value")
            .hint("lacquer param NAME VALUE sets a parameter, lacquer param --reset NAME resets it")),
    }
}
