//! A budget that refills by time.

/// Allows `limit` events at once and as many again in each period. Does not contain the limit, because the parameters
/// may change while it exists.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    spent: f64,
    /// The time at which `spent` was computed, in seconds.
    at: f64,
}

impl Budget {
    pub const fn full(now: f64) -> Budget {
        Budget { spent: 0.0, at: now }
    }

    /// Returns the number of events that count against the budget at `now`.
    pub fn spent(&self, limit: f64, period: f64, now: f64) -> f64 {
        let refill = limit * (now - self.at).max(0.0) / period.max(0.001);
        (self.spent - refill).max(0.0)
    }

    /// Charges one event. Returns false, and charges nothing, if the budget is exhausted.
    pub fn charge(&mut self, limit: f64, period: f64, now: f64) -> bool {
        let spent = self.spent(limit, period, now);
        let allowed = spent + 1.0 <= limit;
        *self = Budget { spent: if allowed { spent + 1.0 } else { spent }, at: now };
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_allows_its_limit_at_once_and_then_its_rate() {
        let mut budget = Budget::full(100.0);
        assert_eq!((0..50).filter(|_| budget.charge(10.0, 60.0, 100.0)).count(), 10);
        assert_eq!((0..50).filter(|_| budget.charge(10.0, 60.0, 130.0)).count(), 5);
        assert_eq!((0..50).filter(|_| budget.charge(10.0, 60.0, 1e6)).count(), 10);
    }

    #[test]
    fn a_clock_that_steps_back_refills_nothing() {
        let mut budget = Budget::full(100.0);
        assert!(budget.charge(1.0, 60.0, 100.0));
        assert!(!budget.charge(1.0, 60.0, 50.0));
    }
}
