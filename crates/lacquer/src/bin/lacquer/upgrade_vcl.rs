//! `lacquer upgrade-vcl`: rewrites VCL of older versions.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use lacquer_manager::show_bytes;
use lacquer_tools::{MARK, SUBROUTINES, report, upgrade};

use crate::args::Values;
use crate::check::{self, Settings};
use crate::colors;
use crate::failure::Failure;
use crate::format::read;

/// The exit code for a text that was rewritten and is no valid program yet.
const DOES_NOT_LOAD: u8 = 3;

/// The name of the new text in errors.
const RESULT: &str = "<result>";

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let file = values.operand().unwrap_or("-");
    let name = if file == "-" { "<stdin>" } else { file };
    let sub = values.one("in");
    if let Some(unknown) = sub.filter(|sub| !SUBROUTINES.contains(sub)) {
        return Err(Failure::new(format_args!("--in {unknown}: there is no such subroutine"))
            .hint(format_args!("the subroutines are {}", SUBROUTINES.join(", "))));
    }
    let settings = Settings::new(values)?;
    let text = read(file)?;
    let upgraded = match upgrade(name, &text, sub) {
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
    if upgraded.caches_private {
        eprintln!(
            "lacquer: as in Varnish 2 and 3, responses with no-cache, no-store or private are cached and shared: \
             remove vcl_beresp_control if they should not be"
        );
    }
    if let Some(part_of) = &upgraded.part_of {
        let which = if sub.is_some() { "" } else { " (for another one: --in NAME)" };
        eprintln!(
            "lacquer: the text was read as a part of {part_of}{which}; check the file that includes it"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut errors = check::errors_of(name, &upgraded.text, &upgraded.storages, settings);
    if errors.is_empty() {
        eprintln!("lacquer: the result loads; try it before you use it");
        return Ok(ExitCode::SUCCESS);
    }
    for error in &mut errors {
        error.rename_files(|file| {
            if file == name {
                RESULT.clone_into(file);
            }
        });
        eprintln!("{}", report::text(error, colors::wanted(io::stderr().is_terminal())));
    }
    eprintln!("lacquer: the result does not load yet: see above, and check it again with lacquer check");
    Ok(ExitCode::from(DOES_NOT_LOAD))
}
