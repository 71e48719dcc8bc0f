//! Values of the last minute, in slots of ten seconds.

use std::collections::VecDeque;

const SLOT: f64 = 10.0;
const SLOTS: u64 = 6;

/// The last minute: the present slot and the five before it, so between 50 and 60 seconds.
#[derive(Clone, Debug)]
pub struct Recent<T> {
    slots: VecDeque<(u64, T)>,
}

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent { slots: VecDeque::new() }
    }
}

impl<T> Recent<T> {
    /// Returns the value of the present slot. A clock that goes back stays in its last slot.
    pub fn at(&mut self, now: f64, new: impl FnOnce() -> T) -> &mut T {
        let number = (now / SLOT) as u64;
        let has_slot = self.slots.back().is_some_and(|(last, _)| *last >= number);
        if !has_slot {
            while self.slots.front().is_some_and(|(first, _)| first + SLOTS <= number) {
                self.slots.pop_front();
            }
            self.slots.push_back((number, new()));
        }
        let last = self.slots.len() - 1;
        &mut self.slots[last].1
    }

    /// Returns the values of the last minute.
    pub fn all(&self, now: f64) -> impl Iterator<Item = &T> + Clone {
        let number = (now / SLOT) as u64;
        self.slots.iter().filter(move |(slot, _)| slot + SLOTS > number).map(|(_, value)| value)
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_leave_after_a_minute() {
        let mut recent = Recent::default();
        for (now, sum) in [(0.0, 1), (9.0, 2), (10.0, 3), (3.0, 4), (59.0, 5), (61.0, 4), (1e9, 1)] {
            *recent.at(now, || 0) += 1;
            assert_eq!(recent.all(now.max(10.0)).sum::<i32>(), sum, "{now}");
            assert!(recent.slots.len() <= 6);
        }
        assert_eq!(recent.all(2e9).count(), 0);
        let _ = recent.at(f64::NAN, || 7);
        let _ = recent.at(-5.0, || 7);
        assert!(recent.slots.len() <= 6);
    }
}
