//! The directives that a response contains for this cache (RFC 9111 section 5.2.2, RFC 9213, RFC 5861).

use lacquer_http::dictionary::is_dictionary;
use lacquer_http::directives::{Directive, delta_seconds, directives};
use lacquer_http::header_table::{CACHE_CONTROL, HeaderName};
use lacquer_http::pack::PackedHead;
use lacquer_http::{Message, Workspace};

/// The targeted field for this cache (RFC 9213 section 3.1).
pub const CDN_CACHE_CONTROL: HeaderName<'static> = HeaderName::new(b"CDN-Cache-Control");

/// The directives of a response. Numbers are in seconds. A number that is invalid makes the response stale, so it is
/// recorded as 0 (RFC 9111 section 4.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    pub max_age: Option<u32>,
    pub s_maxage: Option<u32>,
    pub stale_while_revalidate: Option<u32>,
    pub stale_if_error: Option<u32>,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    pub no_cache: bool,
    pub no_store: bool,
    pub private: bool,
    pub public: bool,
    /// The directives come from a targeted field, so `Cache-Control` and `Expires` are ignored.
    pub is_targeted: bool,
}

impl Control {
    /// Reads the directives of a response. A valid targeted field replaces the others (RFC 9213 section 2.2). The lines
    /// of each field must have been merged.
    pub fn of(msg: &Message, ws: &Workspace) -> Control {
        Control::of_values(msg.get(ws, CDN_CACHE_CONTROL), msg.get(ws, CACHE_CONTROL))
    }

    /// Reads the directives of a stored head.
    pub fn of_stored(head: &PackedHead<'_>) -> Control {
        Control::of_values(head.header(CDN_CACHE_CONTROL), head.header(CACHE_CONTROL))
    }

    /// Reads the directives of a targeted field and of `Cache-Control`.
    pub fn of_values(targeted: Option<&[u8]>, cache_control: Option<&[u8]>) -> Control {
        let mut control = Control::default();
        if let Some(targeted) = targeted.filter(|value| is_valid_target(value)) {
            control.is_targeted = true;
            control.read(targeted);
        } else if let Some(value) = cache_control {
            control.read(value);
        }
        control
    }

    /// Adds the directives of a list. The first of several equal directives counts (RFC 9111 section 4.2.1), and in a
    /// dictionary the last (RFC 9651 section 3.2). `private` and `no-cache` with names of fields count for the whole
    /// response, which sections 5.2.2.4 and 5.2.2.7 allow.
    fn read(&mut self, list: &[u8]) {
        let is_targeted = self.is_targeted;
        for directive in directives(list) {
            let number = |slot: &mut Option<u32>, fallback: Option<u32>| {
                let value = seconds(&directive, is_targeted).or(fallback.filter(|_| !is_targeted));
                if slot.is_none() || is_targeted {
                    *slot = value.or(*slot);
                }
            };
            // In a dictionary, "?0" is false.
            let flag = |slot: &mut bool| {
                let is_false = is_targeted && without_parameters(&directive) == Some(b"?0");
                *slot = !is_false;
            };
            match directive.name.to_ascii_lowercase().as_slice() {
                b"max-age" => number(&mut self.max_age, Some(0)),
                b"s-maxage" => number(&mut self.s_maxage, Some(0)),
                b"stale-while-revalidate" => number(&mut self.stale_while_revalidate, None),
                b"stale-if-error" => number(&mut self.stale_if_error, None),
                b"must-revalidate" => flag(&mut self.must_revalidate),
                b"proxy-revalidate" => flag(&mut self.proxy_revalidate),
                b"must-understand" => flag(&mut self.must_understand),
                b"no-cache" => flag(&mut self.no_cache),
                b"no-store" => flag(&mut self.no_store),
                b"private" => flag(&mut self.private),
                b"public" => flag(&mut self.public),
                _ => {}
            }
        }
    }

    /// Returns whether a stale response must not be used without a successful validation (RFC 9111 section 4.2.4).
    /// `s-maxage` has the effect of `proxy-revalidate` (section 5.2.2.10).
    pub fn forbids_stale(self) -> bool {
        self.must_revalidate || self.proxy_revalidate || self.no_cache || self.s_maxage.is_some()
    }
}

/// Returns the argument of a directive as a number of seconds.
fn seconds(directive: &Directive<'_>, is_targeted: bool) -> Option<u32> {
    if is_targeted { without_parameters(directive).and_then(delta_seconds) } else { directive.seconds() }
}

/// Returns the argument of a member of a dictionary. Its parameters are ignored (RFC 9213 section 2.1).
fn without_parameters<'d>(directive: &'d Directive<'_>) -> Option<&'d [u8]> {
    let argument = directive.argument.as_deref()?;
    if directive.is_quoted { Some(argument) } else { argument.split(|&b| b == b';').next() }
}

/// Returns whether a targeted field is valid: a dictionary whose numbers are integers (RFC 9213 sections 2.1 and 2.2).
fn is_valid_target(value: &[u8]) -> bool {
    const NUMBERS: [&str; 4] = ["max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"];
    is_dictionary(value)
        && directives(value).all(|directive| {
            let is_number = NUMBERS.iter().any(|name| directive.name == name.as_bytes());
            !is_number || !directive.is_quoted && seconds(&directive, true).is_some()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(lines: &[&str]) -> Control {
        let (mut ws, mut msg) = (Workspace::new(1 << 16), Message::new(64));
        for line in lines {
            msg.append_line_copy(&mut ws, line.as_bytes()).expect("there is room");
        }
        for name in [CACHE_CONTROL, CDN_CACHE_CONTROL] {
            msg.collect(&mut ws, name, b", ").expect("there is room");
        }
        Control::of(&msg, &ws)
    }

    #[test]
    fn directives_are_read_as_the_grammar_defines_them() {
        let aged = |n| Control { max_age: Some(n), ..Control::default() };
        let table: &[(&[&str], Control)] = &[
            (&[], Control::default()),
            (&["Cache-Control: max-age=5"], aged(5)),
            (&["Cache-Control: MAX-AGE=5"], aged(5)),
            (&["Cache-Control: max-age=\"5\""], aged(5)),
            // 4.2.1: the first of several, on one line or on two.
            (&["Cache-Control: max-age=5, max-age=9"], aged(5)),
            (&["Cache-Control: max-age=5", "Cache-Control: max-age=9"], aged(5)),
            // 4.2.1: an invalid lifetime is stale.
            (&["Cache-Control: max-age"], aged(0)),
            (&["Cache-Control: max-age='5'"], aged(0)),
            (&["Cache-Control: max-age=-5"], aged(0)),
            (&["Cache-Control: x=\"max-age=9\", max-age=5"], aged(5)),
            (&["Cache-Control: x=\"no-store, private\""], Control::default()),
            (&["Cache-Control: NO-STORE"], Control { no_store: true, ..Control::default() }),
            (&["Cache-Control: private=\"a, b\""], Control { private: true, ..Control::default() }),
            (&["Cache-Control: no-cache=a"], Control { no_cache: true, ..Control::default() }),
            // RFC 5861: an invalid number permits nothing.
            (&["Cache-Control: stale-if-error=x"], Control::default()),
        ];
        for (lines, expected) in table {
            assert_eq!(control(lines), *expected, "{lines:?}");
        }
    }

    #[test]
    fn a_targeted_field_replaces_the_others() {
        let targeted = |max_age| Control { is_targeted: true, max_age, ..Control::default() };
        let both = "Cache-Control: no-store";
        let table: &[(&[&str], Control)] = &[
            (&[both, "CDN-Cache-Control: max-age=5"], targeted(Some(5))),
            (&[both, "CDN-Cache-Control: max-age=5, max-age=9"], targeted(Some(9))),
            (&[both, "CDN-Cache-Control: max-age=5", "CDN-Cache-Control: max-age=9"], targeted(Some(9))),
            (&[both, "CDN-Cache-Control: foobar"], targeted(None)),
            (&[both, "CDN-Cache-Control: max-age=5;a=1;b"], targeted(Some(5))),
            (&[both, "CDN-Cache-Control: no-store=?0;a, max-age=5; private"], targeted(Some(5))),
            (&[both, "CDN-Cache-Control: private=?0, no-store=?0"], targeted(None)),
            // An empty or invalid field is ignored (section 2.2), also one with a value of another type (section 2.1).
            (&[both, "CDN-Cache-Control: max-age=\"5\""], Control { no_store: true, ..Control::default() }),
            (&[both, "CDN-Cache-Control: max-age=5.5"], Control { no_store: true, ..Control::default() }),
            (&[both, "CDN-Cache-Control: max-age"], Control { no_store: true, ..Control::default() }),
            (&[both, "CDN-Cache-Control: Max-Age=5"], Control { no_store: true, ..Control::default() }),
            (&[both, "CDN-Cache-Control: "], Control { no_store: true, ..Control::default() }),
        ];
        for (lines, expected) in table {
            assert_eq!(control(lines), *expected, "{lines:?}");
        }
    }

    #[test]
    fn some_directives_forbid_stale_use() {
        for (value, expected) in [
            ("must-revalidate", true),
            ("proxy-revalidate", true),
            ("no-cache", true),
            ("s-maxage=2", true),
            ("max-age=2, stale-while-revalidate=9", false),
            ("no-store, private, public, must-understand", false),
        ] {
            assert_eq!(Control::of_values(None, Some(value.as_bytes())).forbids_stale(), expected, "{value}");
        }
    }
}
