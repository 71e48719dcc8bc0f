//! Sessions that the worker keeps, for clients that may send early data (RFC 8446, section 8.1). A session is used once:
//! its second use finds nothing, so the handshake is a full one, and the same early data is never accepted twice.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use lacquer_sources::clock;
use parking_lot::Mutex;
use rustls::server::StoresServerSessions;

/// Identifies the way in which clients are verified. All zeros stand for none.
pub type Context = [u8; 32];

/// The number of parts, each with a lock of its own.
const PARTS: usize = 16;
/// The maximum number of sessions of a part, beyond which the oldest is forgotten.
const SESSIONS: usize = 1024;
/// The length of the names that rustls chooses at random.
const NAME: usize = 32;
/// The maximum size of a session. Longer ones, of clients with long chains of certificates, are not kept.
const LONGEST: usize = 2048;
/// The seconds after which a session is not resumed. Tickets live as long.
const LIFETIME: f64 = 12.0 * 3600.0;

/// The maximum number of bytes of early data that a client may send over TCP.
pub const MAX_EARLY_DATA: u32 = 16 * 1024;

type Name = [u8; NAME];

struct Kept {
    context: Context,
    since: f64,
    session: Box<[u8]>,
}

#[derive(Default)]
struct Part {
    kept: HashMap<Name, Kept>,
    /// The names in the order of their arrival, including those of sessions that were used.
    order: VecDeque<Name>,
}

/// The sessions of all listeners of a worker.
#[derive(Default)]
pub struct Sessions {
    parts: [Mutex<Part>; PARTS],
}

impl Sessions {
    fn part(&self, name: &Name) -> &Mutex<Part> {
        &self.parts[usize::from(name[0]) % PARTS]
    }

    fn put(&self, context: Context, name: &[u8], session: &[u8], now: f64) -> bool {
        let Ok(name) = Name::try_from(name) else { return false };
        if session.len() > LONGEST {
            return false;
        }
        let mut part = self.part(&name).lock();
        if part.order.len() >= SESSIONS
            && let Some(oldest) = part.order.pop_front()
        {
            part.kept.remove(&oldest);
        }
        part.order.push_back(name);
        part.kept.insert(name, Kept { context, since: now, session: session.into() });
        true
    }

    /// Returns a session of this context.
    fn get(&self, context: Context, name: &[u8], now: f64) -> Option<Vec<u8>> {
        let name = Name::try_from(name).ok()?;
        let part = self.part(&name).lock();
        let kept = part.kept.get(&name).filter(|kept| kept.context == context)?;
        (now - kept.since < LIFETIME).then(|| kept.session.to_vec())
    }

    /// Returns a session of this context, and forgets it.
    fn take(&self, context: Context, name: &[u8], now: f64) -> Option<Vec<u8>> {
        let name = Name::try_from(name).ok()?;
        let mut part = self.part(&name).lock();
        if part.kept.get(&name)?.context != context {
            return None;
        }
        let kept = part.kept.remove(&name)?;
        (now - kept.since < LIFETIME).then(|| kept.session.into_vec())
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().kept.len()).sum()
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// The sessions whose clients were verified in the same way.
#[derive(Clone, Debug)]
pub struct SessionsOf {
    pub all: Arc<Sessions>,
    pub context: Context,
}

impl StoresServerSessions for SessionsOf {
    fn put(&self, name: Vec<u8>, session: Vec<u8>) -> bool {
        self.all.put(self.context, &name, &session, clock::real())
    }

    /// Returns a session of TLS 1.2, which has no early data and may be used again.
    fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.all.get(self.context, name, clock::real())
    }

    fn take(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.all.take(self.context, name, clock::real())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1.8e9;
    const NONE: Context = [0; 32];
    const OTHER: Context = [1; 32];

    fn name(n: u16) -> Name {
        let mut name = [7; NAME];
        name[..2].copy_from_slice(&n.to_le_bytes());
        name
    }

    #[test]
    fn a_session_is_used_once_within_its_time_and_context() {
        let sessions = Sessions::default();
        for (context, later, expected) in
            [(NONE, 0.0, true), (OTHER, 0.0, false), (NONE, LIFETIME - 1.0, true), (NONE, LIFETIME, false)]
        {
            assert!(sessions.put(NONE, &name(1), b"session", NOW));
            assert_eq!(sessions.get(context, &name(1), NOW + later).is_some(), expected);
            let found = sessions.take(context, &name(1), NOW + later);
            assert_eq!(found.is_some(), expected, "{context:?} after {later}");
            assert_eq!(sessions.take(context, &name(1), NOW), None);
        }
        assert!(!sessions.put(NONE, &name(2)[1..], b"session", NOW));
        assert!(!sessions.put(NONE, &name(2), &[0; LONGEST + 1], NOW));
        assert_eq!(sessions.take(NONE, &name(2)[1..], NOW), None);
    }

    #[test]
    fn the_number_of_sessions_is_bounded_and_the_oldest_goes() {
        let sessions = Sessions::default();
        let most = (PARTS * SESSIONS) as u16;
        for n in 0..most + 100 {
            sessions.put(NONE, &name(n), b"session", NOW);
        }
        assert_eq!(sessions.len(), usize::from(most));
        assert_eq!(sessions.take(NONE, &name(99), NOW), None);
        assert!(sessions.take(NONE, &name(100), NOW).is_some());
        assert!(sessions.take(NONE, &name(most + 99), NOW).is_some());
    }
}
