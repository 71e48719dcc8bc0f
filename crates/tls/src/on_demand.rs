//! Names whose certificates are obtained when a client first asks for them: those of the operator's list, and no others.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

/// The maximum number of names that wait to be reported to the manager. The names of further clients are not recorded.
const MAX_WANTED: usize = 64;
/// The maximum number of handshakes that wait for a certificate.
const MAX_WAITING: usize = 64;

/// Names of hosts in lower case, each of which may have `*` in place of its first label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameList {
    exact: HashSet<Box<str>>,
    /// The names with a wildcard, without `*.`.
    parents: HashSet<Box<str>>,
}

impl NameList {
    /// Adds a name, which may begin with `*.`.
    pub fn add(&mut self, name: &str) {
        match name.strip_prefix("*.") {
            Some(parent) => self.parents.insert(parent.into()),
            None => self.exact.insert(name.into()),
        };
    }

    /// Returns whether the list contains a name in lower case. A wildcard stands for one label.
    pub fn contains(&self, name: &str) -> bool {
        let has_parent = || name.split_once('.').is_some_and(|(_, parent)| self.parents.contains(parent));
        self.exact.contains(name) || has_parent()
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.parents.is_empty()
    }
}

/// The list in use, and the names that clients have asked for.
#[derive(Debug, Default)]
pub struct OnDemand {
    list: RwLock<NameList>,
    wanted: Mutex<BTreeSet<String>>,
    waiting: Arc<AtomicUsize>,
}

/// The permission of a handshake to wait for a certificate.
#[derive(Debug)]
pub struct WaitPermit(Arc<AtomicUsize>);

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OnDemand {
    /// Replaces the list.
    pub fn set(&self, list: NameList) {
        *self.list.write() = list;
    }

    /// Records a name without a certificate that a client asks for, and returns true if the list contains it.
    pub fn want(&self, name: &str) -> bool {
        // Without a list, a handshake that fails costs no more than before.
        if self.list.read().is_empty() {
            return false;
        }
        let name = name.to_ascii_lowercase();
        if !self.list.read().contains(&name) {
            return false;
        }
        let mut wanted = self.wanted.lock();
        if wanted.len() < MAX_WANTED {
            wanted.insert(name);
        }
        true
    }

    /// Removes and returns the names that were recorded.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.wanted.lock()).into_iter().collect()
    }

    /// Permits a handshake to wait for a certificate, unless too many wait already.
    pub fn wait_permit(&self) -> Option<WaitPermit> {
        let permit = WaitPermit(self.waiting.clone());
        // Dropping the permit takes the number back.
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        (before < MAX_WAITING).then_some(permit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> NameList {
        let mut list = NameList::default();
        list.add("shop.example");
        list.add("*.users.example");
        list
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        for (name, expected) in [
            ("shop.example", true),
            ("a.users.example", true),
            ("users.example", false),
            ("a.b.users.example", false),
            ("ausers.example", false),
            ("xshop.example", false),
            ("example", false),
            ("", false),
            (".users.example", true),
            ("*.users.example", true),
        ] {
            assert_eq!(list().contains(name), expected, "{name}");
        }
    }

    #[test]
    fn only_listed_names_are_recorded_and_few_of_them() {
        let names = OnDemand::default();
        assert!(!names.want("shop.example"), "there is no list");
        names.set(list());
        assert!(names.want("Shop.Example") && names.want("shop.example"));
        assert!(!names.want("evil.example"));
        assert_eq!(names.take(), ["shop.example"]);
        assert_eq!(names.take(), [""; 0]);
        for n in 0..1000 {
            assert!(names.want(&format!("n{n}.users.example")));
        }
        assert_eq!(names.take().len(), MAX_WANTED);
    }

    #[test]
    fn few_handshakes_wait() {
        let names = OnDemand::default();
        let mut permits: Vec<_> = (0..MAX_WAITING).map(|_| names.wait_permit().unwrap()).collect();
        assert!(names.wait_permit().is_none() && names.wait_permit().is_none());
        permits.pop();
        assert!(names.wait_permit().is_some());
    }
}
