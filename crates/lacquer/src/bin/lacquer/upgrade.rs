//! `lacquer upgrade`: lets a running daemon replace itself by the new version of its program.

use std::process::ExitCode;

use lacquer_manager::{request_upgrade, show as print};

use crate::args::Values;
use crate::failure::Failure;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    match request_upgrade(values.one("name")) {
        Ok(text) => {
            print(&format!("upgraded {text}\n"));
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => {
            Err(Failure::new(why).hint("the daemon continues with the old program; its log has more"))
        }
    }
}
