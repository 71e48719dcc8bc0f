//! Trailers: fields that follow a body (RFC 9110 section 6.5).

/// The most fields of a request's trailers, and the most bytes of their lines.
const MAX_FIELDS: usize = 64;
const MAX_BYTES: usize = 8192;

/// The fields that trailers must not contain, because recipients need them before the body, for framing, routing,
/// authentication, or the control of requests and responses (RFC 9110 section 6.5.1).
const FORBIDDEN: [&[u8]; 38] = [
    b"age",
    b"alt-svc",
    b"alt-used",
    b"authorization",
    b"cache-control",
    b"connection",
    b"cookie",
    b"date",
    b"early-data",
    b"expect",
    b"expires",
    b"forwarded",
    b"host",
    b"http2-settings",
    b"keep-alive",
    b"location",
    b"max-forwards",
    b"origin",
    b"pragma",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"range",
    b"referer",
    b"retry-after",
    b"set-cookie",
    b"strict-transport-security",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"vary",
    b"via",
    b"warning",
    b"www-authenticate",
    b"x-lacquer-why",
    b"x-real-ip",
    b"x-varnish",
];

/// The beginnings of the names of other such fields.
const FORBIDDEN_PREFIXES: [&[u8]; 5] = [b"access-control-", b"content-", b"if-", b"sec-", b"x-forwarded-"];

/// The exception: a digest is known only behind the body (RFC 9530 section 2).
const DIGEST: &[u8] = b"content-digest";

/// Returns whether trailers may contain the field. The name is in lower case.
pub fn may_trail(name: &[u8]) -> bool {
    let is_forbidden =
        || FORBIDDEN.contains(&name) || FORBIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    name == DIGEST || !is_forbidden()
}

/// Returns names and values of lines that end with CR LF.
pub fn fields(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split(|&byte| byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.windows(2).position(|bytes| bytes == b": ")?;
        Some((&line[..colon], &line[colon + 2..]))
    })
}

/// The trailers of a request, for the origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTrailers {
    /// The lines, each of which ends with CR LF.
    lines: Vec<u8>,
    fields: usize,
    omitted: usize,
    refusal: Option<&'static str>,
}

impl RequestTrailers {
    /// Adds a field, unless trailers must not contain it. Too many fields refuse all. The name is in lower case.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        if !may_trail(name) {
            self.omitted += 1;
        } else if self.refusal.is_none() {
            self.fields += 1;
            for part in [name, b": ", value, b"\r\n"] {
                self.lines.extend_from_slice(part);
            }
            if self.fields > MAX_FIELDS || self.lines.len() > MAX_BYTES {
                self.refuse("they are too many or too large");
            }
        }
    }

    /// Drops the fields, for this reason, unless there are none.
    pub fn refuse(&mut self, reason: &'static str) {
        if !self.lines.is_empty() {
            self.refusal = Some(reason);
            self.lines = Vec::new();
        }
    }

    /// Returns the lines, each of which ends with CR LF.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// Returns the number of fields that trailers must not contain, and that were dropped.
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// Returns why the other fields were dropped, if they were.
    pub fn refusal(&self) -> Option<&'static str> {
        self.refusal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_needed_before_the_body_are_forbidden() {
        for name in [
            "host",
            "content-length",
            "content-type",
            "if-match",
            "authorization",
            "cookie",
            "x-forwarded-for",
        ] {
            assert!(!may_trail(name.as_bytes()), "{name}");
        }
        for name in ["grpc-status", "content-digest", "x-checksum", "server-timing", "etag", "proxy-status"] {
            assert!(may_trail(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn lines_become_fields_again() {
        let mut trailers = RequestTrailers::default();
        trailers.add(b"x-sum", b"a: b");
        trailers.add(b"host", b"other");
        trailers.add(b"empty", b"");
        let found: Vec<_> = fields(trailers.lines()).collect();
        assert_eq!(found, [(&b"x-sum"[..], &b"a: b"[..]), (b"empty", b"")]);
        assert_eq!((trailers.omitted(), trailers.refusal()), (1, None));
    }

    #[test]
    fn number_and_bytes_are_limited() {
        for (count, value, is_kept) in [(64, &b"v"[..], true), (65, b"v", false), (8, &[b'v'; 1100], false)] {
            let mut trailers = RequestTrailers::default();
            for _ in 0..=count {
                trailers.add(b"host", b"x");
            }
            (0..count).for_each(|_| trailers.add(b"n", value));
            assert_eq!(trailers.refusal().is_none(), is_kept, "{count}");
            assert_eq!(trailers.lines().is_empty(), !is_kept, "{count}");
        }
    }
}
