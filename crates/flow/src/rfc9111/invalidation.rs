//! Invalidation after unsafe requests (RFC 9111 section 4.4).

/// The beginning of the log record for an invalidated URL.
pub const RECORD: &str = "invalidated: ";

/// Returns whether requests with this method may change the state of the origin. A method that is not known to be safe
/// counts as unsafe (RFC 9110 section 9.2.1).
pub fn is_unsafe(method: &[u8]) -> bool {
    !matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"CONNECT")
}

/// Returns whether a response with this status shows that the request had an effect.
pub fn is_success(status: u16) -> bool {
    matches!(status, 200..=399)
}

/// Resolves a reference in `Location` or `Content-Location` against the target of its request (RFC 3986 section 5.2).
/// Returns the path with the query, as a request for it states them; `None` if the reference leads to another origin
/// or is invalid. `host` is the value of `Host`. The scheme is not compared, because keys of the cache contain none.
pub fn same_origin(reference: &[u8], url: &[u8], host: &[u8]) -> Option<Vec<u8>> {
    if reference.is_empty() || !reference.iter().all(|b| (b'!'..=b'~').contains(b)) {
        return None;
    }
    let reference = reference.split(|&b| b == b'#').next().unwrap_or_default();
    let (scheme, rest) = split_scheme(reference)?;
    let path = match rest.strip_prefix(b"//") {
        Some(rest) => {
            let length = rest.iter().take_while(|b| !b"/?".contains(b)).count();
            let (authority, path) = rest.split_at(length);
            if !is_same_authority(authority, host, scheme) {
                return None;
            }
            if path.first() == Some(&b'/') { path.to_vec() } else { [b"/", path].concat() }
        }
        None if scheme.is_some() => return None,
        None => merge(rest, url)?,
    };
    Some(without_dots(&path))
}

/// Splits the scheme from a reference. Returns `None` if the scheme is not one of HTTP.
fn split_scheme(reference: &[u8]) -> Option<(Option<&'static str>, &[u8])> {
    let name = reference.iter().take_while(|b| !b":/?".contains(b)).count();
    if reference.get(name) != Some(&b':') {
        return Some((None, reference));
    }
    let (scheme, rest) = (&reference[..name], &reference[name + 1..]);
    let known = ["http", "https"].into_iter().find(|known| scheme.eq_ignore_ascii_case(known.as_bytes()))?;
    Some((Some(known), rest))
}

/// Returns whether two authorities are equal. The default port of the scheme is the same as none.
fn is_same_authority(authority: &[u8], host: &[u8], scheme: Option<&str>) -> bool {
    let port: &[u8] = if scheme == Some("https") { b":443" } else { b":80" };
    let strip = |text: &'_ [u8]| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
    !authority.is_empty() && strip(authority) == strip(host)
}

/// Completes a reference without an authority by the path of the target.
fn merge(reference: &[u8], url: &[u8]) -> Option<Vec<u8>> {
    let path = url.split(|&b| b == b'?').next().unwrap_or_default();
    if path.first() != Some(&b'/') {
        return None;
    }
    match reference.first() {
        Some(b'/') => Some(reference.to_vec()),
        // Only a fragment: the target itself.
        None => Some(url.to_vec()),
        Some(b'?') => Some([path, reference].concat()),
        Some(_) => {
            let folder = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
            Some([&path[..folder], reference].concat())
        }
    }
}

/// Removes the segments "." and ".." (RFC 3986 section 5.2.4).
fn without_dots(target: &[u8]) -> Vec<u8> {
    let length = target.iter().take_while(|&&b| b != b'?').count();
    let (path, query) = target.split_at(length);
    let mut out = Vec::with_capacity(target.len());
    let mut segments = path[1.min(path.len())..].split(|&b| b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    out.truncate(out.iter().rposition(|&b| b == b'/').unwrap_or(0));
                }
                if is_last {
                    out.push(b'/');
                }
            }
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
    out.extend_from_slice(query);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_successful_unsafe_requests_invalidate() {
        for (method, expected) in [
            ("POST", true),
            ("PUT", true),
            ("DELETE", true),
            ("PATCH", true),
            ("M-SEARCH", true),
            ("get", true),
            ("GET", false),
            ("HEAD", false),
            ("OPTIONS", false),
            ("TRACE", false),
        ] {
            assert_eq!(is_unsafe(method.as_bytes()), expected, "{method}");
        }
        for (status, expected) in
            [(100, false), (200, true), (204, true), (303, true), (399, true), (400, false), (500, false)]
        {
            assert_eq!(is_success(status), expected, "{status}");
        }
    }

    #[test]
    fn references_to_the_same_origin_are_resolved() {
        const HOST: &str = "example.com";
        let table: &[(&str, &str, Option<&str>)] = &[
            ("/b?x=1", HOST, Some("/b?x=1")),
            ("c", HOST, Some("/dir/c")),
            ("?y", HOST, Some("/dir/a?y")),
            ("#f", HOST, Some("/dir/a?q")),
            ("../c", HOST, Some("/c")),
            ("../../../c", HOST, Some("/c")),
            ("./c/.", HOST, Some("/dir/c/")),
            ("/x/../y/..", HOST, Some("/")),
            ("/x?a=/../b", HOST, Some("/x?a=/../b")),
            ("http://example.com/b", HOST, Some("/b")),
            ("HTTP://EXAMPLE.com:80/b", HOST, Some("/b")),
            ("https://example.com:443/b", HOST, Some("/b")),
            ("http://example.com", HOST, Some("/")),
            ("http://example.com?z", HOST, Some("/?z")),
            ("//example.com/b", HOST, Some("/b")),
            ("http://example.com:8080/b", "example.com:8080", Some("/b")),
            ("/a:b", HOST, Some("/a:b")),
            // Other origins.
            ("http://other.com/b", HOST, None),
            ("http://example.com.evil/b", HOST, None),
            ("http://example.com:8080/b", HOST, None),
            ("http://example.com@evil/b", HOST, None),
            ("http://evil@example.com/b", HOST, None),
            ("//other.com/b", HOST, None),
            ("///b", HOST, None),
            ("http:///b", HOST, None),
            ("http:/b", HOST, None),
            ("ftp://example.com/b", HOST, None),
            ("mailto:x", HOST, None),
            ("/b", "", Some("/b")),
            ("http:///b", "", None),
            // Not URIs.
            ("", HOST, None),
            ("/a b", HOST, None),
            ("/a\r\nX: y", HOST, None),
            ("/\u{e9}", HOST, None),
        ];
        for (reference, host, expected) in table {
            let found = same_origin(reference.as_bytes(), b"/dir/a?q", host.as_bytes());
            let found = found.map(|found| String::from_utf8_lossy(&found).into_owned());
            assert_eq!(found.as_deref(), *expected, "{reference:?} {host:?}");
        }
        assert_eq!(same_origin(b"b", b"*", b"example.com"), None);
        let long = [b"/".as_slice(), &b"../".repeat(100_000)].concat();
        assert_eq!(same_origin(&long, b"/", b"h").as_deref(), Some(b"/".as_slice()));
    }
}
