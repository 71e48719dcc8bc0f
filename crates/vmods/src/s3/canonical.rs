//! The canonical forms of paths, queries and header values, which both sides of a signature compute.

use super::signature::Scope;

/// Returns the bytes with everything percent-encoded except RFC 3986's unreserved characters and those of `plain`.
pub(super) fn encode(bytes: &[u8], plain: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(bytes.len());
    for &b in bytes {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) || plain.contains(&b) {
            out.push(b);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
        }
    }
    out
}

/// Decodes percent escapes once. A plus is a space if `plus_is_space`. Fails on bytes that must not be in a URL, and on
/// incomplete escapes.
fn decode(text: &[u8], plus_is_space: bool) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(b) = rest.next() {
        match b {
            b'%' => {
                let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16)).map(|d| d as u8);
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err("the URL has a % without two hexadecimal digits".to_owned());
                };
                out.push(high << 4 | low);
            }
            b'+' if plus_is_space => out.push(b' '),
            b'#' | 0..=b' ' | 0x7f => {
                return Err(format!("the URL contains the byte 0x{b:02x}, which must be percent-encoded"));
            }
            b => out.push(b),
        }
    }
    Ok(out)
}

/// Splits a target into path and query.
pub(super) fn split(target: &[u8]) -> (&[u8], &[u8]) {
    match target.iter().position(|&b| b == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, b""),
    }
}

/// Returns the canonical form of a path for `s3`. It is also the form in which a path can be sent.
pub(super) fn path(path: &[u8]) -> Result<Vec<u8>, String> {
    if path.is_empty() {
        return Ok(b"/".to_vec());
    }
    if path[0] != b'/' {
        return Err("the URL has no path that begins with /".to_owned());
    }
    Ok(encode(&decode(path, false)?, b"/"))
}

/// Returns the canonical form of a path for the service. All but `s3` encode it twice.
pub(super) fn path_for(scope: &Scope, of: &[u8]) -> Result<Vec<u8>, String> {
    let once = path(of)?;
    Ok(if scope.service == "s3" { once } else { encode(&once, b"/") })
}

/// Returns the canonical form of a query: each parameter with `=`, in order.
pub(super) fn query(query: &[u8]) -> Result<Vec<u8>, String> {
    let mut pairs = Vec::new();
    for pair in query.split(|&b| b == b'&').filter(|pair| !pair.is_empty()) {
        let at = pair.iter().position(|&b| b == b'=');
        let (name, value) = at.map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]));
        pairs.push((encode(&decode(name, true)?, b""), encode(&decode(value, true)?, b"")));
    }
    pairs.sort_unstable();
    let pairs: Vec<Vec<u8>> = pairs.into_iter().map(|(name, value)| [name, value].join(&b'=')).collect();
    Ok(pairs.join(&b'&'))
}

/// Returns the canonical form of a header's value: without spaces around it, and one space for several.
pub(super) fn value(value: &[u8]) -> Result<Vec<u8>, String> {
    let mut out: Vec<u8> = Vec::with_capacity(value.len());
    for &b in value.trim_ascii() {
        match b {
            b' ' if out.last() == Some(&b' ') => {}
            0..=8 | 10..=31 | 0x7f => {
                return Err(format!("a signed header contains the control character 0x{b:02x}"));
            }
            b => out.push(b),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(result: Result<Vec<u8>, String>) -> String {
        result.map_or_else(|why| format!("error: {why}"), |bytes| String::from_utf8(bytes).expect("ASCII"))
    }

    #[test]
    fn paths_are_decoded_and_encoded_once() {
        let digits = "error: the URL has a % without two hexadecimal digits";
        for (from, to) in [
            ("", "/"),
            ("/", "/"),
            ("/test$file.text", "/test%24file.text"),
            ("/test%24file.text", "/test%24file.text"),
            ("/a+b", "/a%2Bb"),
            ("/a%20b~c", "/a%20b~c"),
            ("/a%2fb//c/../d", "/a/b//c/../d"),
            ("/%25zz%2525", "/%25zz%2525"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/a%0ab%00", "/a%0Ab%00"),
            ("/a\nb", "error: the URL contains the byte 0x0a, which must be percent-encoded"),
            ("/a b", "error: the URL contains the byte 0x20, which must be percent-encoded"),
            ("/a\u{7f}", "error: the URL contains the byte 0x7f, which must be percent-encoded"),
            ("/a#b", "error: the URL contains the byte 0x23, which must be percent-encoded"),
            ("/a%", digits),
            ("/a%4", digits),
            ("/a%g0", digits),
            ("*", "error: the URL has no path that begins with /"),
            ("http://b/a", "error: the URL has no path that begins with /"),
        ] {
            assert_eq!(shown(path(from.as_bytes())), to, "{from:?}");
        }
        let other = Scope { region: "r".to_owned(), service: "execute-api".to_owned() };
        assert_eq!(shown(path_for(&other, b"/a%20b")), "/a%2520b");
    }

    #[test]
    fn queries_are_sorted_and_encoded() {
        for (from, to) in [
            ("", ""),
            ("lifecycle", "lifecycle="),
            ("prefix=J&max-keys=2", "max-keys=2&prefix=J"),
            ("b=2&a=2&a=1&&", "a=1&a=2&b=2"),
            ("a=b=c", "a=b%3Dc"),
            ("a=%20&b=+&c=%2B", "a=%20&b=%20&c=%2B"),
            ("a-b=1&a=2", "a=2&a-b=1"),
            ("x=%2f/", "x=%2F%2F"),
            ("=v", "=v"),
            ("a=%0d%0a", "a=%0D%0A"),
            ("a=\r", "error: the URL contains the byte 0x0d, which must be percent-encoded"),
            ("a%=1", "error: the URL has a % without two hexadecimal digits"),
        ] {
            assert_eq!(shown(query(from.as_bytes())), to, "{from:?}");
        }
    }

    #[test]
    fn values_have_single_spaces_and_no_lines() {
        assert_eq!(shown(value(b"  a   b\tc ")), "a b\tc");
        for bad in [&b"a\nhost:evil"[..], b"a\rb", b"a\0b", b"a\x7fb"] {
            assert!(shown(value(bad)).starts_with("error: a signed header contains the control character"));
        }
    }
}
