//! `ban` and `ban.list`, and bans made by VCL.

use lacquer_cache::bans::BanSpec;
use lacquer_cache::invalidation::{Reason, Source};
use lacquer_cli::{json, status};
use lacquer_params::DebugBits;
use lacquer_sources::clock;

use super::Answer;
use crate::helpers;
use crate::process::Process;

pub fn add(process: &Process, args: &[String]) -> Answer {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match BanSpec::from_cli(&words) {
        Ok(spec) => {
            lacquer_engine::bans::enact(&process.shared, spec, Reason::BanCommand, Source::Management).wait();
            Answer::ok("")
        }
        Err(why) => Answer::refuse(status::PARAM, why),
    }
}

pub fn list(process: &Process, argv: &[String]) -> Answer {
    let details = process.shared.params().debug.has(DebugBits::LURKER);
    let bans = process.shared.cache().bans();
    let text = if argv.get(1).is_some_and(|word| word == "-j") {
        json::reply(2, argv, clock::real(), &bans.json(details))
    } else {
        bans.text(details)
    };
    helpers::kick_lurker();
    Answer::ok(text)
}
