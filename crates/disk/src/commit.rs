//! Accepts objects to be written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::BATCH;
use crate::part_stream::PartStream;
use crate::record::{fingerprint, fits, large_record_len, record_len};
use crate::state::{Content, Dropped, Meant, Queued, Source, counted};
use crate::stats::bump;
use crate::store::{Options, Store};
use crate::stream::StreamedParts;

/// The number of bytes in the queue that fill a write.
pub(crate) const FULL: u64 = BATCH as u64;

/// The result of passing an object to a store.
#[derive(Debug, Default)]
#[must_use = "objects are dropped with no lock held"]
pub struct Committed {
    pub dropped: Dropped,
    /// The object is refused for now, because too many wait, or the store has forgotten a ban since it was tested.
    pub is_refused: bool,
}

impl Store {
    /// Returns whether objects are refused, because too many wait. Cheap.
    pub fn is_crowded(&self) -> bool {
        self.health.is_crowded.load(Ordering::Relaxed)
    }

    /// Returns whether the index is still being read. Cheap.
    pub fn is_reading_index(&self) -> bool {
        !self.health.is_known.load(Ordering::Relaxed)
    }

    /// Accepts an object, to be written later. It replaces those that the same requests may match, at once in this
    /// process, and for the next start when it is durable. If it has a wrong size, or too many objects wait, it is
    /// refused, and all objects with its key are removed: they are older.
    pub fn commit(&self, content: Box<dyn Content>) -> Committed {
        self.commit_from(content, None)
    }

    /// Accepts an object like [`commit`](Self::commit), whose body was written in parts while it was fetched. If that was
    /// stopped, the object is refused.
    pub fn commit_streamed(&self, content: Box<dyn Content>, stream: &PartStream) -> Committed {
        self.commit_from(content, Some(Arc::clone(&stream.parts)))
    }

    fn commit_from(&self, content: Box<dyn Content>, stream: Option<Arc<StreamedParts>>) -> Committed {
        let (meta, len, body, tags, fits) = {
            let parts = content.parts();
            let whole = record_len(&parts);
            let fits = fits(&self.layout, &parts, whole);
            let len = if stream.is_some() { large_record_len(&self.layout, &parts) } else { whole };
            (parts.meta, len, parts.body_len, self.tags_of(parts.head), fits)
        };
        let fits = fits
            && stream
                .as_ref()
                .is_none_or(|stream| !stream.is_stopped() && len <= self.layout.largest_record());
        let Options { min, max, queue, .. } = self.options();
        let has_size = (min..=max).contains(&body) && fits;
        let fingerprint = fingerprint(&meta.key);
        let mut state = self.state.lock();
        if state.phase.is_out() {
            return Committed::default();
        }
        let bytes = counted(len);
        let has_room = state.queue.bytes() + bytes <= queue.max(bytes);
        // The next start would not know a ban that may concern it, if that was dropped meanwhile.
        let is_tested = meta.ban >= state.live.dropped_ban;
        let is_refused = has_size && !(has_room && is_tested);
        let Some(tags) = tags.filter(|_| has_size && !is_refused) else {
            if has_size {
                bump(&self.health.stats.refused);
            }
            if has_size && !has_room {
                // Cleared with this lock held, too.
                self.health.is_crowded.store(true, Ordering::Relaxed);
            }
            drop(state);
            let dropped = self.purge_fingerprint(fingerprint, None);
            drop(content);
            return Committed { dropped, is_refused };
        };
        let dropped = state.drop_objects(&self.index, fingerprint, Meant::Rivals(meta.variant));
        let tag_purges = state.known_tags.purges();
        let epoch = state.epoch;
        state.known_tags.add(&tags, epoch);
        let source = match stream {
            Some(stream) => Source::Streamed(content, stream),
            None => Source::Content(content),
        };
        let before = state.queue.bytes();
        state.queue.push_back(Queued { meta, tags, tag_purges, len, source });
        // The writer waits until there is something, and then for a while until that fills a write.
        let is_awaited = before == 0 || (before < FULL && state.queue.bytes() >= FULL);
        drop(state);
        if is_awaited {
            self.has_objects.notify_one();
        }
        Committed { dropped, is_refused }
    }
}
