//! The times of renewals and of further attempts after failures, as functions of the times of a certificate and of a
//! random number between 0 and 1.

use std::time::Duration;

use lacquer_tls::Leaf;

/// The pauses after the first failures, in seconds. Let's Encrypt allows five failures of a name in an hour.
const PAUSES: [u64; 8] = [60, 300, 900, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600];
/// The part by which a pause varies.
const SPREAD: f64 = 0.25;
/// The part of a certificate's life after which it is renewed, and the part by which that time varies.
const RENEWAL: f64 = 2.0 / 3.0;
const VARIATION: f64 = 0.03;
/// A certificate is renewed at most once in this part of its life.
const REST: f64 = 0.05;
const LONGEST_REST: f64 = 3600.0;

/// Returns the time at which a certificate is renewed, in seconds since the epoch.
pub fn renewal(leaf: &Leaf, chance: f64) -> f64 {
    leaf.not_before() as f64 + life(leaf) * (RENEWAL - VARIATION * chance)
}

/// Returns the time at which a certificate is renewed if the server suggests a window (RFC 9773). A window that ends
/// after the certificate has no effect beyond its end.
pub fn suggested(leaf: &Leaf, window: (f64, f64), chance: f64) -> f64 {
    let end = window.1.min(leaf.not_after() as f64 - life(leaf) * REST);
    let start = window.0.min(end);
    start + (end - start) * chance
}

/// Returns the shortest time between two renewals of a certificate.
pub fn rest(leaf: &Leaf) -> Duration {
    Duration::from_secs_f64((life(leaf) * REST).clamp(1.0, LONGEST_REST))
}

fn life(leaf: &Leaf) -> f64 {
    (leaf.not_after() - leaf.not_before()).max(0) as f64
}

/// Returns the time between a failure and the next attempt. `failures` counts those without a success between them,
/// `wait` is the time that the server asks for.
pub fn pause(failures: u32, wait: Option<Duration>, chance: f64) -> Duration {
    let at = (failures.max(1) as usize - 1).min(PAUSES.len() - 1);
    let longer = Duration::from_secs(PAUSES[at]).max(wait.unwrap_or_default());
    longer.mul_f64(1.0 + SPREAD * chance)
}

/// Returns a random number between 0 and 1.
pub fn chance() -> f64 {
    (lacquer_sources::random::bits64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_obey_the_server() {
        let seconds = |failures, wait| pause(failures, wait, 0.0).as_secs();
        assert_eq!((seconds(0, None), seconds(1, None), seconds(2, None)), (60, 60, 300));
        assert_eq!((seconds(8, None), seconds(4_000_000, None)), (86_400, 86_400));
        let hours = Some(Duration::from_hours(3));
        assert_eq!((seconds(1, hours), seconds(8, hours)), (3 * 3600, 86_400));
        assert_eq!(pause(1, None, 1.0).as_secs(), 75);
        assert!((0..1000).map(|_| chance()).all(|chance| (0.0..1.0).contains(&chance)));
    }
}
