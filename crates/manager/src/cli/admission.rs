//! Decides which connection of the management port is closed to admit a new one. The number of unauthenticated
//! connections is small, so that silent ones cannot occupy the port. A new connection replaces another one instead
//! of being refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Maximum number of unauthenticated connections.
pub const MAX_UNAUTHENTICATED: usize = 30;
/// Maximum number of connections in total.
pub const MAX_SESSIONS: usize = 256;
/// Time for which a new connection cannot be replaced, so that it can log in. A client that competes with 500 silent
/// connections that reconnect whenever they are closed waits for half a second.
const GRACE: Duration = Duration::from_millis(25);

/// The login state of a connection, as far as it matters for replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// It was not opened through the port and is never replaced.
    Permanent,
    /// It has logged in.
    Authenticated,
    /// It has not logged in.
    Unauthenticated,
    /// It sent a secret that is not checked yet.
    Checking,
    /// It sent a wrong secret, and its reply is being delayed.
    Refused,
}

/// The properties of a connection that decide whether it is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub login: LoginState,
    pub peer: Option<IpAddr>,
    pub opened: Instant,
    pub last_heard: Instant,
}

/// The decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is accepted in addition to the others.
    Admit,
    /// It replaces the connection with this index.
    Replace(usize),
    /// No connection may be replaced before this time.
    NotBefore(Instant),
}

impl Facts {
    fn is_unauthenticated(&self) -> bool {
        matches!(self.login, LoginState::Unauthenticated | LoginState::Checking | LoginState::Refused)
    }
}

/// Decides about a new connection, which has to log in if `secret` is set. With `descriptors_short`, one connection
/// must be closed even if the limits would allow it to stay.
pub fn admission(sessions: &[Facts], secret: bool, descriptors_short: bool, now: Instant) -> Admission {
    let unauthenticated = sessions.iter().filter(|facts| facts.is_unauthenticated()).count();
    if secret && (unauthenticated >= MAX_UNAUTHENTICATED || descriptors_short && unauthenticated > 0) {
        return replaced_unauthenticated(sessions, now);
    }
    if sessions.len() < MAX_SESSIONS && !descriptors_short {
        return Admission::Admit;
    }
    let known = sessions.iter().enumerate().filter(|(_, facts)| facts.login == LoginState::Authenticated);
    match known.min_by_key(|(_, facts)| facts.last_heard) {
        Some((at, facts)) => replace_unless_new(at, facts, now),
        None => Admission::NotBefore(now + GRACE),
    }
}

fn replace_unless_new(at: usize, facts: &Facts, now: Instant) -> Admission {
    let until = facts.opened + GRACE;
    if until <= now { Admission::Replace(at) } else { Admission::NotBefore(until) }
}

/// Selects a refused connection first, then the oldest of the address with the most connections, so that one address
/// cannot crowd out another.
fn replaced_unauthenticated(sessions: &[Facts], now: Instant) -> Admission {
    let oldest = |login: LoginState| {
        let found = sessions.iter().enumerate().filter(move |(_, facts)| facts.login == login);
        found.min_by_key(|(_, facts)| facts.opened)
    };
    if let Some((at, _)) = oldest(LoginState::Refused) {
        return Admission::Replace(at);
    }
    let mut by_address: HashMap<Option<IpAddr>, usize> = HashMap::new();
    for facts in sessions.iter().filter(|facts| facts.is_unauthenticated()) {
        *by_address.entry(facts.peer).or_default() += 1;
    }
    let silent = sessions.iter().enumerate().filter(|(_, facts)| facts.login == LoginState::Unauthenticated);
    let crowded = |facts: &Facts| by_address.get(&facts.peer).copied().unwrap_or(0);
    let chosen = silent.max_by_key(|(_, facts)| (crowded(facts), std::cmp::Reverse(facts.opened)));
    match chosen {
        Some((at, facts)) => replace_unless_new(at, facts, now),
        None => Admission::NotBefore(now + GRACE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(login: LoginState, peer: u8, age_ms: u64, now: Instant) -> Facts {
        let opened = now.checked_sub(Duration::from_millis(age_ms)).unwrap();
        let peer = Some(IpAddr::from([192, 0, 2, peer]));
        Facts { login, peer, opened, last_heard: opened }
    }

    #[test]
    fn unauthenticated_connections_replace_each_other() {
        let now = Instant::now() + Duration::from_secs(100);
        let unauthenticated = |age| facts(LoginState::Unauthenticated, 1, age, now);
        let mut all: Vec<Facts> = (0..29).map(|n| unauthenticated(1000 + n)).collect();
        assert_eq!(admission(&all, true, false, now), Admission::Admit);
        all.push(unauthenticated(0));
        assert_eq!(admission(&all, true, false, now), Admission::Replace(28), "the oldest");
        all[3] = facts(LoginState::Refused, 1, 5, now);
        assert_eq!(admission(&all, true, false, now), Admission::Replace(3), "the refused one");
        all[3] = facts(LoginState::Authenticated, 1, 5000, now);
        assert_eq!(admission(&all, true, false, now), Admission::Admit, "authenticated ones do not count");
    }

    #[test]
    fn an_address_does_not_crowd_out_another() {
        let now = Instant::now() + Duration::from_secs(100);
        let mut all: Vec<Facts> =
            (0..29).map(|n| facts(LoginState::Unauthenticated, 1, 100 + n, now)).collect();
        all.push(facts(LoginState::Unauthenticated, 2, 5000, now));
        assert_eq!(admission(&all, true, false, now), Admission::Replace(28));
    }

    #[test]
    fn new_connections_are_not_replaced_at_once() {
        let now = Instant::now() + Duration::from_secs(100);
        let all: Vec<Facts> = (0..30).map(|n| facts(LoginState::Unauthenticated, 1, n % 10, now)).collect();
        let Admission::NotBefore(until) = admission(&all, true, false, now) else { panic!("all are new") };
        assert!(until > now && until <= now + GRACE);
        let checking = vec![facts(LoginState::Checking, 1, 1000, now); 30];
        assert!(matches!(admission(&checking, true, false, now), Admission::NotBefore(_)));
    }

    #[test]
    fn the_longest_idle_session_is_replaced_at_the_limit() {
        let now = Instant::now() + Duration::from_secs(100);
        let mut all: Vec<Facts> =
            (0..MAX_SESSIONS as u64).map(|n| facts(LoginState::Authenticated, 1, 100 + n, now)).collect();
        all[0] = facts(LoginState::Permanent, 1, 90_000, now);
        assert_eq!(admission(&all, false, false, now), Admission::Replace(MAX_SESSIONS - 1));
        assert_eq!(admission(&all[..3], false, false, now), Admission::Admit);
        assert_eq!(admission(&all[..3], false, true, now), Admission::Replace(2));
        assert!(matches!(admission(&all[..1], true, true, now), Admission::NotBefore(_)));
    }
}
