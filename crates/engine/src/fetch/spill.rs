//! Bodies that are long compared with the memory: they move to a disk while they are fetched, and the fetch waits for the
//! disk when it is too slow.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Fetch;
use super::draft::{Draft, Moving};

/// The longest wait for a disk that takes no bytes, or for memory that other fetches use.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The time after which a fetch tries again to get memory that others use.
const NEXT_ATTEMPT: Duration = Duration::from_millis(5);

/// The number of bytes after which a body is tried again to be moved, whose disk was not ready.
const ATTEMPT_AFTER: u64 = 1 << 20;

impl Fetch {
    /// Passes parts of the body to the disk, and waits while too much of it is in memory. Returns false if the fetch
    /// cannot continue.
    #[cold]
    pub(super) async fn move_body(&mut self, draft: &mut Draft) -> bool {
        self.begin_move(draft);
        let Draft { writer, moving, object, .. } = &mut *draft;
        if writer.has_failed() {
            self.fetch_error("A part of the body cannot be read from the disk");
            return false;
        }
        let Moving::Begun(spill) = moving else { return true };
        spill.advance(writer.len());
        let limit = spill.window();
        let abandonment = self.abandonment(Some(object));
        let wait = timeout(LONGEST_WAIT, poll_fn(|cx| writer.poll_moved(limit, cx)));
        match abandonment.unless(pin!(wait)).await {
            // The caller finds that the fetch is abandoned.
            None => return true,
            Some(Err(_)) => {
                self.fetch_error("The disk does not take the body");
                return false;
            }
            Some(Ok(())) => {}
        }
        if !spill.is_stopped() && !self.has_free(draft, spill_free(draft)) {
            // Heads and reads from the disk need memory, too.
            draft.writer.drop_moved();
            self.wait_for_disk(draft).await;
        }
        true
    }

    fn begin_move(&mut self, draft: &mut Draft) {
        if matches!(draft.moving, Moving::From(_)) {
            let digest = self.request.key.digest();
            let cache = self.task.services().cache();
            draft.moving = match cache.begin_spill(digest, &draft.object, &draft.writer) {
                Some(spill) => Moving::Begun(Box::new(spill)),
                // Until then, nothing is written.
                None if cache.is_reading_index(digest, &draft.object, &draft.writer) => {
                    Moving::From(draft.writer.len() + ATTEMPT_AFTER)
                }
                None => Moving::Never,
            };
        }
    }

    /// Waits a little if the body can move when the index of the disk has been read. Returns false if it stays in memory, or
    /// `waited` is too long.
    async fn wait_for_index(&self, draft: &Draft, waited: &mut Duration) -> bool {
        let is_of_use = matches!(draft.moving, Moving::From(_)) && *waited <= LONGEST_WAIT;
        if !is_of_use || self.is_abandoned(Some(&draft.object)) {
            return false;
        }
        sleep(NEXT_ATTEMPT).await;
        *waited += NEXT_ATTEMPT;
        true
    }

    fn has_free(&self, draft: &Draft, bytes: u64) -> bool {
        let services = self.task.services();
        let stevedore = services.stevedores().get(u32::from(draft.object.stevedore()));
        stevedore.is_none_or(|stevedore| stevedore.has_free(bytes))
    }

    /// Waits until the disk has taken a part of the body that it has not taken yet. Returns whether it has.
    async fn wait_for_disk(&self, draft: &Draft) -> bool {
        let Moving::Begun(spill) = &draft.moving else { return false };
        if !spill.has_unwritten(&draft.writer) {
            return false;
        }
        let missing = draft.writer.len() - draft.writer.moved();
        let abandonment = self.abandonment(Some(&draft.object));
        let wait = timeout(LONGEST_WAIT, poll_fn(|cx| draft.writer.poll_moved(missing, cx)));
        matches!(abandonment.unless(pin!(wait)).await, Some(Ok(())))
    }

    /// Frees memory for a body when the storage is full, or waits until others have. `waited` is the time since the first
    /// attempt. Returns false if that is not possible.
    pub(super) async fn free_memory(&mut self, draft: &mut Draft, waited: &mut Duration) -> bool {
        self.begin_move(draft);
        let Moving::Begun(spill) = &mut draft.moving else {
            return self.wait_for_index(draft, waited).await;
        };
        spill.advance(draft.writer.len());
        let has_others = spill.has_others();
        if spill.is_stopped() || draft.writer.has_failed() || *waited > LONGEST_WAIT {
            return false;
        }
        let before = draft.writer.moved();
        draft.writer.drop_moved();
        if self.wait_for_disk(draft).await {
            draft.writer.drop_moved();
            return draft.writer.moved() > before;
        }
        let is_abandoned = self.is_abandoned(Some(&draft.object));
        if !has_others || is_abandoned {
            return false;
        }
        sleep(NEXT_ATTEMPT).await;
        *waited += NEXT_ATTEMPT;
        true
    }
}

fn spill_free(draft: &Draft) -> u64 {
    match &draft.moving {
        Moving::Begun(spill) => spill.free(),
        _ => 0,
    }
}
