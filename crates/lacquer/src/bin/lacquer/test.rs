//! `lacquer test`: runs the tests of a VCL with the program `lacquer-test`, which contains the engine.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::args::Values;
use crate::failure::Failure;

const PROGRAM: &str = "lacquer-test";

/// Replaces this process by the program. Returns only if that fails.
pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let own = std::env::current_exe().map_err(Failure::new)?;
    let beside = own.with_file_name(PROGRAM);
    let installed =
        own.parent().and_then(Path::parent).map(|prefix| prefix.join("libexec/lacquer").join(PROGRAM));
    let program = installed.filter(|installed| !beside.exists() && installed.exists()).unwrap_or(beside);
    let mut command = Command::new(&program);
    for flag in ["json", "verbose"] {
        if values.has(flag) {
            command.arg(format!("--{flag}"));
        }
    }
    for option in ["filter", "timeout"] {
        if let Some(value) = values.one(option) {
            command.args([&format!("--{option}"), value]);
        }
    }
    for param in values.many("p") {
        command.args(["-p", param]);
    }
    let error = command.args(&values.operands).exec();
    Err(Failure::new(format_args!("{} cannot be started: {error}", program.display()))
        .hint("lacquer-test belongs beside lacquer, or into ../libexec/lacquer; `make tester` builds it"))
}
