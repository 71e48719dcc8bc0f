//! Decisions about requests that upgrade their connection to another protocol (RFC 9110 section 7.8), such as WebSocket
//! (RFC 6455): which requests ask the origin for it, and which 101 is an answer to that.

use lacquer_http::message::split_list;

pub const WEBSOCKET: &[u8] = b"websocket";

/// HTTP/2 in clear text. It never becomes a tunnel: requests inside it would pass the cache unseen.
const H2C: &[u8] = b"h2c";

/// The facts about a request that may ask for another protocol.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'r> {
    pub method: &'r [u8],
    /// The version of the request, 11 for HTTP/1.1.
    pub version: u8,
    /// The request is an extended CONNECT (RFC 8441, RFC 9220) in the form of an upgrade.
    pub is_extended: bool,
    pub is_included: bool,
    pub has_body: bool,
    pub connection: Option<&'r [u8]>,
    pub upgrade: Option<&'r [u8]>,
}

/// Returns the protocol that the origin is asked for: the first one that the client wishes and `accepted` lists,
/// separated by commas. `None` if the request is ordinary, and its `Upgrade` ends here, as a server may decide.
pub fn wanted<'a>(wish: &Wish<'_>, accepted: &'a [u8]) -> Option<&'a [u8]> {
    // "A server MUST ignore an Upgrade header field that is received in an HTTP/1.0 request." Other versions have none.
    let may_upgrade = wish.version == 11 || wish.is_extended;
    if !may_upgrade || wish.is_included || wish.has_body || wish.method != b"GET" {
        return None;
    }
    if !names_upgrade(wish.connection?) {
        return None;
    }
    split_list(wish.upgrade?, b',').find_map(|protocol| {
        split_list(accepted, b',')
            .find(|name| name.eq_ignore_ascii_case(protocol) && !name.eq_ignore_ascii_case(H2C))
    })
}

/// Returns whether `Connection` names `Upgrade`.
fn names_upgrade(connection: &[u8]) -> bool {
    split_list(connection, b',').any(|token| token.eq_ignore_ascii_case(b"upgrade"))
}

/// Returns whether the request to the origin, as VCL left it, still asks for the protocol.
pub fn is_asked(protocol: &[u8], connection: Option<&[u8]>, upgrade: Option<&[u8]>) -> bool {
    connection.is_some_and(names_upgrade) && upgrade.is_some_and(|value| value.eq_ignore_ascii_case(protocol))
}

/// The facts about a 101 from the origin.
#[derive(Clone, Copy, Debug)]
pub struct Switch<'r> {
    /// The version of the response, 11 for HTTP/1.1.
    pub version: u8,
    pub connection: Option<&'r [u8]>,
    pub upgrade: Option<&'r [u8]>,
    pub has_framing: bool,
    /// The value of `Sec-WebSocket-Accept`.
    pub accept: Option<&'r [u8]>,
}

/// Checks a 101 to a request that asked for `protocol`. `accept` is the value of `Sec-WebSocket-Accept` that follows
/// from the request's key; `None` for another protocol, or without a key. A server that only repeats a status from
/// elsewhere has not switched, and would answer the tunnel's bytes as requests. The error is for the log.
pub fn check(protocol: &[u8], switch: &Switch<'_>, accept: Option<&[u8]>) -> Result<(), &'static str> {
    if switch.version < 11 {
        return Err("101 response of HTTP/1.0");
    }
    if !switch.connection.is_some_and(names_upgrade) {
        return Err("101 response without Connection: upgrade");
    }
    if !switch.upgrade.is_some_and(|value| value.eq_ignore_ascii_case(protocol)) {
        return Err("101 response with another protocol than requested");
    }
    // "A server MUST NOT send" them (RFC 9110 sections 8.6, RFC 9112 section 6.1).
    if switch.has_framing {
        return Err("101 response with a body");
    }
    if protocol.eq_ignore_ascii_case(WEBSOCKET) {
        match accept {
            None => return Err("101 response to a WebSocket request without a key"),
            Some(_) if switch.accept.is_none() => return Err("101 response without Sec-WebSocket-Accept"),
            expected if switch.accept != expected => {
                return Err("101 response with a wrong Sec-WebSocket-Accept");
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Returns the status of a response to an extended CONNECT. Its client would take a success for the beginning of the
/// tunnel, so an ordinary success becomes 502.
pub fn status_without_tunnel(status: u16) -> u16 {
    if (200..300).contains(&status) { 502 } else { status }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Wish<'static> = Wish {
        method: b"GET",
        version: 11,
        is_extended: false,
        is_included: false,
        has_body: false,
        connection: Some(b"Upgrade"),
        upgrade: Some(b"websocket"),
    };

    #[test]
    fn only_complete_wishes_for_accepted_protocols_reach_the_origin() {
        let websocket = Some(WEBSOCKET);
        let table: &[(Wish<'_>, &[u8], Option<&[u8]>)] = &[
            (PLAIN, b"websocket", websocket),
            (PLAIN, b"foo, websocket", websocket),
            (PLAIN, b"", None),
            (PLAIN, b"foo", None),
            (Wish { upgrade: Some(b"WebSocket"), ..PLAIN }, b"websocket", websocket),
            (Wish { upgrade: Some(b"foo/2, websocket"), ..PLAIN }, b"websocket", websocket),
            (Wish { upgrade: Some(b"foo, websocket"), ..PLAIN }, b"websocket,foo", Some(b"foo")),
            (Wish { upgrade: Some(b"websocket/13"), ..PLAIN }, b"websocket", None),
            (Wish { upgrade: Some(b""), ..PLAIN }, b"websocket", None),
            (Wish { upgrade: None, ..PLAIN }, b"websocket", None),
            (Wish { connection: Some(b"keep-alive, UPGRADE"), ..PLAIN }, b"websocket", websocket),
            (Wish { connection: Some(b"close, Upgrade"), ..PLAIN }, b"websocket", websocket),
            (Wish { connection: Some(b"keep-alive"), ..PLAIN }, b"websocket", None),
            (Wish { connection: None, ..PLAIN }, b"websocket", None),
            (Wish { version: 10, ..PLAIN }, b"websocket", None),
            (Wish { version: 20, ..PLAIN }, b"websocket", None),
            (Wish { version: 20, is_extended: true, ..PLAIN }, b"websocket", websocket),
            (Wish { version: 30, is_extended: true, ..PLAIN }, b"websocket", websocket),
            (Wish { method: b"POST", ..PLAIN }, b"websocket", None),
            (Wish { method: b"HEAD", ..PLAIN }, b"websocket", None),
            (Wish { has_body: true, ..PLAIN }, b"websocket", None),
            (Wish { is_included: true, ..PLAIN }, b"websocket", None),
            // Requests inside of HTTP/2 would pass the cache unseen, even if an operator lists it.
            (Wish { upgrade: Some(b"h2c"), ..PLAIN }, b"websocket,h2c", None),
            (Wish { upgrade: Some(b"h2c, websocket"), ..PLAIN }, b"h2c,websocket", websocket),
        ];
        for (wish, accepted, expected) in table {
            assert_eq!(wanted(wish, accepted), *expected, "{wish:?} {}", accepted.escape_ascii());
        }
    }

    #[test]
    fn vcl_may_withdraw_the_wish() {
        assert!(is_asked(WEBSOCKET, Some(b"Upgrade"), Some(b"websocket")));
        assert!(!is_asked(WEBSOCKET, None, Some(b"websocket")));
        assert!(!is_asked(WEBSOCKET, Some(b"Upgrade"), None));
        assert!(!is_asked(WEBSOCKET, Some(b"close"), Some(b"websocket")));
        assert!(!is_asked(WEBSOCKET, Some(b"Upgrade"), Some(b"h2c")));
    }

    #[test]
    fn a_101_must_answer_the_request() {
        let right = Switch {
            version: 11,
            connection: Some(b"Upgrade"),
            upgrade: Some(b"WebSocket"),
            has_framing: false,
            accept: Some(b"a"),
        };
        let table: &[(Switch<'_>, &[u8], Option<&[u8]>, Option<&str>)] = &[
            (right, b"websocket", Some(b"a"), None),
            (right, b"websocket", Some(b"b"), Some("wrong Sec")),
            (right, b"websocket", None, Some("without a key")),
            (Switch { accept: None, ..right }, b"websocket", Some(b"a"), Some("without Sec")),
            (Switch { accept: Some(b"A"), ..right }, b"websocket", Some(b"a"), Some("wrong Sec")),
            (Switch { version: 10, ..right }, b"websocket", Some(b"a"), Some("1.0")),
            (Switch { connection: None, ..right }, b"websocket", Some(b"a"), Some("Connection")),
            (Switch { connection: Some(b"close"), ..right }, b"websocket", Some(b"a"), Some("Connection")),
            (Switch { upgrade: None, ..right }, b"websocket", Some(b"a"), Some("another")),
            (Switch { upgrade: Some(b"foo"), ..right }, b"websocket", Some(b"a"), Some("another")),
            (Switch { has_framing: true, ..right }, b"websocket", Some(b"a"), Some("body")),
            (Switch { upgrade: Some(b"foo"), accept: None, ..right }, b"foo", None, None),
        ];
        for (switch, protocol, accept, fault) in table {
            match (check(protocol, switch, *accept), fault) {
                (Ok(()), None) => {}
                (Err(text), Some(word)) => assert!(text.contains(word), "{text}"),
                other => panic!("{switch:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_success_without_a_tunnel_is_none() {
        let table = [(200, 502), (204, 502), (299, 502), (103, 103), (302, 302), (401, 401), (503, 503)];
        for (status, expected) in table {
            assert_eq!(status_without_tunnel(status), expected);
        }
    }
}
