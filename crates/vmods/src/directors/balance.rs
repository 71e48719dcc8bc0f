//! The choice among backends by their use and their recent outcomes. It reads no clock and no backend.

use lacquer_vcl_runtime::{BackendId, Load};

/// The smallest share of its weight that a backend has when it becomes healthy.
const FIRST_SHARE: f64 = 0.1;
/// A backend whose mean time is shorter is not slow, whatever the others need.
const QUICK: f64 = 0.01;
/// The number of backends with a mean time, below which none is slow.
const FEWEST_TIMES: usize = 3;

/// The settings of a director.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// The number of backends, drawn at random, among which the least used one is chosen; 0 for all.
    pub choices: usize,
    /// The number of backends that this server uses, the first ones of those that are not avoided; 0 for all.
    pub subset: usize,
    /// Seconds until a backend that became healthy has its whole weight.
    pub slow_start: f64,
    /// The number of consecutive failures after which a backend is avoided; 0 for never.
    pub failures: u32,
    /// The multiple of the others' mean time from which a backend is avoided; 0 for never.
    pub slowness: f64,
    /// Seconds for which a backend is avoided.
    pub ejection: f64,
}

/// A healthy backend.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub backend: BackendId,
    pub weight: f64,
    pub load: Load,
    /// The time when it became healthy.
    pub since: f64,
}

/// The backends that are avoided, or are tried again.
#[derive(Debug, Default)]
pub struct Ejections(Vec<Ejection>);

/// A backend is avoided until a time, and then tried for as long again.
#[derive(Clone, Copy, Debug)]
struct Ejection {
    backend: BackendId,
    until: f64,
    /// The number of failures at its beginning.
    failures: u32,
}

impl Ejection {
    /// Does not end before the setback of the backend, so that the backend is tried when both have ended.
    fn update(&mut self, load: &Load, now: f64) {
        if !load.setback.is_zero() {
            self.until = self.until.max(now + load.setback.as_secs_f64());
        }
    }

    /// Returns whether the failures that began it were the last outcomes.
    fn is_untried(&self, load: &Load) -> bool {
        self.failures != 0 && load.failures == self.failures
    }
}

impl Ejections {
    /// Removes the candidates that are avoided: at most half of them. Returns those that are avoided from now on.
    pub fn apply(&mut self, candidates: &mut Vec<Candidate>, rules: &Rules, now: f64) -> Vec<Candidate> {
        self.0.retain_mut(|ejection| {
            let candidate = candidates.iter().find(|c| c.backend == ejection.backend);
            let load = candidate.map_or_else(Load::default, |c| c.load);
            ejection.update(&load, now);
            now < ejection.until + rules.ejection || ejection.is_untried(&load)
        });
        let median = median(candidates);
        let mut room = candidates.len() / 2;
        room = room.saturating_sub(candidates.iter().filter(|c| self.avoids(c.backend, now)).count());
        let mut new = Vec::new();
        for candidate in candidates.iter() {
            let earlier = self.0.iter().position(|ejection| ejection.backend == candidate.backend);
            let is_bad = match earlier {
                None => is_outlier(candidate, rules, median),
                Some(at) => now >= self.0[at].until && candidate.load.failures > self.0[at].failures,
            };
            if !is_bad || room == 0 {
                continue;
            }
            room -= 1;
            let mut ejection = Ejection {
                backend: candidate.backend,
                until: now + rules.ejection,
                failures: candidate.load.failures,
            };
            ejection.update(&candidate.load, now);
            match earlier {
                Some(at) => self.0[at] = ejection,
                None => self.0.push(ejection),
            }
            new.push(*candidate);
        }
        candidates.retain(|candidate| !self.avoids(candidate.backend, now));
        for candidate in candidates.iter_mut() {
            // The end of its ejection is the time when it became healthy.
            if let Some(ejection) = self.0.iter().find(|ejection| ejection.backend == candidate.backend) {
                candidate.since = candidate.since.max(ejection.until);
            }
        }
        new
    }

    fn avoids(&self, backend: BackendId, now: f64) -> bool {
        self.0.iter().any(|ejection| ejection.backend == backend && now < ejection.until)
    }
}

fn is_outlier(candidate: &Candidate, rules: &Rules, median: Option<f64>) -> bool {
    let seconds = candidate.load.latency.as_secs_f64();
    let is_slow = rules.slowness > 0.0
        && seconds > QUICK
        && median.is_some_and(|median| seconds > rules.slowness * median);
    is_slow || rules.failures > 0 && candidate.load.failures >= rules.failures
}

/// Returns the middle one of the mean times, if enough backends have one.
fn median(candidates: &[Candidate]) -> Option<f64> {
    let times = candidates.iter().map(|candidate| candidate.load.latency.as_secs_f64());
    let mut times: Vec<f64> = times.filter(|seconds| *seconds > 0.0).collect();
    times.sort_unstable_by(f64::total_cmp);
    (times.len() >= FEWEST_TIMES).then(|| times[(times.len() - 1) / 2])
}

/// Returns the candidate with the fewest requests for its weight. Those that could not be connected to a moment ago are
/// chosen only if there is no other: they have few requests because they fail. `draw` returns a random number below its
/// argument.
pub fn choose(
    mut candidates: Vec<Candidate>,
    rules: &Rules,
    now: f64,
    mut draw: impl FnMut(usize) -> usize,
) -> BackendId {
    if candidates.is_empty() {
        return BackendId::NONE;
    }
    let is_reachable = |candidate: &Candidate| candidate.load.setback.is_zero();
    if candidates.iter().any(is_reachable) {
        candidates.retain(is_reachable);
    }
    if rules.subset != 0 {
        candidates.truncate(rules.subset);
    }
    if (1..candidates.len()).contains(&rules.choices) {
        for at in 0..rules.choices {
            let other = at + draw(candidates.len() - at);
            candidates.swap(at, other);
        }
        candidates.truncate(rules.choices);
    }
    let cost = |candidate: &Candidate| {
        let age = if rules.slow_start > 0.0 { (now - candidate.since) / rules.slow_start } else { 1.0 };
        (f64::from(candidate.load.in_use) + 1.0) / (candidate.weight * age.clamp(FIRST_SHARE, 1.0))
    };
    // Of equal ones, each has its turn.
    let start = draw(candidates.len());
    candidates.rotate_left(start);
    let least = candidates.iter().min_by(|one, other| cost(one).total_cmp(&cost(other)));
    least.map_or(BackendId::NONE, |candidate| candidate.backend)
}

/// Returns the rank of a backend for one server: each server prefers other backends.
pub fn rank(server: &[u8], backend: &str) -> u64 {
    let bytes = server.iter().chain(b"\0").chain(backend.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    // The last bytes of similar names would decide little.
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn candidate(backend: u32, in_use: u32) -> Candidate {
        let load = Load { in_use, ..Load::default() };
        Candidate { backend: BackendId(backend), weight: 1.0, load, since: 0.0 }
    }

    fn chosen(candidates: &[Candidate], rules: Rules) -> u32 {
        choose(candidates.to_vec(), &rules, 100.0, |_| 0).0
    }

    #[test]
    fn the_least_used_backend_for_its_weight_is_chosen() {
        assert_eq!(choose(Vec::new(), &Rules::default(), 0.0, |_| 0), BackendId::NONE);
        assert_eq!(chosen(&[candidate(1, 2), candidate(2, 1), candidate(3, 3)], Rules::default()), 2);
        let heavy = Candidate { weight: 3.0, ..candidate(3, 4) };
        assert_eq!(chosen(&[candidate(1, 2), candidate(2, 1), heavy], Rules::default()), 3);
        let new = Candidate { since: 95.0, ..candidate(1, 0) };
        let rules = Rules { slow_start: 50.0, ..Rules::default() };
        assert_eq!(chosen(&[new, candidate(2, 8)], rules), 2, "it has a tenth of its weight");
        assert_eq!(chosen(&[new, candidate(2, 10)], rules), 1);
        assert_eq!(chosen(&[new, candidate(2, 8)], Rules::default()), 1);
    }

    #[test]
    fn equal_backends_have_turns_and_few_are_compared() {
        let all = [candidate(1, 0), candidate(2, 0), candidate(3, 0)];
        let turns: Vec<u32> = (0..3).map(|n| choose(all.to_vec(), &Rules::default(), 0.0, |_| n).0).collect();
        assert_eq!(turns, [1, 2, 3]);
        let rules = Rules { choices: 2, ..Rules::default() };
        // The best one is not drawn.
        assert_eq!(chosen(&[candidate(1, 5), candidate(2, 4), candidate(3, 0)], rules), 2);
        let rules = Rules { choices: 9, ..Rules::default() };
        assert_eq!(chosen(&[candidate(1, 5), candidate(2, 4), candidate(3, 0)], rules), 3);
    }

    #[test]
    fn backends_that_cannot_be_reached_are_the_last_choice() {
        let away = |backend, in_use, seconds| {
            let load = Load { in_use, setback: Duration::from_secs(seconds), ..Load::default() };
            Candidate { load, ..candidate(backend, in_use) }
        };
        assert_eq!(chosen(&[away(1, 0, 1), candidate(2, 90)], Rules::default()), 2);
        assert_eq!(chosen(&[away(1, 5, 1), away(2, 0, 2)], Rules::default()), 2);
        let rules = Rules { choices: 1, ..Rules::default() };
        assert_eq!(chosen(&[away(1, 0, 1), candidate(2, 90)], rules), 2);
    }

    #[test]
    fn others_replace_avoided_backends_of_a_subset() {
        let rules = Rules { subset: 2, failures: 1, ejection: 10.0, ..Rules::default() };
        let mut ejections = Ejections::default();
        let all = [failing(1, 1), failing(2, 1), candidate(3, 7), candidate(4, 8), candidate(5, 0)];
        assert_eq!(left(&mut ejections, &all, &rules, 0.0), [3, 4, 5], "two of five are less than half");
        assert_eq!(chosen(&[candidate(3, 7), candidate(4, 8), candidate(5, 0)], rules), 3);
        let away = Load { setback: Duration::from_secs(1), ..Load::default() };
        let first = Candidate { load: away, ..candidate(3, 0) };
        assert_eq!(chosen(&[first, candidate(4, 8), candidate(5, 0), candidate(6, 0)], rules), 5);
    }

    fn failing(backend: u32, failures: u32) -> Candidate {
        let load = Load { failures, ..Load::default() };
        Candidate { load, ..candidate(backend, 0) }
    }

    fn left(ejections: &mut Ejections, all: &[Candidate], rules: &Rules, now: f64) -> Vec<u32> {
        let mut candidates = all.to_vec();
        ejections.apply(&mut candidates, rules, now);
        candidates.iter().map(|candidate| candidate.backend.0).collect()
    }

    #[test]
    fn failing_backends_are_avoided_for_a_time_and_then_tried() {
        let rules = Rules { failures: 3, ejection: 10.0, ..Rules::default() };
        let mut ejections = Ejections::default();
        let all = |failures| [failing(1, 0), failing(2, failures), failing(3, 2)];
        assert_eq!(left(&mut ejections, &all(2), &rules, 0.0), [1, 2, 3]);
        assert_eq!(left(&mut ejections, &all(3), &rules, 1.0), [1, 3]);
        assert_eq!(left(&mut ejections, &all(0), &rules, 10.9), [1, 3]);
        assert_eq!(left(&mut ejections, &all(3), &rules, 11.0), [1, 2, 3], "it is tried");
        assert_eq!(left(&mut ejections, &all(4), &rules, 12.0), [1, 3], "and fails again");
        assert_eq!(left(&mut ejections, &all(0), &rules, 22.0), [1, 2, 3]);
        assert_eq!(left(&mut ejections, &all(0), &rules, 99.0), [1, 2, 3]);
        assert!(ejections.0.is_empty());
    }

    #[test]
    fn backends_are_tried_when_their_setback_has_ended_too() {
        let rules = Rules { failures: 1, ejection: 10.0, ..Rules::default() };
        let mut ejections = Ejections::default();
        let all = |seconds| {
            let load = Load { failures: 1, setback: Duration::from_secs(seconds), ..Load::default() };
            [Candidate { load, ..candidate(1, 0) }, candidate(2, 0)]
        };
        for (now, rest) in [(0.0, 32), (12.0, 20), (31.0, 1)] {
            assert_eq!(left(&mut ejections, &all(rest), &rules, now), [2], "{now}");
        }
        assert_eq!(left(&mut ejections, &all(0), &rules, 32.0), [1, 2]);
        assert_eq!(left(&mut ejections, &all(0), &rules, 99.0), [1, 2], "no request came to try it");
    }

    #[test]
    fn at_most_half_are_avoided() {
        let rules = Rules { failures: 1, ejection: 10.0, ..Rules::default() };
        for count in 0..9_u32 {
            let all: Vec<Candidate> = (0..count).map(|n| failing(n + 1, 9)).collect();
            let mut ejections = Ejections::default();
            for now in [0.0, 1.0, 2.0] {
                let left = left(&mut ejections, &all, &rules, now);
                assert_eq!(left.len(), (count - count / 2) as usize, "{count} at {now}");
            }
        }
    }

    #[test]
    fn slow_backends_are_avoided_if_others_are_not() {
        let rules = Rules { slowness: 3.0, ejection: 10.0, ..Rules::default() };
        let with = |backend, milliseconds| {
            let load = Load { latency: Duration::from_millis(milliseconds), ..Load::default() };
            Candidate { load, ..candidate(backend, 0) }
        };
        let table: [(&[u64], &[u32]); 6] = [
            (&[20, 20, 90], &[1, 2]),
            (&[20, 20, 50], &[1, 2, 3]),
            (&[20, 90], &[1, 2]),
            (&[0, 20, 90], &[1, 2, 3]),
            (&[1, 1, 9], &[1, 2, 3]),
            (&[90, 90, 90], &[1, 2, 3]),
        ];
        for (times, expected) in table {
            let all: Vec<Candidate> = (1..).zip(times).map(|(n, time)| with(n, *time)).collect();
            assert_eq!(left(&mut Ejections::default(), &all, &rules, 0.0), expected, "{times:?}");
        }
    }

    #[test]
    fn servers_rank_backends_differently_and_evenly() {
        let mut uses = [0; 10];
        for server in 0..1000 {
            let rank = |n: &usize| rank(format!("cache{server}").as_bytes(), &format!("b{n}"));
            let mut order: Vec<usize> = (0..10).collect();
            order.sort_by_key(rank);
            order[..3].iter().for_each(|n| uses[*n] += 1);
        }
        assert!(uses.iter().all(|count| (240..360).contains(count)), "{uses:?}");
    }
}
