//! The forms of a request target (RFC 9112 section 3.2), and those that are refused. If two readers disagree about
//! the host or path of a target, attackers can bypass access rules and poison other cache entries.
//!
//! As in Varnish, a target may also be a relative path, which VCL can complete. Varnish's public test cases use "foo"
//! and ":x".

use std::ops::Range;

use crate::ascii::starts_with_nocase;
use crate::authority::{has_port, is_valid_authority};

/// The treatment of an acceptable target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// It is passed to VCL unchanged.
    Keep,
    /// It begins with "http://". The range is its authority.
    Http(Range<usize>),
    /// The same for "https://".
    Https(Range<usize>),
}

/// Returns the treatment of a target, or the reason why it is refused.
#[inline]
pub(super) fn classify(method: &[u8], url: &[u8]) -> Result<Target, &'static str> {
    if url.first() == Some(&b'/') && method != b"CONNECT" { Ok(Target::Keep) } else { unusual(method, url) }
}

#[cold]
fn unusual(method: &[u8], url: &[u8]) -> Result<Target, &'static str> {
    if method == b"CONNECT" {
        return if has_port(url) { Ok(Target::Keep) } else { Err("CONNECT needs host and port") };
    }
    if url.first() == Some(&b'*') {
        let alone = url.len() == 1 && method == b"OPTIONS";
        return if alone { Ok(Target::Keep) } else { Err("\"*\" is for OPTIONS only") };
    }
    if starts_with_nocase(url, b"http://") {
        return authority(url, "http://".len()).map(Target::Http);
    }
    if starts_with_nocase(url, b"https://") {
        return authority(url, "https://".len()).map(Target::Https);
    }
    relative(url).map(|()| Target::Keep)
}

/// Returns the authority at `start` of an absolute target. A path, a query or nothing follows it.
fn authority(url: &[u8], start: usize) -> Result<Range<usize>, &'static str> {
    let end = url[start..].iter().position(|b| b"/?#".contains(b)).map_or(url.len(), |len| start + len);
    let range = start..end;
    if url.get(end) == Some(&b'#') {
        return Err("absolute form with a fragment");
    }
    if url[range.clone()].contains(&b'@') {
        return Err("absolute form with user information");
    }
    if is_valid_authority(&url[range.clone()]) { Ok(range) } else { Err("invalid authority") }
}

/// Checks a target that only VCL can interpret. It must not become an authority when "http://host" is put before it,
/// and must not be an authority or a URI with another scheme.
fn relative(url: &[u8]) -> Result<(), &'static str> {
    let end = url.iter().position(|b| b"/?#".contains(b)).unwrap_or(url.len());
    let (segment, rest) = url.split_at(end);
    if segment.is_empty() {
        return Err(if rest.starts_with(b"?") { "no path before the query" } else { "no path" });
    }
    if segment.contains(&b'@') {
        return Err("user information without a scheme");
    }
    match segment.iter().position(|&b| b == b':') {
        None => Ok(()),
        Some(0) if segment.get(1).is_some_and(u8::is_ascii_alphabetic) && !segment[1..].contains(&b':') => {
            Ok(())
        }
        Some(0) => Err("port without a host"),
        Some(_) => Err("authority or foreign scheme"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_targets_are_classified() {
        let table: &[(&str, &str, Target)] = &[
            ("GET", "/", Target::Keep),
            ("GET", "//a@b:80/x", Target::Keep),
            ("GET", "/a:b@c", Target::Keep),
            ("OPTIONS", "*", Target::Keep),
            ("GET", "http://host/", Target::Http(7..11)),
            ("GET", "HTTP://h:80/p?q", Target::Http(7..11)),
            ("GET", "http://[::1]:80/", Target::Http(7..15)),
            ("GET", "http://h//x@y", Target::Http(7..8)),
            ("GET", "https://h/", Target::Https(8..9)),
            ("GET", "http://host", Target::Http(7..11)),
            ("GET", "http://host?q", Target::Http(7..11)),
            ("OPTIONS", "http://host", Target::Http(7..11)),
            ("GET", "https://host", Target::Https(8..12)),
            ("CONNECT", "host:443", Target::Keep),
            ("CONNECT", "[::1]:443", Target::Keep),
            ("GET", "foo", Target::Keep),
            ("GET", "foo?a:b@c", Target::Keep),
            (":x", ":x", Target::Keep),
        ];
        for (method, url, expected) in table {
            assert_eq!(classify(method.as_bytes(), url.as_bytes()).as_ref(), Ok(expected), "{method} {url}");
        }
    }

    #[test]
    fn ambiguous_targets_are_refused() {
        for (method, url) in [
            ("GET", "*"),
            ("OPTIONS", "*a"),
            ("OPTIONSx", "*"),
            ("options", "*"),
            ("GET", "http://"),
            ("GET", "http:///"),
            ("OPTIONS", "http://"),
            ("GET", "http://?q"),
            ("GET", "http://user@host"),
            ("GET", "http://host:x"),
            ("GET", "http://host#f/"),
            ("GET", "http://user@host/"),
            ("GET", "http://user:secret@host/"),
            ("GET", "http://:80/"),
            ("GET", "http://host:80:80/"),
            ("GET", "http://ho\\st/"),
            ("GET", "http://host:x/"),
            ("GET", "https://"),
            ("GET", "https://host#f"),
            ("GET", "https://user@host/"),
            ("GET", "ftp://host/"),
            ("GET", "urn:a:b"),
            ("GET", "host:80"),
            ("GET", "user@host"),
            ("GET", "@host/"),
            ("GET", ":80/"),
            ("GET", ":a:b@c"),
            ("GET", "?q"),
            ("GET", "#f"),
            ("CONNECT", "/"),
            ("CONNECT", "host"),
            ("CONNECT", "http://host:80/"),
            ("CONNECT", "u@host:443"),
            ("CONNECT", "*"),
        ] {
            assert!(classify(method.as_bytes(), url.as_bytes()).is_err(), "{method} {url}");
        }
    }
}
