//! Decisions about further attempts: to repeat a request on another connection (RFC 9112 section 9.3.1), a fetch that has
//! failed without a response, a fetch by `retry` of VCL, or a request by `restart` of VCL.

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
    /// No bytes arrived in time.
    Late,
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
        Exchange::Silent if tried.is_reused && !tried.is_second && tried.is_repeatable => Next::Repeat(None),
        Exchange::Unprocessed if !tried.is_second && tried.is_repeatable => Next::Repeat(None),
        // The origin may have carried out the request, unlike in the silent case, where it has closed the connection.
        Exchange::Foreign if !tried.is_second && tried.is_repeatable && is_idempotent() => {
            Next::Repeat(Some(SessClose::RxJunk))
        }
        Exchange::Silent | Exchange::Foreign | Exchange::Unprocessed | Exchange::Late | Exchange::Failed => {
            Next::GiveUp
        }
    }
}

/// The way in which a fetch has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No attempt to connect was made, because the circuit breaker is open.
    NotAttempted,
    /// The origin has not carried out the request: there was no connection, or it has stated so.
    NotCarriedOut,
    /// No byte of a response arrived. The origin may have carried out the request.
    NoResponse,
    /// Bytes of a response arrived, or another attempt is of no use.
    Final,
}

impl Failure {
    /// Returns the failure of an exchange after which the request was given up.
    pub fn of(exchange: Exchange) -> Failure {
        match exchange {
            Exchange::Unprocessed => Failure::NotCarriedOut,
            Exchange::Silent | Exchange::Late => Failure::NoResponse,
            Exchange::Responded | Exchange::Foreign | Exchange::Failed => Failure::Final,
        }
    }

    /// Returns whether the next attempt is charged to the budget. It is the first one if none was made before.
    pub fn costs_retry(self) -> bool {
        self != Failure::NotAttempted
    }

    /// Returns whether a fetch may be made again after this failure. `is_repeatable` means that no bytes of a body were
    /// read from the client, and `is_idempotent` returns whether the request may be carried out twice.
    pub fn may_repeat(self, is_repeatable: bool, is_idempotent: impl FnOnce() -> bool) -> bool {
        match self {
            Failure::NotAttempted | Failure::NotCarriedOut => is_repeatable,
            Failure::NoResponse => is_repeatable && is_idempotent(),
            Failure::Final => false,
        }
    }
}

/// The retries that the requests to a backend or director have paid for. Each request pays a part of one; when nothing
/// is left, no fetch is made again, so that retries cannot multiply an overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Hundredths of a retry that were used and not paid for yet.
    debt: u32,
}

impl Budget {
    /// The number of retries in a row that are possible after few requests.
    const RESERVE: u32 = 10;
    const RETRY: u32 = 100;

    pub fn of_debt(debt: u32) -> Budget {
        Budget { debt }
    }

    pub fn debt(self) -> u32 {
        self.debt
    }

    /// Adds the share of one request, in percent of a retry.
    #[must_use]
    pub fn pay(self, percent: u32) -> Budget {
        Budget { debt: self.debt.saturating_sub(percent) }
    }

    /// Takes a retry. Returns `None` if there is none left.
    pub fn take(self) -> Option<Budget> {
        let debt = self.debt.saturating_add(Self::RETRY);
        (debt <= Self::RESERVE * Self::RETRY).then_some(Budget { debt })
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
            // A stream of a connection that another request has opened.
            ((Exchange::Silent, true, true, true), Next::GiveUp),
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
            ((Exchange::Late, true, false, true), Next::GiveUp),
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
    fn fetches_without_a_response_may_be_made_again() {
        let table = [
            // repeatable, idempotent
            (Failure::NotCarriedOut, (true, true), true),
            (Failure::NotCarriedOut, (true, false), true),
            (Failure::NotCarriedOut, (false, true), false),
            (Failure::NotAttempted, (true, false), true),
            (Failure::NotAttempted, (false, true), false),
            (Failure::of(Exchange::Unprocessed), (true, false), true),
            (Failure::of(Exchange::Silent), (true, true), true),
            (Failure::of(Exchange::Silent), (true, false), false),
            (Failure::of(Exchange::Late), (true, true), true),
            (Failure::of(Exchange::Late), (false, true), false),
            (Failure::of(Exchange::Failed), (true, true), false),
            (Failure::of(Exchange::Foreign), (true, true), false),
        ];
        for (failure, (is_repeatable, is_idempotent), expected) in table {
            let found = failure.may_repeat(is_repeatable, || is_idempotent);
            assert_eq!(found, expected, "{failure:?} {is_repeatable} {is_idempotent}");
        }
        assert!(!Failure::NotAttempted.costs_retry() && Failure::NotCarriedOut.costs_retry());
    }

    #[test]
    fn retries_are_a_share_of_requests_and_a_small_reserve() {
        for (percent, requests, expected) in [(20, 0, 10), (20, 100, 30), (0, 100, 10), (100, 50, 60)] {
            let (mut budget, mut retries) = (Budget::default(), 0);
            // A dead origin: every attempt fails, and would be repeated.
            for _ in 0..requests.max(10) {
                budget = budget.pay(if requests == 0 { 0 } else { percent });
                while let Some(rest) = budget.take() {
                    (budget, retries) = (rest, retries + 1);
                }
            }
            // The first payment finds no debt.
            let most = expected;
            assert!(retries <= most && retries + 1 >= most, "{percent} {requests}: {retries} of {most}");
        }
        let mut budget = Budget::default();
        for _ in 0..1000 {
            budget = budget.pay(20);
        }
        assert_eq!(budget, Budget::default(), "good times do not add up");
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
