//! Messages between workspaces: what a client's request becomes on its way to the origin.

use super::{Field, Message};
use crate::header_table::Filter;
use crate::workspace::{Overflow, Text, Workspace};

impl Message {
    /// Makes this the copy of `from`, minus what `filter` drops, with all texts copied into `ws`.
    /// On overflow the message is empty.
    pub fn copy_from(
        &mut self,
        ws: &mut Workspace,
        from: &Message,
        from_ws: &Workspace,
        filter: Filter,
    ) -> Result<(), Overflow> {
        self.clear();
        let fields = || from.fields.iter().filter(|f| !f.is_filtered(filter));
        let texts = || from.start.iter().copied().chain(fields().map(|f| f.line)).filter(|t| !t.is_fixed());
        let total: usize = texts().map(|t| t.len() + 1).sum();
        if fields().count() > self.max_fields() {
            ws.set_overflowed();
            return Err(Overflow);
        }
        let block = ws.alloc(total)?;
        let mut at = block.offset();
        let mut take = |text: Text| {
            if text.is_fixed() {
                return text;
            }
            ws.write_at(at, from_ws.get(text));
            ws.write_at(at + text.len(), b"\0");
            let copied = Text::at(at, text.len());
            at += text.len() + 1;
            copied
        };
        self.start = from.start.map(&mut take);
        self.seen = from.seen;
        for field in from.fields.iter().filter(|f| !f.is_filtered(filter)) {
            self.fields.push(Field { line: take(field.line), dropped: false, ..*field });
        }
        self.status = from.status;
        self.version = from.version;
        Ok(())
    }

    /// [`Message::copy_from`] within one workspace, which shares the texts.
    pub fn share_from(&mut self, from: &Message, filter: Filter) {
        self.start = from.start;
        self.status = from.status;
        self.version = from.version;
        self.seen = from.seen;
        self.fields.clear();
        let kept = from.fields.iter().filter(|f| !f.is_filtered(filter)).take(self.max_fields());
        self.fields.extend(kept.map(|f| Field { dropped: false, ..*f }));
    }
}
