//! The reasons behind an outcome, for those who explain it: the rules of the built-in VCL in the order in which they
//! apply, and the header `X-Lacquer-Why`, which names them in one line.

use std::fmt::Write as _;

use lacquer_http::HeaderName;

/// The header. Requests may contain a secret in it, and responses the explanation; neither passes through the cache.
pub const X_LACQUER_WHY: HeaderName<'static> = lacquer_http::header_table::X_LACQUER_WHY;

/// The statuses that Varnish's policy caches without being told to.
const CACHEABLE: [u16; 9] = [200, 203, 204, 300, 301, 304, 404, 410, 414];

/// Why the built-in VCL passes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassReason {
    Method,
    Authorization,
    Cookie,
    /// The user's VCL passes it.
    Vcl,
}

impl PassReason {
    /// Returns the reason for which a subroutine of the built-in VCL passes requests.
    pub fn of_sub(sub: &str) -> PassReason {
        match sub {
            "vcl_req_method" => PassReason::Method,
            "vcl_req_authorization" => PassReason::Authorization,
            "vcl_req_cookie" => PassReason::Cookie,
            _ => PassReason::Vcl,
        }
    }

    /// Returns the most likely reason for a request, if the subroutine is not known.
    pub fn of_request(method: &str, has_authorization: bool, has_cookie: bool) -> PassReason {
        match (method, has_authorization, has_cookie) {
            ("GET" | "HEAD", true, _) => PassReason::Authorization,
            ("GET" | "HEAD", false, true) => PassReason::Cookie,
            ("GET" | "HEAD", false, false) => PassReason::Vcl,
            _ => PassReason::Method,
        }
    }

    /// Returns the name of the outcome.
    pub fn name(self) -> &'static str {
        match self {
            PassReason::Method => "pass-method",
            PassReason::Authorization => "pass-authorization",
            PassReason::Cookie => "pass-cookie",
            PassReason::Vcl => "pass-vcl",
        }
    }
}

/// A header of a response that forbids to cache it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forbidden {
    SetCookie,
    /// The name of a header with such a directive.
    Directive(&'static str),
    VaryAll,
}

/// Returns the header that forbids to cache a response. `value` returns the value of a header.
pub fn forbidden_by(value: &dyn Fn(&str) -> Option<String>) -> Option<Forbidden> {
    let has = |text: &Option<String>, words: &[&str]| {
        let text = text.as_deref().unwrap_or_default().to_ascii_lowercase();
        words.iter().any(|word| text.contains(word))
    };
    let (control, surrogate) = (value("Cache-Control"), value("Surrogate-Control"));
    if value("Set-Cookie").is_some() {
        return Some(Forbidden::SetCookie);
    }
    if has(&surrogate, &["no-store"]) {
        return Some(Forbidden::Directive("Surrogate-Control"));
    }
    if surrogate.is_none() && has(&control, &["no-cache", "no-store", "private"]) {
        return Some(Forbidden::Directive("Cache-Control"));
    }
    let is_all = value("Vary").is_some_and(|vary| vary.split(',').any(|name| name.trim() == "*"));
    is_all.then_some(Forbidden::VaryAll)
}

/// Returns whether responses with a status are cached without being told to.
pub fn is_cacheable(status: u16) -> bool {
    CACHEABLE.contains(&status)
}

/// Returns the name and value of the header that sets the lifetime.
pub fn lifetime_header(value: &dyn Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let sets_age = |value: &String| {
        let value = value.to_ascii_lowercase();
        value.contains("max-age") || value.contains("s-maxage")
    };
    if let Some(control) = value("Cache-Control").filter(sets_age) {
        return Some(("Cache-Control", control));
    }
    Some(("Expires", value("Expires")?))
}

/// Maximum length of a text in the header.
const MAX_TEXT: usize = 120;
/// Maximum length of the header's value.
const MAX_LINE: usize = 900;

/// The value of the header: the outcome, and parameters (RFC 9651 section 3.3).
#[derive(Debug)]
pub struct Line(String);

impl Line {
    /// Begins with the name of an outcome.
    pub fn new(outcome: &str) -> Line {
        Line(outcome.to_owned())
    }

    fn add(&mut self, part: &str) {
        if self.0.len() + part.len() <= MAX_LINE {
            self.0.push_str(part);
        }
    }

    /// Adds a parameter without a value.
    pub fn flag(&mut self, name: &str) {
        self.add(&format!("; {name}"));
    }

    /// Adds a time in seconds.
    pub fn seconds(&mut self, name: &str, seconds: f64) {
        let mut part = String::new();
        let _ = write!(part, "; {name}={:.3}", seconds.clamp(-1e11, 1e11));
        while part.ends_with('0') {
            part.pop();
        }
        self.add(part.trim_end_matches('.'));
    }

    /// Adds a text. Characters that a string may not contain become `'` or `?`, and a long text is cut.
    pub fn text(&mut self, name: &str, value: &str) {
        let safe = value.chars().take(MAX_TEXT).map(|c| match c {
            '"' => '\'',
            '\\' => '/',
            ' '..='~' => c,
            _ => '?',
        });
        let text: String = safe.collect();
        self.add(&format!("; {name}=\"{text}\""));
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short_and_cannot_be_left() {
        let mut line = Line::new("hit");
        line.seconds("ttl", 52.5);
        line.seconds("grace", 10.0);
        line.seconds("age", f64::INFINITY);
        line.text("by", "a\"b\\c\r\nSet-Cookie: x\u{e9}\u{0}");
        line.flag("stored");
        let text = String::from_utf8(line.as_bytes().to_vec()).expect("ASCII");
        assert_eq!(text, "hit; ttl=52.5; grace=10; age=100000000000; by=\"a'b/c??Set-Cookie: x??\"; stored");
        for _ in 0..100 {
            line.text("x", &"y".repeat(5000));
        }
        assert!(line.as_bytes().len() <= MAX_LINE && line.as_bytes().ends_with(b"\""));
    }

    #[test]
    fn headers_forbid_in_the_order_of_the_built_in_vcl() {
        let of = |lines: &[(&str, &str)]| {
            let lines: Vec<(String, String)> =
                lines.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            let value = move |name: &str| {
                lines.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.clone())
            };
            (forbidden_by(&value), lifetime_header(&value))
        };
        assert_eq!(of(&[]), (None, None));
        assert_eq!(of(&[("Set-Cookie", "a"), ("Cache-Control", "private")]).0, Some(Forbidden::SetCookie));
        assert_eq!(of(&[("Cache-Control", "Private")]).0, Some(Forbidden::Directive("Cache-Control")));
        assert_eq!(of(&[("Surrogate-Control", "x"), ("Cache-Control", "private")]).0, None);
        assert_eq!(of(&[("Vary", "a, *")]).0, Some(Forbidden::VaryAll));
        let (none, by) = of(&[("Cache-Control", "max-age=5"), ("Expires", "x")]);
        assert_eq!((none, by), (None, Some(("Cache-Control", "max-age=5".to_owned()))));
        assert_eq!(of(&[("Cache-Control", "public"), ("Expires", "x")]).1, Some(("Expires", "x".to_owned())));
    }

    #[test]
    fn passes_have_a_reason() {
        assert_eq!(PassReason::of_sub("vcl_req_cookie").name(), "pass-cookie");
        assert_eq!(PassReason::of_sub("vcl_recv"), PassReason::Vcl);
        assert_eq!(PassReason::of_request("POST", true, true), PassReason::Method);
        assert_eq!(PassReason::of_request("GET", true, true), PassReason::Authorization);
        assert_eq!(PassReason::of_request("HEAD", false, true), PassReason::Cookie);
    }
}
