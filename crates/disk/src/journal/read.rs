//! Reads the journal, and finds out whether records were lost.
//!
//! The last write of a journal may be torn, because a cut of power has interrupted it: its records were not answered. A
//! damaged group is another matter if a later group is sound, which was written after the damaged one was durable. Its
//! copy takes its place. Without one, its records are lost, and no object of the store may be used. The same is true if the
//! journal ends before the mark.

use std::io;

use super::{CHECKPOINT_GROUP, COMPLETE, Cursor, Group, Live, Mark, REPEATED, REPEATS, room_of};
use crate::blocks::{BLOCK, Blocks, Gradual};
use crate::layout::{Layout, VERSION};

/// The number of bytes in which the next group is searched for.
const SEARCHED: u64 = 4 << 20;

/// The bytes whose checksums are computed while a half is read, in lengths of it. Damage could otherwise make the start last
/// for hours: each block of it may claim to be the beginning of a long group.
const CHECKED: u64 = 4;

/// The contents of a journal.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) live: Live,
    /// The place to continue at.
    pub(crate) cursor: Cursor,
    /// The positions of damaged groups of which there are copies.
    pub(crate) mended: Vec<u64>,
    /// The position of damaged groups whose records are lost.
    pub(crate) lost: Option<u64>,
}

/// Reads the journal.
pub(crate) fn read(layout: &Layout, blocks: &dyn Blocks) -> io::Result<Found> {
    let halves = [read_half(layout, blocks, 0)?, read_half(layout, blocks, 1)?];
    let newest = halves.iter().map(|half| half.found.cursor.generation).max().unwrap_or(0);
    // It is not known which records it contains.
    let endless = (0..).zip(&halves).find(|(_, half)| half.is_endless).map(|(at, _)| layout.journal_half(at));
    let usable = halves.into_iter().filter(|half| half.is_complete || half.was_complete);
    let best = usable.max_by_key(|half| half.found.cursor.generation).unwrap_or_default();
    let mut found = best.found;
    if !best.is_complete && found.cursor.generation > 0 {
        found.lost.get_or_insert(layout.journal_half(found.cursor.generation));
    }
    let (mark, end) = (Mark::read(layout, blocks)?, found.cursor.mark());
    let end_at = layout.journal_half(end.generation) + found.cursor.at;
    if mark > end {
        let has_copy = best.is_repeated && mark == Mark { number: end.number + 1, ..end };
        if has_copy {
            found.mended.push(end_at);
        } else {
            found.lost.get_or_insert(end_at);
        }
    }
    let (is_raised, limit) = (layout.version >= VERSION, found.live.limit);
    found.lost = found.lost.or(endless);
    found.cursor = Cursor { newest, is_raised, limit, marked: mark, ..found.cursor };
    Ok(found)
}

#[derive(Debug, Default)]
struct Half {
    found: Found,
    /// The checkpoint was read.
    is_complete: bool,
    /// There is a group that was appended after the checkpoint was durable.
    was_complete: bool,
    /// The copy of the last group is missing.
    is_repeated: bool,
    /// The search for groups was given up.
    is_endless: bool,
}

fn read_half(layout: &Layout, blocks: &dyn Blocks, half: u64) -> io::Result<Half> {
    let position = layout.journal_half(half);
    let mut groups = Gradual::new(blocks, position, layout.journal);
    let mut read = Half::default();
    let mut budget = CHECKED * layout.journal;
    let Half {
        found: Found { live, cursor, mended, lost },
        is_complete,
        was_complete,
        is_repeated,
        is_endless,
    } = &mut read;
    while let Some(at) = next_group(layout, &mut groups, half, cursor, &mut budget)? {
        let Some(group) = Group::read(layout, &mut groups, at)? else { break };
        if group.number > cursor.number {
            // The missing groups, but for a copy of the last one, and the one that this one repeats.
            let copies = u32::from(*is_repeated) + u32::from(group.flags & REPEATS != 0);
            if group.number - cursor.number > copies {
                lost.get_or_insert(position + cursor.at);
            } else {
                mended.push(position + cursor.at);
            }
        }
        if live.apply(group.records).is_none() {
            lost.get_or_insert(position + at);
        }
        live.tail = live.tail.max(group.tail);
        live.last_ban = live.last_ban.max(group.last_ban);
        live.limit = u64::from(group.limit);
        let is_last = group.flags & COMPLETE != 0;
        *is_complete |= is_last && lost.is_none();
        // All groups of a checkpoint but the last are full.
        *was_complete |= !is_last && group.records.len() < CHECKPOINT_GROUP;
        *is_repeated = group.flags & REPEATED != 0;
        cursor.generation = group.generation;
        cursor.number = group.number + 1;
        cursor.at = at + room_of(group.records);
    }
    *is_endless = budget == 0;
    Ok(read)
}

/// Returns the offset in a half of the group at the cursor, or if that is damaged, of the next one of its generation. At
/// the beginning, returns that of the first group of the newest generation. Gives up when the bytes of groups exceed the
/// budget, which is 0 then.
fn next_group(
    layout: &Layout,
    groups: &mut Gradual<'_>,
    half: u64,
    cursor: &Cursor,
    budget: &mut u64,
) -> io::Result<Option<u64>> {
    let mut newest = None;
    let mut at = cursor.at;
    let mut end = at.saturating_add(SEARCHED);
    while at < end.min(layout.journal) {
        let claimed = Group::claimed_length(groups, at)?.unwrap_or(0);
        if at == cursor.at {
            end += claimed;
        }
        if claimed <= layout.journal - at {
            *budget = budget.saturating_sub(claimed);
        }
        if *budget == 0 {
            return Ok(None);
        }
        if let Some(group) = Group::read(layout, groups, at)?.filter(|group| group.generation % 2 == half) {
            let follows = group.generation == cursor.generation
                && (group.number > cursor.number || (group.number == cursor.number && at == cursor.at));
            if follows {
                return Ok(Some(at));
            }
            if cursor.generation == 0 && newest.is_none_or(|(generation, _)| generation < group.generation) {
                newest = Some((group.generation, at));
            }
        }
        at += BLOCK;
    }
    Ok(newest.map(|(_, at)| at))
}
