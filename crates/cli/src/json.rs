//! The JSON envelope that all `-j` replies share: `[ 2, ["command", "-j"], time, ...]`.

use std::fmt::Write;

/// Begins a reply: version of the output, the command's words, the time. Elements follow, each with a
/// `,` before it; [`end`] closes the reply.
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

/// A string literal.
pub fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A whole reply with these elements.
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
    fn envelope() {
        let text = super::reply(2, &["ping", "-j"], 1.5, "\"PONG\"");
        assert_eq!(text, "[ 2, [\"ping\", \"-j\"], 1.500,\n\"PONG\"\n]\n");
    }
}
