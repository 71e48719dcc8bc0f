//! `ban` and `ban.list`, and bans made by VCL.

use lacquer_cache::bans::BanSpec;
use lacquer_cache::invalidation::{Action, Arrival, Invalidation, Reason, Source};
use lacquer_cli::{json, status};
use lacquer_params::DebugBits;
use lacquer_params::tokenize::{Rules, split};
use lacquer_sources::clock;

use super::Answer;
use crate::helpers;
use crate::shared::Shared;

pub fn add(shared: &Shared, args: &[String]) -> Answer {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match BanSpec::from_cli(&words) {
        Ok(spec) => {
            enact(shared, spec, Reason::BanCommand, Source::Management);
            Answer::ok("")
        }
        Err(why) => Answer::refuse(status::PARAM, why),
    }
}

/// The argument of `std.ban()`.
pub fn from_vcl(shared: &Shared, expression: &[u8], source: Source) -> Result<(), String> {
    let text = String::from_utf8_lossy(expression);
    let rules = Rules { comma: false, comment: false, no_escapes: true };
    let words = split(&text, rules).map_err(str::to_owned)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    enact(shared, BanSpec::from_words(&words)?, Reason::BanFunction, source);
    Ok(())
}

fn enact(shared: &Shared, spec: BanSpec, why: Reason, source: Source) {
    let event = Invalidation::new(Action::Ban(spec), clock::real(), why, source);
    shared.cache.invalidate(event, Arrival::Local).finish(&shared.cache);
}

pub fn list(shared: &Shared, argv: &[String]) -> Answer {
    let details = shared.params().debug.has(DebugBits::LURKER);
    let bans = shared.cache.bans();
    let text = if argv.get(1).is_some_and(|word| word == "-j") {
        json::reply(2, argv, clock::real(), &bans.json(details))
    } else {
        bans.text(details)
    };
    helpers::kick_lurker();
    Answer::ok(text)
}
