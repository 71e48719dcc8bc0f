//! The pages that an ACME server fetches to verify names (HTTP-01, RFC 8555 section 8.3).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

/// The path of all pages, before the token.
const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// The pages of the challenges that are pending.
#[derive(Debug, Default)]
pub struct Challenges {
    is_pending: AtomicBool,
    /// By token.
    pages: RwLock<HashMap<Box<[u8]>, Box<[u8]>>>,
}

impl Challenges {
    /// Replaces all pages.
    pub fn set(&self, pages: Vec<(String, String)>) {
        let is_pending = !pages.is_empty();
        let boxed = |text: String| text.into_bytes().into_boxed_slice();
        *self.pages.write() = pages.into_iter().map(|(token, page)| (boxed(token), boxed(page))).collect();
        self.is_pending.store(is_pending, Ordering::Relaxed);
    }

    /// Returns whether there are pages. Cheap to read: every request does.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Relaxed)
    }

    /// Returns the page for a request target.
    pub fn find(&self, target: &[u8]) -> Option<Vec<u8>> {
        let token = target.strip_prefix(PATH)?;
        self.pages.read().get(token).map(|page| page.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pending_tokens_have_pages() {
        let challenges = Challenges::default();
        assert!(!challenges.is_pending());
        challenges.set(vec![("abc".to_owned(), "abc.key".to_owned())]);
        assert!(challenges.is_pending());
        assert_eq!(challenges.find(b"/.well-known/acme-challenge/abc"), Some(b"abc.key".to_vec()));
        for other in ["", "/", "/.well-known/acme-challenge/", "/.well-known/acme-challenge/abc?", "abc"] {
            assert_eq!(challenges.find(other.as_bytes()), None, "{other}");
        }
        challenges.set(Vec::new());
        assert!(!challenges.is_pending());
        assert_eq!(challenges.find(b"/.well-known/acme-challenge/abc"), None);
    }
}
