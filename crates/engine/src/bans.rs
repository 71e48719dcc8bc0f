//! Creates bans, for VCL and for the CLI.

use lacquer_cache::bans::BanSpec;
use lacquer_cache::invalidation::{Action, Reason, Source, Ticket};
use lacquer_params::tokenize::{Rules, split_bytes};

use crate::purge;
use crate::shared::Shared;

/// Parses the argument of `std.ban()`, and enacts the ban.
pub fn from_vcl(shared: &Shared, expression: &[u8], source: Source) -> Result<Ticket, String> {
    let rules = Rules { comma: false, comment: false, no_escapes: true };
    let words = split_bytes(expression, rules).map_err(str::to_owned)?;
    Ok(enact(shared, BanSpec::from_words(&words)?, Reason::BanFunction, source))
}

/// Enacts a ban, which is in force on return. The ticket is ready once all listeners have recorded the ban.
pub fn enact(shared: &Shared, spec: BanSpec, why: Reason, source: Source) -> Ticket {
    purge::at_once(shared, Action::Ban(spec), why, source).1
}
