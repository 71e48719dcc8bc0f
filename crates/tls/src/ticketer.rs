//! Session tickets (RFC 8446, section 4.6.1; RFC 5077). Their keys change every six hours and follow from a secret that
//! the manager hands to each worker, and to the next program in an upgrade, so that a client resumes its session at any
//! reactor and after a restart of the worker.
//!
//! The secret of a period follows from that of the period before, and not the reverse. Tickets of the current and of the
//! previous period are accepted; secrets of earlier periods are forgotten.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use lacquer_sources::{clock, random};
use parking_lot::RwLock;
use rustls::server::ProducesTickets;
use serde::{Deserialize, Serialize};

/// Seconds in a period.
const PERIOD: u64 = 6 * 3600;
/// A ticket begins with the name of its key.
const NAME: usize = 16;
/// Maximum size of a ticket, beyond that of any that we create: chains of client certificates have limits.
const LONGEST: usize = 1 << 16;
/// The most periods that are computed one by one. A clock that jumps farther leads to a secret of its own.
const STEPS: u64 = 10_000;

/// The secret of a period.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketSecret {
    period: u64,
    secret: [u8; 32],
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSecret").field("period", &self.period).finish_non_exhaustive()
    }
}

fn period(now: f64) -> u64 {
    now.max(0.0) as u64 / PERIOD
}

impl TicketSecret {
    /// Creates the secret of the period before `now` from random bytes.
    pub fn new(secret: [u8; 32], now: f64) -> TicketSecret {
        TicketSecret { period: period(now).saturating_sub(1), secret }
    }

    fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.secret), purpose);
        let mut derived = [0; 32];
        derived.copy_from_slice(tag.as_ref());
        derived
    }

    fn next(&self) -> TicketSecret {
        TicketSecret { period: self.period.saturating_add(1), secret: self.derive(b"lacquer next period") }
    }

    /// Replaces the secret by that of a later period.
    fn advance_to(&mut self, period: u64) {
        if period > self.period.saturating_add(STEPS) {
            let secret = self.derive(&[b"lacquer jump", &period.to_be_bytes()[..]].concat());
            *self = TicketSecret { period, secret };
        }
        while self.period < period {
            *self = self.next();
        }
    }

    /// Replaces the secret by that of the period before `now`, so that the earlier ones are forgotten.
    pub fn advance(&mut self, now: f64) {
        self.advance_to(period(now).saturating_sub(1));
    }
}

/// The key of a period.
struct TicketKey {
    name: [u8; NAME],
    key: LessSafeKey,
}

impl TicketKey {
    fn of(secret: &TicketSecret, context: &[u8]) -> Option<TicketKey> {
        let derive = |purpose: &[u8]| secret.derive(&[purpose, context].concat());
        let key = UnboundKey::new(&AES_256_GCM, &derive(b"lacquer ticket key")).ok()?;
        let mut name = [0; NAME];
        name.copy_from_slice(&derive(b"lacquer ticket name")[..NAME]);
        Some(TicketKey { name, key: LessSafeKey::new(key) })
    }

    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        random::secret(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let nonce_of_key = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce_of_key, Aad::from(self.name), &mut sealed).ok()?;
        Some([&self.name[..], &nonce, &sealed].concat())
    }

    fn open(&self, nonce: [u8; NONCE_LEN], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut opened = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let length = self.key.open_in_place(nonce, Aad::from(self.name), &mut opened).ok()?.len();
        opened.truncate(length);
        Some(opened)
    }
}

/// The keys of the current and the previous period.
struct Keys {
    /// The secret of the previous period.
    secret: TicketSecret,
    current: Option<TicketKey>,
    previous: Option<TicketKey>,
    context: Box<[u8]>,
}

impl Keys {
    fn of(secret: TicketSecret, context: Box<[u8]>) -> Keys {
        let (current, previous) = (secret.next(), &secret);
        let key = |secret| TicketKey::of(secret, &context);
        Keys { current: key(&current), previous: key(previous), secret, context }
    }
}

/// Encrypts and decrypts tickets.
pub struct Ticketer {
    keys: RwLock<Keys>,
}

impl Ticketer {
    /// Creates one whose tickets those of another context do not accept.
    pub fn new(secret: TicketSecret, context: &[u8]) -> Ticketer {
        Ticketer { keys: RwLock::new(Keys::of(secret, context.into())) }
    }

    /// Returns the secret of the previous period.
    pub fn secret(&self) -> TicketSecret {
        self.rotate(clock::real());
        self.keys.read().secret.clone()
    }

    /// Changes the keys if a new period has begun. A clock that is set back has no effect.
    fn rotate(&self, now: f64) {
        let previous = period(now).saturating_sub(1);
        if self.keys.read().secret.period >= previous {
            return;
        }
        let mut keys = self.keys.write();
        let mut secret = keys.secret.clone();
        secret.advance_to(previous);
        *keys = Keys::of(secret, std::mem::take(&mut keys.context));
    }

    fn seal_at(&self, plain: &[u8], now: f64) -> Option<Vec<u8>> {
        self.rotate(now);
        self.keys.read().current.as_ref()?.seal(plain)
    }

    fn open_at(&self, ticket: &[u8], now: f64) -> Option<Vec<u8>> {
        if ticket.len() > LONGEST {
            return None;
        }
        self.rotate(now);
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys.read();
        let mut known = [&keys.current, &keys.previous].into_iter().flatten();
        known.find(|key| key.name == *name)?.open(*nonce, sealed)
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketer").finish_non_exhaustive()
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    /// The key of a ticket is accepted for at least a period.
    fn lifetime(&self) -> u32 {
        PERIOD as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal_at(plain, clock::real())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open_at(cipher, clock::real())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1_800_000_000.0;
    const LATER: f64 = NOW + PERIOD as f64;

    #[test]
    fn tickets_are_accepted_for_two_periods_and_by_other_workers() {
        let mut secret = TicketSecret::new([7; 32], NOW);
        let one = Ticketer::new(secret.clone(), b"");
        let ticket = one.seal_at(b"session", NOW).unwrap();
        assert_ne!(one.seal_at(b"session", NOW).unwrap(), ticket);
        secret.advance(LATER);
        let other = Ticketer::new(secret, b"");
        for ticketer in [&one, &other] {
            assert_eq!(ticketer.open_at(&ticket, LATER).as_deref(), Some(&b"session"[..]));
            assert_eq!(ticketer.open_at(&ticket, LATER + PERIOD as f64), None);
            assert_eq!(
                ticketer.open_at(&ticket, NOW),
                None,
                "the key is forgotten, even if the clock is set back"
            );
        }
    }

    #[test]
    fn other_tickets_are_refused() {
        let ticketer = Ticketer::new(TicketSecret::new([7; 32], NOW), b"");
        let ticket = ticketer.seal_at(b"session", NOW).unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(ticketer.open_at(&changed, NOW), None, "byte {at}");
            assert_eq!(ticketer.open_at(&ticket[..at], NOW), None, "{at} bytes");
        }
        let foreign = Ticketer::new(TicketSecret::new([8; 32], NOW), b"").seal_at(b"session", NOW).unwrap();
        assert_eq!(ticketer.open_at(&foreign, NOW), None);
        let elsewhere = Ticketer::new(TicketSecret::new([7; 32], NOW), b"client-verify");
        assert_eq!(elsewhere.open_at(&ticket, NOW), None, "another context");
        assert_eq!(ticketer.open_at(&vec![0; LONGEST + 1], NOW), None);
    }

    /// The period comes from another program, which may have read any clock.
    #[test]
    fn any_period_gives_keys() {
        for period in [0, 1, u64::MAX - 1, u64::MAX] {
            let mut secret = TicketSecret { period, secret: [7; 32] };
            secret.advance(NOW);
            let ticketer = Ticketer::new(secret, b"");
            let ticket = ticketer.seal_at(b"session", NOW).unwrap();
            assert!(ticketer.open_at(&ticket, NOW).is_some(), "{period}");
        }
    }

    #[test]
    fn a_clock_that_jumps_takes_no_time() {
        let ticketer = Ticketer::new(TicketSecret::new([7; 32], NOW), b"");
        let ticket = ticketer.seal_at(b"session", 1e15).unwrap();
        assert!(ticketer.open_at(&ticket, 1e15).is_some());
    }
}
