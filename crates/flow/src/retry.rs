//! Decisions about further attempts: to repeat a request on another connection (RFC 9112 section 9.3.1), a fetch by
//! `retry` of VCL, or a request by `restart` of VCL.

use lacquer_http::SessClose;

/// The result of one attempt on one connection to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The head of a response arrived.
    Responded,
    /// No bytes arrived. An origin that closes an idle connection may not have seen the request.
    Silent,
    /// The bytes that arrived may be the response to another request.
    Foreign,
    /// The origin has stated that it has not processed the request.
    Unprocessed,
    Failed,
}

/// The facts that determine whether a request is repeated on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The connection had served other requests.
    pub is_reused: bool,
    /// This is already the second attempt.
    pub is_second: bool,
    /// The request can be sent again: no bytes of a body were read from the client, and VCL allows it
    /// (`bereq.retry_connect`).
    pub is_repeatable: bool,
}

/// Returns whether a request with this method may be carried out twice (RFC 9110 section 9.2.2).
pub fn is_idempotent(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE")
}

/// The step that follows an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Respond,
    /// Close the connection, with this reason if it has none yet, and repeat the request on a new one.
    Repeat(Option<SessClose>),
    GiveUp,
}

/// Decides the step after an exchange with an origin. `is_idempotent` returns whether the request may be carried out
/// twice.
#[inline]
pub fn after_exchange(exchange: Exchange, tried: Tried, is_idempotent: impl FnOnce() -> bool) -> Next {
    match exchange {
        Exchange::Responded => Next::Respond,
        // If a new connection stays silent, another one will too.
        Exchange::Silent if tried.is_reused && tried.is_repeatable => Next::Repeat(None),
        Exchange::Unprocessed if !tried.is_second && tried.is_repeatable => Next::Repeat(None),
        // The origin may have carried out the request, unlike in the silent case, where it has closed the connection.
        Exchange::Foreign if !tried.is_second && tried.is_repeatable && is_idempotent() => {
            Next::Repeat(Some(SessClose::RxJunk))
        }
        Exchange::Silent | Exchange::Foreign | Exchange::Unprocessed | Exchange::Failed => Next::GiveUp,
    }
}

/// Returns whether VCL may make another attempt: number `count` of at most `most` (`max_retries`, `max_restarts`).
#[inline]
pub fn is_within(count: u32, most: u32) -> bool {
    count <= most
}

/// The step after VCL has requested another attempt of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Again,
    /// No attempt is left: VCL makes an error page.
    ErrorPage,
    /// No attempt is left, and VCL was already making the error page.
    Fail,
}

/// Decides about attempt number `count` of at most `most` (`max_retries`). `is_error_page` means that
/// `vcl_backend_error` has requested it.
pub fn of_fetch(count: u32, most: u32, is_error_page: bool) -> Retry {
    match is_within(count, most) {
        true => Retry::Again,
        false if is_error_page => Retry::Fail,
        false => Retry::ErrorPage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_repeated_on_new_connections() {
        let foreign = Next::Repeat(Some(SessClose::RxJunk));
        let table = [
            // result, reused connection, second attempt, repeatable
            ((Exchange::Responded, true, false, true), Next::Respond),
            ((Exchange::Responded, false, true, false), Next::Respond),
            ((Exchange::Silent, true, false, true), Next::Repeat(None)),
            ((Exchange::Silent, false, false, true), Next::GiveUp),
            ((Exchange::Silent, false, true, true), Next::GiveUp),
            // Its body was read from the client and cannot be sent again.
            ((Exchange::Silent, true, false, false), Next::GiveUp),
            ((Exchange::Foreign, true, false, true), foreign),
            ((Exchange::Foreign, false, false, true), foreign),
            ((Exchange::Foreign, false, true, true), Next::GiveUp),
            ((Exchange::Foreign, true, false, false), Next::GiveUp),
            ((Exchange::Failed, true, false, true), Next::GiveUp),
            ((Exchange::Unprocessed, false, false, true), Next::Repeat(None)),
            ((Exchange::Unprocessed, true, true, true), Next::GiveUp),
            ((Exchange::Unprocessed, true, false, false), Next::GiveUp),
        ];
        for ((exchange, is_reused, is_second, is_repeatable), expected) in table {
            let tried = Tried { is_reused, is_second, is_repeatable };
            assert_eq!(after_exchange(exchange, tried, || true), expected, "{exchange:?} {tried:?}");
        }
        let post = Tried { is_reused: true, is_second: false, is_repeatable: true };
        assert_eq!(after_exchange(Exchange::Foreign, post, || false), Next::GiveUp);
        assert_eq!(after_exchange(Exchange::Silent, post, || false), Next::Repeat(None));
        assert_eq!(after_exchange(Exchange::Unprocessed, post, || false), Next::Repeat(None));
        assert!(is_idempotent(b"GET") && !is_idempotent(b"POST") && !is_idempotent(b"PATCH"));
    }

    #[test]
    fn retries_and_restarts_are_limited() {
        for ((count, most), expected) in [((1, 4), true), ((4, 4), true), ((5, 4), false), ((1, 0), false)] {
            assert_eq!(is_within(count, most), expected, "{count} of {most}");
        }
    }

    #[test]
    fn fetches_without_a_retry_left_end_in_an_error_page_once() {
        let table = [
            // count, most, from vcl_backend_error
            ((1, 4, false), Retry::Again),
            ((4, 4, true), Retry::Again),
            ((5, 4, false), Retry::ErrorPage),
            ((5, 4, true), Retry::Fail),
            ((1, 0, false), Retry::ErrorPage),
            ((1, 0, true), Retry::Fail),
        ];
        for ((count, most, is_error_page), expected) in table {
            assert_eq!(of_fetch(count, most, is_error_page), expected, "{count} of {most} {is_error_page}");
        }
    }
}
