//! The limits of waiting for a request body: `timeout_idle` and the minimum rate, `req_body_min_rate`.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use lacquer_params::Params;
use lacquer_sources::clock::{self, Instant};

/// The largest allowance, in multiples of `timeout_idle`.
const SAVED_IDLES: f64 = 6.0;

/// A response that may arrive before the end of the request. The client may wait for a part of it before it sends more.
#[derive(Debug)]
pub struct EarlyResponse {
    patience: f64,
    has_begun: Cell<bool>,
}

impl EarlyResponse {
    /// Creates the state of a response for which a client may wait `patience` seconds, even if that is longer than
    /// `timeout_idle`.
    pub fn awaited(patience: f64) -> Rc<EarlyResponse> {
        Rc::new(EarlyResponse { patience, has_begun: Cell::new(false) })
    }

    /// Records that the response has begun. From then on the limits of the response end the exchange.
    pub fn begin(&self) {
        self.has_begun.set(true);
    }
}

/// The seconds for which the client of a body may still be waited for. Waiting spends them and received bytes earn
/// them, up to a maximum, so that early bytes do not pay for a later trickle.
#[derive(Debug, Default)]
pub struct Allowance {
    spent: f64,
    response: Option<Rc<EarlyResponse>>,
}

/// The reason why no bytes were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The client is gone, or has sent nothing for too long.
    Bytes,
    /// The client is slower than the minimum rate.
    Rate,
}

impl Allowance {
    /// Sets the response that may arrive before the end of the body, if there is one.
    pub fn set_response(&mut self, response: Option<Rc<EarlyResponse>>) {
        self.response = response;
    }

    /// Returns whether the response has begun, so that nothing limits the wait for the client.
    fn is_unlimited(&self) -> bool {
        self.response.as_ref().is_some_and(|response| response.has_begun.get())
    }

    /// Returns the longest time without a byte, in seconds.
    fn idle(&self, params: &Params) -> f64 {
        let patience = self.response.as_ref().map_or(0.0, |response| response.patience);
        params.timeout_idle.max(0.001).max(patience)
    }

    fn maximum(&self, params: &Params) -> f64 {
        if params.req_body_min_rate == 0 {
            return f64::INFINITY;
        }
        (SAVED_IDLES * params.timeout_idle.max(0.001)).max(self.idle(params))
    }

    /// Returns the longest wait for the next byte by the minimum rate, in seconds.
    pub fn left(&self, params: &Params) -> f64 {
        (self.maximum(params) - self.spent).max(0.0)
    }

    /// Waits for the result of `read`, as long as the client is fast enough. Reads the clock only if it must wait.
    pub async fn wait(
        &mut self,
        params: &Params,
        read: impl Future<Output = io::Result<usize>>,
    ) -> Result<usize, Missed> {
        let mut read = pin!(read);
        let at_once = std::future::poll_fn(|cx| match read.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        });
        let (done, waited) = match at_once.await {
            Some(done) => (Ok(done), 0.0),
            None if self.is_unlimited() => (Ok(read.await), 0.0),
            None => {
                let begun = Instant::now();
                let limit = self.idle(params).min(self.left(params));
                let timed = tokio::time::timeout(clock::seconds(limit), read.as_mut()).await;
                match timed {
                    // It has begun meanwhile.
                    Err(_) if self.is_unlimited() => (Ok(read.await), 0.0),
                    done => (done, begun.elapsed().as_secs_f64()),
                }
            }
        };
        match done {
            Ok(Ok(bytes)) => {
                self.account(bytes, waited, params);
                Ok(bytes)
            }
            Err(_) if waited < self.idle(params) => Err(Missed::Rate),
            _ => Err(Missed::Bytes),
        }
    }

    /// Accounts for bytes that were received after `waited` seconds.
    pub fn account(&mut self, bytes: usize, waited: f64, params: &Params) {
        if params.req_body_min_rate > 0 {
            let earned = bytes as f64 / params.req_body_min_rate as f64;
            self.spent = (self.spent + waited - earned).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a client that sends `bytes` every `seconds`. Returns the time when its body is rejected, or
    /// infinity.
    fn rejected_at(params: &Params, bytes: usize, seconds: f64) -> f64 {
        let (mut allowance, mut now) = (Allowance::default(), 0.0);
        for _ in 0..100_000 {
            if allowance.left(params) < seconds {
                return now + allowance.left(params);
            }
            now += seconds;
            allowance.account(bytes, seconds, params);
        }
        f64::INFINITY
    }

    #[test]
    fn a_trickling_body_is_rejected_and_a_slow_one_is_not() {
        let params = Params { timeout_idle: 5.0, req_body_min_rate: 100, ..Params::default() };
        for (bytes, seconds, least, most) in [
            (1, 4.9, 29.0, 31.0),
            (1, 0.5, 29.0, 31.0),
            (50, 1.0, 59.0, 61.0),
            (101, 1.0, f64::INFINITY, f64::INFINITY),
            (600, 4.9, f64::INFINITY, f64::INFINITY),
            (16_000, 4.0, f64::INFINITY, f64::INFINITY),
        ] {
            let end = rejected_at(&params, bytes, seconds);
            assert!(end >= least && end <= most, "{bytes} bytes in {seconds} s: {end}");
        }
        let off = Params { req_body_min_rate: 0, ..params };
        assert_eq!(rejected_at(&off, 1, 4.9), f64::INFINITY);
    }

    /// Waits for a byte that never comes.
    async fn wait_in_vain(allowance: &mut Allowance, params: &Params) -> Result<usize, Missed> {
        allowance.wait(params, std::future::pending()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_wait_for_a_response_before_it_sends_more() {
        let params = Params { timeout_idle: 1.0, req_body_min_rate: 100, ..Params::default() };
        let mut allowance = Allowance::default();
        for (patience, expected) in [(0.0, 1.0), (0.5, 1.0), (3.0, 3.0), (60.0, 60.0)] {
            allowance.set_response(Some(EarlyResponse::awaited(patience)));
            let begun = Instant::now();
            assert_eq!(wait_in_vain(&mut allowance, &params).await, Err(Missed::Bytes));
            let waited = begun.elapsed().as_secs_f64();
            assert!((waited - expected).abs() < 0.1, "{patience}: {waited}");
        }
        // It begins during one wait, or before another.
        let response = EarlyResponse::awaited(0.0);
        allowance.set_response(Some(response.clone()));
        let minute = std::time::Duration::from_mins(1);
        let begin = async {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            response.begin();
        };
        let both = async { tokio::join!(wait_in_vain(&mut allowance, &params), begin) };
        assert!(tokio::time::timeout(minute, both).await.is_err(), "nothing limits the wait");
        let next = wait_in_vain(&mut allowance, &params);
        assert!(tokio::time::timeout(minute, next).await.is_err(), "nothing limits the wait");
        allowance.set_response(None);
        assert_eq!(wait_in_vain(&mut allowance, &params).await, Err(Missed::Bytes));
    }

    #[test]
    fn early_bytes_pay_for_no_more_than_the_maximum() {
        let params = Params { timeout_idle: 5.0, req_body_min_rate: 100, ..Params::default() };
        let mut allowance = Allowance::default();
        allowance.account(1_000_000_000, 1.0, &params);
        assert_eq!(allowance.left(&params), 30.0);
    }
}
