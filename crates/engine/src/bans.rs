//! Creates bans, for VCL and for the CLI.

use lacquer_cache::bans::BanSpec;
use lacquer_cache::invalidation::{Action, Arrival, Invalidation, Reason, Source, Ticket};
use lacquer_params::tokenize::{Rules, split};
use lacquer_sources::clock;

use crate::shared::Shared;

/// Parses the argument of `std.ban()`, and enacts the ban.
pub fn from_vcl(shared: &Shared, expression: &[u8], source: Source) -> Result<Ticket, String> {
    let text = String::from_utf8_lossy(expression);
    let rules = Rules { comma: false, comment: false, no_escapes: true };
    let words = split(&text, rules).map_err(str::to_owned)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(enact(shared, BanSpec::from_words(&words)?, Reason::BanFunction, source))
}

/// Enacts a ban, which is in force on return. The ticket is ready once all listeners have recorded the ban.
pub fn enact(shared: &Shared, spec: BanSpec, why: Reason, source: Source) -> Ticket {
    let event = Invalidation::new(Action::Ban(spec), clock::real(), why, source);
    let mut purging = shared.cache().invalidate(event, Arrival::Local);
    let ticket = purging.ticket();
    purging.finish(shared.cache()); // returns at once for a ban
    ticket
}
