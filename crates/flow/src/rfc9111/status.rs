//! `Cache-Status` (RFC 9211) and `Proxy-Status` (RFC 9209): the reports on how a response was made.

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
    /// The cache has parts of the response, and not what was requested.
    Partial,
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
            Forward::Partial => "partial",
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

/// The length of the longest member: `Lacquer; fwd=vary-miss; stored; ttl=10000000000`, and a margin.
pub const LONGEST: usize = 64;

/// The beginning of the member for a hit.
const HIT: &[u8] = b"Lacquer; hit; ttl=";

impl Report {
    /// Writes the member of `Cache-Status` for this cache into the buffer, and returns it.
    #[inline]
    pub fn write(self, buffer: &mut [u8; LONGEST]) -> &[u8] {
        let mut text = Text { buffer, length: 0 };
        match self.forward.text() {
            Some(reason) if !self.is_hit => {
                text.push(b"Lacquer; fwd=");
                text.push(reason.as_bytes());
                if self.is_stored {
                    text.push(b"; stored; ttl=");
                    text.push_seconds(self.ttl);
                }
            }
            _ => {
                text.push(HIT);
                text.push_seconds(self.ttl);
            }
        }
        let length = text.length;
        buffer.get(..length).unwrap_or_default()
    }
}

/// A text that grows in a buffer.
struct Text<'b> {
    buffer: &'b mut [u8; LONGEST],
    length: usize,
}

impl Text<'_> {
    /// Appends bytes. What does not fit is left out.
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.buffer.get_mut(self.length..self.length + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    /// Appends a time in whole seconds, rounded down.
    fn push_seconds(&mut self, seconds: f64) {
        let seconds = seconds.clamp(-1e9, 1e10);
        // The conversion rounds towards zero. It is cheaper than `floor`.
        let whole = seconds as i64;
        let is_above = whole as f64 > seconds;
        self.push(itoa::Buffer::new().format(whole - i64::from(is_above)).as_bytes());
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
            (
                Report { forward: Forward::VaryMiss, ttl: f64::NEG_INFINITY, ..miss },
                "Lacquer; fwd=vary-miss; stored; ttl=-1000000000",
            ),
            (Report { ttl: f64::NAN, ..hit }, "Lacquer; hit; ttl=0"),
            (Report { ttl: -0.5, ..hit }, "Lacquer; hit; ttl=-1"),
            (Report { ttl: 0.5, ..hit }, "Lacquer; hit; ttl=0"),
        ] {
            let mut buffer = [0; LONGEST];
            assert_eq!(String::from_utf8_lossy(report.write(&mut buffer)), expected);
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
