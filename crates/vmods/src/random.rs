//! Random numbers: fast and different on every thread, unless `debug.srandom` selects the sequence that
//! tests expect, which is that of FreeBSD's random(3).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use lacquer_sources::random;

const DEGREE: usize = 31;
const SEPARATION: usize = 3;

static SEEDED: AtomicBool = AtomicBool::new(false);
static SEQUENCE: Mutex<Sequence> = Mutex::new(Sequence { state: [0; DEGREE], front: SEPARATION, rear: 0 });

/// An additive feedback generator over x^31 + x^3 + 1.
struct Sequence {
    state: [u32; DEGREE],
    front: usize,
    rear: usize,
}

impl Sequence {
    fn seed(&mut self, seed: u32) {
        self.state[0] = seed;
        for i in 1..DEGREE {
            self.state[i] = park_miller(self.state[i - 1]);
        }
        (self.front, self.rear) = (SEPARATION, 0);
        for _ in 0..10 * DEGREE {
            self.next();
        }
    }

    fn next(&mut self) -> u32 {
        let sum = self.state[self.front].wrapping_add(self.state[self.rear]);
        self.state[self.front] = sum;
        self.front = (self.front + 1) % DEGREE;
        self.rear = (self.rear + 1) % DEGREE;
        sum >> 1
    }
}

/// Maps x to 7^5 x mod (2^31 - 1), over [0, 0x7ffffffd].
fn park_miller(x: u32) -> u32 {
    let x = u64::from(x % 0x7fff_fffe) + 1;
    (x * 16807 % 0x7fff_ffff) as u32 - 1
}

/// Makes all following numbers come from the one sequence of this seed.
pub fn seed(seed: u32) {
    SEQUENCE.lock().unwrap_or_else(PoisonError::into_inner).seed(seed);
    SEEDED.store(true, Ordering::Release);
}

/// Returns 31 random bits.
pub(crate) fn bits31() -> u32 {
    if SEEDED.load(Ordering::Acquire) {
        return SEQUENCE.lock().unwrap_or_else(PoisonError::into_inner).next();
    }
    (random::bits64() >> 33) as u32
}

/// Returns a number in [0, 1), in steps of 2^-31.
pub fn fraction() -> f64 {
    f64::from(bits31()) / f64::from(1_u32 << 31)
}

/// Returns a number in [0, 1] with all bits of a double.
pub(crate) fn fine_fraction() -> f64 {
    let high = fraction();
    high + fraction() / f64::from(1_u32 << 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeded_sequence_is_that_of_freebsd() {
        let mut sequence = Sequence { state: [0; DEGREE], front: SEPARATION, rear: 0 };
        sequence.seed(1);
        let mut next = || {
            let high = f64::from(sequence.next()) / f64::from(1_u32 << 31);
            high + f64::from(sequence.next()) / f64::from(1_u32 << 31) / f64::from(1_u32 << 31)
        };
        let shown = [next(), next() * 10.0, next() * 2.0 + 8.0, next() + 99.0].map(|x| format!("{x:.3}"));
        assert_eq!(shown, ["0.656", "0.390", "8.585", "99.636"]);
    }

    #[test]
    fn unseeded_numbers_stay_in_range_and_vary() {
        let some: Vec<f64> = (0..100).map(|_| fraction()).collect();
        assert!(some.iter().all(|x| (0.0..1.0).contains(x)));
        assert!(some.iter().any(|x| x != &some[0]));
    }
}
