//! Certificates on demand: bounds how many orders names that clients ask for can cause.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::managed::Managed;
use crate::name::Names;

/// The maximum number of names that wait for the client's thread.
const MAX_QUEUED: usize = 64;
/// The maximum number of names without a certificate at a time.
const MAX_PENDING: usize = 20;
/// The maximum number of certificates on demand.
const MAX_CERTIFICATES: usize = 10_000;
/// The maximum number of names that are accepted in a period. Let's Encrypt allows an account 300 orders in three hours.
const MAX_NEW: usize = 60;
const PERIOD: Duration = Duration::from_hours(1);
/// The number of failures after which a name is forgotten, until a client asks for it again.
const MAX_FAILURES: u32 = 3;

/// The names that the manager wants certificates for, each once.
#[derive(Debug, Default)]
pub struct Queue {
    names: Mutex<BTreeSet<Names>>,
}

impl Queue {
    /// Adds a name. Returns whether the client's thread must be woken for it.
    pub fn add(&self, names: Names) -> bool {
        let mut queued = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        queued.len() < MAX_QUEUED && queued.insert(names) && queued.len() == 1
    }

    /// Removes and returns all names.
    pub fn take(&self) -> BTreeSet<Names> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The names that were accepted in the last period.
#[derive(Debug, Default)]
pub struct Admission {
    accepted: VecDeque<Instant>,
    /// A refusal was reported since the last name was accepted.
    has_reported: bool,
}

impl Admission {
    /// Accepts a new name. Fails with a text for the operator if there are too many; the text is empty if the same was
    /// reported before.
    pub fn accept(&mut self, all: &[Managed], now: Instant) -> Result<(), String> {
        while self.accepted.front().is_some_and(|&at| now.saturating_duration_since(at) >= PERIOD) {
            self.accepted.pop_front();
        }
        let on_demand = || all.iter().filter(|managed| managed.is_on_demand());
        let refused = if on_demand().filter(|managed| managed.leaf().is_none()).count() >= MAX_PENDING {
            format!("{MAX_PENDING} names on demand wait for their certificates")
        } else if on_demand().count() >= MAX_CERTIFICATES {
            format!("there are {MAX_CERTIFICATES} certificates on demand")
        } else if self.accepted.len() >= MAX_NEW {
            format!("{MAX_NEW} names on demand were accepted within an hour")
        } else {
            self.accepted.push_back(now);
            self.has_reported = false;
            return Ok(());
        };
        Err(if std::mem::replace(&mut self.has_reported, true) { String::new() } else { refused })
    }
}

/// Returns whether a name on demand is to be forgotten, because it cannot be verified.
pub fn is_hopeless(managed: &Managed) -> bool {
    managed.is_on_demand() && managed.leaf().is_none() && managed.failures() >= MAX_FAILURES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    fn names(n: usize) -> Names {
        Names::parse(&format!("n{n}.example")).unwrap()
    }

    #[test]
    fn few_names_are_queued_and_each_once() {
        let queue = Queue::default();
        assert!(queue.add(names(0)));
        assert!(!queue.add(names(0)) && !queue.add(names(1)));
        assert!((0..1000).all(|n| !queue.add(names(n))));
        assert_eq!(queue.take().len(), MAX_QUEUED);
        assert!(queue.take().is_empty() && queue.add(names(1)));
    }

    #[test]
    fn orders_are_bounded() {
        let (mut admission, now) = (Admission::default(), Instant::now());
        let mut all = vec![Managed::new(names(999), None)];
        for n in 0..MAX_PENDING {
            admission.accept(&all, now).unwrap();
            all.push(Managed::on_demand(names(n), None));
        }
        assert!(admission.accept(&all, now).unwrap_err().contains("20 names on demand wait"));
        assert_eq!(admission.accept(&all, now), Err(String::new()), "it is reported once");
        // Names that fail are forgotten, but still count in the period.
        all.truncate(1);
        for _ in MAX_PENDING..MAX_NEW {
            admission.accept(&all, now).unwrap();
        }
        assert!(admission.accept(&all, now + PERIOD / 2).unwrap_err().contains("within an hour"));
        admission.accept(&all, now + PERIOD).unwrap();
    }

    #[test]
    fn hopeless_names_are_forgotten() {
        let now = Instant::now();
        let (mut configured, mut asked) = (Managed::new(names(1), None), Managed::on_demand(names(2), None));
        for _ in 0..MAX_FAILURES {
            assert!(!is_hopeless(&asked));
            for managed in [&mut configured, &mut asked] {
                managed.fail(Fault::new("x"), now);
            }
        }
        assert!(is_hopeless(&asked) && !is_hopeless(&configured));
    }
}
