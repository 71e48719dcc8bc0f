//! Parses within an ESI tag: its attributes, and its effect when it ends.

use super::super::layout::{Packer, Part};
use super::super::words::{self, Found};
use super::state::{Attribute, Element, Flow, Parser, Scan, State};

/// The maximum length of an attribute value, which is kept in memory until its end. No request could be made for a
/// longer URL.
const VALUE_MAX: usize = 64 * 1024;

impl<P: Packer> Parser<P> {
    pub(super) fn in_tag(&mut self, s: &mut Scan<'_>, out: &mut Vec<u8>) {
        while !self.tag.is_empty && s.peek().is_some_and(words::is_blank) {
            s.at += 1;
            self.tag.may_have_attribute = true;
        }
        if !self.tag.is_empty && s.peek() == Some(b'/') {
            s.at += 1;
            self.tag.is_empty = true;
            self.tag.may_have_attribute = false;
        }
        match s.peek() {
            None => {}
            Some(b'>') => {
                s.at += 1;
                self.mark(s, Part::Skip, out);
                self.tag_ends();
                self.in_element = false;
                self.state = State::NextTag;
            }
            Some(_) if self.tag.is_empty => self.tag_error("XML 1.0 '>' does not follow '/' in tag"),
            Some(c) if self.tag.may_have_attribute && words::is_name_start(c) => {
                self.state = State::Attribute;
            }
            Some(_) => self.tag_error("XML 1.0 Illegal attribute start char"),
        }
    }

    pub(super) fn recover(&mut self, s: &mut Scan<'_>, out: &mut Vec<u8>) {
        let Some(n) = s.rest().iter().position(|&c| c == b'>') else {
            s.at = s.bytes.len();
            return;
        };
        s.at += n + 1;
        self.mark(s, Part::Skip, out);
        self.in_element = false;
        self.tag.attribute = None;
        self.state = State::NextTag;
    }

    pub(super) fn attribute(&mut self, s: &mut Scan<'_>) -> Flow {
        self.tag.attribute = None;
        if self.tag.element != Some(Element::Include) {
            s.at += 1;
            self.state = State::SkipAttribute;
            return Flow::On;
        }
        match words::find(&words::INCLUDE_ATTRIBUTES, s.rest()) {
            Found::Undecided => return Flow::Short,
            Found::Nothing => self.state = State::SkipAttribute,
            Found::Entry(n) => {
                s.at += words::INCLUDE_ATTRIBUTES[n].len();
                self.tag.attribute = Some([Attribute::Src, Attribute::OnError][n]);
                self.tag.value.clear();
                self.state = State::Delimiter;
            }
        }
        Flow::On
    }

    pub(super) fn skip_attribute(&mut self, s: &mut Scan<'_>) {
        while s.peek().is_some_and(words::is_name) {
            s.at += 1;
        }
        match s.peek() {
            None => {}
            Some(b'=') => {
                s.at += 1;
                self.state = State::Delimiter;
            }
            Some(b'>' | b'/') => self.state = State::InTag,
            Some(c) if words::is_space(c) => self.state = State::InTag,
            Some(_) => self.tag_error("XML 1.0 Illegal attr char"),
        }
    }

    pub(super) fn delimiter(&mut self, s: &mut Scan<'_>) {
        match s.peek() {
            None => return,
            Some(quote @ (b'"' | b'\'')) => {
                s.at += 1;
                self.tag.delimiter = quote;
            }
            Some(c) if !words::is_space(c) => self.tag.delimiter = b' ',
            Some(_) => return self.tag_error("XML 1.0 Illegal attribute delimiter"),
        }
        self.state = State::Value;
    }

    pub(super) fn value(&mut self, s: &mut Scan<'_>) {
        let delimiter = self.tag.delimiter;
        let ends = |c: &u8| *c == b'>' || *c == delimiter || (delimiter == b' ' && words::is_space(*c));
        let n = s.rest().iter().position(ends).unwrap_or(s.rest().len());
        if self.tag.attribute.is_some() && self.tag.value.len() + n > VALUE_MAX {
            s.at += n;
            return self.tag_error("ESI 1.0 attribute value too long");
        }
        if self.tag.attribute.is_some() {
            self.tag.value.extend_from_slice(&s.rest()[..n]);
        }
        s.at += n;
        match s.peek() {
            None => {}
            Some(b'>') => self.tag_error("XML 1.0 Missing end attribute delimiter"),
            Some(_) => {
                s.at += 1;
                self.state = State::InTag;
                match self.tag.attribute.take() {
                    Some(Attribute::Src) => self.take_src(),
                    Some(Attribute::OnError) => {
                        self.tag.continue_on_error = until_nul(&self.tag.value) == b"continue";
                    }
                    None => {}
                }
            }
        }
    }

    fn take_src(&mut self) {
        if self.tag.src.take().is_some() {
            return self.tag_error("ESI 1.0 <esi:include> has multiple src= attributes");
        }
        let src = &self.tag.value;
        if src.iter().any(|&c| words::is_blank(c)) {
            return self.tag_error("ESI 1.0 <esi:include> has whitespace in src= attribute");
        }
        // No target of a request may contain them.
        if src.iter().any(|&c| c.is_ascii_control()) {
            return self.tag_error("ESI 1.0 <esi:include> has a control character in src= attribute");
        }
        self.tag.src = Some(src.clone());
    }

    fn tag_ends(&mut self) {
        match self.tag.element {
            Some(Element::Comment) if !self.tag.is_empty => {
                self.error("ESI 1.0 <esi:comment> needs final '/'");
            }
            Some(Element::Remove) => self.remove_ends(),
            Some(Element::Include) => self.include_ends(),
            _ => {}
        }
    }

    fn remove_ends(&mut self) {
        if self.tag.is_empty {
            self.error("ESI 1.0 <esi:remove/> not legal");
        } else if self.removing && !self.tag.is_end {
            self.error("ESI 1.0 <esi:remove> already open");
        } else if !self.removing && self.tag.is_end {
            self.error("ESI 1.0 <esi:remove> not open");
        } else {
            self.removing = !self.tag.is_end;
        }
    }

    fn include_ends(&mut self) {
        if !self.tag.is_empty {
            self.warning("ESI 1.0 <esi:include> lacks final '/'");
        }
        let Some(src) = self.tag.src.take() else {
            return self.error("ESI 1.0 <esi:include> lacks src attr");
        };
        let or_fail = !self.tag.continue_on_error;
        if let Some(location) = src.strip_prefix(b"http://").filter(|p| !p.is_empty()) {
            self.include_from(location, or_fail);
        } else if let Some(location) = src.strip_prefix(b"https://").filter(|p| !p.is_empty()) {
            if !self.options.ignore_https {
                return self.warning("ESI 1.0 <esi:include> with https:// ignored");
            }
            self.warning("ESI 1.0 <esi:include> https:// treated as http://");
            self.include_from(location, or_fail);
        } else if src.starts_with(b"/") {
            self.layout.program.include(b"", &words::resolve(&src), or_fail);
            self.tag.continue_on_error = false;
        } else {
            self.layout.program.include_relative(&self.base, &words::resolve(&src), or_fail);
            self.tag.continue_on_error = false;
        }
    }

    /// Records an include. `location` is host and path.
    fn include_from(&mut self, location: &[u8], or_fail: bool) {
        let Some(slash) = location.iter().position(|&c| c == b'/') else {
            return self.error("ESI 1.0 <esi:include> invalid src= URL");
        };
        let (host, path) = location.split_at(slash);
        self.layout.program.include(host, &words::resolve(path), or_fail);
        self.tag.continue_on_error = false;
    }
}

fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&c| c == 0).next().unwrap_or_default()
}
