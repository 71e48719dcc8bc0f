//! Writes the frames that a server sends.

use crate::settings::Settings;
use crate::varint;

const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
const SETTINGS: u64 = 0x4;
const GOAWAY: u64 = 0x7;

/// The encoded header of a frame.
#[derive(Clone, Copy, Debug)]
pub struct HeaderBytes {
    bytes: [u8; 1 + varint::MAX_LEN],
    len: usize,
}

impl HeaderBytes {
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the header of a DATA frame with `len` bytes. The bytes of the body follow it.
pub fn data_header(len: u64) -> HeaderBytes {
    let (length, length_len) = varint::encode(len);
    let mut bytes = [0; 1 + varint::MAX_LEN];
    bytes[0] = DATA as u8;
    bytes[1..].copy_from_slice(&length);
    HeaderBytes { bytes, len: 1 + length_len }
}

/// Appends the header of a frame of any type.
pub fn write_header(out: &mut Vec<u8>, number: u64, len: u64) {
    varint::write(out, number);
    varint::write(out, len);
}

/// Appends a HEADERS frame. `write` appends its field section.
pub fn write_section(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    // Most sections have a length of two bytes.
    const RESERVED: usize = 2;
    out.extend_from_slice(&[HEADERS as u8, 0, 0]);
    let start = out.len();
    write(out);
    let (length, len) = varint::encode((out.len() - start) as u64);
    let length = &length[..len];
    match len {
        RESERVED => out[start - RESERVED..start].copy_from_slice(length),
        // The longer encoding of a small length is valid.
        1 => out[start - RESERVED..start].copy_from_slice(&[0x40, length[0]]),
        _ => {
            out.splice(start - RESERVED..start, length.iter().copied());
        }
    }
}

/// Appends a SETTINGS frame.
pub fn settings(out: &mut Vec<u8>, settings: &Settings) {
    let mut payload = Vec::new();
    settings.encode(&mut payload);
    write_header(out, SETTINGS, payload.len() as u64);
    out.extend_from_slice(&payload);
}

/// Appends a GOAWAY frame. Requests with this stream id or a higher one are not processed.
pub fn goaway(out: &mut Vec<u8>, stream: u64) {
    write_header(out, GOAWAY, varint::len(stream) as u64);
    varint::write(out, stream);
}
