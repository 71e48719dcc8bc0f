//! The JSON envelope of all `-j` replies: `[ 2, ["command", "-j"], time, ...]`.

use std::fmt::Write;

/// Begins a reply with the version of the output, the command's words and the time. Append each element after a
/// `,`, and call [`end`] last.
pub fn begin<S: AsRef<str>>(version: u32, argv: &[S], now: f64) -> String {
    let words: Vec<String> = argv.iter().map(|word| string(word.as_ref())).collect();
    let mut out = String::new();
    let _ = write!(out, "[ {version}, [{}], {now:.3}", words.join(", "));
    out
}

/// Ends a reply.
pub fn end(out: &mut String) {
    out.push_str("\n]\n");
}

/// Returns a string literal.
pub fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns a complete reply with these elements.
pub fn reply<S: AsRef<str>>(version: u32, argv: &[S], now: f64, elements: &str) -> String {
    let mut out = begin(version, argv, now);
    if !elements.is_empty() {
        out.push_str(",\n");
        out.push_str(elements);
    }
    end(&mut out);
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn replies_have_an_envelope() {
        let text = super::reply(2, &["ping", "-j"], 1.5, "\"PONG\"");
        assert_eq!(text, "[ 2, [\"ping\", \"-j\"], 1.500,\n\"PONG\"\n]\n");
    }
}
