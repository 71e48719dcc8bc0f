//! Parses the payloads of frames from a client.

use super::{FrameHeader, Kind, STREAM_BITS, flag};
use crate::error_table::{Error, Reason};
use crate::fault::Fault;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The whole payload, including padding, counts for flow control: [`FrameHeader::len`].
    Data {
        data: &'a [u8],
        end_stream: bool,
    },
    /// A fragment of a header block. The optional priority is ignored.
    Headers {
        fragment: &'a [u8],
        end_headers: bool,
        end_stream: bool,
    },
    /// Deprecated and ignored.
    Priority,
    RstStream {
        code: u32,
    },
    /// The payload, for [`crate::settings::entries`].
    Settings {
        entries: &'a [u8],
    },
    SettingsAck,
    Ping {
        opaque: [u8; 8],
    },
    GoAway {
        last_stream: u32,
        code: u32,
    },
    WindowUpdate {
        increment: u32,
    },
    Continuation {
        fragment: &'a [u8],
        end_headers: bool,
    },
    /// A frame of an unknown type, which is ignored.
    Unknown,
}

/// Parses the payload. The caller has checked the rules of streams: see [`crate::rules::Rules::admit`].
pub fn parse<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<Frame<'a>, Fault> {
    let Some(kind) = header.kind() else { return Ok(Frame::Unknown) };
    let fault = |reason, text: &'static str| Err(Fault::connection(reason, text));
    match kind {
        Kind::Data => data(header, payload),
        Kind::Headers => headers(header, payload),
        Kind::Priority if payload.len() != 5 => {
            fault(Reason::FrameSizeError, "H2: rx priority with (len != 5)")
        }
        Kind::Priority => Ok(Frame::Priority),
        Kind::RstStream => match number(payload) {
            Some(code) => Ok(Frame::RstStream { code }),
            None => fault(Reason::FrameSizeError, "H2: rx rst with (len != 4)"),
        },
        Kind::Settings if header.has(flag::ACK) => match payload {
            [] => Ok(Frame::SettingsAck),
            _ => fault(Reason::FrameSizeError, "H2: rx settings ack with (len > 0)"),
        },
        Kind::Settings if !payload.len().is_multiple_of(6) => {
            fault(Reason::ProtocolError, "H2: rx settings with ((len % 6) != 0)")
        }
        Kind::Settings => Ok(Frame::Settings { entries: payload }),
        Kind::PushPromise => fault(Reason::ProtocolError, "H2: rx push promise"),
        Kind::Ping => {
            match payload.try_into() {
                // This side never sends PING, so there is nothing to acknowledge.
                Ok(_) if header.has(flag::ACK) => Err(Error::Stream(Reason::ProtocolError)
                    .noted(crate::fault::Tag::SessError, "H2: rx ping ack")),
                Ok(opaque) => Ok(Frame::Ping { opaque }),
                Err(_) => fault(Reason::FrameSizeError, "H2: rx ping with (len != 8)"),
            }
        }
        Kind::GoAway => match (payload.get(..4).and_then(number), payload.get(4..8).and_then(number)) {
            (Some(last), Some(code)) => Ok(Frame::GoAway { last_stream: last & STREAM_BITS, code }),
            _ => fault(Reason::FrameSizeError, "H2: rx goaway with (len < 8)"),
        },
        Kind::WindowUpdate => match number(payload).map(|n| n & STREAM_BITS) {
            Some(0) => Err(Error::Stream(Reason::ProtocolError).into()),
            Some(increment) => Ok(Frame::WindowUpdate { increment }),
            None => fault(Reason::FrameSizeError, "H2: rx winup with (len != 4)"),
        },
        Kind::Continuation => {
            Ok(Frame::Continuation { fragment: payload, end_headers: header.has(flag::END_HEADERS) })
        }
    }
}

fn number(payload: &[u8]) -> Option<u32> {
    payload.try_into().ok().map(u32::from_be_bytes)
}

/// Returns the payload without its padding, or `None` if the padding is longer than the payload.
fn unpad<'a>(header: &FrameHeader, payload: &'a [u8]) -> Option<&'a [u8]> {
    if !header.has(flag::PADDED) {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    Some(&rest[..rest.len().checked_sub(padding as usize)?])
}

fn data<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<Frame<'a>, Fault> {
    let data = unpad(header, payload).ok_or_else(|| {
        let text = format!("H2: stream {}: Padding larger than frame length", header.stream);
        Fault::connection(Reason::ProtocolError, text)
    })?;
    Ok(Frame::Data { data, end_stream: header.has(flag::END_STREAM) })
}

fn headers<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<Frame<'a>, Fault> {
    let fault = |text: &'static str| Fault::connection(Reason::ProtocolError, text);
    let mut fragment =
        unpad(header, payload).ok_or_else(|| fault("H2: rx headers with pad length > frame len"))?;
    if header.has(flag::PRIORITY) {
        fragment = fragment.get(5..).ok_or_else(|| fault("H2: rx headers with incorrect priority data"))?;
    }
    let (end_headers, end_stream) = (header.has(flag::END_HEADERS), header.has(flag::END_STREAM));
    Ok(Frame::Headers { fragment, end_headers, end_stream })
}
