//! The key under which a request is looked up.

use std::cell::OnceCell;

use sha2::{Digest, Sha256};

/// The key of a request: the SHA-256 of what `vcl_hash` adds. The hash is computed at its first use, so that a request
/// that VCL passes costs none.
#[derive(Clone, Default)]
pub struct CacheKey {
    hasher: Sha256,
    digest: OnceCell<[u8; 32]>,
    /// `vcl_hash` runs.
    is_open: bool,
}

impl CacheKey {
    /// Begins a new key, for `vcl_hash`.
    #[inline]
    pub fn open(&mut self) {
        *self = CacheKey { is_open: true, ..CacheKey::default() };
    }

    /// Ends the key, when `vcl_hash` has returned.
    #[inline]
    pub fn close(&mut self) {
        self.is_open = false;
    }

    /// Adds to the key. Returns false if it is complete.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) -> bool {
        if self.is_open {
            self.hasher.update(bytes);
        }
        self.is_open
    }

    #[inline]
    pub fn digest(&self) -> &[u8; 32] {
        self.digest.get_or_init(|| self.hasher.clone().finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_open_key_changes() {
        let mut key = CacheKey::default();
        assert!(!key.add(b"a"));
        assert_eq!(key.digest(), CacheKey::default().digest());
        key.open();
        assert!(key.add(b"a") && key.add(b"b"));
        key.close();
        assert!(!key.add(b"c"));
        assert_eq!(*key.digest(), <[u8; 32]>::from(Sha256::digest(b"ab")));
        let copy = key.clone();
        key.open();
        key.close();
        assert_eq!(*key.digest(), <[u8; 32]>::from(Sha256::digest(b"")));
        assert_eq!(*copy.digest(), <[u8; 32]>::from(Sha256::digest(b"ab")));
    }
}
