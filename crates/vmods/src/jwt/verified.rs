//! The tokens that a reactor verified last. Only valid signatures are remembered, each by the hash of algorithm, key and
//! token, so that a token is found only with the key that verified it.

use std::cell::RefCell;
use std::collections::HashSet;

use sha2::{Digest, Sha256};

use super::algorithm::{Algorithm, Key, Signed};

/// Number of tokens in each of two generations; the older one is dropped when the younger one is full.
const GENERATION: usize = 4096;

type Fingerprint = [u8; 32];

#[derive(Default)]
struct Verified {
    young: HashSet<Fingerprint>,
    old: HashSet<Fingerprint>,
}

thread_local! {
    static VERIFIED: RefCell<Verified> = RefCell::default();
}

impl Verified {
    fn contains(&mut self, token: &Fingerprint) -> bool {
        if self.young.contains(token) {
            return true;
        }
        let known = self.old.remove(token);
        if known {
            self.insert(*token);
        }
        known
    }

    fn insert(&mut self, token: Fingerprint) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(token);
    }
}

fn fingerprint(algorithm: Algorithm, key: &Key, signed: &Signed<'_>) -> Fingerprint {
    let mut sha = Sha256::new();
    let (kind, key) = match key {
        Key::Text(key) => (0_u8, key),
        Key::Jwk(key) => (1, key),
    };
    sha.update([kind]);
    for part in [algorithm.name.as_bytes(), key, signed.message, signed.signature] {
        sha.update((part.len() as u64).to_le_bytes());
        sha.update(part);
    }
    sha.finalize().into()
}

/// Verifies a signature, unless this thread has verified it before.
pub(super) fn verify(algorithm: Algorithm, key: &Key, signed: &Signed<'_>) -> Result<(), String> {
    if !algorithm.verifies_slowly() {
        return algorithm.verify(key, signed);
    }
    let fingerprint = fingerprint(algorithm, key, signed);
    if VERIFIED.with_borrow_mut(|verified| verified.contains(&fingerprint)) {
        return Ok(());
    }
    algorithm.verify(key, signed)?;
    VERIFIED.with_borrow_mut(|verified| verified.insert(fingerprint));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_tokens_are_kept_and_their_number_is_bounded() {
        let mut verified = Verified::default();
        let token = |n: u32| {
            let mut token = Fingerprint::default();
            token[..4].copy_from_slice(&n.to_le_bytes());
            token
        };
        verified.insert(token(0));
        for n in 1..20_000 {
            verified.insert(token(n));
            assert!(!n.is_multiple_of(1000) || verified.contains(&token(0)));
        }
        assert!(
            verified.contains(&token(0))
                && verified.contains(&token(19_999))
                && !verified.contains(&token(5))
        );
        assert!(verified.young.len() + verified.old.len() <= 2 * GENERATION + 1);
    }
}
