//! DATA frames that one write sends directly from the bytes of a body, and the part of them that the socket accepted.

use lacquer_h2::frame::{FrameHeader, HEADER_LEN, Kind, flag};

/// The number of DATA frames in one write.
const BATCH: usize = 4;
/// The number of buffers in one write: the frames before, and the header and payload of each frame and of the end of
/// the stream.
pub(super) const PARTS: usize = 1 + 2 * (BATCH + 1);

/// A frame with the bytes of its header.
#[derive(Clone, Copy)]
pub(super) struct Frame<'d> {
    pub header: FrameHeader,
    bytes: [u8; HEADER_LEN],
    pub payload: &'d [u8],
}

impl<'d> Frame<'d> {
    fn new(flags: u8, stream: u32, payload: &'d [u8]) -> Frame<'d> {
        let header = FrameHeader::new(Kind::Data, flags, stream, payload.len());
        Frame { header, bytes: header.bytes(), payload }
    }
}

/// The frames of one write.
pub(super) struct DataFrames<'d> {
    frames: [Option<Frame<'d>>; BATCH + 1],
}

impl<'d> DataFrames<'d> {
    /// Creates the frames for the beginning of `data`. With `end`, the last byte of `data` ends the stream.
    pub fn new(stream: u32, data: &'d [u8], max: usize, end: bool) -> DataFrames<'d> {
        let payloads = data.chunks(max).take(BATCH).map(|payload| Frame::new(0, stream, payload));
        let end = (end && data.len() <= max * BATCH).then(|| Frame::new(flag::END_STREAM, stream, &[]));
        let mut frames = [None; BATCH + 1];
        for (frame, place) in payloads.chain(end).zip(&mut frames) {
            *place = Some(frame);
        }
        DataFrames { frames }
    }

    /// Returns the buffers of a write that sends `before` and then the frames.
    pub fn parts<'p>(&'p self, before: &'p [u8]) -> [&'p [u8]; PARTS] {
        let mut parts: [&[u8]; PARTS] = [&[]; PARTS];
        parts[0] = before;
        for (frame, at) in self.frames.iter().flatten().zip((1..).step_by(2)) {
            parts[at] = &frame.bytes;
            parts[at + 1] = frame.payload;
        }
        parts
    }

    /// Calls `begun` with each frame of which the first `written` bytes contain a part, and with the end of the stream
    /// if it follows such a frame at once. Returns the length of their payloads, and a copy of their bytes after
    /// `written`.
    pub fn begin(&self, mut written: usize, mut begun: impl FnMut(&Frame<'d>)) -> (usize, Vec<u8>) {
        let (mut len, mut rest) = (0, Vec::new());
        for (at, frame) in self.frames.iter().flatten().enumerate() {
            let ends = at > 0 && frame.payload.is_empty();
            if written == 0 && !ends {
                break;
            }
            begun(frame);
            len += frame.payload.len();
            let of_header = written.min(HEADER_LEN);
            let of_payload = (written - of_header).min(frame.payload.len());
            written -= of_header + of_payload;
            rest.extend_from_slice(&frame.bytes[of_header..]);
            rest.extend_from_slice(&frame.payload[of_payload..]);
        }
        (len, rest)
    }
}

#[cfg(test)]
mod tests {
    use lacquer_h2::frame;

    use super::*;

    /// However few bytes a write sends, the client receives whole frames, and the frames that were not begun are left.
    #[test]
    fn a_frame_that_was_begun_is_completed_from_a_copy() {
        let data: Vec<u8> = (0..95).collect();
        for (max, end) in [(10, true), (30, true), (30, false), (95, true), (200, false)] {
            let frames = DataFrames::new(1, &data, max, end);
            let all = frames.parts(b"").concat();
            for written in 0..=all.len() {
                let mut numbers = Vec::new();
                let (len, rest) = frames.begin(written, |frame| numbers.push(frame.header.len));
                let sent = [&all[..written], &rest].concat();
                let received: Vec<_> = frame::split(&sent).collect();
                assert_eq!(received.iter().map(|(header, _)| header.len).collect::<Vec<_>>(), numbers);
                let payload: Vec<u8> = received.iter().flat_map(|(_, payload)| *payload).copied().collect();
                assert_eq!(payload, data[..len], "{max} {written}");
                let has_end = received.iter().any(|(header, _)| header.has(flag::END_STREAM));
                assert_eq!(has_end, end && len == data.len(), "{max} {written}");
                assert_eq!(sent.len(), received.iter().map(|(header, _)| header.total_len()).sum::<usize>());
            }
        }
    }
}
