//! The rules of a connection: its unidirectional streams, its settings, and the end of its requests.
//!
//! | stream of the client | frames | when it ends |
//! |---|---|---|
//! | control (one) | SETTINGS first, then GOAWAY, MAX_PUSH_ID, unknown ones | the connection ends |
//! | QPACK encoder, QPACK decoder (at most one each) | instructions | the connection ends |
//! | push | none: the connection ends | |
//! | unknown | ignored | nothing |
//! | request | see [`crate::request`] | the request is complete |

mod control;
mod uni;

#[cfg(test)]
mod tests;

pub use uni::UniStream;

use control::Control;
use uni::{Role, Seen, stream_type};

use crate::error_table::{Error, Reason};
use crate::fault::Fault;
use crate::frame;
use crate::qpack::{Decoder, Feedback};
use crate::settings::Settings;
use crate::useless::UselessFrames;
use crate::varint;

/// The difference between the ids of successive request streams.
const STEP: u64 = 4;

/// The id of the last possible request stream.
const LAST_REQUEST: u64 = varint::MAX - 3;

/// The consequences of received bytes, for the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The client's settings have arrived; see [`Connection::peer`].
    pub has_settings: bool,
    /// The client has announced the end of the connection.
    pub goes_away: bool,
    /// The dynamic table has grown: the requests of [`Decoder::unblocked`] can be decoded, and [`Decoder::output`] has
    /// instructions.
    pub has_inserted: bool,
    /// The stream has an unknown type. The session may ask the client to stop sending, with
    /// [`Reason::StreamCreationError`].
    pub ignores_stream: bool,
}

/// The state of a connection.
#[derive(Debug)]
pub struct Connection {
    local: Settings,
    peer: Option<Settings>,
    seen: Seen,
    control: Control,
    /// Decodes the field sections of requests.
    pub qpack: Decoder,
    feedback: Feedback,
    useless: UselessFrames,
    /// The id that follows the highest request stream so far.
    next_request: u64,
    /// The id in the last GOAWAY of this side.
    goaway: Option<u64>,
}

impl Connection {
    /// Creates a connection that announces these settings.
    pub fn new(local: Settings) -> Connection {
        let capacity = usize::try_from(local.max_table_capacity).unwrap_or(usize::MAX);
        let blocked = usize::try_from(local.blocked_streams).unwrap_or(usize::MAX);
        Connection {
            local,
            peer: None,
            seen: Seen::default(),
            control: Control::default(),
            qpack: Decoder::new(capacity, blocked),
            feedback: Feedback::default(),
            useless: UselessFrames::default(),
            next_request: 0,
            goaway: None,
        }
    }

    /// Appends the beginning of this side's control stream: its type and SETTINGS.
    pub fn begin_control(&self, out: &mut Vec<u8>) {
        varint::write(out, stream_type::CONTROL);
        frame::settings(out, &self.local);
    }

    /// Appends the beginning of this side's QPACK decoder stream. The output of [`Decoder::output`] follows. This side
    /// needs no encoder stream.
    pub fn begin_decoder(out: &mut Vec<u8>) {
        varint::write(out, stream_type::DECODER);
    }

    /// Returns the client's settings, or `None` if they have not arrived.
    pub fn peer(&self) -> Option<&Settings> {
        self.peer.as_ref()
    }

    /// Handles bytes of a unidirectional stream, which follow those of the last call for this stream. An error ends
    /// the connection.
    pub fn receive(&mut self, stream: &mut UniStream, mut input: &[u8], now: f64) -> Result<Effects, Fault> {
        let mut effects = Effects::default();
        if stream.role.is_none() {
            let Some(number) = stream.read_type(&mut input) else { return Ok(effects) };
            let role = self.seen.open(number)?;
            stream.role = Some(role);
            if role == Role::Ignored {
                self.useless.count(now)?;
            }
        }
        match stream.role {
            Some(Role::Control) => self.control(input, now, &mut effects)?,
            Some(Role::Encoder) => effects.has_inserted = self.qpack.receive(input)?,
            Some(Role::Decoder) => self.feedback.receive(input)?,
            Some(Role::Ignored) => effects.ignores_stream = true,
            None => {}
        }
        Ok(effects)
    }

    fn control(&mut self, mut input: &[u8], now: f64, effects: &mut Effects) -> Result<(), Fault> {
        while let Some(event) = self.control.next(&mut input)? {
            match event {
                control::Event::Settings(settings) => {
                    self.peer = Some(settings);
                    effects.has_settings = true;
                }
                control::Event::GoAway => effects.goes_away = true,
                control::Event::Useless => {}
            }
            if !matches!(event, control::Event::Settings(_)) {
                self.useless.count(now)?;
            }
        }
        Ok(())
    }

    /// Handles the end of a unidirectional stream, by its end or by a reset.
    pub fn end(&mut self, stream: &UniStream, now: f64) -> Result<(), Fault> {
        let name = match stream.role {
            Some(Role::Control) => "control",
            Some(Role::Encoder) => "QPACK encoder",
            Some(Role::Decoder) => "QPACK decoder",
            Some(Role::Ignored) => return Ok(()),
            // A stream may end before its type is known (section 6.2).
            None => return self.useless.count(now),
        };
        let text = format!("H3: client closed its {name} stream");
        Err(Fault::connection(Reason::ClosedCriticalStream, text))
    }

    /// Handles the request of the client that this side stops sending on its control stream or its decoder stream.
    pub fn stopped(&self) -> Fault {
        Fault::connection(Reason::ClosedCriticalStream, "H3: client stopped a required stream")
    }

    /// Opens the request stream with this id. Fails if the stream must be reset, because GOAWAY has excluded it.
    pub fn open_request(&mut self, id: u64) -> Result<(), Error> {
        self.next_request = self.next_request.max(id.saturating_add(STEP));
        if self.goaway.is_some_and(|end| id >= end) {
            return Err(Error::Stream(Reason::RequestRejected));
        }
        self.useless.allow();
        Ok(())
    }

    /// Counts a request stream that carried no request, and one that the client has reset early.
    pub fn count_useless(&mut self, now: f64) -> Result<(), Fault> {
        self.useless.count(now)
    }

    /// Announces the end of the connection: appends a GOAWAY that permits the requests which are on their way. A
    /// session that then waits for a round trip and calls [`Connection::go_away`] refuses no request.
    pub fn announce_end(&mut self, out: &mut Vec<u8>) {
        if self.goaway.is_none() {
            self.goaway = Some(LAST_REQUEST);
            frame::goaway(out, LAST_REQUEST);
        }
    }

    /// Appends a GOAWAY that permits only the requests which have arrived. Later ones are refused.
    pub fn go_away(&mut self, out: &mut Vec<u8>) {
        if self.goaway.is_none_or(|end| end > self.next_request) {
            self.goaway = Some(self.next_request);
            frame::goaway(out, self.next_request);
        }
    }

    /// Returns whether this side has sent a GOAWAY.
    pub fn is_ending(&self) -> bool {
        self.goaway.is_some()
    }
}
