//! Decisions about a request before its lookup: its expectation, the change of protocol, and the steps that are
//! allowed after `vcl_recv`.

/// The treatment of a request's `Expect` (RFC 9110 section 10.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// There is no expectation.
    None,
    /// The client waits for a 100 before it sends the body.
    Continue,
    /// No 100 is needed.
    Ignored,
    /// It is unknown: 417.
    Refused,
}

/// Decides about `Expect`. `version` is that of the request, 11 for HTTP/1.1. `has_surplus` returns whether bytes
/// followed the head, which shows that the client does not wait.
#[inline]
pub fn expectation(expect: Option<&[u8]>, version: u8, has_surplus: impl FnOnce() -> bool) -> Expectation {
    match expect {
        None => Expectation::None,
        Some(value) if !value.eq_ignore_ascii_case(b"100-continue") => Expectation::Refused,
        Some(_) if version >= 11 && !has_surplus() => Expectation::Continue,
        Some(_) => Expectation::Ignored,
    }
}

/// Decides whether an HTTP/1.1 request to upgrade to HTTP/2 is granted. The error is for the `Debug` record.
pub fn upgrade_to_h2(is_enabled: bool, has_body: bool) -> Result<(), &'static str> {
    match (is_enabled, has_body) {
        (false, _) => Err("H2 upgrade attempt"),
        (true, true) => Err("H2 upgrade attempt has body"),
        (true, false) => Ok(()),
    }
}

/// Decides whether a request may be piped. It must be the only one on its connection; otherwise it is passed. The
/// error is for the `VCL_Error` record.
pub fn pipe(is_included: bool, version: u8) -> Result<(), &'static str> {
    if is_included {
        Err("vcl_recv{} returns pipe for ESI included object.  Doing pass.")
    } else if version > 11 {
        Err("vcl_recv{} returns pipe for HTTP/2 request.  Doing pass.")
    } else {
        Ok(())
    }
}

/// Returns whether a request must become a tunnel. A client treats the bytes after a 2xx response to CONNECT as a
/// tunnel (RFC 9110 section 9.3.6), so it would misread an ordinary response. Only a pipe is a tunnel.
#[inline]
pub fn needs_tunnel(method: &[u8]) -> bool {
    method == b"CONNECT"
}

/// Decides whether `return (vcl(label))` is allowed: once, before any restart. The error is for the `VCL_Error`
/// record.
pub fn switch_vcl(restarts: u32, has_switched: bool) -> Result<(), &'static str> {
    match (restarts, has_switched) {
        (1.., _) => Err("Illegal return(vcl): Not after restarts"),
        (0, true) => Err("Illegal return(vcl): Only from active VCL"),
        (0, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_100_continue_is_an_accepted_expectation() {
        let table: &[(Option<&[u8]>, u8, bool, Expectation)] = &[
            (None, 11, false, Expectation::None),
            (Some(b"100-continue"), 11, false, Expectation::Continue),
            (Some(b"100-Continue"), 20, false, Expectation::Continue),
            // "A server MAY omit sending a 100 (Continue) response if it has already received some or all of the content".
            (Some(b"100-continue"), 11, true, Expectation::Ignored),
            // "A server that receives a 100-continue expectation in an HTTP/1.0 request MUST ignore that expectation."
            (Some(b"100-continue"), 10, false, Expectation::Ignored),
            (Some(b"200-ok"), 11, false, Expectation::Refused),
            (Some(b""), 10, true, Expectation::Refused),
        ];
        for (expect, version, has_surplus, expected) in table {
            let found = expectation(*expect, *version, || *has_surplus);
            assert_eq!(found, *expected, "{expect:?} {version} {has_surplus}");
        }
    }

    #[test]
    fn only_requests_without_a_body_upgrade_to_h2() {
        let table = [
            ((true, false), Ok(())),
            ((true, true), Err("H2 upgrade attempt has body")),
            ((false, false), Err("H2 upgrade attempt")),
            ((false, true), Err("H2 upgrade attempt")),
        ];
        for ((is_enabled, has_body), expected) in table {
            assert_eq!(upgrade_to_h2(is_enabled, has_body), expected, "{is_enabled} {has_body}");
        }
    }

    #[test]
    fn pipes_need_a_connection_of_their_own() {
        let table = [
            ((false, 10), None),
            ((false, 11), None),
            ((false, 20), Some("HTTP/2")),
            ((true, 11), Some("ESI")),
        ];
        for ((is_included, version), fault) in table {
            match (pipe(is_included, version), fault) {
                (Ok(()), None) => {}
                (Err(text), Some(word)) => assert!(text.contains(word), "{text}"),
                other => panic!("{is_included} {version}: {other:?}"),
            }
        }
        assert!(needs_tunnel(b"CONNECT"));
        assert!(!needs_tunnel(b"connect"), "methods are case-sensitive");
        assert!(!needs_tunnel(b"GET"));
    }

    #[test]
    fn vcl_is_switched_once() {
        let table = [
            ((0, false), Ok(())),
            ((0, true), Err("Illegal return(vcl): Only from active VCL")),
            ((1, false), Err("Illegal return(vcl): Not after restarts")),
            ((2, true), Err("Illegal return(vcl): Not after restarts")),
        ];
        for ((restarts, has_switched), expected) in table {
            assert_eq!(switch_vcl(restarts, has_switched), expected, "{restarts} {has_switched}");
        }
    }
}
