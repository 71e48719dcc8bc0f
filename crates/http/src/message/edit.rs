//! Changes of headers, with the semantics of VCL: `set` removes all headers of the name and appends one. The caller
//! receives the removed lines and logs them.

use super::{Field, LINE_END, MAX_NAME, Message, bit, skip_blanks};
use crate::header_table::{self, HeaderName};
use crate::workspace::{Overflow, Text, Workspace, put};

impl Message {
    /// Returns whether the limit `http_max_hdr` allows another header.
    pub fn has_room(&self) -> bool {
        self.fields.len() < self.max_fields()
    }

    pub(crate) fn push(&mut self, ws: &mut Workspace, field: Field) -> Result<Text, Overflow> {
        if !self.has_room() {
            ws.set_overflowed();
            return Err(Overflow);
        }
        self.push_unchecked(field);
        Ok(field.line)
    }

    #[inline]
    pub(crate) fn push_unchecked(&mut self, field: Field) {
        self.seen |= bit(field.id());
        self.fields.push(field);
    }

    /// Adds the lines that `text` contains. `lines` returns for each its length, the length of its name, the start of
    /// its value, and the number of its name. Returns false if `text` does not match.
    #[inline]
    pub(crate) fn push_lines(
        &mut self,
        text: Text,
        lines: impl Iterator<Item = (usize, usize, usize, u8)>,
    ) -> bool {
        let mut at = text.offset();
        let mut seen = 0;
        self.fields.extend(lines.map(|(len, name_len, value_at, id)| {
            let line = Text::at(at, len);
            at += len + LINE_END.len();
            seen |= bit(id);
            Field::from_parts(line, name_len, value_at, id)
        }));
        self.seen |= seen;
        at == text.offset() + text.len()
    }

    pub(crate) fn fields_mut(&mut self) -> &mut [Field] {
        &mut self.fields
    }

    /// Appends "name: value". Returns the line.
    pub fn append(
        &mut self,
        ws: &mut Workspace,
        name: HeaderName<'_>,
        value: &[u8],
    ) -> Result<Text, Overflow> {
        if !self.has_room() {
            ws.set_overflowed();
            return Err(Overflow);
        }
        let field = build_line(ws, name, value)?;
        self.push_unchecked(field);
        Ok(field.line)
    }

    /// Appends a whole line that is in the workspace or is a fixed text.
    pub fn append_line(&mut self, ws: &mut Workspace, line: Text) -> Result<Text, Overflow> {
        match Field::parse(line, ws.get(line)) {
            Some(field) => self.push(ws, field),
            None => Ok(line),
        }
    }

    /// Appends a whole line, "name: value", which has this name.
    pub fn append_named_line(
        &mut self,
        ws: &mut Workspace,
        name: HeaderName<'_>,
        line: Text,
    ) -> Result<Text, Overflow> {
        let name_len = name.bytes.len();
        self.push(ws, Field::from_parts(line, name_len, name_len + 2, name.id))
    }

    /// Appends a well-formed line of the workspace, "name: value", whose name has the given length. Returns `None` if
    /// there is no room.
    #[inline]
    pub fn append_split_line(&mut self, ws: &Workspace, line: Text, name_len: usize) -> Option<&Field> {
        if !self.has_room() || name_len > MAX_NAME {
            return None;
        }
        let id = header_table::classify(&ws.get(line)[..name_len]);
        self.push_unchecked(Field::from_parts(line, name_len, name_len + 2, id));
        self.fields.last()
    }

    /// Copies a whole line ("Name: value") into the workspace and appends it.
    pub fn append_line_copy(&mut self, ws: &mut Workspace, line: &[u8]) -> Result<Text, Overflow> {
        let text = ws.copy(line)?;
        self.append_line(ws, text)
    }

    /// Removes all headers of this name. `removed` receives each line. Returns their number.
    #[inline]
    pub fn unset(&mut self, ws: &Workspace, name: HeaderName<'_>, removed: impl FnMut(&[u8])) -> usize {
        if self.may_have(name) { self.remove(ws, name, removed) } else { 0 }
    }

    fn remove(&mut self, ws: &Workspace, name: HeaderName<'_>, mut removed: impl FnMut(&[u8])) -> usize {
        if name.is_known() {
            self.seen &= !bit(name.id);
        }
        let before = self.fields.len();
        self.fields.retain(|field| {
            let keep = !field.is(ws, name);
            if !keep {
                removed(ws.get(field.line));
            }
            keep
        });
        before - self.fields.len()
    }

    /// Carries out `set` of VCL: builds the new line, removes all headers of the name, then appends the line.
    pub fn set(
        &mut self,
        ws: &mut Workspace,
        name: HeaderName<'_>,
        value: &[u8],
        removed: impl FnMut(&[u8]),
    ) -> Result<Text, Overflow> {
        let field = build_line(ws, name, value)?;
        self.unset(ws, name, removed);
        self.push(ws, field)
    }

    /// Sets a header like [`Message::set`], to the joined parts.
    pub fn set_parts<'p>(
        &mut self,
        ws: &mut Workspace,
        name: HeaderName<'_>,
        parts: impl Iterator<Item = &'p [u8]> + Clone,
        removed: impl FnMut(&[u8]),
    ) -> Result<Text, Overflow> {
        check_name(ws, name)?;
        let start = name.bytes.len() + 2;
        let line = ws.alloc_text(start + parts.clone().map(<[u8]>::len).sum::<usize>())?;
        parts.fold(put(put(ws.get_mut(line), name.bytes), b": "), put);
        let value_at = skip_blanks(ws.get(line), start);
        self.unset(ws, name, removed);
        self.push(ws, Field::from_parts(line, name.bytes.len(), value_at, name.id))
    }

    /// Sets a header like [`Message::set`], to a whole line that is already in the workspace or is a fixed text.
    pub fn set_line(
        &mut self,
        ws: &mut Workspace,
        name: HeaderName<'_>,
        line: Text,
        removed: impl FnMut(&[u8]),
    ) -> Result<Text, Overflow> {
        self.unset(ws, name, removed);
        self.append_line(ws, line)
    }

    /// Sets the header unless it already has this value. Returns `None` if nothing changed.
    pub fn force(
        &mut self,
        ws: &mut Workspace,
        name: HeaderName<'_>,
        value: &[u8],
        removed: impl FnMut(&[u8]),
    ) -> Result<Option<Text>, Overflow> {
        if self.value_is(ws, name, value) {
            return Ok(None);
        }
        self.unset(ws, name, removed);
        self.append(ws, name, value).map(Some)
    }

    /// Adds an element to a list header: merges all headers of this name, then appends ", value".
    pub fn append_value(
        &mut self,
        ws: &mut Workspace,
        name: HeaderName<'_>,
        value: &[u8],
        removed: impl FnMut(&[u8]),
    ) -> Result<Text, Overflow> {
        if !self.may_have(name) {
            return self.append(ws, name, value);
        }
        self.collect(ws, name, b", ")?;
        let Some(old) = self.find(ws, name).copied() else {
            return self.append(ws, name, value);
        };
        let line = ws.alloc_text(name.bytes.len() + 2 + old.value_text().len() + 2 + value.len())?;
        let start = line.offset();
        let (from, len) = (old.value_text(), old.value_text().len());
        let value_at = name.bytes.len() + 2;
        put(put(ws.get_mut(line), name.bytes), b": ");
        ws.move_into(from, start + value_at);
        put(put(&mut ws.get_mut(line)[value_at + len..], b", "), value);
        let field = Field::new(line, ws.get(line), name.bytes.len());
        self.unset(ws, name, removed);
        self.push(ws, field)
    }

    /// Merges all headers of this name into the first one, separated by `separator` (", " except for Cookie). Copies
    /// nothing if there is only one.
    #[inline]
    pub fn collect(
        &mut self,
        ws: &mut Workspace,
        name: HeaderName<'_>,
        separator: &[u8],
    ) -> Result<(), Overflow> {
        if self.may_have(name) { self.join(ws, name, separator) } else { Ok(()) }
    }

    fn join(&mut self, ws: &mut Workspace, name: HeaderName<'_>, separator: &[u8]) -> Result<(), Overflow> {
        let Some(first) = self.fields.iter().position(|f| f.is(ws, name)) else { return Ok(()) };
        let rest = &self.fields[first + 1..];
        let extra: usize =
            rest.iter().filter(|f| f.is(ws, name)).map(|f| separator.len() + f.value_text().len()).sum();
        if extra == 0 {
            return Ok(());
        }
        let mut head = self.fields[first];
        let line = ws.alloc_text(head.line.len() + extra)?;
        let mut at = line.offset();
        ws.move_into(head.line, at);
        at += head.line.len();
        for field in rest {
            if !field.is(ws, name) {
                continue;
            }
            ws.write_at(at, separator);
            at += separator.len();
            ws.move_into(field.value_text(), at);
            at += field.value_text().len();
        }
        head.line = line;
        let mut index = 0;
        self.fields.retain(|field| {
            index += 1;
            index <= first + 1 || !field.is(ws, name)
        });
        self.fields[first] = head;
        Ok(())
    }
}

#[inline]
fn check_name(ws: &mut Workspace, name: HeaderName<'_>) -> Result<(), Overflow> {
    if name.bytes.is_empty() || name.bytes.len() > MAX_NAME {
        ws.set_overflowed();
        return Err(Overflow);
    }
    Ok(())
}

#[inline]
fn build_line(ws: &mut Workspace, name: HeaderName<'_>, value: &[u8]) -> Result<Field, Overflow> {
    check_name(ws, name)?;
    let line = ws.write_line(name.bytes, value)?;
    let value_at = name.bytes.len() + 2 + skip_blanks(value, 0);
    Ok(Field::from_parts(line, name.bytes.len(), value_at, name.id))
}
