//! `Cache-Status` (RFC 9211) and `Proxy-Status` (RFC 9209): the reports on how a response was made.

use std::fmt::Write;

/// The name of this cache in both fields.
pub const NAME: &str = "Lacquer";

/// The reason why a request was forwarded (RFC 9211 section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forward {
    /// It was not.
    #[default]
    None,
    /// VCL passed it.
    Bypass,
    /// Its method requires that.
    Method,
    /// There was no object for its URI.
    UriMiss,
    /// There were objects for its URI, and none for its fields.
    VaryMiss,
    /// The last response was not cacheable.
    Miss,
    /// Its directives demand that.
    Request,
    /// The object was stale.
    Stale,
}

impl Forward {
    fn text(self) -> Option<&'static str> {
        Some(match self {
            Forward::None => return None,
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Miss => "miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
        })
    }
}

/// The facts that `Cache-Status` reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    pub forward: Forward,
    pub is_hit: bool,
    /// The object is in the cache.
    pub is_stored: bool,
    /// The seconds for which the object is fresh, negative if it is stale.
    pub ttl: f64,
}

impl Report {
    /// Writes the member of `Cache-Status` for this cache.
    pub fn write(self, out: &mut String) {
        out.push_str(NAME);
        match self.forward.text() {
            Some(reason) if !self.is_hit => {
                out.push_str("; fwd=");
                out.push_str(reason);
                if self.is_stored {
                    out.push_str("; stored");
                }
            }
            _ => out.push_str("; hit"),
        }
        if self.is_hit || self.is_stored {
            // Writing to a string cannot fail.
            let _ = write!(out, "; ttl={}", self.ttl.clamp(-1e9, 1e10).floor() as i64);
        }
    }
}

/// The member of `Cache-Status` for a response that VCL has made.
pub const SYNTHETIC: &str = "Lacquer; detail=synthetic";

/// Returns the type of an error of the origin (RFC 9209 section 2.3), from the text of the log record `FetchError`.
pub fn proxy_error(text: &str) -> &'static str {
    const TABLE: &[(&str, &str)] = &[
        ("first byte timeout", "http_response_timeout"),
        ("head timeout", "http_response_timeout"),
        ("timeout", "connection_read_timeout"),
        ("Backend response exceeds", "http_response_header_section_size"),
        ("overflow", "http_response_header_section_size"),
        ("http format error", "http_protocol_error"),
        ("too many interim responses", "http_protocol_error"),
        ("HTC eof", "http_response_incomplete"),
        ("No backend", "destination_not_found"),
        ("Director", "destination_unavailable"),
        ("backend", "destination_unavailable"),
    ];
    let known = TABLE.iter().find(|(begin, _)| text.starts_with(begin));
    known.map_or("destination_unavailable", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_follow_the_grammar() {
        let hit = Report { forward: Forward::None, is_hit: true, is_stored: true, ttl: 376.9 };
        let miss = Report { forward: Forward::UriMiss, is_hit: false, ..hit };
        for (report, expected) in [
            (hit, "Lacquer; hit; ttl=376"),
            (Report { ttl: -412.0, ..hit }, "Lacquer; hit; ttl=-412"),
            (miss, "Lacquer; fwd=uri-miss; stored; ttl=376"),
            (Report { is_stored: false, forward: Forward::Bypass, ..miss }, "Lacquer; fwd=bypass"),
            (Report { is_stored: false, forward: Forward::Method, ..miss }, "Lacquer; fwd=method"),
            (
                Report { forward: Forward::Stale, ttl: f64::INFINITY, ..miss },
                "Lacquer; fwd=stale; stored; ttl=10000000000",
            ),
            (Report { ttl: f64::NAN, ..hit }, "Lacquer; hit; ttl=0"),
        ] {
            let mut text = String::new();
            report.write(&mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn errors_have_types() {
        for (text, expected) in [
            ("first byte timeout (reused connection)", "http_response_timeout"),
            ("HTC eof (Unexpected end of input)", "http_response_incomplete"),
            ("No backend", "destination_not_found"),
            ("backend b1: unhealthy", "destination_unavailable"),
            ("", "destination_unavailable"),
        ] {
            assert_eq!(proxy_error(text), expected, "{text}");
        }
    }
}
