//! `lacquer purge`, `lacquer tag` and `lacquer ban`: remove objects from the cache.

use std::process::ExitCode;

use lacquer_inspect::invalidation::{page, page_ban, split};
use lacquer_inspect::page::plain;
use serde_json::json;

use crate::args::Values;
use crate::failure::Failure;
use crate::remote;

pub fn purge(values: &Values) -> Result<ExitCode, Failure> {
    let target = page(values.operand().unwrap_or_default()).map_err(Failure::of)?;
    let ban = page_ban(&target);
    send(values, "ban", &ban)?;
    let page = plain(format!("{}{}", target.host.to_ascii_lowercase(), target.path).as_bytes());
    Ok(remote::report(values, &json!({"purged": page, "ban": ban.join(" ")}), &format!("purged {page}")))
}

pub fn tag(values: &Values) -> Result<ExitCode, Failure> {
    let mut words = vec!["tag.purge"];
    if values.has("soft") {
        words.push("-s");
    }
    words.extend(values.operands.iter().map(String::as_str));
    let reply = remote::management(values)?.words(&words).map_err(Failure::of)?;
    let number: u64 = reply.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
    let (tags, objects) =
        (plain(values.operands.join(", ").as_bytes()), if number == 1 { "object" } else { "objects" });
    Ok(remote::report(
        values,
        &json!({"tags": values.operands, "purged": number}),
        &format!("purged {number} {objects} with {tags}"),
    ))
}

pub fn ban(values: &Values) -> Result<ExitCode, Failure> {
    // The expression may be one argument or several.
    let all = values.operands.join(" ");
    send(values, "ban", &split(&all))?;
    let text = plain(all.as_bytes());
    Ok(remote::report(values, &json!({"banned": text}), &format!("banned {text}")))
}

fn send(values: &Values, command: &str, words: &[String]) -> Result<(), Failure> {
    let all: Vec<&str> = [command].into_iter().chain(words.iter().map(String::as_str)).collect();
    remote::management(values)?.words(&all).map_err(Failure::of).map(drop)
}
