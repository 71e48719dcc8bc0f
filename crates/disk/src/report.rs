//! Describes the contents of a store for people. No daemon may use the store meanwhile.

use std::io;

use crate::blocks::{Aligned, Blocks};
use crate::journal;
use crate::layout::{Layout, OpenError};
use crate::record::{Header, fingerprint};
use crate::segment::{self, Begun, InUse};

/// The number of classes of sizes: up to 1 kB, 4 kB, 16 kB and so on.
pub const CLASSES: usize = 9;

/// The segments that contain objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsedSegments {
    pub count: u64,
    /// The time at which the oldest was begun, in seconds since the epoch.
    pub oldest: Option<f64>,
}

/// The contents of a store.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub layout: Option<Layout>,
    pub used: UsedSegments,
    /// Objects that the next start will find, and the bytes of their records.
    pub objects: u64,
    pub bytes: u64,
    /// Records that were purged.
    pub purged: u64,
    pub expired: u64,
    /// Objects by size: the count for each class.
    pub sizes: [u64; CLASSES],
    pub bans: usize,
    pub last_ban: u32,
    pub purges: usize,
    /// Segments that could not be read, with the reason.
    pub unreadable: Vec<(u64, String)>,
    /// The positions of damaged records.
    pub damaged: Vec<u64>,
}

/// Returns the upper bound of a class of sizes, in bytes.
pub fn class_limit(class: usize) -> u64 {
    1024 << (2 * class)
}

/// Reads the summaries of a store, and with `verify` all records. `progress` receives the number of bytes of the
/// segments that were read, and of all segments in use.
pub fn report(
    blocks: &dyn Blocks,
    verify: bool,
    now: f64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, OpenError> {
    let layout = Layout::open(blocks)?;
    let (live, _) = journal::read(&layout, blocks)?;
    let mut report = Report {
        layout: Some(layout),
        bans: live.bans.len(),
        last_ban: live.last_ban,
        purges: live.purges.len() + live.tags.len(),
        ..Report::default()
    };
    let InUse { epochs, unreadable, .. } = InUse::read(&layout, blocks, live.tail);
    report.unreadable.extend(unreadable.into_iter().map(|(slot, error)| (slot, error.to_string())));
    report.used.count = epochs.len() as u64;
    report.used.oldest = epochs.iter().map(|begun| begun.at).filter(|&at| at > 0.0).reduce(f64::min);
    let mut buffer = Aligned::new(if verify { layout.segment as usize } else { 0 });
    let all = epochs.len() as u64 * layout.segment;
    for (done, &Begun { epoch, .. }) in epochs.iter().rev().enumerate() {
        progress(done as u64 * layout.segment, all);
        let slot = layout.slot(epoch);
        let read =
            add_segment(&mut report, &layout, blocks, epoch, &live, now, verify.then_some(&mut buffer));
        if let Err(error) = read {
            report.unreadable.push((slot, error.to_string()));
        }
    }
    progress(all, all);
    Ok(report)
}

fn add_segment(
    report: &mut Report,
    layout: &Layout,
    blocks: &dyn Blocks,
    epoch: u64,
    live: &journal::Live,
    now: f64,
    buffer: Option<&mut Aligned>,
) -> io::Result<()> {
    let slot = layout.slot(epoch);
    let summary = match segment::read_summary(layout, blocks, slot, epoch)? {
        Some(summary) => summary,
        None => segment::scan(layout, blocks, slot, epoch)?,
    };
    let contents = match buffer {
        Some(buffer) => {
            blocks.read(layout.segment_at(slot), buffer.bytes_mut())?;
            Some(buffer.bytes())
        }
        None => None,
    };
    for record in &summary.records {
        let log = epoch * layout.segment + record.offset;
        if let Some(contents) = contents {
            let bytes = contents.get(record.offset as usize..(record.offset + record.len) as usize);
            let is_sound = bytes.is_some_and(|bytes| {
                Header::decode(layout, log, bytes).is_some_and(|header| header.is_sound(layout, bytes))
            });
            if !is_sound {
                report.damaged.push(layout.segment_at(slot) + record.offset);
                continue;
            }
        }
        if live.is_purged(fingerprint(&record.key), log) {
            report.purged += 1;
        } else if f64::from(record.expires) <= now {
            report.expired += 1;
        } else {
            report.objects += 1;
            report.bytes += record.len;
            let class = (0..CLASSES - 1).find(|&class| record.len <= class_limit(class));
            report.sizes[class.unwrap_or(CLASSES - 1)] += 1;
        }
    }
    Ok(())
}
