//! Connection ids that name their worker and its reactor. Only who has the key can read the names or create an id, and a
//! new worker has the same key as the one before it.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lacquer_sources::random;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

/// Random bytes, the encrypted names, and a tag.
const NONCE: usize = 6;
const NAMES: usize = 2;
const TAG: usize = 3;
pub const LEN: usize = NONCE + NAMES + TAG;

/// The number that stands for every worker.
pub const ANY_WORKER: u8 = 0;

/// The worker and the reactor that serve a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub worker: u8,
    pub reactor: u8,
}

/// The key of connection ids.
#[derive(Clone, Copy)]
pub struct IdKey([u8; 32]);

impl IdKey {
    pub fn new(key: [u8; 32]) -> IdKey {
        IdKey(key)
    }

    /// Returns the mask of the names, and the tag.
    fn seal(self, nonce: &[u8], names: impl FnOnce([u8; NAMES]) -> [u8; NAMES]) -> ([u8; NAMES], [u8; TAG]) {
        // SipHash, with the key as the beginning of its input.
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.0);
        hasher.write(nonce);
        let first = hasher.finish().to_le_bytes();
        let mask = [first[0], first[1]];
        hasher.write(&names(mask));
        let mut tag = [0; TAG];
        tag.copy_from_slice(&hasher.finish().to_le_bytes()[..TAG]);
        (mask, tag)
    }

    /// Creates an id that names an owner.
    pub fn make(self, owner: Owner) -> ConnectionId {
        let mut id = [0; LEN];
        // Without random bytes, ids are still unique with those of the thread.
        if random::secret(&mut id[..NONCE]).is_err() {
            id[..NONCE].copy_from_slice(&random::bits64().to_le_bytes()[..NONCE]);
        }
        let names = [owner.worker, owner.reactor];
        let (mask, tag) = self.seal(&id[..NONCE], |_| names);
        for (at, name) in names.into_iter().enumerate() {
            id[NONCE + at] = name ^ mask[at];
        }
        id[NONCE + NAMES..].copy_from_slice(&tag);
        ConnectionId::new(&id)
    }

    /// Returns the owner that an id names; `None` if the key did not create it.
    pub fn owner(self, id: &[u8]) -> Option<Owner> {
        let id: &[u8; LEN] = id.try_into().ok()?;
        let names = |mask: [u8; NAMES]| [id[NONCE] ^ mask[0], id[NONCE + 1] ^ mask[1]];
        let (mask, tag) = self.seal(&id[..NONCE], names);
        let [worker, reactor] = names(mask);
        (id[NONCE + NAMES..] == tag).then_some(Owner { worker, reactor })
    }
}

/// Selects the worker that new ids name. Ids for clients that have to prove their address name none, because any worker
/// may serve them then.
#[derive(Clone, Default)]
pub struct Neutral(Arc<AtomicBool>);

impl Neutral {
    /// Runs `work`. The ids that it creates name no worker.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.store(true, Ordering::Relaxed);
        let result = work();
        self.0.store(false, Ordering::Relaxed);
        result
    }
}

/// Creates the connection ids of an endpoint.
pub struct IdGenerator {
    pub key: IdKey,
    pub owner: Owner,
    pub neutral: Neutral,
}

impl ConnectionIdGenerator for IdGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        let is_neutral = self.neutral.0.load(Ordering::Relaxed);
        let worker = if is_neutral { ANY_WORKER } else { self.owner.worker };
        self.key.make(Owner { worker, ..self.owner })
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        self.key.owner(id).map(drop).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Returns the destination of a datagram's first packet (RFC 8999 section 5), if it has the length of our ids.
pub fn destination(datagram: &[u8]) -> Option<&[u8]> {
    /// The flag of a long header.
    const LONG: u8 = 0x80;
    /// The flags and the version before the length of the id.
    const BEFORE: usize = 5;
    let first = *datagram.first()?;
    if first & LONG == 0 {
        return datagram.get(1..=LEN);
    }
    (usize::from(*datagram.get(BEFORE)?) == LEN).then(|| datagram.get(BEFORE + 1..=BEFORE + LEN))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_their_owner_and_cannot_be_changed() {
        let (key, other) = (IdKey::new([1; 32]), IdKey::new([2; 32]));
        let mut seen = std::collections::HashSet::new();
        for (worker, reactor) in [(1, 0), (1, 1), (2, 63), (255, 255), (ANY_WORKER, 0)] {
            let owner = Owner { worker, reactor };
            let id = key.make(owner);
            assert!(seen.insert(id.to_vec()));
            assert_eq!((id.len(), key.owner(&id), other.owner(&id)), (LEN, Some(owner), None));
            for at in 0..LEN {
                let mut changed = id.to_vec();
                changed[at] ^= 1;
                assert_eq!(key.owner(&changed), None, "byte {at}");
                assert_eq!(key.owner(&id[..at]), None, "{at} bytes");
            }
        }
    }

    #[test]
    fn ids_of_retries_name_no_worker() {
        let (key, neutral) = (IdKey::new([1; 32]), Neutral::default());
        let owner = Owner { worker: 7, reactor: 3 };
        let mut generator = IdGenerator { key, owner, neutral: neutral.clone() };
        let worker = |id: ConnectionId| key.owner(&id).map(|owner| (owner.worker, owner.reactor));
        assert_eq!(worker(generator.generate_cid()), Some((7, 3)));
        assert_eq!(worker(neutral.during(|| generator.generate_cid())), Some((ANY_WORKER, 3)));
        assert_eq!(worker(generator.generate_cid()), Some((7, 3)));
    }

    #[test]
    fn destinations_of_datagrams() {
        let id = [7; LEN];
        let short = [&[0x40][..], &id, b"payload"].concat();
        let long = [&[0xc0, 0, 0, 0, 1, LEN as u8][..], &id, &[0]].concat();
        for datagram in [&short, &long] {
            assert_eq!(destination(datagram), Some(&id[..]));
            let len = if datagram[0] == 0x40 { LEN + 1 } else { LEN + 6 };
            assert!((0..len).all(|n| destination(&datagram[..n]).is_none()));
        }
        assert_eq!(destination(&[0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), None);
    }
}
