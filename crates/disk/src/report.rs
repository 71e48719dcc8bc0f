//! Describes the contents of a store for people. No daemon may use the store meanwhile.

use std::collections::BTreeSet;
use std::io;

use crate::blocks::{Aligned, Blocks, read_around};
use crate::journal;
use crate::layout::{Layout, OpenError};
use crate::record::{Form, Header, fingerprint, stored_body};
use crate::segment::{self, Begun, Extent, InUse, Summarized};

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
    /// Objects that the next start will find, and the bytes of their records, with those of their parts.
    pub objects: u64,
    pub bytes: u64,
    /// Objects that were purged, and large ones of which a segment was used again.
    pub purged: u64,
    pub expired: u64,
    /// Objects by size: the count for each class.
    pub sizes: [u64; CLASSES],
    pub bans: usize,
    pub last_ban: u32,
    pub journal: JournalReport,
    /// Segments that could not be read, with the reason.
    pub unreadable: Vec<(u64, String)>,
    /// The positions of damaged records.
    pub damaged: Vec<u64>,
}

/// The purges in the journal, and its damage.
#[derive(Clone, Debug, Default)]
pub struct JournalReport {
    pub purges: usize,
    /// The positions of damaged groups of which there are copies.
    pub mended: Vec<u64>,
    /// The position of groups whose records are lost: the next start drops all objects.
    pub lost: Option<u64>,
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
    let journal::Found { mut live, mended, mut lost, cursor } = journal::read(&layout, blocks)?;
    let found = InUse::read(&layout, blocks, live.tail, 1);
    lost = lost.or_else(|| found.lost_journal(&layout, &cursor));
    let InUse { epochs, unreadable, .. } = found;
    if lost.is_some() {
        // The next start drops all objects.
        live.tail = u64::MAX;
    }
    let mut report = Report {
        layout: Some(layout),
        bans: live.bans.len(),
        last_ban: live.last_ban,
        journal: JournalReport { purges: live.purges.len() + live.tags.len(), mended, lost },
        ..Report::default()
    };
    report.unreadable.extend(unreadable.into_iter().map(|(slot, error)| (slot, error.to_string())));
    report.used.count = epochs.len() as u64;
    report.used.oldest = epochs.iter().map(|begun| begun.at).filter(|&at| at > 0.0).reduce(f64::min);
    let mut buffer = Aligned::new(if verify { layout.segment as usize } else { 0 });
    let device = Device { layout: &layout, blocks, in_use: epochs.iter().map(|begun| begun.epoch).collect() };
    let all = epochs.len() as u64 * layout.segment;
    for (done, &Begun { epoch, .. }) in epochs.iter().rev().enumerate() {
        progress(done as u64 * layout.segment, all);
        let slot = layout.slot(epoch);
        let read = add_segment(&mut report, &device, epoch, &live, now, verify.then_some(&mut buffer));
        if let Err(error) = read {
            report.unreadable.push((slot, error.to_string()));
        }
    }
    progress(all, all);
    Ok(report)
}

struct Device<'a> {
    layout: &'a Layout,
    blocks: &'a dyn Blocks,
    /// The epochs of the segments that contain objects.
    in_use: BTreeSet<u64>,
}

impl Device<'_> {
    /// Returns the number of bytes of an object with its parts. `None` if a part is missing.
    fn size(&self, record: &Summarized, log: u64) -> Option<u64> {
        if record.form == Form::Object {
            return Some(record.len);
        }
        let (buffer, from) = read_around(self.blocks, self.layout.place(log), record.len).ok()?;
        let bytes = &buffer.bytes()[from..];
        let header = Header::decode(self.layout, log, bytes)?;
        let fields = header.fields(self.layout, bytes)?;
        let is_complete = fields.parts().all(|part| self.in_use.contains(&(part / self.layout.segment)));
        is_complete.then(|| record.len + stored_body(header.body))
    }
}

fn add_segment(
    report: &mut Report,
    device: &Device<'_>,
    epoch: u64,
    live: &journal::Live,
    now: f64,
    buffer: Option<&mut Aligned>,
) -> io::Result<()> {
    let Device { layout, blocks, .. } = *device;
    let slot = layout.slot(epoch);
    let summary = match segment::read_summary(layout, blocks, slot, epoch, Extent::Whole)? {
        Some(summary) => summary,
        None => segment::scan(layout, blocks, slot, epoch, &|_| None)?,
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
        if record.form == Form::Part {
            continue;
        }
        let is_purged = live.is_purged(fingerprint(&record.key), log);
        match if is_purged { None } else { device.size(record, log) } {
            None => report.purged += 1,
            Some(_) if f64::from(record.expires) <= now => report.expired += 1,
            Some(size) => {
                report.objects += 1;
                report.bytes += size;
                let class = (0..CLASSES - 1).find(|&class| size <= class_limit(class));
                report.sizes[class.unwrap_or(CLASSES - 1)] += 1;
            }
        }
    }
    Ok(())
}
