//! `lacquer check`: compiles a VCL file as the daemon would and prints the diagnostics.

use crate::args::Values;
use crate::failure::Failure;
use std::process::ExitCode;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let file = values.operand.as_deref().unwrap_or("-");
    Err(Failure::new(format_args!("{file}: checking VCL is not built in yet")))
}
