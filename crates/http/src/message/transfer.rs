//! Copies messages out of their workspace: into another one, as for the request to the origin, and onto the wire.

use super::{Field, Message};
use crate::header_table::Filter;
use crate::workspace::{Overflow, Text, Workspace, put};

pub(crate) const LINE_END: &[u8] = b"\r\n";

/// Passes the lines to `take`, without the line end of the last one. Lines that are adjacent in the workspace,
/// including line ends, are passed as one piece.
#[inline]
fn for_runs<'f, 'w>(
    mut fields: impl Iterator<Item = &'f Field>,
    ws: &'w Workspace,
    mut take: impl FnMut(&'w [u8]),
) {
    let Some(first) = fields.next() else { return };
    let mut run = first.line;
    for field in fields {
        if ws.follows(run, field.line) {
            run = Text::at(run.offset(), run.len() + LINE_END.len() + field.line.len());
        } else {
            take(ws.get(run));
            run = field.line;
        }
    }
    take(ws.get(run));
}

/// Appends the lines, each with its line end.
#[inline]
pub(crate) fn write_lines<'f>(fields: impl Iterator<Item = &'f Field>, ws: &Workspace, out: &mut Vec<u8>) {
    for_runs(fields, ws, |run| {
        out.extend_from_slice(run);
        out.extend_from_slice(LINE_END);
    });
}

impl Message {
    /// Copies `from`, without headers that `filter` drops. All texts are copied into `ws`. On overflow the message is
    /// empty.
    pub fn copy_from(
        &mut self,
        ws: &mut Workspace,
        from: &Message,
        from_ws: &Workspace,
        filter: Filter,
    ) -> Result<(), Overflow> {
        self.take_from(from, filter);
        if self.fields.len() > self.max_fields() {
            self.clear();
            ws.set_overflowed();
            return Err(Overflow);
        }
        let own = |text: &&Text| !text.is_fixed();
        let start: usize = self.start.iter().filter(own).map(|text| text.len() + 1).sum();
        let lines: usize = self.fields.iter().map(|f| f.line.len() + LINE_END.len()).sum();
        let Ok(block) = ws.alloc(start + lines) else {
            self.clear();
            return Err(Overflow);
        };
        let mut at = block.offset();
        for text in self.start.iter_mut().filter(|text| !text.is_fixed()) {
            ws.write_at(at, from_ws.get(*text));
            *text = Text::at(at, text.len());
            at += text.len() + 1;
        }
        let mut rest = ws.get_mut(block.tail(start));
        for_runs(self.fields.iter(), from_ws, |run| {
            rest = put(put(std::mem::take(&mut rest), run), LINE_END);
        });
        for field in &mut self.fields {
            field.line = Text::at(at, field.line.len());
            at += field.line.len() + LINE_END.len();
        }
        Ok(())
    }

    /// Copies `from` like [`Message::copy_from`] within one workspace, and shares the texts.
    pub fn share_from(&mut self, from: &Message, filter: Filter) {
        self.take_from(from, filter);
        self.fields.truncate(self.max_fields());
    }

    /// Takes over all texts of `from`, without headers that `filter` drops.
    fn take_from(&mut self, from: &Message, filter: Filter) {
        self.start = from.start;
        self.status = from.status;
        self.version = from.version;
        self.seen = from.seen;
        self.fields.clear();
        let kept = from.fields.iter().filter(|f| !f.is_filtered(filter));
        self.fields.extend(kept.map(|f| Field { dropped: false, ..*f }));
    }
}
