//! The answers of a store in a seeded world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The objects that a purge concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purged {
    Key(u64),
    Tag(u8),
}

/// The answers that a store has given, which the next start must keep.
pub struct Ledger<Object> {
    pub objects: BTreeMap<u64, Object>,
    /// The version up to which no object that a purge concerns may be found, in this process and after the next start.
    pub purged: BTreeMap<Purged, u64>,
    pub purged_for_ever: BTreeMap<Purged, u64>,
    pub purges: Vec<(Purged, u64, Arc<AtomicBool>)>,
    pub bans: Vec<(u32, Arc<AtomicBool>)>,
    pub recorded_bans: BTreeSet<u32>,
    pub version: u64,
    pub ban: u32,
}

impl<Object> Default for Ledger<Object> {
    fn default() -> Self {
        Ledger {
            objects: BTreeMap::new(),
            purged: BTreeMap::new(),
            purged_for_ever: BTreeMap::new(),
            purges: Vec::new(),
            bans: Vec::new(),
            recorded_bans: BTreeSet::new(),
            version: 0,
            ban: 0,
        }
    }
}

impl<Object> Ledger<Object> {
    /// Notes the answers that went out.
    pub fn collect(&mut self, is_off: bool) {
        if is_off {
            // With the power, the process has ended.
            self.purges.clear();
            self.bans.clear();
        }
        let Self { purges, purged_for_ever, bans, recorded_bans, .. } = self;
        purges.retain(|(purged, version, answered)| {
            let is_open = !answered.load(Ordering::Relaxed);
            if !is_open {
                let known = purged_for_ever.entry(*purged).or_default();
                *known = (*known).max(*version);
            }
            is_open
        });
        bans.retain(|(number, answered)| {
            let is_open = !answered.load(Ordering::Relaxed);
            if !is_open {
                recorded_bans.insert(*number);
            }
            is_open
        });
    }
}
