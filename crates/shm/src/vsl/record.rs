//! The fields of a record's text.
//!
//! A request writes a dozen records of several fields. One function formats all of them from a list, so that
//! its code is in the processor's cache for the next record.

use std::fmt;

use super::record_buffer::TEXT;
use super::text::{self, SHORT};

/// A field of a record. Fields are separated by spaces.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    Text(&'a [u8]),
    Number(u64),
    /// Seconds with six decimals, rounded.
    Seconds(f64),
}

/// Writes the fields to the beginning of `out`, with space left for a NUL. Returns `None` if a field is too long or all
/// of them do not fit.
#[inline(always)]
pub(super) fn compose(fields: &[Field<'_>], out: &mut [u8; TEXT]) -> Option<usize> {
    let mut at = 0;
    for field in fields {
        let place: &mut [u8; SHORT + 1] = out.get_mut(at..)?.first_chunk_mut()?;
        let len = match *field {
            Field::Text(text) if text.len() > SHORT => return None,
            Field::Text(text) => {
                text::copy(text, place);
                text.len()
            }
            Field::Number(n) => text::decimal(n, place.first_chunk_mut()?),
            Field::Seconds(t) => text::fixed6(t, 0, place),
        };
        *place.get_mut(len)? = b' ';
        at += len + 1;
    }
    Some(at.saturating_sub(1))
}

/// A text that is truncated at the end of its buffer.
pub(super) struct Truncated<'a> {
    place: &'a mut [u8],
    len: usize,
}

impl<'a> Truncated<'a> {
    pub(super) fn new(place: &'a mut [u8]) -> Self {
        Self { place, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, text: &[u8]) {
        let place = &mut self.place[self.len..];
        let len = text.len().min(place.len());
        place[..len].copy_from_slice(&text[..len]);
        self.len += len;
    }

    /// Appends fields of any length, for those that [`compose`] does not accept.
    pub(super) fn push_fields(&mut self, fields: &[Field<'_>]) {
        for (i, field) in fields.iter().enumerate() {
            if i > 0 {
                self.push(b" ");
            }
            let mut number = [0; text::MAX];
            match *field {
                Field::Text(text) => self.push(text),
                Field::Number(n) => self.push(text::digits(n, &mut number)),
                Field::Seconds(t) => {
                    let len = text::fixed6(t, 0, &mut number);
                    self.push(&number[..len]);
                }
            }
        }
    }
}

impl fmt::Write for Truncated<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(fields: &[Field<'_>]) -> (Option<String>, String) {
        let mut out = [b'#'; TEXT];
        let composed = compose(fields, &mut out).map(|len| String::from_utf8_lossy(&out[..len]).into_owned());
        let mut place = [b'#'; 2000];
        let mut cut = Truncated::new(&mut place);
        cut.push_fields(fields);
        let len = cut.len();
        (composed, String::from_utf8_lossy(&place[..len]).into_owned())
    }

    #[test]
    fn both_ways_of_formatting_fields_agree() {
        let fields =
            [Field::Text(b"req"), Field::Number(32_769), Field::Seconds(-0.5), Field::Text(b"rxreq")];
        for n in 0..=fields.len() {
            let expected = ["req", "32769", "-0.500000", "rxreq"][..n].join(" ");
            assert_eq!(both(&fields[..n]), (Some(expected.clone()), expected));
        }
    }

    #[test]
    fn numbers_beyond_the_limit_are_clamped() {
        let text = "18446744073709.551615 18446744073709.551615 18446744073709.000000".to_owned();
        let fields = [1e18, f64::INFINITY, 18_446_744_073_709.0].map(Field::Seconds);
        assert_eq!(both(&fields), (Some(text.clone()), text));
    }

    #[test]
    fn only_fields_that_fit_are_composed() {
        let long = [b'x'; SHORT + 1];
        assert!(both(&[Field::Text(&long[1..])]).0.is_some());
        assert_eq!(both(&[Field::Text(&long)]), (None, "x".repeat(SHORT + 1)));
        for count in 1..=20 {
            let (composed, whole) = both(&vec![Field::Number(u64::MAX); count]);
            assert!(composed.is_none_or(|text| text == whole && text.len() < TEXT), "{count}");
        }
        assert!(both(&[Field::Number(u64::MAX); 9]).0.is_some());
    }
}
