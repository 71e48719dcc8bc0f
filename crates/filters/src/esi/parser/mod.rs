//! The ESI parser: a state machine that takes a body piece by piece and marks in its `Layout` which bytes are
//! delivered and which are not. The result does not depend on how the body is split: bytes whose meaning is undecided
//! at the end of a piece are kept and parsed again with the next piece.

mod state;
mod tags;

use super::EsiNote;
use super::layout::{Packer, Part};
use super::words::{self, Found};
use state::{Element, Flow, Scan, State};

pub use state::Parser;

/// The end of `<!--esi`.
const COMMENT_END: &[u8] = b"-->";

impl<P: Packer> Parser<P> {
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
        if input.is_empty() {
            return;
        }
        self.layout.begin(out);
        if self.kept.is_empty() {
            let used = self.parse(input, out);
            self.kept.extend_from_slice(&input[used..]);
        } else {
            let mut joined = std::mem::take(&mut self.kept);
            joined.extend_from_slice(input);
            let used = self.parse(&joined, out);
            joined.drain(..used);
            self.kept = joined;
        }
    }

    /// Ends the body. Returns the program if ESI was found, the notes and the packer.
    pub fn finish(mut self, out: &mut Vec<u8>) -> (Option<Vec<u8>>, Vec<EsiNote>, P) {
        let fine = matches!(self.state, State::Start | State::TestXml | State::NotXml | State::NextTag);
        if !fine {
            self.error("VEP ended inside a tag");
        }
        let kept = std::mem::take(&mut self.kept);
        self.layout.begin(out);
        self.layout.mark(self.current(), &kept, out);
        self.layout.finish(out);
        let program = if self.found { self.layout.program.finish() } else { None };
        (program, self.notes, self.layout.packer)
    }

    /// Returns the number of bytes that were parsed.
    fn parse(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let mut s = Scan { bytes, at: 0, marked: 0 };
        while s.at < bytes.len() {
            if let Flow::Short = self.step(&mut s, out) {
                break;
            }
        }
        if s.marked < s.at {
            self.mark(&mut s, self.current(), out);
        }
        s.at
    }

    fn step(&mut self, s: &mut Scan<'_>, out: &mut Vec<u8>) -> Flow {
        match self.state {
            State::Start => return self.start(s, out),
            State::TestXml => self.test_xml(s, out),
            State::NotXml => s.at = s.bytes.len(),
            State::NextTag => return self.next_tag(s, out),
            State::StartTag => return self.start_tag(s, out),
            State::OtherTag => self.other_tag(s),
            State::Until(text, matched) => self.until(s, text, matched),
            State::Element => return self.element(s),
            State::InTag => self.in_tag(s, out),
            State::TagError => self.recover(s, out),
            State::Attribute => return self.attribute(s),
            State::SkipAttribute => self.skip_attribute(s),
            State::Delimiter => self.delimiter(s),
            State::Value => self.value(s),
        }
        Flow::On
    }

    fn start(&mut self, s: &mut Scan<'_>, out: &mut Vec<u8>) -> Flow {
        if self.options.remove_bom {
            match words::find(&words::BOM, s.rest()) {
                Found::Entry(_) => {
                    s.at += words::BOM[0].len();
                    self.mark(s, Part::Skip, out);
                    return Flow::On;
                }
                Found::Undecided => return Flow::Short,
                Found::Nothing => {}
            }
        }
        self.mark(s, Part::Skip, out);
        self.state = if self.options.disable_xml_check { State::NextTag } else { State::TestXml };
        Flow::On
    }

    /// Checks the first character. If it is not `<`, the body is not XML.
    fn test_xml(&mut self, s: &mut Scan<'_>, out: &mut Vec<u8>) {
        while s.peek().is_some_and(words::is_blank) {
            s.at += 1;
        }
        self.mark(s, Part::Send, out);
        let why = match s.peek() {
            None => return,
            Some(b'<') => {
                self.state = State::StartTag;
                return;
            }
            Some(0xeb) => "No ESI processing, first char not '<' but BOM. (See feature esi_remove_bom)",
            Some(_) => "No ESI processing, first char not '<'. (See feature esi_disable_xml_check)",
        };
        self.notes.push(EsiNote::Untouched(why));
        self.state = State::NotXml;
    }

    fn other_tag(&mut self, s: &mut Scan<'_>) {
        if self.options.ignore_other_elements {
            self.state = State::NextTag;
            return;
        }
        match s.rest().iter().position(|&c| c == b'>') {
            Some(n) => {
                s.at += n + 1;
                self.state = State::NextTag;
            }
            None => s.at = s.bytes.len(),
        }
    }

    /// Searches for `<`, and for the end of `<!--esi` while within one.
    fn next_tag(&mut self, s: &mut Scan<'_>, out: &mut Vec<u8>) -> Flow {
        self.tag.is_empty = false;
        self.tag.element = None;
        while let Some(c) = s.peek() {
            if c == b'<' {
                self.comment = self.comment.map(|_| 0);
                self.mark(s, self.current(), out);
                self.state = State::StartTag;
                return Flow::On;
            }
            let Some(matched) = self.comment else {
                let next = s.rest().iter().position(|&c| c == b'<');
                s.at += next.unwrap_or(s.rest().len());
                continue;
            };
            if c != COMMENT_END[matched] {
                s.at += 1;
                self.comment = Some(0);
                continue;
            }
            if matched == 0 {
                self.mark(s, self.current(), out);
            }
            s.at += 1;
            self.comment = Some(matched + 1);
            if matched + 1 == COMMENT_END.len() {
                self.found = true;
                self.comment = None;
                self.mark(s, Part::Skip, out);
            }
        }
        if let Some(matched) = self.comment.filter(|&n| n > 0) {
            s.at -= matched;
            self.comment = Some(0);
            return Flow::Short;
        }
        Flow::On
    }

    fn start_tag(&mut self, s: &mut Scan<'_>, out: &mut Vec<u8>) -> Flow {
        self.tag.is_end = false;
        let entry = match words::find(&words::OPENINGS, &s.rest()[1..]) {
            Found::Undecided => return Flow::Short,
            Found::Nothing => {
                s.at += 1;
                self.state = State::OtherTag;
                return Flow::On;
            }
            Found::Entry(entry) => entry,
        };
        s.at += 1 + words::OPENINGS[entry].len();
        match words::OPENINGS[entry] {
            b"!--esi" => {
                if self.removing {
                    self.error("ESI 1.0 Nested <!--esi element in <esi:remove>");
                }
                self.comment = Some(0);
                self.state = State::NextTag;
                self.mark(s, Part::Skip, out);
            }
            b"!---->" => self.state = State::NextTag,
            b"!--" => {
                self.comment = None;
                self.state = State::Until(COMMENT_END, 0);
            }
            b"![CDATA[" => self.state = State::Until(b"]]>", 0),
            opening => {
                self.tag.is_end = opening == b"/esi:";
                self.in_element = true;
                self.found = true;
                self.mark(s, Part::Skip, out);
                self.state = State::Element;
            }
        }
        Flow::On
    }

    fn until(&mut self, s: &mut Scan<'_>, text: &'static [u8], mut matched: usize) {
        while let Some(c) = s.peek() {
            s.at += 1;
            matched = if c == text[matched] { matched + 1 } else { 0 };
            if matched == text.len() {
                self.state = State::NextTag;
                return;
            }
        }
        self.state = State::Until(text, matched);
    }

    fn element(&mut self, s: &mut Scan<'_>) -> Flow {
        let element = match words::find(&words::ELEMENTS, s.rest()) {
            Found::Undecided => return Flow::Short,
            Found::Nothing => {
                self.tag_error("ESI 1.0 <esi:bogus> element");
                return Flow::On;
            }
            Found::Entry(n) => [Element::Include, Element::Remove, Element::Comment][n],
        };
        s.at += words::ELEMENTS[element as usize].len();
        let (nested, closing) = match element {
            Element::Include => (
                "ESI 1.0 <esi:include> element nested in <esi:remove>",
                "ESI 1.0 </esi:include> illegal end-tag",
            ),
            _ => (
                "ESI 1.0 <esi:comment> element nested in <esi:remove>",
                "ESI 1.0 </esi:comment> illegal end-tag",
            ),
        };
        if element != Element::Remove && self.removing {
            self.tag_error(nested);
        } else if element != Element::Remove && self.tag.is_end {
            self.tag_error(closing);
        } else {
            self.tag.element = Some(element);
            self.state = State::InTag;
        }
        Flow::On
    }
}
