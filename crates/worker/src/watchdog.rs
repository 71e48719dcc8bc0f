//! Watches the reactors: a turn that lasts too long is logged and counted, with the transaction and the place.
//!
//! A thread checks each reactor's turn several times within the limit. A turn that is still the same has lasted since
//! the first check, less the time in which the kernel gave the reactor no processor. That time is the machine's load,
//! not the reactor's fault.

use lacquer_engine::activity::Turn;
use lacquer_engine::vxid_of;
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock;

use crate::process::Process;

/// The number of checks within the time that a turn may last.
const LOOKS: f64 = 5.0;
/// Seconds between checks while the watchdog is switched off.
const OFF: f64 = 1.0;
/// The shortest time between two checks, in seconds.
const SHORTEST: f64 = 0.002;

/// The turn that was seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sight {
    turn: Option<u64>,
    since: f64,
    starved: f64,
    reported: bool,
}

/// The result of a check of a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finding {
    Fine,
    /// The turn has lasted so long now.
    Held(f64),
    /// The turn that was reported is over. It lasted at least so long.
    Over(f64),
}

impl Sight {
    /// Forgets the turn, unless its end is still to be reported.
    fn forget(&mut self) {
        if !self.reported {
            *self = Sight::default();
        }
    }

    /// Checks the turn. Calls `starved` only if the result matters.
    fn look(&mut self, turn: Option<u64>, now: f64, limit: f64, starved: impl Fn() -> f64) -> Finding {
        if turn.is_some() && turn == self.turn {
            let lasted = now - self.since;
            // The turn began up to one check earlier.
            if self.reported || lasted < limit * (1.0 - 1.0 / LOOKS) {
                return Finding::Fine;
            }
            let held = lasted - (starved() - self.starved);
            self.reported = held >= limit * (1.0 - 1.0 / LOOKS);
            return if self.reported { Finding::Held(held) } else { Finding::Fine };
        }
        let over = self.reported.then(|| now - self.since - (starved() - self.starved));
        let starved = if turn.is_some() { starved() } else { 0.0 };
        *self = Sight { turn, since: now, starved, reported: false };
        over.map_or(Finding::Fine, Finding::Over)
    }
}

/// Watches for as long as the worker runs.
pub fn watch(process: &Process) {
    let mut sights = vec![Sight::default(); process.watched.len()];
    let mut last = clock::monotonic();
    loop {
        let limit = process.shared.params().reactor_watchdog;
        let pause = if limit > 0.0 { (limit / LOOKS).max(SHORTEST) } else { OFF };
        std::thread::sleep(clock::seconds(pause));
        let now = clock::monotonic();
        if limit <= 0.0 {
            sights.fill(Sight::default());
            last = now;
            continue;
        }
        if now - last > 3.0 * pause {
            // The process was stopped, or no thread got a processor, so earlier checks prove nothing.
            sights.iter_mut().for_each(Sight::forget);
        }
        last = now;
        for (id, (watched, sight)) in process.watched.iter().zip(&mut sights).enumerate() {
            let finding = sight.look(watched.turn.current(), now, limit, || watched.starved());
            report(process, id, &watched.turn, finding);
        }
    }
}

fn report(process: &Process, id: usize, turn: &Turn, finding: Finding) {
    match finding {
        Finding::Fine => {}
        Finding::Held(seconds) => {
            let (vxid, place) = (vxid_of(turn.vxid()), turn.place());
            let ms = seconds * 1e3;
            let program = turn.program().and_then(|mark| process.shared.vcls().name_of(mark));
            let of = program.map(|name| format!(" of VCL {name}")).unwrap_or_default();
            let text = format!("Reactor {id} has been held for {ms:.0} ms: transaction {vxid}, {place}{of}");
            process.shared.log().write(Tag::Error, Vxid::NONE, text.as_bytes());
            process.shared.counters().reactor_holds.add(1);
        }
        Finding::Over(seconds) => {
            let text = format!("Reactor {id} goes on after {:.0} ms", seconds * 1e3);
            process.shared.log().write(Tag::Error, Vxid::NONE, text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_found_once_and_starving_is_none() {
        let mut sight = Sight::default();
        let fed = || 0.0;
        assert_eq!(sight.look(Some(1), 0.0, 0.05, fed), Finding::Fine);
        assert_eq!(sight.look(Some(1), 0.03, 0.05, fed), Finding::Fine);
        assert_eq!(sight.look(Some(1), 0.05, 0.05, fed), Finding::Held(0.05));
        assert_eq!(sight.look(Some(1), 0.06, 0.05, fed), Finding::Fine);
        sight.forget();
        assert_eq!(sight.look(Some(3), 0.07, 0.05, fed), Finding::Over(0.07));
        assert_eq!(sight.look(Some(5), 0.12, 0.05, fed), Finding::Fine);
        assert_eq!(sight.look(Some(5), 0.22, 0.05, || 0.09), Finding::Fine, "it had no processor");
        assert_eq!(sight.look(None, 0.3, 0.05, fed), Finding::Fine);
        assert_eq!(sight.look(None, 0.9, 0.05, fed), Finding::Fine, "idle");
    }
}
