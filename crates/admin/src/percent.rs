//! Percent-encoding.

/// Decodes percent-encoding (RFC 3986), and `+` for a space in a query.
pub fn decoded(text: &str, is_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                (digit()? * 16 + digit()?) as u8
            }
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_utf8_is_decoded() {
        assert_eq!(decoded("a%2Fb+c", false).as_deref(), Some("a/b+c"));
        assert_eq!(decoded("%c3%a9+", true).as_deref(), Some("é "));
        for wrong in ["%", "%2", "%zz", "%ff", "%c3"] {
            assert_eq!(decoded(wrong, false), None, "{wrong}");
        }
    }
}
