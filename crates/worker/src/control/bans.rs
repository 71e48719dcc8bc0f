//! The commands `ban` and `ban.list`.

use lacquer_cache::bans::BanSpec;
use lacquer_cache::invalidation::{Reason, Source};
use lacquer_cli::{json, status};
use lacquer_params::DebugBits;
use lacquer_sources::clock;

use super::Reply;
use crate::helpers;
use crate::process::Process;

pub fn add(process: &Process, args: &[Vec<u8>]) -> Reply {
    match BanSpec::from_cli(args) {
        Ok(spec) => {
            lacquer_engine::bans::enact(process.shared(), spec, Reason::BanCommand, Source::Management)
                .wait();
            Reply::ok("")
        }
        Err(why) => Reply::error(status::PARAM, why),
    }
}

pub fn list(process: &Process, argv: &[String]) -> Reply {
    let details = process.shared().params().debug.has(DebugBits::LURKER);
    let bans = process.shared().cache().bans();
    let text = if argv.get(1).is_some_and(|word| word == "-j") {
        json::reply(2, argv, clock::real(), &bans.json(details)).into_bytes()
    } else {
        bans.text(details)
    };
    helpers::kick_lurker();
    Reply::ok(text)
}
