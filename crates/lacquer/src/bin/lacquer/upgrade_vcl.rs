//! `lacquer upgrade-vcl`: rewrites VCL of older versions.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use lacquer_manager::show_bytes;
use lacquer_tools::{MARK, report, upgrade};

use crate::args::Values;
use crate::colors;
use crate::failure::Failure;
use crate::format::read;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let file = values.operand().unwrap_or("-");
    let name = if file == "-" { "<stdin>" } else { file };
    let text = read(file)?;
    let upgraded = match upgrade(name, &text) {
        Ok(upgraded) => upgraded,
        Err(diagnostic) => {
            eprintln!("{}", report::text(&diagnostic, colors::wanted(io::stderr().is_terminal())));
            return Ok(ExitCode::FAILURE);
        }
    };
    show_bytes(&upgraded.text);
    if upgraded.open > 0 {
        let places = if upgraded.open == 1 { "place needs" } else { "places need" };
        eprintln!("lacquer: {} {places} a decision of yours: look for `{MARK}`", upgraded.open);
    }
    eprintln!("lacquer: check the result with lacquer check, and try it before you use it");
    Ok(ExitCode::SUCCESS)
}
