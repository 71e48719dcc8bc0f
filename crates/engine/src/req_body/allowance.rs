//! The minimum rate of a request body, `req_body_min_rate`.

use std::io;
use std::pin::pin;
use std::task::Poll;

use lacquer_params::Params;
use lacquer_sources::clock::{self, Instant};

/// The largest allowance, in multiples of `timeout_idle`.
const SAVED_IDLES: f64 = 6.0;

/// The seconds for which the client of a body may still be waited for. Waiting spends them and received bytes earn
/// them, up to a maximum, so that early bytes do not pay for a later trickle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowance {
    spent: f64,
}

/// The reason why no bytes were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The client is gone, or has sent nothing for `timeout_idle`.
    Bytes,
    /// The client is slower than the minimum rate.
    Rate,
}

fn maximum(params: &Params) -> f64 {
    if params.req_body_min_rate == 0 { f64::INFINITY } else { SAVED_IDLES * params.timeout_idle.max(0.001) }
}

impl Allowance {
    /// Returns the longest wait for the next byte, in seconds.
    pub fn left(self, params: &Params) -> f64 {
        (maximum(params) - self.spent).max(0.0)
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
            None => {
                let begun = Instant::now();
                let limit = params.timeout_idle.max(0.001).min(self.left(params));
                let done = tokio::time::timeout(clock::seconds(limit), read).await;
                (done, begun.elapsed().as_secs_f64())
            }
        };
        match done {
            Ok(Ok(bytes)) => {
                self.account(bytes, waited, params);
                Ok(bytes)
            }
            Err(_) if waited < params.timeout_idle => Err(Missed::Rate),
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

    #[test]
    fn early_bytes_pay_for_no_more_than_the_maximum() {
        let params = Params { timeout_idle: 5.0, req_body_min_rate: 100, ..Params::default() };
        let mut allowance = Allowance::default();
        allowance.account(1_000_000_000, 1.0, &params);
        assert_eq!(allowance.left(&params), 30.0);
    }
}
