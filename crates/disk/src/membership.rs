//! The membership of a store in a storage of several disks: finds out which disks were absent while others were in use,
//! and have not recorded the purges of that time.
//!
//! Each block with a superblock contains it at byte 512. It is written when the disks that are in use together change,
//! and earlier programs write zeros:
//!
//! ```text
//! u64 changes | u64 id of the last change | u64 disks | u64 checksum of the preceding bytes      (little endian)
//! ```
//!
//! All disks that are in use together have the same id.

use std::io;

use crate::blocks::{BLOCK, Blocks, Reader};
use crate::layout::Layout;

const OFFSET: usize = 512;
const LENGTH: usize = 4 * 8;
/// The place for the checksum, which no log position has.
const PLACE: u64 = u64::from_le_bytes(*b"members\0");
const LAST_CHANGE: u64 = 1 << 62;

/// The last change of the disks that are in use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The number of changes.
    pub changes: u64,
    pub id: u64,
    /// The number of disks.
    pub disks: u64,
}

/// The effect of a start on the disks of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The indexes of the disks whose contents must be dropped.
    pub outdated: Vec<usize>,
    /// The number of changes, if it is another one for this start.
    pub changes: Option<u64>,
}

impl Membership {
    /// Reads the membership of a store. Returns `None` if it has none.
    pub fn read(layout: &Layout, blocks: &dyn Blocks) -> io::Result<Option<Self>> {
        let found = Layout::readable_superblocks(blocks)?;
        Ok(found.iter().find_map(|block| Self::decode(layout, block.bytes())))
    }

    fn decode(layout: &Layout, block: &[u8]) -> Option<Self> {
        let bytes = &block[OFFSET..OFFSET + LENGTH];
        let mut reader = Reader::new(bytes);
        let [changes, id, disks, checksum] = std::array::from_fn(|_| reader.u64());
        let is_sound =
            (1..LAST_CHANGE).contains(&changes) && checksum == layout.checksum(PLACE, &bytes[..LENGTH - 8]);
        is_sound.then_some(Self { changes, id, disks })
    }

    /// Writes the membership of a store. When this returns without an error, it is durable.
    pub fn write(&self, layout: &Layout, blocks: &dyn Blocks) -> io::Result<()> {
        layout.update_superblocks(blocks, &|block| self.put(layout, block))
    }

    /// Adds the membership to a block with a superblock.
    fn put(&self, layout: &Layout, block: &mut [u8]) {
        let mut out = Vec::with_capacity(LENGTH);
        for number in [self.changes, self.id, self.disks] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&layout.checksum(PLACE, &out).to_le_bytes());
        block[OFFSET..OFFSET + LENGTH].copy_from_slice(&out);
    }

    /// Compares the disks of a storage. Those that were absent at the last change are outdated. All are if some were in use
    /// without the others, and the others without them.
    pub fn join(members: &[Option<Self>]) -> Joined {
        let known = || members.iter().flatten();
        let Some(newest) = known().max_by_key(|member| member.changes) else {
            // A disk alone needs nothing.
            return Joined { outdated: Vec::new(), changes: (members.len() > 1).then_some(1) };
        };
        let count = |id: u64| known().filter(|member| member.id == id).count() as u64;
        let was_apart = |member: &&Self| {
            member.id != newest.id && (member.changes == newest.changes || count(member.id) >= member.disks)
        };
        let are_apart = known().any(|member| was_apart(&member));
        let is_outdated = |member: &Option<Self>| are_apart || member.is_none_or(|it| it.id != newest.id);
        let outdated: Vec<usize> = (0..members.len()).filter(|&i| is_outdated(&members[i])).collect();
        let is_same = outdated.is_empty() && newest.disks == members.len() as u64;
        Joined { outdated, changes: (!is_same).then_some(newest.changes + 1) }
    }
}

impl Layout {
    /// Drops the contents: writes superblocks with another id. When this returns without an error, the next start finds an
    /// empty store. It keeps its membership.
    pub fn renew(&self, blocks: &dyn Blocks, now: f64) -> io::Result<()> {
        let membership = Membership::read(self, blocks).ok().flatten();
        self.renew_with(blocks, now, membership)
    }

    /// As [`renew`](Self::renew), for a device that may not be readable.
    pub(crate) fn renew_with(
        &self,
        blocks: &dyn Blocks,
        now: f64,
        membership: Option<Membership>,
    ) -> io::Result<()> {
        let next = self.renewed(now);
        let mut superblock = next.superblock();
        if let Some(membership) = membership {
            membership.put(&next, superblock.bytes_mut());
        }
        blocks.write(0, superblock.bytes())?;
        blocks.sync()?;
        // The copy is read only if the first one is damaged.
        blocks.write(BLOCK, superblock.bytes())?;
        blocks.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(members: &[(u64, u64, u64)]) -> (Vec<usize>, Option<u64>) {
        let member = |&(changes, id, disks): &(u64, u64, u64)| {
            (changes > 0).then_some(Membership { changes, id, disks })
        };
        let Joined { outdated, changes } = Membership::join(&members.iter().map(member).collect::<Vec<_>>());
        (outdated, changes)
    }

    #[test]
    fn disks_that_were_absent_are_outdated() {
        const NONE: (u64, u64, u64) = (0, 0, 0);
        // A disk alone, and the first start of two.
        assert_eq!(join(&[NONE]), (vec![], None));
        assert_eq!(join(&[NONE, NONE]), (vec![], Some(1)));
        // The same disks again.
        assert_eq!(join(&[(1, 7, 2), (1, 7, 2)]), (vec![], None));
        // One of them, again, and then both.
        assert_eq!(join(&[(1, 7, 2)]), (vec![], Some(2)));
        assert_eq!(join(&[(2, 8, 1)]), (vec![], None));
        assert_eq!(join(&[(2, 8, 1), (1, 7, 2)]), (vec![1], Some(3)));
        // Each of them without the other.
        assert_eq!(join(&[(2, 8, 1), (2, 9, 1)]), (vec![0, 1], Some(3)));
        assert_eq!(join(&[(4, 8, 1), (2, 9, 1)]), (vec![0, 1], Some(5)));
        // A new disk, and one of three that were in use.
        assert_eq!(join(&[(1, 7, 2), (1, 7, 2), NONE]), (vec![2], Some(2)));
        assert_eq!(join(&[(3, 7, 2), (2, 5, 3), (3, 7, 2)]), (vec![1], Some(4)));
    }
}
