//! Bans that outlive the process: each is a note in the first store that is kept. The note is written before the ban
//! takes effect, and removed with the ban.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_storage::{KeptNote, Stevedore};

use crate::bans::build::BanSpec;
use crate::bans::list::{Ban, BanList, find};
use crate::bans::test::fingerprint;
use crate::bans::text::decode;
use crate::object::Object;

/// The highest number of a ban that is taken over: an attacker could choose one to which no ban can be added.
const MOST_BANS: u32 = u32::MAX / 2;

impl BanList {
    /// Replaces the initial ban by the bans of the previous process. Returns false, and changes nothing, if one is
    /// missing or damaged.
    pub(crate) fn restore(&self, mut notes: Vec<KeptNote>) -> bool {
        notes.sort_unstable_by_key(|note| note.number);
        let is_contiguous = notes.array_windows().all(|[a, b]| a.number.checked_add(1) == Some(b.number));
        let specs: Option<Vec<BanSpec>> = notes.iter().map(|note| decode(&note.text)).collect();
        let Some((specs, newest)) = specs.zip(notes.last()) else { return false };
        if !is_contiguous || newest.number > MOST_BANS {
            return false;
        }
        let mut bans = self.bans.write();
        let first = notes.first().map_or(newest.number, |note| note.number);
        // Older bans, which disks have recorded, stay if none is missing between them and the first one.
        let is_gapless = self.newest.load(Ordering::Relaxed) >= first - 1
            && self.newest.load(Ordering::Relaxed) <= newest.number;
        let stays = |ban: &Arc<Ban>| self.base.load(Ordering::Relaxed) > 0 && ban.number < first;
        if self.base.load(Ordering::Relaxed) > 0 && !is_gapless {
            return false;
        }
        let (stay, gone): (VecDeque<_>, VecDeque<_>) = bans.drain(..).partition(stays);
        *bans = stay;
        self.uncount(gone);
        self.newest.store(newest.number, Ordering::Release);
        let mut by_fingerprint = self.by_fingerprint.lock();
        by_fingerprint.clear();
        for (note, spec) in notes.iter().zip(specs) {
            let ban = Ban::new(note.number, note.time, spec);
            let _ = ban.note.set(note.note);
            self.count_new(&ban);
            if note.is_completed {
                self.complete(&ban);
            }
            if !ban.tests.iter().any(|test| test.field.depends_on_time()) {
                by_fingerprint.entry(fingerprint(&ban.tests)).or_default().push(ban.number);
            }
            bans.push_front(Arc::new(ban));
        }
        true
    }

    /// Writes the bans that have no note yet, and from now on all new ones, to a store for the next process.
    pub(crate) fn write_notes(&self, keeper: &Stevedore) {
        let bans = self.bans.write();
        let _ = self.keeper.set(keeper.clone());
        // Only the initial ban, which has no conditions, and those from disks have none.
        for ban in bans.iter().filter(|ban| ban.note.get().is_none()) {
            if let Some(note) =
                keeper.write_note(ban.number, ban.time, ban.past_text.get().map_or(&[], |text| text))
            {
                let _ = ban.note.set(note);
                if ban.is_completed() {
                    keeper.complete_note(note);
                }
            }
        }
    }

    /// Makes an object of the previous process refer to the ban that it was last tested against. Returns false if there
    /// is no such ban.
    pub(crate) fn attach_to(&self, object: &Object) -> bool {
        let bans = self.bans.read();
        let Some(ban) = find(&bans, object.ban()) else { return false };
        self.note_late(ban.number);
        ban.objects.fetch_add(1, Ordering::Relaxed);
        true
    }
}
