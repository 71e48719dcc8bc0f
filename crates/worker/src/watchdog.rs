//! Watches the reactors: a poll that takes too long is logged and counted, with its transaction and its work.
//!
//! A thread checks each reactor several times within the limit. If it sees the same poll again, the poll has lasted
//! since the first check, minus the time in which the kernel gave the reactor's thread no processor. That time is due
//! to the load of the machine, not to the reactor.

use lacquer_engine::activity::Activity;
use lacquer_engine::vxid_of;
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock;

use crate::process::Process;

/// The number of checks within the limit.
const CHECKS: f64 = 5.0;
/// The seconds between checks of the parameter while the watchdog is off.
const OFF_INTERVAL: f64 = 1.0;
/// The shortest time between two checks, in seconds.
const MIN_INTERVAL: f64 = 0.002;

/// The last observation of a reactor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Observation {
    poll: Option<u64>,
    since: f64,
    starved: f64,
    reported: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finding {
    Fine,
    /// The poll has lasted for this number of seconds so far.
    Held(f64),
    /// The poll that was reported has ended. It lasted at least this number of seconds.
    Over(f64),
}

impl Observation {
    /// Discards the observation, unless the end of the poll is still to be reported.
    fn discard_unreported(&mut self) {
        if !self.reported {
            *self = Observation::default();
        }
    }

    /// Checks the current poll. Calls `starved` only if its result is needed.
    fn check(&mut self, poll: Option<u64>, now: f64, limit: f64, starved: impl Fn() -> f64) -> Finding {
        if poll.is_some() && poll == self.poll {
            let lasted = now - self.since;
            // The poll may have started up to one check interval earlier.
            if self.reported || lasted < limit * (1.0 - 1.0 / CHECKS) {
                return Finding::Fine;
            }
            let held = lasted - (starved() - self.starved);
            self.reported = held >= limit * (1.0 - 1.0 / CHECKS);
            return if self.reported { Finding::Held(held) } else { Finding::Fine };
        }
        let over = self.reported.then(|| now - self.since - (starved() - self.starved));
        let starved = if poll.is_some() { starved() } else { 0.0 };
        *self = Observation { poll, since: now, starved, reported: false };
        over.map_or(Finding::Fine, Finding::Over)
    }
}

/// Watches the reactors for as long as the worker runs.
pub fn watch(process: &Process) {
    let mut observations = vec![Observation::default(); process.watched().len()];
    let mut last = clock::monotonic();
    loop {
        let limit = process.shared().params().reactor_watchdog;
        let pause = if limit > 0.0 { (limit / CHECKS).max(MIN_INTERVAL) } else { OFF_INTERVAL };
        std::thread::sleep(clock::seconds(pause));
        let now = clock::monotonic();
        if limit <= 0.0 {
            observations.fill(Observation::default());
            last = now;
            continue;
        }
        if now - last > 3.0 * pause {
            // The process was stopped, or no thread got a processor, so earlier observations prove nothing.
            observations.iter_mut().for_each(Observation::discard_unreported);
        }
        last = now;
        for (id, (watched, observation)) in process.watched().iter().zip(&mut observations).enumerate() {
            let finding = observation.check(watched.activity.current(), now, limit, || watched.starved());
            report(process, id, &watched.activity, finding);
        }
    }
}

fn report(process: &Process, id: usize, activity: &Activity, finding: Finding) {
    match finding {
        Finding::Fine => {}
        Finding::Held(seconds) => {
            let (vxid, work) = (vxid_of(activity.vxid()), activity.work_name());
            let ms = seconds * 1e3;
            let program = activity.program().and_then(|id| process.shared().vcls().name_of(id));
            let of = program.map(|name| format!(" of VCL {name}")).unwrap_or_default();
            let text = format!("Reactor {id} has been held for {ms:.0} ms: transaction {vxid}, {work}{of}");
            process.shared().log().write(Tag::Error, Vxid::NONE, text.as_bytes());
            process.shared().counters().reactor_holds.add(1);
        }
        Finding::Over(seconds) => {
            let text = format!("Reactor {id} goes on after {:.0} ms", seconds * 1e3);
            process.shared().log().write(Tag::Error, Vxid::NONE, text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_poll_is_reported_once_and_starvation_is_not() {
        let mut observation = Observation::default();
        let not_starved = || 0.0;
        assert_eq!(observation.check(Some(1), 0.0, 0.05, not_starved), Finding::Fine);
        assert_eq!(observation.check(Some(1), 0.03, 0.05, not_starved), Finding::Fine);
        assert_eq!(observation.check(Some(1), 0.05, 0.05, not_starved), Finding::Held(0.05));
        assert_eq!(observation.check(Some(1), 0.06, 0.05, not_starved), Finding::Fine);
        observation.discard_unreported();
        assert_eq!(observation.check(Some(3), 0.07, 0.05, not_starved), Finding::Over(0.07));
        assert_eq!(observation.check(Some(5), 0.12, 0.05, not_starved), Finding::Fine);
        assert_eq!(observation.check(Some(5), 0.22, 0.05, || 0.09), Finding::Fine, "it had no processor");
        assert_eq!(observation.check(None, 0.3, 0.05, not_starved), Finding::Fine);
        assert_eq!(observation.check(None, 0.9, 0.05, not_starved), Finding::Fine, "idle");
    }
}
