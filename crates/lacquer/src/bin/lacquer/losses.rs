//! Reports about the lines that a log lacks. Clients decide how often lines are lost, so the first loss is reported at once,
//! and later ones together, once a minute.

use std::time::{Duration, Instant};

/// Time between two reports.
const SILENCE: Duration = Duration::from_mins(1);
/// Time without a loss after which the log is complete again.
const CALM: Duration = Duration::from_secs(10);

/// The losses of a log.
#[derive(Debug, Default)]
pub struct Losses {
    total: u64,
    reported: u64,
    last_loss: Option<Instant>,
    last_report: Option<Instant>,
    /// The end of the losses has not been reported.
    is_open: bool,
}

impl Losses {
    pub fn add(&mut self, now: Instant, count: u64) {
        if count > 0 {
            self.total = self.total.saturating_add(count);
            self.last_loss = Some(now);
        }
    }

    /// Returns the sum of all losses if it is to be reported now.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        let is_quiet = self.last_report.is_none_or(|last| now.duration_since(last) >= SILENCE);
        let is_due = is_quiet && self.total > self.reported;
        is_due.then(|| self.report(now, true))
    }

    /// Records that lines were written and none was lost. Returns the sum of all losses if their end is to be reported now.
    pub fn recovery(&mut self, now: Instant) -> Option<u64> {
        let is_calm = self.last_loss.is_none_or(|last| now.duration_since(last) >= CALM);
        (self.is_open && is_calm).then(|| self.report(now, false))
    }

    /// Returns the sum of all losses if some have not been reported, because there will be no later report.
    pub fn rest(&mut self, now: Instant) -> Option<u64> {
        (self.total > self.reported).then(|| self.report(now, true))
    }

    fn report(&mut self, now: Instant, is_open: bool) -> u64 {
        self.reported = self.total;
        self.last_report = Some(now);
        self.is_open = is_open;
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported_once_a_minute() {
        let (mut losses, begun) = (Losses::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut reports = Vec::new();
        for second in 0..150 {
            losses.add(at(second), 2);
            reports.extend(losses.due(at(second)).map(|total| (second, total)));
        }
        assert_eq!(reports, [(0, 2), (60, 122), (120, 242)]);
        assert_eq!((losses.rest(at(150)), losses.rest(at(150))), (Some(300), None));
    }

    #[test]
    fn the_end_of_losses_is_reported_once() {
        let (mut losses, begun) = (Losses::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!((losses.due(at(0)), losses.recovery(at(0)), losses.rest(at(0))), (None, None, None));
        losses.add(at(1), 1);
        assert_eq!((losses.due(at(1)), losses.recovery(at(2))), (Some(1), None));
        losses.add(at(3), 4);
        assert_eq!(
            (losses.due(at(3)), losses.recovery(at(13)), losses.recovery(at(14))),
            (None, Some(5), None)
        );
        // Another one follows soon.
        losses.add(at(15), 1);
        assert_eq!(
            (losses.due(at(15)), losses.due(at(73)), losses.recovery(at(90))),
            (None, Some(6), Some(6))
        );
    }
}
