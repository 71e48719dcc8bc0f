//! Reuse of the oldest segment: its objects leave the store, except for those that are in use, which are written again.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::append::BATCH;
use crate::blocks::{BLOCK, read_around};
use crate::known_tags::SegmentTags;
use crate::layout::Layout;
use crate::moves::{KEPT_DIVISOR, Moves};
use crate::record::{Form, Header, fingerprint};
use crate::segment::{self, Extent, FIRST, Summarized};
use crate::state::{Queued, Source};
use crate::stats::bump;
use crate::store::Store;

/// The work for one new segment, for which several old ones may be emptied.
pub(crate) struct Emptying {
    /// The length of the object that waits for the new segment.
    pub(crate) next: u64,
    /// The number of bytes that are written again.
    pub(crate) kept: u64,
}

/// Lets the owner drop the objects in memory whose bodies are in a segment and that no response uses. Those that were hit
/// may be written again, as if they were still in memory.
pub(crate) fn let_go(store: &Store, slot: u64, epoch: u64) {
    let Some(owner) = store.owner() else { return };
    let summary = segment::read_summary(&store.layout, &*store.blocks, slot, epoch, Extent::Whole);
    // A fault is noted when the segment is emptied.
    let Ok(Some(summary)) = summary else { return };
    let keys: BTreeSet<_> = summary.records.iter().map(|record| record.key).collect();
    for key in keys {
        if owner.let_go(&key) {
            store.index.hit_all(fingerprint(&key));
        }
    }
}

/// Removes the objects of a segment from the index. Those that are in use are queued to be written again, as far
/// as they leave room in the new segment for the next object. Large ones are written again from here.
pub(crate) fn empty(store: &Arc<Store>, moves: &mut Moves, slot: u64, epoch: u64, emptying: &mut Emptying) {
    let layout = &store.layout;
    let summary = segment::read_summary(layout, &*store.blocks, slot, epoch, Extent::Whole);
    let Ok(Some(summary)) = summary else {
        let reason = summary.err().map_or_else(|| "its summary is damaged".to_owned(), |e| e.to_string());
        store.note_lost(slot, reason);
        store.sweep_segment(slot);
        store.check_health();
        return;
    };
    let base = layout.segment_at(slot);
    let now = store.now();
    let most = most_kept(layout, summary.records.len() + 1, emptying.next);
    let (before, mut parts_of) = (emptying.kept, BTreeSet::new());
    for record in &summary.records {
        if record.form == Form::Part {
            // Objects in memory whose bodies are here go. Those on the device are removed when they are read.
            if parts_of.insert(record.key)
                && !moves.has(&record.key)
                && !moves.begin(store, &record.key, epoch)
                && let Some(owner) = store.owner()
            {
                owner.forget(&record.key);
            }
            continue;
        }
        let place = base + record.offset;
        if record.form == Form::Large && moves.has_head_at(place) {
            continue;
        }
        let fingerprint = fingerprint(&record.key);
        let Some(entry) = store.index.at(fingerprint, place) else { continue };
        let is_wanted = f64::from(entry.expires) > now
            && emptying.kept + record.len <= most
            && record.form == Form::Object
            && (entry.is_hit() || store.owner().is_some_and(|owner| owner.is_used(&record.key)));
        let queued = if is_wanted { reread(store, record, epoch, place) } else { None };
        let mut state = store.state.lock();
        if !store.index.remove(fingerprint, place) {
            continue;
        }
        let is_kept = queued.is_some();
        match queued {
            Some(queued) => {
                emptying.kept += queued.len;
                state.queue.push_front(queued);
            }
            None => bump(&store.health.stats.evicted),
        }
        drop(state);
        match store.owner() {
            Some(owner) if is_kept => owner.forget(&record.key),
            Some(owner) => owner.evicted(&record.key, record.variant),
            None => {}
        }
    }
    moves.add_credit(layout, emptying.kept - before);
}

/// Reads an object that will be written again.
fn reread(store: &Store, record: &Summarized, epoch: u64, place: u64) -> Option<Queued> {
    let log = epoch * store.layout.segment + record.offset;
    let (buffer, from) = read_around(&*store.blocks, place, record.len).ok()?;
    let bytes = &buffer.bytes()[from..from + record.len as usize];
    let mut header = Header::decode(&store.layout, log, bytes)?;
    if !header.is_sound(&store.layout, bytes) {
        store.note_damaged(place);
        return None;
    }
    let tags = store.tags_of(header.fields(&store.layout, bytes)?.head)?;
    let (is_old, tag_purges) = {
        let state = store.state.lock();
        if state.live.is_purged_by_tag(&tags, log) {
            return None;
        }
        (log < state.start, state.known_tags.purges())
    };
    header.meta.ban = store.tested_ban(header.meta.ban, is_old);
    Some(Queued {
        meta: header.meta,
        tags,
        tag_purges,
        len: header.len,
        source: Source::Moved { header, bytes: bytes.to_vec() },
    })
}

/// Returns how many bytes of a segment with `count` records may be written again, so that an object of `next` bytes has
/// room beside them.
fn most_kept(layout: &Layout, count: usize, next: u64) -> u64 {
    // Each batch begins at a block.
    let gaps = (layout.segment / BATCH as u64 + 2) * BLOCK;
    let limit = segment::limit(layout, count, SegmentTags::most(layout));
    let room = limit.saturating_sub(FIRST + gaps + next);
    room.min(layout.segment / KEPT_DIVISOR)
}
