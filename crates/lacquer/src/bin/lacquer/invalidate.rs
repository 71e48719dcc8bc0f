//! `lacquer purge`, `lacquer tag` and `lacquer ban`: remove objects from the cache.

use std::process::ExitCode;

use lacquer_inspect::page::plain;
use lacquer_inspect::request::Target;
use serde_json::json;

use crate::args::Values;
use crate::failure::Failure;
use crate::remote;

pub fn purge(values: &Values) -> Result<ExitCode, Failure> {
    let target = Target::parse(values.operand().unwrap_or_default()).map_err(Failure::of)?;
    // The built-in VCL writes hosts in lower case.
    let host = target.host.to_ascii_lowercase();
    let mut words = vec!["ban"];
    if !host.is_empty() {
        words.extend(["req.http.host", "==", &host, "&&"]);
    }
    words.extend(["req.url", "==", &target.path]);
    remote::management(values)?.words(&words).map_err(Failure::of)?;
    let page = plain(format!("{host}{}", target.path).as_bytes());
    Ok(remote::report(
        values,
        &json!({"purged": page, "ban": words[1..].join(" ")}),
        &format!("purged {page}"),
    ))
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
    let words = split(&all);
    let mut command = vec!["ban"];
    command.extend(words.iter().map(String::as_str));
    remote::management(values)?.words(&command).map_err(Failure::of)?;
    let text = plain(all.as_bytes());
    Ok(remote::report(values, &json!({"banned": text}), &format!("banned {text}")))
}

/// Splits an expression at spaces, except between double quotes.
fn split(expression: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut chars = expression.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' if is_quoted && matches!(chars.peek(), Some('"' | '\\')) => {
                word.get_or_insert_default().extend(chars.next());
            }
            c if c.is_whitespace() && !is_quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn quoted_values_are_one_word() {
        assert_eq!(
            split("req.url ~ ^/a\\.b && obj.http.x == \"a \\\" b\""),
            ["req.url", "~", "^/a\\.b", "&&", "obj.http.x", "==", "a \" b"]
        );
        assert_eq!(split("  "), Vec::<String>::new());
        assert_eq!(split("a \"\""), ["a", ""]);
    }
}
