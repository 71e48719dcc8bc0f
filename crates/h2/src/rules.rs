//! Rules for a connection as a whole: the frames that are allowed on each stream, header blocks without interruption,
//! and limits on open streams and on resets.

use crate::error_table::{Error, Reason};
use crate::fault::{Fault, Note, Tag};
use crate::frame::{FrameHeader, Kind, flag};
use crate::stream::State;

/// The maximum number of empty CONTINUATIONs in one header block.
const MAX_EMPTY: u32 = 100;

/// The treatment of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admit {
    /// The frame is ignored.
    Ignore,
    /// The frame must be parsed. If its stream is closed, DATA, RST_STREAM and WINDOW_UPDATE then have no effect.
    Frame(Kind),
    /// HEADERS that open a stream.
    Open,
    /// HEADERS that end the request of a stream.
    Trailers,
    /// HEADERS of a stream that is refused. The header block must still be decoded.
    Refuse(Fault),
}

/// The state of a connection that the rules depend on.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The highest stream that the client has used, for GOAWAY.
    pub highest: u32,
    /// The number of streams that count towards the limit.
    pub open: u32,
    max_open: u32,
    /// The stream whose header block is incomplete.
    block: Option<u32>,
    empty_continuations: u32,
}

impl Rules {
    /// Creates the rules of a connection. `max_open` is SETTINGS_MAX_CONCURRENT_STREAMS of this side.
    pub fn new(max_open: u32) -> Rules {
        Rules { highest: 0, open: 0, max_open, block: None, empty_continuations: 0 }
    }

    /// Opens the stream of the first request of an upgraded connection, which arrived as HTTP/1 (RFC 7540 section
    /// 3.2).
    pub fn open_upgraded(&mut self) {
        self.highest = 1;
        self.open += 1;
    }

    /// Records the end of a stream that counted as open.
    pub fn close_one(&mut self) {
        debug_assert!(self.open > 0);
        self.open = self.open.saturating_sub(1);
    }

    /// Returns whether a header block is incomplete.
    pub fn in_block(&self) -> bool {
        self.block.is_some()
    }

    /// Decides how to treat a frame, based on its header. Clears undefined flags. `state` is that of its stream, or
    /// `None` if the stream is not open.
    pub fn admit(
        &mut self,
        header: &mut FrameHeader,
        state: Option<State>,
        log: &mut dyn FnMut(Note),
    ) -> Result<Admit, Fault> {
        let Some(kind) = header.kind() else {
            if self.in_block() {
                let text = format!("H2: expected continuation but  received type 0x{:02x}", header.number);
                return Err(Fault::connection(Reason::ProtocolError, text));
            }
            let text = format!("H2: Unknown frame type 0x{:02x} (ignored)", header.number);
            log(Note::new(Tag::Debug, text));
            return Ok(Admit::Ignore);
        };
        let unknown = header.flags & !kind.flags();
        if unknown != 0 {
            let text = format!("H2: Unknown flags 0x{unknown:02x} on {} (ignored)", kind.name());
            log(Note::new(Tag::Debug, text));
            header.flags &= kind.flags();
        }
        self.check_stream(kind, header.stream)
            .map_err(|text| Fault::connection(Reason::ProtocolError, text))?;
        match kind {
            Kind::Headers => self.headers(header, state),
            Kind::Continuation => self.continuation(header),
            _ => Ok(Admit::Frame(kind)),
        }
    }

    /// Fails if this type of frame is not allowed on this stream now.
    fn check_stream(&self, kind: Kind, stream: u32) -> Result<(), String> {
        use Kind::{Continuation, GoAway, Headers, Ping, Priority, Settings, WindowUpdate};
        let name = kind.name();
        if stream == 0 && !matches!(kind, Settings | Ping | GoAway | WindowUpdate) {
            return Err(format!("H2: unexpected {name} frame on stream 0"));
        }
        if stream != 0 && matches!(kind, Settings | Ping | GoAway) {
            return Err(format!("H2: unexpected {name} frame on stream {stream}"));
        }
        if stream > self.highest && !matches!(kind, Headers | Priority) {
            return Err(format!("H2: unexpected {name} frame on idle stream {stream}"));
        }
        if stream != 0 && stream.is_multiple_of(2) {
            return Err(format!("H2: illegal stream (={stream})"));
        }
        if self.block.is_some() && kind != Continuation {
            return Err(format!("H2: expected continuation but  received {name} on stream {stream}"));
        }
        Ok(())
    }

    fn headers(&mut self, header: &FrameHeader, state: Option<State>) -> Result<Admit, Fault> {
        let stream = header.stream;
        let opens = state.is_none();
        let ends = state == Some(State::Open) && header.has(flag::END_STREAM);
        if !(opens || ends) {
            let text = "H2: rx headers on non-idle stream";
            return Err(Fault::connection(Reason::ProtocolError, text));
        }
        if opens && stream <= self.highest {
            return Err(Fault::connection(Reason::ProtocolError, "H2: new stream ID < highest stream"));
        }
        self.block = (!header.has(flag::END_HEADERS)).then_some(stream);
        self.empty_continuations = 0;
        if !opens {
            return Ok(Admit::Trailers);
        }
        self.highest = stream;
        if self.open >= self.max_open {
            let text = format!("H2: stream {stream}: Hit maximum number of concurrent streams");
            return Ok(Admit::Refuse(Error::Stream(Reason::RefusedStream).noted(Tag::Debug, text)));
        }
        self.open += 1;
        Ok(Admit::Open)
    }

    fn continuation(&mut self, header: &FrameHeader) -> Result<Admit, Fault> {
        if self.block != Some(header.stream) {
            let text = format!("H2: rx unexpected CONT frame on stream {}", header.stream);
            return Err(Fault::connection(Reason::ProtocolError, text));
        }
        if header.has(flag::END_HEADERS) {
            self.block = None;
        } else if header.len == 0 {
            // The limit on the header list bounds the others.
            self.empty_continuations += 1;
            if self.empty_continuations > MAX_EMPTY {
                return Err(Fault::connection(Reason::EnhanceYourCalm, "H2: too many empty CONT frames"));
            }
        }
        Ok(Admit::Frame(Kind::Continuation))
    }
}

/// The limit on streams that a client resets soon after opening them: a budget that is refilled over time.
#[derive(Clone, Debug)]
pub struct RapidReset {
    /// The age in seconds beyond which the reset of a stream is not charged.
    pub threshold: f64,
    /// The number of resets per period; 0 means no limit.
    pub limit: f64,
    /// The time in seconds in which an empty budget is refilled.
    pub period: f64,
    /// The number of resets that are left.
    pub budget: f64,
    last: f64,
}

impl RapidReset {
    /// Creates a full budget from the parameters `h2_rapid_reset`, `h2_rapid_reset_limit` and
    /// `h2_rapid_reset_period`, and the start time of the session.
    pub fn new(threshold: f64, limit: u64, period: f64, now: f64) -> RapidReset {
        let limit = limit as f64;
        RapidReset { threshold, limit, period, budget: limit, last: now }
    }

    /// Refills the budget, after a change of the limit.
    pub fn restart(&mut self, now: f64) {
        self.budget = self.limit;
        self.last = now;
    }

    /// Charges the reset of a stream whose headers arrived at `opened`. Returns whether it was charged; fails if the
    /// budget is empty.
    pub fn reset(&mut self, now: f64, opened: f64) -> Result<bool, Fault> {
        if self.limit == 0.0 || now - opened > self.threshold {
            return Ok(false);
        }
        let refill = self.limit * (now - self.last) / self.period;
        self.budget = (self.budget + refill).min(self.limit);
        self.last = now;
        if self.budget < 1.0 {
            return Err(Fault::connection(Reason::RapidReset, "H2: Hit RST limit. Closing session."));
        }
        self.budget -= 1.0;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Connection {
        rules: Rules,
        notes: Vec<String>,
    }

    impl Connection {
        fn new() -> Connection {
            Connection { rules: Rules::new(2), notes: Vec::new() }
        }

        fn frame(&mut self, kind: Kind, flags: u8, stream: u32, len: usize) -> Result<Admit, Fault> {
            let mut header = FrameHeader::new(kind, flags, stream, len);
            self.rules.admit(&mut header, None, &mut |note| self.notes.push(note.text.into_owned()))
        }

        fn fails(&mut self, kind: Kind, stream: u32, text: &str) {
            let fault = self.frame(kind, 0, stream, 8).unwrap_err();
            assert_eq!(fault.error, Error::Connection(Reason::ProtocolError));
            assert_eq!(fault.note, Some(Note::new(Tag::SessError, text.to_owned())));
        }
    }

    #[test]
    fn frames_on_wrong_streams_are_rejected() {
        let mut c = Connection::new();
        for kind in [Kind::Data, Kind::Headers, Kind::Priority, Kind::RstStream, Kind::PushPromise] {
            c.fails(kind, 0, &format!("H2: unexpected {} frame on stream 0", kind.name()));
        }
        for kind in [Kind::Settings, Kind::Ping, Kind::GoAway] {
            c.fails(kind, 1, &format!("H2: unexpected {} frame on stream 1", kind.name()));
        }
        for kind in [Kind::Data, Kind::RstStream, Kind::PushPromise, Kind::WindowUpdate, Kind::Continuation] {
            c.fails(kind, 7, &format!("H2: unexpected {} frame on idle stream 7", kind.name()));
        }
        c.fails(Kind::Priority, 2, "H2: illegal stream (=2)");
        c.fails(Kind::Headers, 2, "H2: illegal stream (=2)");
        assert_eq!(c.frame(Kind::Priority, 0, 9, 5), Ok(Admit::Frame(Kind::Priority)));
        assert_eq!(c.frame(Kind::WindowUpdate, 0, 0, 4), Ok(Admit::Frame(Kind::WindowUpdate)));
        assert_eq!(c.rules.highest, 0);
    }

    #[test]
    fn unknown_frames_and_flags_are_ignored() {
        let mut c = Connection::new();
        let mut header = FrameHeader { len: 3, number: 0x80, flags: 0, stream: 2 };
        let mut notes = Vec::new();
        let admit = c.rules.admit(&mut header, None, &mut |note| notes.push(note));
        assert_eq!(admit, Ok(Admit::Ignore));
        assert_eq!(notes, [Note::new(Tag::Debug, "H2: Unknown frame type 0x80 (ignored)")]);
        c.frame(Kind::Ping, 0x82, 0, 8).unwrap();
        assert_eq!(c.notes, ["H2: Unknown flags 0x82 on PING (ignored)"]);
    }

    #[test]
    fn streams_open_in_ascending_order_up_to_the_limit() {
        let mut c = Connection::new();
        assert_eq!(c.frame(Kind::Headers, flag::END_HEADERS, 3, 1), Ok(Admit::Open));
        c.fails(Kind::Headers, 1, "H2: new stream ID < highest stream");
        assert_eq!(c.frame(Kind::Headers, flag::END_HEADERS, 5, 1), Ok(Admit::Open));
        let Ok(Admit::Refuse(fault)) = c.frame(Kind::Headers, flag::END_HEADERS, 7, 1) else { panic!() };
        assert_eq!(fault.error, Error::Stream(Reason::RefusedStream));
        assert_eq!(fault.note.unwrap().text, "H2: stream 7: Hit maximum number of concurrent streams");
        // Frames that the client had already sent on it are accepted.
        assert_eq!(c.frame(Kind::Data, 0, 7, 1), Ok(Admit::Frame(Kind::Data)));
        c.rules.close_one();
        assert_eq!(c.frame(Kind::Headers, flag::END_HEADERS, 9, 1), Ok(Admit::Open));
        let mut header = FrameHeader::new(Kind::Headers, 0, 9, 1);
        let fault = c.rules.admit(&mut header, Some(State::Open), &mut |_| ()).unwrap_err();
        assert_eq!(fault.note.unwrap().text, "H2: rx headers on non-idle stream");
    }

    #[test]
    fn trailers_end_an_open_request() {
        let mut c = Connection::new();
        c.frame(Kind::Headers, flag::END_HEADERS, 3, 1).unwrap();
        let mut trailers = |flags, state| {
            let mut header = FrameHeader::new(Kind::Headers, flags, 3, 1);
            c.rules.admit(&mut header, Some(state), &mut |_| ())
        };
        let fault = trailers(flag::END_STREAM, State::HalfClosedRemote).unwrap_err();
        assert_eq!(fault.note.unwrap().text, "H2: rx headers on non-idle stream");
        assert_eq!(trailers(flag::END_STREAM, State::Open), Ok(Admit::Trailers));
        assert_eq!((c.rules.in_block(), c.rules.open, c.rules.highest), (true, 1, 3));
        c.frame(Kind::Continuation, flag::END_HEADERS, 3, 1).unwrap();
        assert!(!c.rules.in_block());
    }

    #[test]
    fn other_frames_within_a_header_block_are_rejected() {
        let mut c = Connection::new();
        c.frame(Kind::Headers, 0, 1, 1).unwrap();
        assert!(c.rules.in_block());
        c.fails(Kind::Headers, 3, "H2: expected continuation but  received HEADERS on stream 3");
        c.fails(Kind::Ping, 0, "H2: expected continuation but  received PING on stream 0");
        let mut unknown = FrameHeader { len: 3, number: 0x80, flags: 0, stream: 1 };
        let fault = c.rules.admit(&mut unknown, None, &mut |_| ()).unwrap_err();
        assert_eq!(fault.error, Error::Connection(Reason::ProtocolError));
        assert_eq!(fault.note.unwrap().text, "H2: expected continuation but  received type 0x80");
        c.frame(Kind::Continuation, 0, 1, 1).unwrap();
        c.frame(Kind::Continuation, flag::END_HEADERS, 1, 1).unwrap();
        c.fails(Kind::Continuation, 1, "H2: rx unexpected CONT frame on stream 1");
        c.frame(Kind::Headers, 0, 3, 1).unwrap();
        c.fails(Kind::Continuation, 1, "H2: rx unexpected CONT frame on stream 1");
        let flood = (0..=MAX_EMPTY).find_map(|_| c.frame(Kind::Continuation, 0, 3, 0).err());
        assert_eq!(flood.unwrap().error, Error::Connection(Reason::EnhanceYourCalm));
    }

    #[test]
    fn rapid_resets_are_limited_by_a_budget() {
        let mut resets = RapidReset::new(5.0, 3, 60.0, 100.0);
        for _ in 0..3 {
            resets.reset(100.0, 99.0).unwrap();
        }
        resets.reset(110.0, 104.0).unwrap();
        let fault = resets.reset(110.0, 105.0).unwrap_err();
        assert_eq!(fault.error, Error::Connection(Reason::RapidReset));
        assert_eq!(fault.error.code(), 11);
        resets.reset(120.0, 119.0).unwrap();
        assert!(resets.reset(120.0, 119.0).is_err());
        assert!(RapidReset::new(5.0, 0, 60.0, 0.0).reset(0.0, 0.0).is_ok());
    }
}
