//! A stream: its state, its windows, and the effect of frames in each state (RFC 9113 section 5.1).

use crate::error_table::{Error, Reason};
use crate::fault::{Fault, Tag};
use crate::flow::{ReceiveWindow, SendWindow};
use crate::frame::FrameHeader;
use crate::request::Body;
use lacquer_http::trailers::RequestTrailers;

/// The states of a stream, with the numbers of Varnish's `Debug` records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Idle = 0,
    /// The request is incomplete: headers or data are still to come.
    Open = 3,
    HalfClosedLocal = 4,
    /// The request is complete.
    HalfClosedRemote = 5,
    Closed = 6,
}

impl State {
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// A stream that a client opened.
#[derive(Clone, Debug)]
pub struct Stream {
    pub id: u32,
    pub state: State,
    pub send: SendWindow,
    pub receive: ReceiveWindow,
    /// The length of the body according to `Content-Length`.
    expected: Option<u64>,
    /// The number of bytes of the body that were received.
    received: u64,
    /// The stream is a tunnel, which has no trailers.
    is_tunnel: bool,
    trailers: Option<Box<RequestTrailers>>,
}

impl Stream {
    /// Creates a stream that HEADERS have opened. The window sizes come from the settings of both sides.
    pub fn open(id: u32, receive_window: u32, send_window: u32) -> Stream {
        Stream {
            id,
            state: State::Open,
            send: SendWindow::new(send_window),
            receive: ReceiveWindow::new(receive_window),
            expected: None,
            received: 0,
            is_tunnel: false,
            trailers: None,
        }
    }

    /// Records which body is expected. Called when the header block is complete.
    pub fn expect(&mut self, body: Body) {
        match body {
            Body::None => self.state = State::HalfClosedRemote,
            Body::Length(len) => self.expected = Some(len),
            Body::UntilEnd => {}
            Body::Tunnel => self.is_tunnel = true,
        }
    }

    /// Returns whether a change of SETTINGS_INITIAL_WINDOW_SIZE changes its send window.
    pub fn follows_settings(&self) -> bool {
        matches!(self.state, State::Idle | State::Open | State::HalfClosedRemote)
    }

    /// Handles DATA with `len` bytes in addition to its padding. The caller has already charged the connection's
    /// window: [`charge_connection`].
    pub fn data(&mut self, header: &FrameHeader, len: usize, end_stream: bool) -> Result<(), Fault> {
        if self.state >= State::HalfClosedRemote {
            return Err(Error::Stream(Reason::StreamClosed).into());
        }
        let received = self.received + len as u64;
        if let Some(expected) = self.expected
            && (received > expected || end_stream && received != expected)
        {
            return self.mismatch();
        }
        if !self.receive.charge(header.len) {
            let text = format!("H2: stream {}: Exceeded stream receive window", self.id);
            return Err(Error::Stream(Reason::FlowControlError).noted(Tag::Debug, text));
        }
        self.received = received;
        if end_stream {
            self.state = State::HalfClosedRemote;
        }
        Ok(())
    }

    /// Handles trailers, which end the request as END_STREAM does.
    pub fn trailers(&mut self, trailers: Box<RequestTrailers>) -> Result<(), Fault> {
        if self.state >= State::HalfClosedRemote {
            return Err(Error::Stream(Reason::StreamClosed).into());
        }
        if self.is_tunnel {
            // RFC 9113 section 8.5
            let text = format!("H2: stream {}: HEADERS in a tunnel", self.id);
            return Err(Error::Stream(Reason::ProtocolError).noted(Tag::Debug, text));
        }
        if self.expected.is_some_and(|expected| expected != self.received) {
            return self.mismatch();
        }
        self.state = State::HalfClosedRemote;
        self.trailers = Some(trailers);
        Ok(())
    }

    /// Returns whether trailers were received that were not taken.
    pub fn has_trailers(&self) -> bool {
        self.trailers.is_some()
    }

    /// Removes and returns the trailers that were received.
    pub fn take_trailers(&mut self) -> Option<Box<RequestTrailers>> {
        self.trailers.take()
    }

    /// Adds and returns the credit after which the peer may send as many bytes as there is room for in a buffer of
    /// `size` bytes that contains `buffered` bytes. Padding is not buffered. After the end, there is no more credit.
    #[must_use]
    pub fn refill(&mut self, buffered: u64, size: u32) -> u32 {
        if self.state >= State::HalfClosedRemote {
            return 0;
        }
        let room = u64::from(size).saturating_sub(buffered) as u32;
        self.receive.refill_within(room, room, room)
    }

    fn mismatch(&self) -> Result<(), Fault> {
        let text = format!("H2: stream {}: Received data and Content-Length mismatch", self.id);
        Err(Error::Stream(Reason::ProtocolError).noted(Tag::Debug, text))
    }
}

/// Charges the connection's window with a DATA frame, even if its stream is gone, because the peer has counted the
/// frame.
pub fn charge_connection(window: &mut ReceiveWindow, header: &FrameHeader) -> Result<(), Fault> {
    if window.charge(header.len) {
        return Ok(());
    }
    let text = format!("H2: stream {}: Exceeded connection receive window", header.stream);
    Err(Fault::connection(Reason::FlowControlError, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameHeader, Kind};

    fn frame(len: usize) -> FrameHeader {
        FrameHeader::new(Kind::Data, 0, 1, len)
    }

    fn stream(body: Body) -> Stream {
        let mut stream = Stream::open(1, 100, 100);
        stream.expect(body);
        stream
    }

    fn note(result: Result<(), Fault>) -> (Error, String) {
        let fault = result.unwrap_err();
        (fault.error, fault.note.map(|note| note.text.into_owned()).unwrap_or_default())
    }

    #[test]
    fn a_body_without_length_ends_with_the_stream() {
        let mut s = stream(Body::UntilEnd);
        s.data(&frame(60), 50, false).unwrap();
        let (error, text) = note(s.data(&frame(41), 41, false));
        assert_eq!(error, Error::Stream(Reason::FlowControlError));
        assert_eq!(text, "H2: stream 1: Exceeded stream receive window");
        s.data(&frame(40), 40, true).unwrap();
        assert_eq!(s.state, State::HalfClosedRemote);
        assert_eq!(note(s.data(&frame(0), 0, true)).0, Error::Stream(Reason::StreamClosed));
    }

    #[test]
    fn a_body_must_match_its_content_length() {
        let mismatch = "H2: stream 1: Received data and Content-Length mismatch";
        let mut s = stream(Body::Length(10));
        s.data(&frame(9), 9, false).unwrap();
        assert_eq!(note(s.data(&frame(2), 2, false)).1, mismatch);
        assert_eq!(note(s.data(&frame(0), 0, true)).1, mismatch);
        assert_eq!(note(s.trailers(Box::default())).1, mismatch);
        s.data(&frame(1), 1, false).unwrap();
        s.trailers(Box::default()).unwrap();
        assert_eq!(s.state, State::HalfClosedRemote);
        assert_eq!(note(s.trailers(Box::default())).0, Error::Stream(Reason::StreamClosed));
        assert_eq!(note(stream(Body::None).data(&frame(1), 1, true)).0, Error::Stream(Reason::StreamClosed));
    }

    #[test]
    fn a_tunnel_has_no_trailers() {
        let mut s = stream(Body::Tunnel);
        s.data(&frame(9), 9, false).unwrap();
        let (error, text) = note(s.trailers(Box::default()));
        assert_eq!(
            (error, &text[..]),
            (Error::Stream(Reason::ProtocolError), "H2: stream 1: HEADERS in a tunnel")
        );
        s.data(&frame(0), 0, true).unwrap();
        assert_eq!(s.state, State::HalfClosedRemote);
    }

    #[test]
    fn padding_does_not_block_a_stream() {
        let mut s = stream(Body::UntilEnd);
        s.data(&frame(100), 0, false).unwrap();
        assert_eq!(s.refill(5, 100), 95);
        assert_eq!(s.refill(0, 100), 5);
        assert_eq!(s.refill(0, 100), 0);
        assert_eq!(s.refill(101, 100), 0);
        s.data(&frame(100), 100, true).unwrap();
        assert_eq!(s.refill(0, 100), 0);
    }

    #[test]
    fn data_is_charged_to_the_connection() {
        let mut window = ReceiveWindow::new(10);
        charge_connection(&mut window, &frame(10)).unwrap();
        let (error, text) = note(charge_connection(&mut window, &frame(1)));
        assert_eq!(error, Error::Connection(Reason::FlowControlError));
        assert_eq!(text, "H2: stream 1: Exceeded connection receive window");
    }
}
