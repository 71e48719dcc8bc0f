//! The bans of previous processes, which stores on disks have recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_disk::Past;

use crate::bans::build::BanSpec;
use crate::bans::list::{Ban, BanList};
use crate::bans::test::fingerprint;
use crate::bans::text::encode;

/// The maximum difference between the numbers of the oldest and the newest ban.
const MOST: u32 = 1 << 22;

/// The bans of previous processes, by number.
#[derive(Debug, Default)]
pub struct PastBans {
    bans: BTreeMap<u32, (f64, Vec<Vec<u8>>, BanSpec)>,
    /// The highest number that a ban had.
    last: u32,
}

impl PastBans {
    /// Adds the bans that a store has recorded. Returns false, and changes nothing, if they contradict those of other
    /// stores or cannot be read. The contents of the store must then not be used.
    pub fn add(&mut self, past: &Past) -> bool {
        let mut bans = BTreeMap::new();
        for ban in &past.bans {
            let Ok(spec) = BanSpec::from_words(&ban.words) else { return false };
            let is_other = |(time, words, _): &(f64, Vec<Vec<u8>>, BanSpec)| {
                time.to_bits() != ban.time.to_bits() || *words != ban.words
            };
            if ban.number == 0
                || ban.number > past.last_ban
                || self.bans.get(&ban.number).is_some_and(is_other)
            {
                return false;
            }
            bans.insert(ban.number, (ban.time, ban.words.clone(), spec));
        }
        let last = self.last.max(past.last_ban);
        let numbers = bans.first_key_value().into_iter().chain(self.bans.first_key_value());
        let first = numbers.map(|(&number, _)| number).min().unwrap_or(last);
        if last - first > MOST || last > u32::MAX / 2 {
            return false;
        }
        self.bans.extend(bans);
        self.last = last;
        true
    }
}

impl BanList {
    /// Replaces the initial ban by those of previous processes, which objects on disks may need.
    pub(crate) fn restore_past(&self, past: PastBans, now: f64) {
        let PastBans { bans: mut recorded, last } = past;
        let mut bans = self.bans.write();
        if last == 0 {
            // The initial ban has no effect on objects of previous processes.
            return self.base.store(self.newest.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.uncount(bans.drain(..));
        let mut by_fingerprint = self.by_fingerprint.lock();
        by_fingerprint.clear();
        // A ban without effect comes first, for objects that must be tested against all others.
        let first = recorded.first_key_value().map_or(last, |(&number, _)| number.saturating_sub(1));
        self.base.store(first, Ordering::Relaxed);
        for number in first..=last {
            let (time, spec) = recorded
                .remove(&number)
                .map_or((now, None), |(time, words, spec)| (time, Some((words, spec))));
            let is_recorded = spec.is_some();
            let (words, spec) = spec.unwrap_or_default();
            let ban = Arc::new(Ban::new(number, time, spec));
            let _ = ban.past_text.set(encode(&words));
            self.count_new(&ban);
            if !is_recorded {
                self.complete(&ban);
            } else if !ban.tests.iter().any(|test| test.field.depends_on_time()) {
                by_fingerprint.entry(fingerprint(&ban.tests)).or_default().push(number);
            }
            bans.push_front(ban);
        }
        self.newest.store(last, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(numbers: &[u32], last_ban: u32) -> Past {
        let ban = |&number: &u32| lacquer_disk::Ban {
            number,
            time: 1.0,
            words: ["obj.status", "==", &number.to_string()].map(Vec::from).to_vec(),
        };
        Past { bans: numbers.iter().map(ban).collect(), last_ban }
    }

    #[test]
    fn stores_with_contradictory_bans_are_rejected() {
        let mut all = PastBans::default();
        assert!(all.add(&past(&[3, 5], 6)));
        assert!(all.add(&past(&[5, 7], 8)));
        assert_eq!((all.bans.keys().copied().collect::<Vec<_>>(), all.last), (vec![3, 5, 7], 8));
        let mut other = past(&[5], 9);
        other.bans[0].words[2] = b"404".to_vec();
        assert!(!all.add(&other));
        let mut damaged = past(&[9], 9);
        damaged.bans[0].words.pop();
        assert!(!all.add(&damaged));
        assert!(!all.add(&past(&[9], 8)), "a number that was not counted");
        assert!(!all.add(&past(&[], MOST + 10)), "too many");
        assert_eq!(all.last, 8);
    }
}
