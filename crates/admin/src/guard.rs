//! Decides whether a request may be served: by its token, and by the signs that a browser sends it for another site.
//!
//! A page of another site can make a browser send requests to this server, but it can neither set `Authorization` nor read
//! a response without permission, which is never given. A name of an attacker that resolves to this server (DNS rebinding)
//! makes the attacker's page one of the same origin; so only addresses, `localhost` and names that the operator lists are
//! accepted as `Host`.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use sha2::{Digest, Sha256};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server has no such name.
    Host,
    /// It comes from a page of another site.
    CrossSite,
    /// It has no token, or a wrong one.
    Token,
}

impl Refusal {
    pub const ALL: [Refusal; 3] = [Refusal::Host, Refusal::CrossSite, Refusal::Token];

    pub fn status(self) -> u16 {
        match self {
            Refusal::Host => 421,
            Refusal::CrossSite => 403,
            Refusal::Token => 401,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Refusal::Host => "host",
            Refusal::CrossSite => "cross-site",
            Refusal::Token => "token",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Refusal::Host => "the server has no such name; -w ADDRESS,host=NAME gives it one",
            Refusal::CrossSite => "requests from pages of other sites are refused",
            Refusal::Token => "send the token: Authorization: Bearer TOKEN",
        }
    }
}

/// The clients that a route serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody may see it, under any name: balancers check health without `Host`.
    Open,
    /// Everybody may see it, and links of other sites may lead to it: it contains no data.
    Page,
    /// Clients with the token.
    Token,
}

/// The protection of a socket.
#[derive(Debug)]
pub struct Guard {
    is_unix: bool,
    /// The digest of the token, so that a comparison takes the same time whatever is sent.
    token: Option<[u8; 32]>,
    hosts: Vec<String>,
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Returns the name of a host without its port, and an address without brackets.
pub fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

impl Guard {
    pub fn new(is_unix: bool, token: Option<&str>, hosts: Vec<String>) -> Guard {
        Guard { is_unix, token: token.map(digest), hosts }
    }

    /// Returns why a request is refused. `Ok(true)` means that its sender has shown the token.
    pub fn check(&self, headers: &HeaderMap, access: Access) -> Result<bool, Refusal> {
        let host = single(headers, HOST);
        let needs_name = !self.is_unix && access != Access::Open;
        if needs_name && !host.is_some_and(|host| self.is_own_name(host)) {
            return Err(Refusal::Host);
        }
        let is_link = access == Access::Page && single(headers, FETCH_MODE) == Some("navigate");
        if !is_link && is_from_another_site(headers, host) {
            return Err(Refusal::CrossSite);
        }
        let has_token = self.has_token(headers);
        if access == Access::Token && !has_token { Err(Refusal::Token) } else { Ok(has_token) }
    }

    fn is_own_name(&self, host: &str) -> bool {
        let name = name_of(host);
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let Some(wanted) = &self.token else { return true };
        let sent = single(headers, AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| digest(token.trim()))
        });
        let sent = sent.unwrap_or_default();
        wanted.iter().zip(sent).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Returns the value of a field that occurs once.
fn single(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).iter();
    let value = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(value)
}

fn is_from_another_site(headers: &HeaderMap, host: Option<&str>) -> bool {
    let is_foreign_site = headers.contains_key(FETCH_SITE)
        && !matches!(single(headers, FETCH_SITE), Some("same-origin" | "none"));
    let is_own = |origin: &str| {
        let address = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        address.is_some_and(|address| host.is_some_and(|host| host.eq_ignore_ascii_case(address)))
    };
    let is_foreign_origin = headers.contains_key(ORIGIN) && !single(headers, ORIGIN).is_some_and(is_own);
    is_foreign_site || is_foreign_origin
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut all = HeaderMap::new();
        for (name, value) in fields {
            all.append(*name, value.parse().expect("a value"));
        }
        all
    }

    #[test]
    fn requests_of_others_are_refused() {
        let guard = Guard::new(false, Some(TOKEN), vec!["cache.example".to_owned()]);
        let bearer = &format!("Bearer {TOKEN}");
        let (host, right) = (("host", "127.0.0.1:6083"), ("authorization", bearer.as_str()));
        let own = ("origin", "http://127.0.0.1:6083");
        for (fields, expected) in [
            (vec![host, right], Ok(true)),
            (vec![("host", "[::1]:6083"), right], Ok(true)),
            (vec![("host", "LOCALHOST"), right], Ok(true)),
            (vec![("host", "cache.example"), right], Ok(true)),
            (vec![host, right, own, ("sec-fetch-site", "same-origin")], Ok(true)),
            (vec![host, right, ("sec-fetch-site", "none")], Ok(true)),
            (vec![host], Err(Refusal::Token)),
            (vec![host, ("authorization", "Bearer wrong")], Err(Refusal::Token)),
            (vec![host, ("authorization", "Bearer ")], Err(Refusal::Token)),
            (vec![host, ("authorization", TOKEN)], Err(Refusal::Token)),
            (vec![host, ("authorization", &format!("Basic {TOKEN}"))], Err(Refusal::Token)),
            (vec![host, right, right], Err(Refusal::Token)),
            (vec![right], Err(Refusal::Host)),
            (vec![host, host, right], Err(Refusal::Host)),
            (vec![("host", "evil.example:6083"), right], Err(Refusal::Host)),
            (vec![("host", "localhost.evil.example"), right], Err(Refusal::Host)),
            (vec![("host", "127.0.0.1.evil.example"), right], Err(Refusal::Host)),
            (vec![("host", ""), right], Err(Refusal::Host)),
            (vec![host, right, ("origin", "http://evil.example")], Err(Refusal::CrossSite)),
            (vec![host, right, ("origin", "http://127.0.0.1:80")], Err(Refusal::CrossSite)),
            (vec![host, right, ("origin", "null")], Err(Refusal::CrossSite)),
            (vec![host, right, own, own], Err(Refusal::CrossSite)),
            (vec![host, right, ("sec-fetch-site", "cross-site")], Err(Refusal::CrossSite)),
            (vec![host, right, ("sec-fetch-site", "same-site")], Err(Refusal::CrossSite)),
            (
                vec![host, right, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
                Err(Refusal::CrossSite),
            ),
        ] {
            assert_eq!(guard.check(&headers(&fields), Access::Token), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_link_of_another_site_leads_to_the_page_only() {
        let guard = Guard::new(false, Some(TOKEN), Vec::new());
        let link = [("host", "localhost"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(guard.check(&headers(&link), Access::Page), Ok(false));
        assert_eq!(guard.check(&headers(&link), Access::Open), Err(Refusal::CrossSite));
        assert_eq!(guard.check(&headers(&link[..1]), Access::Open), Ok(false));
    }

    #[test]
    fn health_is_shown_under_any_name() {
        let guard = Guard::new(false, Some(TOKEN), Vec::new());
        for fields in [&[][..], &[("host", "balancer.example")], &[("host", "a"), ("host", "b")]] {
            assert_eq!(guard.check(&headers(fields), Access::Open), Ok(false), "{fields:?}");
            assert_eq!(guard.check(&headers(fields), Access::Page), Err(Refusal::Host), "{fields:?}");
        }
        let foreign = [("host", "evil.example"), ("origin", "http://a")];
        assert_eq!(guard.check(&headers(&foreign), Access::Open), Err(Refusal::CrossSite));
    }

    #[test]
    fn the_rights_of_a_socket_replace_name_and_token() {
        let guard = Guard::new(true, None, Vec::new());
        assert_eq!(guard.check(&headers(&[]), Access::Token), Ok(true));
        assert_eq!(guard.check(&headers(&[("origin", "http://x")]), Access::Token), Err(Refusal::CrossSite));
        let guard = Guard::new(true, Some(TOKEN), Vec::new());
        assert_eq!(guard.check(&headers(&[]), Access::Token), Err(Refusal::Token));
    }
}
