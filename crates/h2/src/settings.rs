//! The settings of HTTP/2 (RFC 9113 section 6.5.2, RFC 8441 section 3), as a table of number, name, default and range.

use crate::error_table::{Error, Reason};
use crate::fault::{Note, Tag};

macro_rules! settings {
    ($($field:ident $variant:ident $number:literal, $default:literal, $min:literal..=$max:literal, $error:expr;)*) => {
        /// The settings that one side has announced.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Settings { $(pub $field: u32),* }

        /// The identifier of a setting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Setting { $($variant = $number),* }

        impl Settings {
            /// The settings before any announcement.
            pub const DEFAULT: Settings = Settings { $($field: $default),* };

            /// Appends the payload of a SETTINGS frame: the settings that differ from the defaults.
            pub fn encode(&self, out: &mut Vec<u8>) {
                $(if self.$field != $default {
                    out.extend_from_slice(&u16::to_be_bytes($number));
                    out.extend_from_slice(&self.$field.to_be_bytes());
                })*
            }

            fn set(&mut self, setting: Setting, value: u32) {
                match setting { $(Setting::$variant => self.$field = value),* }
            }
        }

        impl Setting {
            pub fn of(number: u16) -> Option<Setting> {
                match number { $($number => Some(Setting::$variant),)* _ => None }
            }

            pub const fn name(self) -> &'static str {
                match self { $(Setting::$variant => stringify!($field)),* }
            }

            fn check(self, value: u32) -> Result<(), Error> {
                match self {
                    $(Setting::$variant if !($min..=$max).contains(&value) => Err(Error::Connection($error)),)*
                    _ => Ok(()),
                }
            }
        }
    };
}

settings! {
    header_table_size HeaderTableSize 1, 4096, 0..=0xffff_ffff, Reason::ProtocolError;
    enable_push EnablePush 2, 1, 0..=1, Reason::ProtocolError;
    max_concurrent_streams MaxConcurrentStreams 3, 0xffff_ffff, 0..=0xffff_ffff, Reason::ProtocolError;
    initial_window_size InitialWindowSize 4, 65535, 0..=0x7fff_ffff, Reason::FlowControlError;
    max_frame_size MaxFrameSize 5, 16384, 16384..=0x00ff_ffff, Reason::ProtocolError;
    max_header_list_size MaxHeaderListSize 6, 0x7fff_ffff, 0..=0xffff_ffff, Reason::ProtocolError;
    enable_connect_protocol EnableConnectProtocol 8, 0, 0..=1, Reason::ProtocolError;
}

/// The maximum number of entries in a frame. No client needs so many, and each entry may require a visit of all
/// streams.
pub const MAX_ENTRIES: usize = 64;

/// The effect of one entry of the peer's SETTINGS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub note: Note,
    /// The change of the send window of each stream that is not closed.
    pub window_delta: i64,
    /// Set if the value is out of range and was not applied.
    pub error: Option<Error>,
}

/// Returns number and value of the entries of a SETTINGS payload. The caller has checked its length.
pub fn entries(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.chunks_exact(6).filter_map(|entry| {
        let (number, value) = entry.split_at(2);
        Some((u16::from_be_bytes(number.try_into().ok()?), u32::from_be_bytes(value.try_into().ok()?)))
    })
}

impl Settings {
    /// Applies one entry of the peer's SETTINGS. With `unchecked` (debug flag `h2_nocheck`), a value out of range is
    /// applied too.
    pub fn apply(&mut self, (number, value): (u16, u32), unchecked: bool) -> Applied {
        let note = |text: String| Note::new(Tag::Debug, text);
        let Some(setting) = Setting::of(number) else {
            let text = format!("H2SETTING unknown setting 0x{number:04x}={value:08x} (ignored)");
            return Applied { note: note(text), window_delta: 0, error: None };
        };
        let name = setting.name();
        let error = setting.check(value).err();
        if error.is_some() && !unchecked {
            let text = format!("H2SETTING invalid {name}=0x{value:08x}");
            return Applied { note: note(text), window_delta: 0, error };
        }
        let window = self.initial_window_size;
        self.set(setting, value);
        let window_delta = i64::from(self.initial_window_size) - i64::from(window);
        Applied { note: note(format!("H2SETTING {name}=0x{value:08x}")), window_delta, error: None }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::DEFAULT
    }
}

/// Decodes the SETTINGS payload in the header `HTTP2-Settings` of an upgrade from HTTP/1. It is in base64url, with or
/// without padding. Returns `None` if it is invalid.
pub fn from_base64url(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|&&c| c == b'=').count();
    let (mut out, mut bits, mut count) = (Vec::with_capacity(text.len()), 0u32, 0);
    for &c in &text[..text.len() - padding] {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    (padding <= 2 && count < 6 && out.len().is_multiple_of(6)).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_an_upgrade_are_decoded() {
        assert_eq!(from_base64url(b"AAMAAABkAAQAAP__").unwrap(), b"\0\x03\0\0\0\x64\0\x04\0\0\xff\xff");
        assert_eq!(from_base64url(b""), Some(vec![]));
        for damaged in [&b"#######"[..], b"AAMAAAB", b"AAMAAABkAAQAAP__A", b"=AAMAAABkAAQAAP__", b"===="] {
            assert_eq!(from_base64url(damaged), None);
        }
    }

    #[test]
    fn entries_out_of_range_are_rejected() {
        let mut peer = Settings::DEFAULT;
        let applied: Vec<Applied> = entries(b"\0\x04\0\0\x03\xe8\0\x03\0\0\0\x64\xff\xff\0\0\0\0")
            .map(|entry| peer.apply(entry, false))
            .collect();
        assert_eq!((peer.initial_window_size, peer.max_concurrent_streams), (1000, 100));
        assert_eq!(applied[0].window_delta, 1000 - 65535);
        assert_eq!(applied[1].note.text, "H2SETTING max_concurrent_streams=0x00000064");
        assert_eq!(applied[2].note.text, "H2SETTING unknown setting 0xffff=00000000 (ignored)");

        let refused = peer.apply((4, 0x8000_0000), false);
        assert_eq!(refused.error, Some(Error::Connection(Reason::FlowControlError)));
        assert_eq!(refused.note.text, "H2SETTING invalid initial_window_size=0x80000000");
        assert_eq!(peer.apply((5, 64), false).error, Some(Error::Connection(Reason::ProtocolError)));
        assert_eq!(peer.max_frame_size, 16384);
        assert_eq!(peer.apply((5, 64), true).error, None);
        assert_eq!(peer.max_frame_size, 64);
        assert_eq!(peer.apply((8, 2), false).error, Some(Error::Connection(Reason::ProtocolError)));
        assert_eq!(peer.apply((2, 2), false).error, Some(Error::Connection(Reason::ProtocolError)));
    }

    #[test]
    fn only_differences_are_announced() {
        let mut out = Vec::new();
        Settings::DEFAULT.encode(&mut out);
        assert_eq!(out, b"");
        Settings { max_concurrent_streams: 100, max_header_list_size: 32768, ..Settings::DEFAULT }
            .encode(&mut out);
        assert_eq!(out, b"\0\x03\0\0\0\x64\0\x06\0\0\x80\0");
        out.clear();
        Settings { enable_connect_protocol: 1, ..Settings::DEFAULT }.encode(&mut out);
        assert_eq!(out, b"\0\x08\0\0\0\x01");
    }
}
