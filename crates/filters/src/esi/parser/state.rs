//! The state of the ESI parser, and the operations that all of its parts use.

use super::super::layout::{Layout, Packer, Part};
use super::super::{EsiNote, Options};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Start,
    TestXml,
    NotXml,
    NextTag,
    /// At `<`.
    StartTag,
    OtherTag,
    /// In a comment or CDATA, which ends with the text. The number is how many of its bytes have matched.
    Until(&'static [u8], usize),
    /// After `<esi:` or `</esi:`.
    Element,
    InTag,
    TagError,
    Attribute,
    SkipAttribute,
    Delimiter,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Include,
    Remove,
    Comment,
}

/// The attribute of an include that a value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    Src,
    OnError,
}

/// The ESI tag that is being parsed, and its attributes.
#[derive(Default)]
pub(super) struct Tag {
    pub(super) is_end: bool,
    pub(super) is_empty: bool,
    pub(super) element: Option<Element>,
    pub(super) may_have_attribute: bool,
    /// The attribute whose value is being read into `value`, and the byte that ends the value.
    pub(super) attribute: Option<Attribute>,
    pub(super) value: Vec<u8>,
    pub(super) delimiter: u8,
    pub(super) src: Option<Vec<u8>>,
    pub(super) continue_on_error: bool,
}

/// The maximum number of errors that are reported for one body.
const NOTES_MAX: usize = 10_000;

/// The current piece, and how far it has been parsed and marked.
pub(super) struct Scan<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) at: usize,
    pub(super) marked: usize,
}

impl Scan<'_> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }
}

/// The result of a step: the state machine continues with this piece, or waits for more input.
pub(super) enum Flow {
    On,
    /// The next bytes can only be parsed with more input.
    Short,
}

pub struct Parser<P> {
    pub(super) options: Options,
    /// The part of the page's URL that relative includes are resolved against.
    pub(super) base: Vec<u8>,
    pub(super) layout: Layout<P>,
    pub(super) state: State,
    pub(super) kept: Vec<u8>,
    pub(super) notes: Vec<EsiNote>,
    pub(super) found: bool,
    pub(super) removing: bool,
    pub(super) in_element: bool,
    /// Within `<!--esi`: the number of bytes of its end that have matched.
    pub(super) comment: Option<usize>,
    pub(super) tag: Tag,
}

impl<P: Packer> Parser<P> {
    /// Creates a parser. `url` is the URL of the body.
    pub fn new(url: &[u8], options: Options, packer: P) -> Parser<P> {
        Parser {
            options,
            base: base_of(url).to_vec(),
            layout: Layout::new(packer),
            state: State::Start,
            kept: Vec::new(),
            notes: Vec::new(),
            found: false,
            removing: false,
            in_element: false,
            comment: None,
            tag: Tag::default(),
        }
    }

    pub fn take_notes(&mut self) -> Vec<EsiNote> {
        std::mem::take(&mut self.notes)
    }

    pub fn packer(&self) -> &P {
        &self.layout.packer
    }

    pub(super) fn error(&mut self, text: &'static str) {
        self.note(EsiNote::Error(self.layout.recorded(), text));
    }

    pub(super) fn warning(&mut self, text: &'static str) {
        self.note(EsiNote::Warning(self.layout.recorded(), text));
    }

    /// Records a note. Notes are kept until the end of the body, so their number is limited; the first ones suffice.
    fn note(&mut self, note: EsiNote) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    pub(super) fn tag_error(&mut self, text: &'static str) {
        self.error(text);
        self.state = State::TagError;
    }

    /// Returns the treatment of bytes that are not part of markup.
    pub(super) fn current(&self) -> Part {
        if self.in_element || self.removing { Part::Skip } else { Part::Send }
    }

    pub(super) fn mark(&mut self, s: &mut Scan<'_>, part: Part, out: &mut Vec<u8>) {
        self.layout.mark(part, &s.bytes[s.marked..s.at], out);
        s.marked = s.at;
    }
}

/// Returns the URL up to the last `/` before any `?`.
fn base_of(url: &[u8]) -> &[u8] {
    let path = url.split(|&c| c == b'?').next().unwrap_or_default();
    match path.iter().rposition(|&c| c == b'/') {
        Some(slash) => &path[..slash],
        None => path,
    }
}
