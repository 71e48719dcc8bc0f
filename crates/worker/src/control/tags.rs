//! The command `tag.purge`.

use lacquer_cache::invalidation::{Action, Purge, Reason, Source};
use lacquer_cli::status;

use super::Reply;
use crate::process::Process;

pub fn purge(process: &Process, args: &[Vec<u8>]) -> Reply {
    let (purge, tags) = match args {
        [option, tags @ ..] if option == b"-s" => (Purge::Soft { ttl: 0.0, grace: None, keep: None }, tags),
        tags => (Purge::Hard, tags),
    };
    if tags.is_empty() {
        return Reply::error(status::TOO_FEW, "Too few parameters\n");
    }
    let is_tag = |tag: &Vec<u8>| !tag.is_empty() && !tag.contains(&b',');
    if let Some(wrong) = tags.iter().find(|tag| !is_tag(tag)) {
        let wrong = String::from_utf8_lossy(wrong);
        let text = format!("\"{wrong}\" is not a tag: tags contain no comma, which separates them.\n");
        return Reply::error(status::PARAM, text);
    }
    let tags = tags.iter().map(|tag| tag.as_slice().into()).collect();
    let action = Action::PurgeTags { tags, purge };
    let (number, ticket) =
        lacquer_engine::purge::at_once(process.shared(), action, Reason::Tags, Source::Management);
    ticket.wait();
    let objects = if number == 1 { "object was" } else { "objects were" };
    Reply::ok(format!("{number} {objects} purged.\n"))
}
