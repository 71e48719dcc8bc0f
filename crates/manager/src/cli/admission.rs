//! Decides which connection of the management port gives way to a new one. Connections that have not logged in are
//! few, so that silent ones cannot hold the port; a newcomer takes the place of another instead of being refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Most connections that have not logged in.
pub const MOST_STRANGERS: usize = 30;
/// Most connections in all.
pub const MOST_SESSIONS: usize = 256;
/// A new connection has this long to log in before it may have to give way. A newcomer behind 500 silent connections
/// that come back whenever they are closed thus waits for half a second.
const GRACE: Duration = Duration::from_millis(25);

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was not opened through the port, and stays.
    Permanent,
    /// It has logged in.
    Known,
    /// It has not logged in.
    Stranger,
    /// It offered a secret that is still to be checked.
    Checking,
    /// It offered a wrong secret, and waits for the answer.
    Refused,
}

/// The facts about a connection that decide whether it gives way.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub standing: Standing,
    pub peer: Option<IpAddr>,
    pub opened: Instant,
    pub last_heard: Instant,
}

/// The decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is accepted beside the others.
    Beside,
    /// The connection with this index gives way.
    InPlaceOf(usize),
    /// Nobody may be replaced before then.
    After(Instant),
}

impl Facts {
    fn is_stranger(&self) -> bool {
        matches!(self.standing, Standing::Stranger | Standing::Checking | Standing::Refused)
    }
}

/// Decides about a new connection, which has to log in if `secret` is set. `descriptors_short` requires that one
/// goes even if the limits would let it stay.
pub fn admission(sessions: &[Facts], secret: bool, descriptors_short: bool, now: Instant) -> Admission {
    let strangers = sessions.iter().filter(|facts| facts.is_stranger()).count();
    if secret && (strangers >= MOST_STRANGERS || descriptors_short && strangers > 0) {
        return replaced_stranger(sessions, now);
    }
    if sessions.len() < MOST_SESSIONS && !descriptors_short {
        return Admission::Beside;
    }
    let known = sessions.iter().enumerate().filter(|(_, facts)| facts.standing == Standing::Known);
    match known.min_by_key(|(_, facts)| facts.last_heard) {
        Some((at, facts)) => unless_new(at, facts, now),
        None => Admission::After(now + GRACE),
    }
}

fn unless_new(at: usize, facts: &Facts, now: Instant) -> Admission {
    let until = facts.opened + GRACE;
    if until <= now { Admission::InPlaceOf(at) } else { Admission::After(until) }
}

/// Refused ones go first, then the oldest of the address that has the most: one address cannot crowd out another.
fn replaced_stranger(sessions: &[Facts], now: Instant) -> Admission {
    let oldest = |standing: Standing| {
        let found = sessions.iter().enumerate().filter(move |(_, facts)| facts.standing == standing);
        found.min_by_key(|(_, facts)| facts.opened)
    };
    if let Some((at, _)) = oldest(Standing::Refused) {
        return Admission::InPlaceOf(at);
    }
    let mut by_address: HashMap<Option<IpAddr>, usize> = HashMap::new();
    for facts in sessions.iter().filter(|facts| facts.is_stranger()) {
        *by_address.entry(facts.peer).or_default() += 1;
    }
    let silent = sessions.iter().enumerate().filter(|(_, facts)| facts.standing == Standing::Stranger);
    let crowded = |facts: &Facts| by_address.get(&facts.peer).copied().unwrap_or(0);
    let chosen = silent.max_by_key(|(_, facts)| (crowded(facts), std::cmp::Reverse(facts.opened)));
    match chosen {
        Some((at, facts)) => unless_new(at, facts, now),
        None => Admission::After(now + GRACE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(standing: Standing, peer: u8, age_ms: u64, now: Instant) -> Facts {
        let opened = now.checked_sub(Duration::from_millis(age_ms)).unwrap();
        let peer = Some(IpAddr::from([192, 0, 2, peer]));
        Facts { standing, peer, opened, last_heard: opened }
    }

    #[test]
    fn strangers_give_way_to_strangers() {
        let now = Instant::now() + Duration::from_secs(100);
        let stranger = |age| facts(Standing::Stranger, 1, age, now);
        let mut all: Vec<Facts> = (0..29).map(|n| stranger(1000 + n)).collect();
        assert_eq!(admission(&all, true, false, now), Admission::Beside);
        all.push(stranger(0));
        assert_eq!(admission(&all, true, false, now), Admission::InPlaceOf(28), "the oldest");
        all[3] = facts(Standing::Refused, 1, 5, now);
        assert_eq!(admission(&all, true, false, now), Admission::InPlaceOf(3), "the refused one");
        all[3] = facts(Standing::Known, 1, 5000, now);
        assert_eq!(admission(&all, true, false, now), Admission::Beside, "those who logged in do not count");
    }

    #[test]
    fn an_address_does_not_crowd_out_another() {
        let now = Instant::now() + Duration::from_secs(100);
        let mut all: Vec<Facts> = (0..29).map(|n| facts(Standing::Stranger, 1, 100 + n, now)).collect();
        all.push(facts(Standing::Stranger, 2, 5000, now));
        assert_eq!(admission(&all, true, false, now), Admission::InPlaceOf(28));
    }

    #[test]
    fn new_connections_have_a_moment() {
        let now = Instant::now() + Duration::from_secs(100);
        let all: Vec<Facts> = (0..30).map(|n| facts(Standing::Stranger, 1, n % 10, now)).collect();
        let Admission::After(until) = admission(&all, true, false, now) else { panic!("all are new") };
        assert!(until > now && until <= now + GRACE);
        let checking = vec![facts(Standing::Checking, 1, 1000, now); 30];
        assert!(matches!(admission(&checking, true, false, now), Admission::After(_)));
    }

    #[test]
    fn the_longest_silent_gives_way_when_there_are_too_many() {
        let now = Instant::now() + Duration::from_secs(100);
        let mut all: Vec<Facts> =
            (0..MOST_SESSIONS as u64).map(|n| facts(Standing::Known, 1, 100 + n, now)).collect();
        all[0] = facts(Standing::Permanent, 1, 90_000, now);
        assert_eq!(admission(&all, false, false, now), Admission::InPlaceOf(MOST_SESSIONS - 1));
        assert_eq!(admission(&all[..3], false, false, now), Admission::Beside);
        assert_eq!(admission(&all[..3], false, true, now), Admission::InPlaceOf(2));
        assert!(matches!(admission(&all[..1], true, true, now), Admission::After(_)));
    }
}
