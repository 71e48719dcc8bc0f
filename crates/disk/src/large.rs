//! The parts of large objects: where they are, and that their segments are not reused while they are read.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::layout::Layout;
use crate::record::{Fields, part_len};
use crate::state::Phase;
use crate::stats::bump;
use crate::store::{Candidate, Store};

/// The log positions of the parts of a large object. Their segments are not reused while this exists.
pub(crate) struct Places {
    logs: Box<[u64]>,
    _pins: Vec<Arc<()>>,
}

/// A part of a body in a record: the whole body, or that of one part of a large object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    /// The place of the record on the device, and its log position.
    pub(crate) place: u64,
    pub(crate) log: u64,
    /// The offset in the body at which it begins, and its length.
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Places {
    pub(crate) fn epochs(&self, layout: &Layout) -> BTreeSet<u64> {
        self.logs.iter().map(|log| log / layout.segment).collect()
    }
}

impl Store {
    /// Returns the places of the parts of a large object. `None` if the segment of one was reused: then the object is
    /// removed. While the index is read, the segment may only be not known yet.
    pub(crate) fn places(&self, candidate: &Candidate, fields: &Fields<'_>) -> Option<Places> {
        let is_known = self.phase() != Phase::Recovering;
        let found = self.find_places(fields);
        if found.is_none() && is_known {
            self.drop_unreadable(candidate);
            bump(&self.health.stats.evicted);
        }
        found
    }

    fn find_places(&self, fields: &Fields<'_>) -> Option<Places> {
        let (layout, state) = (&self.layout, self.state.lock());
        let (mut logs, mut pins, mut last) = (Vec::new(), Vec::new(), 0);
        for log in fields.parts() {
            let epoch = log / layout.segment;
            if !state.has_epoch(layout, log) {
                return None;
            }
            if epoch != last {
                pins.push(Arc::clone(&state.slots[layout.slot(epoch) as usize].pin));
                last = epoch;
            }
            logs.push(log);
        }
        Some(Places { logs: logs.into(), _pins: pins })
    }

    /// Returns the part that contains a byte of a body of `body` bytes.
    pub(crate) fn stretch(&self, places: &Places, body: u64, at: u64) -> Option<Stretch> {
        let part = part_len(&self.layout);
        let log = *places.logs.get(usize::try_from(at / part).ok()?)?;
        let start = at / part * part;
        Some(Stretch { place: self.layout.place(log), log, start, len: part.min(body - start) })
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Places({} parts)", self.logs.len())
    }
}
