//! Writes the frames that a server sends. Each function appends to a buffer.

use super::{FrameHeader, HEADER_LEN, Kind, flag};
use crate::settings::Settings;

fn push(out: &mut Vec<u8>, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&FrameHeader::new(kind, flags, stream, payload.len()).bytes());
    out.extend_from_slice(payload);
}

/// Writes SETTINGS with the values that differ from the protocol's defaults.
pub fn write_settings(out: &mut Vec<u8>, settings: &Settings) {
    let start = out.len();
    push(out, Kind::Settings, 0, 0, &[]);
    settings.encode(out);
    let len = out.len() - start - HEADER_LEN;
    out[start..start + HEADER_LEN].copy_from_slice(&FrameHeader::new(Kind::Settings, 0, 0, len).bytes());
}

pub fn settings_ack(out: &mut Vec<u8>) {
    push(out, Kind::Settings, flag::ACK, 0, &[]);
}

pub fn ping_ack(out: &mut Vec<u8>, opaque: [u8; 8]) {
    push(out, Kind::Ping, flag::ACK, 0, &opaque);
}

/// Writes RST_STREAM. `code` is [`crate::Error::code`].
pub fn rst_stream(out: &mut Vec<u8>, stream: u32, code: u32) {
    push(out, Kind::RstStream, 0, stream, &code.to_be_bytes());
}

pub fn goaway(out: &mut Vec<u8>, last_stream: u32, code: u32) {
    let [a, b, c, d] = last_stream.to_be_bytes();
    let [e, f, g, h] = code.to_be_bytes();
    push(out, Kind::GoAway, 0, 0, &[a, b, c, d, e, f, g, h]);
}

pub fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    push(out, Kind::WindowUpdate, 0, stream, &increment.to_be_bytes());
}

/// Writes HEADERS and as many CONTINUATIONs as the peer's `max_frame` requires. `encode` appends the header block.
/// Returns the length of the block.
pub fn write_headers(
    out: &mut Vec<u8>,
    stream: u32,
    end_stream: bool,
    max_frame: usize,
    encode: impl FnOnce(&mut Vec<u8>),
) -> usize {
    let (start, max_frame) = (out.len(), max_frame.max(1));
    out.extend_from_slice(&[0; HEADER_LEN]);
    encode(out);
    let len = out.len() - start - HEADER_LEN;
    let frames = len.div_ceil(max_frame).max(1);
    make_room(out, start, len, frames, max_frame);
    let stream_flag = if end_stream { flag::END_STREAM } else { 0 };
    for frame in 0..frames {
        let (kind, mut flags) =
            if frame == 0 { (Kind::Headers, stream_flag) } else { (Kind::Continuation, 0) };
        let mut part = max_frame;
        if frame + 1 == frames {
            flags |= flag::END_HEADERS;
            part = len - frame * max_frame;
        }
        let at = start + frame * (HEADER_LEN + max_frame);
        out[at..at + HEADER_LEN].copy_from_slice(&FrameHeader::new(kind, flags, stream, part).bytes());
    }
    len
}

/// Inserts space for a frame header before each part of a block, starting with the last part.
fn make_room(out: &mut Vec<u8>, start: usize, len: usize, frames: usize, max_frame: usize) {
    let block = start + HEADER_LEN;
    out.resize(block + len + (frames - 1) * HEADER_LEN, 0);
    for frame in (1..frames).rev() {
        let from = block + frame * max_frame;
        let to = (from + max_frame).min(block + len);
        out.copy_within(from..to, from + frame * HEADER_LEN);
    }
}

/// Returns header and payload of each frame in `bytes`, which must be complete frames. For the log.
pub fn split(mut bytes: &[u8]) -> impl Iterator<Item = (FrameHeader, &[u8])> {
    std::iter::from_fn(move || {
        let header = FrameHeader::read(bytes)?;
        let frame = bytes.get(..header.total_len())?;
        bytes = &bytes[header.total_len()..];
        Some((header, &frame[HEADER_LEN..]))
    })
}
