//! `lacquer upgrade`: lets a running daemon replace itself by the new version of its program.

use std::process::ExitCode;

use lacquer_manager::{UpgradeRefusal, request_upgrade, show as print};

use crate::args::Values;
use crate::failure::Failure;
use crate::remote;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    match request_upgrade(remote::instance(values)) {
        Ok(text) => {
            print(&format!("upgraded {text}\n"));
            Ok(ExitCode::SUCCESS)
        }
        Err(UpgradeRefusal::NotAsked(why)) => {
            Err(Failure::new(why).hint("nothing was changed; --name DIR names the daemon's option -n"))
        }
        Err(UpgradeRefusal::Failed(why)) => {
            Err(Failure::new(why).hint("the daemon continues with the old program; its log has more"))
        }
    }
}
