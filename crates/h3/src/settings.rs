//! The settings of HTTP/3 (RFC 9114 section 7.2.4.1, RFC 9204 section 5, RFC 9220 section 3).

use crate::error_table::Reason;
use crate::fault::Fault;
use crate::varint;

const MAX_TABLE_CAPACITY: u64 = 0x1;
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
const BLOCKED_STREAMS: u64 = 0x7;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// The maximum number of entries in a frame. No client needs so many.
pub const MAX_ENTRIES: usize = 64;

/// The maximum length of the payload: all entries with the longest encoding.
pub(crate) const MAX_PAYLOAD: u64 = (MAX_ENTRIES * 2 * varint::MAX_LEN) as u64;

/// The settings that one side has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The maximum capacity of the dynamic table that the other side's encoder may use.
    pub max_table_capacity: u64,
    /// The maximum size of a field section, or `None` if there is no limit.
    pub max_field_section_size: Option<u64>,
    /// The maximum number of streams whose field sections may wait for the encoder stream.
    pub blocked_streams: u64,
    /// Extended CONNECT is available (RFC 9220).
    pub connect_protocol: bool,
}

impl Settings {
    /// The settings before any announcement.
    pub const DEFAULT: Settings = Settings {
        max_table_capacity: 0,
        max_field_section_size: None,
        blocked_streams: 0,
        connect_protocol: false,
    };

    /// The settings of this side, with this maximum size of a field section.
    pub const fn of_server(max_field_section_size: u64) -> Settings {
        Settings {
            max_table_capacity: 4096,
            max_field_section_size: Some(max_field_section_size),
            blocked_streams: 16,
            connect_protocol: false,
        }
    }

    /// Appends the payload of a SETTINGS frame: the settings that differ from the defaults.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut entry = |number, value| {
            varint::write(out, number);
            varint::write(out, value);
        };
        if self.max_table_capacity > 0 {
            entry(MAX_TABLE_CAPACITY, self.max_table_capacity);
        }
        if let Some(size) = self.max_field_section_size {
            entry(MAX_FIELD_SECTION_SIZE, size);
        }
        if self.blocked_streams > 0 {
            entry(BLOCKED_STREAMS, self.blocked_streams);
        }
        if self.connect_protocol {
            entry(ENABLE_CONNECT_PROTOCOL, 1);
        }
    }

    /// Reads the payload of the peer's SETTINGS frame. Unknown settings are ignored.
    pub fn read(payload: &[u8]) -> Result<Settings, Fault> {
        let mut settings = Settings::DEFAULT;
        let (mut seen, mut left) = (Vec::new(), payload);
        while !left.is_empty() {
            let number = take(&mut left)?;
            let value = take(&mut left)?;
            if seen.len() == MAX_ENTRIES {
                return Err(too_many());
            }
            if seen.contains(&number) {
                return Err(invalid(format!("H3: setting 0x{number:x} occurs twice")));
            }
            seen.push(number);
            settings.set(number, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, number: u64, value: u64) -> Result<(), Fault> {
        match number {
            MAX_TABLE_CAPACITY => self.max_table_capacity = value,
            MAX_FIELD_SECTION_SIZE => self.max_field_section_size = Some(value),
            BLOCKED_STREAMS => self.blocked_streams = value,
            ENABLE_CONNECT_PROTOCOL if value > 1 => {
                return Err(invalid(format!("H3: setting ENABLE_CONNECT_PROTOCOL is {value}")));
            }
            ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            // Numbers of settings that only HTTP/2 has (section 7.2.4.1).
            0x0 | 0x2..=0x5 => return Err(invalid(format!("H3: setting 0x{number:x} of HTTP/2"))),
            _ => {}
        }
        Ok(())
    }
}

/// Removes an integer from the front of the payload.
fn take(left: &mut &[u8]) -> Result<u64, Fault> {
    let (value, len) = varint::read(left)
        .ok_or_else(|| Fault::connection(Reason::FrameError, "H3: rx settings ends within an entry"))?;
    *left = &left[len..];
    Ok(value)
}

fn invalid(text: String) -> Fault {
    Fault::connection(Reason::SettingsError, text)
}

pub(crate) fn too_many() -> Fault {
    Fault::connection(Reason::ExcessiveLoad, "H3: Too many entries in a SETTINGS frame")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_table::Error;

    fn payload(entries: &[(u64, u64)]) -> Vec<u8> {
        let mut out = Vec::new();
        for &(number, value) in entries {
            varint::write(&mut out, number);
            varint::write(&mut out, value);
        }
        out
    }

    #[test]
    fn settings_round_trip() {
        for settings in [
            Settings::DEFAULT,
            Settings::of_server(49152),
            Settings { connect_protocol: true, ..Settings::of_server(1) },
        ] {
            let mut out = Vec::new();
            settings.encode(&mut out);
            assert_eq!(Settings::read(&out), Ok(settings));
        }
        let grease = payload(&[(0x21, 5), (0x33, 1), (0x1f * 7 + 0x21, varint::MAX), (6, 9)]);
        assert_eq!(Settings::read(&grease).unwrap().max_field_section_size, Some(9));
    }

    const INVALID: Error = Error::Connection(Reason::SettingsError);

    #[test]
    fn invalid_settings_are_rejected() {
        let error = |entries: &[(u64, u64)]| Settings::read(&payload(entries)).unwrap_err().error;
        for of_http2 in [0, 2, 3, 4, 5] {
            assert_eq!(error(&[(1, 0), (of_http2, 1)]), INVALID);
        }
        assert_eq!(error(&[(6, 1), (7, 1), (6, 1)]), INVALID);
        assert_eq!(error(&[(0x21, 1), (0x21, 1)]), INVALID);
        assert_eq!(error(&[(8, 2)]), INVALID);
        let cut = payload(&[(6, 16384)]);
        for end in 1..cut.len() {
            let fault = Settings::read(&cut[..end]).unwrap_err();
            assert_eq!(fault.error, Error::Connection(Reason::FrameError));
        }
        let many: Vec<_> = (0..=64).map(|i| (0x100 + i, 0)).collect();
        assert_eq!(Settings::read(&payload(&many[..64])), Ok(Settings::DEFAULT));
        assert_eq!(error(&many), Error::Connection(Reason::ExcessiveLoad));
    }
}
