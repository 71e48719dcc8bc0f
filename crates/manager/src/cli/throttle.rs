//! Slows down clients that send wrong secrets. The reply to a wrong secret is delayed, longer with each recent failure
//! of the same address, and the attempts of such an address are checked one at a time. A correct secret is delayed only
//! by its place in that queue, so an attacker cannot lock out an operator with the same address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Delay of the reply to the first wrong secret. It doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Time between two attempts of an address that failed recently.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(5);
/// Time after which one failure is forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);
/// Maximum number of addresses. Beyond it, the address whose last failure is the oldest is removed.
const MAX_ADDRESSES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
    next_attempt: Instant,
}

impl Failures {
    /// Returns the failures that still count: one is forgotten per `FORGIVEN_AFTER`.
    fn recent(&self, now: Instant) -> u32 {
        let forgiven = now.saturating_duration_since(self.last).as_secs() / FORGIVEN_AFTER.as_secs();
        self.count.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX))
    }
}

/// Records failures by address.
#[derive(Debug, Default)]
pub struct Throttle {
    addresses: HashMap<IpAddr, Failures>,
}

/// Returns the network that counts as one address: for IPv6 a whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Returns the delay of the reply to the `count`th wrong secret.
fn delay(count: u32) -> Duration {
    let doubled = FIRST_DELAY.checked_mul(1 << count.saturating_sub(1).min(16));
    doubled.unwrap_or(LONGEST_DELAY).min(LONGEST_DELAY)
}

impl Throttle {
    /// Reserves the address's next attempt and returns its time: `now` for an address without recent failures.
    pub fn reserve_attempt(&mut self, address: IpAddr, now: Instant) -> Instant {
        let Some(failures) = self.addresses.get_mut(&network(address)) else { return now };
        if failures.recent(now) == 0 {
            return now;
        }
        let try_at = failures.next_attempt.max(now);
        failures.next_attempt = try_at + ATTEMPT_INTERVAL;
        try_at
    }

    /// Records a wrong secret and returns when its reply may be sent.
    pub fn record_failure(&mut self, address: IpAddr, now: Instant) -> Instant {
        let address = network(address);
        if self.addresses.len() >= MAX_ADDRESSES && !self.addresses.contains_key(&address) {
            let oldest = self.addresses.iter().min_by_key(|(_, failures)| failures.last);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.addresses.remove(&oldest);
            }
        }
        let entry =
            self.addresses.entry(address).or_insert(Failures { count: 0, last: now, next_attempt: now });
        entry.count = entry.recent(now).saturating_add(1);
        entry.last = now;
        now + delay(entry.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn delays_double_up_to_a_limit() {
        let millis: Vec<u128> = [1, 2, 3, 4, 6, 7, 50].map(|count| delay(count).as_millis()).to_vec();
        assert_eq!(millis, [100, 200, 400, 800, 3200, 5000, 5000]);
    }

    #[test]
    fn only_the_address_that_failed_is_slowed() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        assert_eq!(throttle.reserve_attempt(A, now), now);
        assert_eq!(throttle.record_failure(A, now), now + FIRST_DELAY);
        assert_eq!(throttle.reserve_attempt(A, now), now);
        assert_eq!(throttle.reserve_attempt(A, now), now + ATTEMPT_INTERVAL);
        assert_eq!(throttle.reserve_attempt(B, now), now);
    }

    #[test]
    fn failures_are_forgotten_one_at_a_time() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        for _ in 0..3 {
            throttle.record_failure(A, start);
        }
        let later = start + FORGIVEN_AFTER * 2;
        assert_eq!(throttle.record_failure(A, later), later + FIRST_DELAY * 2);
        let much_later = later + FORGIVEN_AFTER * 3;
        throttle.reserve_attempt(A, much_later);
        assert_eq!(throttle.reserve_attempt(A, much_later), much_later);
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        throttle.record_failure("2001:db8::1".parse().unwrap(), now);
        throttle.reserve_attempt("2001:db8::2".parse().unwrap(), now);
        assert_eq!(throttle.reserve_attempt("2001:db8::3".parse().unwrap(), now), now + ATTEMPT_INTERVAL);
        assert_eq!(throttle.reserve_attempt("2001:db8:0:1::1".parse().unwrap(), now), now);
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for n in 0..1000_u32 {
            throttle.record_failure(IpAddr::V4(n.into()), now + Duration::from_millis(n.into()));
        }
        assert_eq!(throttle.addresses.len(), MAX_ADDRESSES);
        assert!(throttle.addresses.contains_key(&IpAddr::V4(999.into())));
    }
}
