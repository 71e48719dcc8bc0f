//! Bans in the journal, and the bans that objects were tested against.

use crate::journal::Ban;
use crate::state::{Hold, Phase};
use crate::store::Store;

impl Store {
    /// Records a ban. `hold` is dropped when it is durable.
    pub fn ban(&self, ban: Ban, hold: Option<Hold>) {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Failing => state.pending.holds.extend(hold),
            Phase::Failed | Phase::Retired => {}
            Phase::Recovering | Phase::Working => {
                state.record_ban(ban, hold);
                drop(state);
                self.has_records.notify_one();
            }
        }
    }

    /// Records that bans up to a number exist. This store may not have recorded them, because it is newer, or the last
    /// process has ended before.
    pub fn count_bans(&self, last: u32) {
        let mut state = self.state.lock();
        if last > state.live.last_ban && !state.phase.is_out() {
            state.live.last_ban = last;
            // The end of the recovery writes one in any case.
            state.pending.wants_checkpoint |= state.phase == Phase::Working;
            drop(state);
            self.has_records.notify_one();
        }
    }

    /// Returns the oldest of the bans that the objects were last tested against: newer bans are needed. `u32::MAX` if
    /// none is.
    pub fn oldest_ban(&self) -> u32 {
        self.state.lock().oldest_ban()
    }

    /// Returns the ban that an object was last tested against. A previous process may have tested it against bans that
    /// were not recorded, and whose numbers are used again.
    pub(crate) fn tested_ban(&self, ban: u32, is_old: bool) -> u32 {
        if is_old { ban.min(self.past.last_ban) } else { ban }
    }
}
