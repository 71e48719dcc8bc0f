//! Connection ids that name their reactor. Only who has the key can read the name or create an id, and a new worker has
//! the same key as the one before it.

use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use lacquer_sources::random;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

/// Random bytes, the encrypted number of the reactor, and a tag.
const NONCE: usize = 6;
const TAG: usize = 3;
pub const LEN: usize = NONCE + 1 + TAG;

/// The key of connection ids.
#[derive(Clone, Copy)]
pub struct IdKey([u8; 32]);

impl IdKey {
    pub fn new(key: [u8; 32]) -> IdKey {
        IdKey(key)
    }

    /// Returns the mask of the reactor's number, and the tag.
    fn seal(self, nonce: &[u8], reactor: impl FnOnce(u8) -> u8) -> (u8, [u8; TAG]) {
        // SipHash, with the key as the beginning of its input.
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.0);
        hasher.write(nonce);
        let mask = hasher.finish() as u8;
        hasher.write_u8(reactor(mask));
        let mut tag = [0; TAG];
        tag.copy_from_slice(&hasher.finish().to_le_bytes()[..TAG]);
        (mask, tag)
    }

    /// Creates an id that names a reactor.
    pub fn make(self, reactor: u8) -> ConnectionId {
        let mut id = [0; LEN];
        // Without random bytes, ids are still unique with those of the thread.
        if random::secret(&mut id[..NONCE]).is_err() {
            id[..NONCE].copy_from_slice(&random::bits64().to_le_bytes()[..NONCE]);
        }
        let (mask, tag) = self.seal(&id[..NONCE], |_| reactor);
        id[NONCE] = reactor ^ mask;
        id[NONCE + 1..].copy_from_slice(&tag);
        ConnectionId::new(&id)
    }

    /// Returns the reactor that an id names; `None` if the key did not create it.
    pub fn reactor(self, id: &[u8]) -> Option<u8> {
        let id: &[u8; LEN] = id.try_into().ok()?;
        let (mask, tag) = self.seal(&id[..NONCE], |mask| id[NONCE] ^ mask);
        (id[NONCE + 1..] == tag).then_some(id[NONCE] ^ mask)
    }
}

/// Creates the connection ids of an endpoint.
pub struct IdGenerator {
    pub key: IdKey,
    pub reactor: u8,
}

impl ConnectionIdGenerator for IdGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        self.key.make(self.reactor)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        self.key.reactor(id).map(drop).ok_or(InvalidCid)
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
    fn ids_name_their_reactor_and_cannot_be_changed() {
        let (key, other) = (IdKey::new([1; 32]), IdKey::new([2; 32]));
        let mut seen = std::collections::HashSet::new();
        for reactor in [0, 1, 63, 255] {
            let id = key.make(reactor);
            assert!(seen.insert(id.to_vec()));
            assert_eq!((id.len(), key.reactor(&id), other.reactor(&id)), (LEN, Some(reactor), None));
            for at in 0..LEN {
                let mut changed = id.to_vec();
                changed[at] ^= 1;
                assert_eq!(key.reactor(&changed), None, "byte {at}");
                assert_eq!(key.reactor(&id[..at]), None, "{at} bytes");
            }
        }
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
        assert_eq!(destination(&[0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), None);
    }
}
