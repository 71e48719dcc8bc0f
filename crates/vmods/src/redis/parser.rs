//! Parses replies in the protocols RESP2 and RESP3, as their bytes arrive. Size, number of elements and nesting are
//! limited before memory is used for them: a server can claim any length.

use super::reply::Reply;

/// Limit on the bytes of a reply.
pub(super) const LARGEST: usize = 4 << 20;
/// Limit on a line: a number, a status or an error.
const LONGEST_LINE: usize = 64 << 10;
/// Limit on the elements of a reply, those of nested arrays included.
const MOST_ELEMENTS: usize = 64 << 10;
/// Limit on arrays within arrays.
const DEEPEST: usize = 32;

/// A parser of one reply after the other. A fault is final: the connection must be closed.
#[derive(Default)]
pub(super) struct Parser {
    buffer: Vec<u8>,
    /// The bytes of the buffer that were parsed.
    at: usize,
    /// The bytes after `at` that contain no end of a line.
    searched: usize,
    /// The text whose length was read, but whose content was not.
    expected: Option<(Kind, usize)>,
    open: Vec<Frame>,
    /// The bytes since the last reply.
    received: usize,
    /// The elements that the open arrays have claimed.
    elements: usize,
}

/// The kinds of texts that have a length.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Error,
    Verbatim,
}

/// The purpose of an array.
#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    Value,
    /// A message that is not the reply to a command.
    Push,
    /// A note on the value that follows.
    Attribute,
}

struct Frame {
    purpose: Purpose,
    missing: usize,
    elements: Vec<Reply>,
}

/// A part of a reply.
enum Part {
    Value(Reply),
    Open(Purpose, usize),
}

impl Parser {
    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.received = self.received.saturating_add(bytes.len());
        if self.received > LARGEST {
            return Err(format!("the reply is larger than {LARGEST} bytes"));
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns whether all bytes were parsed.
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.buffer.len() && self.open.is_empty() && self.expected.is_none()
    }

    /// Returns the memory that is kept for further replies.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the next reply, or `None` if bytes are missing.
    pub(super) fn next(&mut self) -> Result<Option<Reply>, String> {
        loop {
            match self.part()? {
                None => return Ok(None),
                Some(Part::Value(value)) => {
                    if let Some(reply) = self.place(value) {
                        return Ok(Some(self.finish(reply)));
                    }
                }
                Some(Part::Open(purpose, count)) => {
                    if self.open.len() >= DEEPEST {
                        return Err(format!("the reply has more than {DEEPEST} nested arrays"));
                    }
                    if purpose == Purpose::Push && !self.open.is_empty() {
                        return Err("a push message is within a reply".to_owned());
                    }
                    self.open.push(Frame { purpose, missing: count, elements: Vec::new() });
                    if let Some(reply) = self.close() {
                        return Ok(Some(self.finish(reply)));
                    }
                }
            }
        }
    }

    fn finish(&mut self, reply: Reply) -> Reply {
        // An idle connection keeps no memory of a large reply.
        self.buffer.drain(..self.at);
        self.buffer.shrink_to(LONGEST_LINE);
        self.at = 0;
        (self.received, self.elements) = (self.buffer.len(), 0);
        reply
    }

    /// Adds a value to the innermost array. Returns the reply that it completes.
    fn place(&mut self, value: Reply) -> Option<Reply> {
        let Some(frame) = self.open.last_mut() else { return Some(value) };
        frame.elements.push(value);
        frame.missing -= 1;
        self.close()
    }

    /// Closes the arrays that are complete. Returns the reply if the outermost one is.
    fn close(&mut self) -> Option<Reply> {
        while self.open.last().is_some_and(|frame| frame.missing == 0) {
            let frame = self.open.pop()?;
            if frame.purpose != Purpose::Value {
                // The value that an attribute belongs to follows it.
                return None;
            }
            let Some(outer) = self.open.last_mut() else { return Some(Reply::Array(frame.elements)) };
            outer.elements.push(Reply::Array(frame.elements));
            outer.missing -= 1;
        }
        None
    }

    fn part(&mut self) -> Result<Option<Part>, String> {
        if self.expected.is_some() {
            return Ok(self.content()?.map(Part::Value));
        }
        let Some((kind, line)) = self.line()? else { return Ok(None) };
        let value = match kind {
            b'+' => Reply::Status(line),
            b'-' => Reply::Error(line),
            b':' => Reply::Integer(integer(&line)?),
            b'(' => Reply::Large(digits(line)?),
            b',' => double(line)?,
            b'_' if line.is_empty() => Reply::Nil,
            b'#' if line == b"t" => Reply::Boolean(true),
            b'#' if line == b"f" => Reply::Boolean(false),
            b'$' => return self.text(Kind::Plain, &line),
            b'!' => return self.text(Kind::Error, &line),
            b'=' => return self.text(Kind::Verbatim, &line),
            b'*' | b'~' => return self.array(Purpose::Value, 1, &line),
            b'%' => return self.array(Purpose::Value, 2, &line),
            b'>' => return self.array(Purpose::Push, 1, &line),
            b'|' => return self.array(Purpose::Attribute, 2, &line),
            _ => return Err(format!("the reply is not of Redis's protocol: {}", start_of(kind, &line))),
        };
        Ok(Some(Part::Value(value)))
    }

    /// Takes a line. Returns its first byte and the others, without the end of the line.
    fn line(&mut self) -> Result<Option<(u8, Vec<u8>)>, String> {
        let rest = &self.buffer[self.at..];
        let found = rest[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = found.map(|at| at + self.searched) else {
            self.searched = rest.len();
            if rest.len() > LONGEST_LINE {
                return Err(format!("a line of the reply is longer than {LONGEST_LINE} bytes"));
            }
            return Ok(None);
        };
        self.searched = 0;
        if end > LONGEST_LINE {
            return Err(format!("a line of the reply is longer than {LONGEST_LINE} bytes"));
        }
        let line = rest[..end].strip_suffix(b"\r").and_then(<[u8]>::split_first);
        let (kind, line) = line.ok_or("the reply is not of Redis's protocol: a line without a type")?;
        let taken = (*kind, line.to_vec());
        self.at += end + 1;
        Ok(Some(taken))
    }

    /// Reads the length of a text.
    fn text(&mut self, kind: Kind, line: &[u8]) -> Result<Option<Part>, String> {
        let Some(length) = length(line)? else { return Ok(Some(Part::Value(Reply::Nil))) };
        if length > LARGEST {
            return Err(format!("a text of {length} bytes is larger than the limit of {LARGEST} bytes"));
        }
        self.expected = Some((kind, length));
        Ok(self.content()?.map(Part::Value))
    }

    /// Takes the text whose length was read.
    fn content(&mut self) -> Result<Option<Reply>, String> {
        let Some((kind, length)) = self.expected else { return Ok(None) };
        let Some(bytes) = self.buffer[self.at..].get(..length + 2) else { return Ok(None) };
        let (text, end) = bytes.split_at(length);
        if end != b"\r\n" {
            return Err(
                "the reply is not of Redis's protocol: a text has another length than claimed".to_owned()
            );
        }
        let text = match kind {
            Kind::Plain | Kind::Error => text,
            Kind::Verbatim => match text {
                // Three letters for the format.
                [_, _, _, b':', text @ ..] => text,
                _ => return Err("the reply is not of Redis's protocol: a text without a format".to_owned()),
            },
        };
        let text = text.to_vec();
        self.at += length + 2;
        self.expected = None;
        Ok(Some(if kind == Kind::Error { Reply::Error(text) } else { Reply::Text(text) }))
    }

    /// Reads the number of elements, each of which has this many values.
    fn array(&mut self, purpose: Purpose, values: usize, line: &[u8]) -> Result<Option<Part>, String> {
        let Some(count) = length(line)? else { return Ok(Some(Part::Value(Reply::Nil))) };
        self.elements = self.elements.saturating_add(count.saturating_mul(values));
        if self.elements > MOST_ELEMENTS {
            return Err(format!("the reply has more than {MOST_ELEMENTS} elements"));
        }
        Ok(Some(Part::Open(purpose, count * values)))
    }
}

fn integer(line: &[u8]) -> Result<i64, String> {
    let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("the reply contains an invalid number or one out of range: {}", shown(line)))
}

/// Parses a length; -1 is that of nil.
fn length(line: &[u8]) -> Result<Option<usize>, String> {
    match integer(line)? {
        -1 => Ok(None),
        n => match usize::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(format!("the reply contains a negative length: {n}")),
        },
    }
}

fn digits(line: Vec<u8>) -> Result<Vec<u8>, String> {
    let bare = line.strip_prefix(b"-").or_else(|| line.strip_prefix(b"+")).unwrap_or(&line);
    if bare.is_empty() || !bare.iter().all(u8::is_ascii_digit) {
        return Err(format!("the reply contains an invalid number: {}", shown(&line)));
    }
    Ok(line)
}

fn double(line: Vec<u8>) -> Result<Reply, String> {
    let number = std::str::from_utf8(&line).ok().and_then(|text| text.parse().ok());
    let number = number.ok_or_else(|| format!("the reply contains an invalid number: {}", shown(&line)))?;
    Ok(Reply::Double(number, line))
}

/// Returns the beginning of a text for a message.
pub(super) fn shown(text: &[u8]) -> String {
    const MOST: usize = 200;
    String::from_utf8_lossy(&text[..text.len().min(MOST)]).escape_debug().collect()
}

fn start_of(kind: u8, line: &[u8]) -> String {
    shown(&[&[kind], line].concat())
}
