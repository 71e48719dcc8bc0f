//! The client's control stream: SETTINGS, and then frames about the connection (RFC 9114 section 6.2.1).

use crate::error_table::Reason;
use crate::fault::Fault;
use crate::frame::{FrameHeader, Kind, Piece, Reader};
use crate::settings::{self, Settings};
use crate::varint;

/// A complete frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Settings(Settings),
    GoAway,
    /// A frame that has no effect.
    Useless,
}

/// The state of the control stream.
#[derive(Debug, Default)]
pub(super) struct Control {
    reader: Reader,
    /// The frame whose payload is incomplete.
    kind: Option<Kind>,
    payload: Vec<u8>,
    has_settings: bool,
    /// The push id in the last GOAWAY.
    goaway: Option<u64>,
    max_push: Option<u64>,
}

impl Control {
    /// Removes bytes up to the end of the next frame from the front of `input`. Returns `None` if the frame is
    /// incomplete.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Fault> {
        while let Some(piece) = self.reader.next(input) {
            match piece {
                Piece::Begin(header) => {
                    self.check(&header)?;
                    self.kind = Some(header.kind());
                    self.payload.clear();
                }
                Piece::Payload(_) if self.kind == Some(Kind::Unknown) => {}
                Piece::Payload(bytes) => self.payload.extend_from_slice(bytes),
            }
            if self.reader.left() == 0
                && let Some(kind) = self.kind.take()
            {
                return self.complete(kind).map(Some);
            }
        }
        Ok(None)
    }

    /// Fails if the frame is not allowed now, or too long.
    fn check(&self, header: &FrameHeader) -> Result<(), Fault> {
        let kind = header.kind();
        if !self.has_settings && kind != Kind::Settings {
            let text = format!("H3: rx {} before settings", kind.name());
            return Err(Fault::connection(Reason::MissingSettings, text));
        }
        match kind {
            Kind::Settings if self.has_settings => unexpected(kind),
            Kind::Settings if header.len > settings::MAX_PAYLOAD => Err(settings::too_many()),
            Kind::GoAway | Kind::CancelPush | Kind::MaxPushId if header.len > varint::MAX_LEN as u64 => {
                Err(wrong_length(kind))
            }
            Kind::Settings | Kind::GoAway | Kind::CancelPush | Kind::MaxPushId | Kind::Unknown => Ok(()),
            Kind::Data | Kind::Headers | Kind::PushPromise | Kind::Http2(_) => unexpected(kind),
        }
    }

    fn complete(&mut self, kind: Kind) -> Result<Event, Fault> {
        match kind {
            Kind::Settings => {
                self.has_settings = true;
                return Settings::read(&self.payload).map(Event::Settings);
            }
            Kind::GoAway => {
                let push = self.id(kind)?;
                if self.goaway.is_some_and(|before| push > before) {
                    return Err(Fault::connection(Reason::IdError, "H3: rx goaway with a higher id"));
                }
                self.goaway = Some(push);
                return Ok(Event::GoAway);
            }
            Kind::MaxPushId => {
                let push = self.id(kind)?;
                if self.max_push.is_some_and(|before| push < before) {
                    return Err(Fault::connection(Reason::IdError, "H3: rx max push id with a lower id"));
                }
                self.max_push = Some(push);
            }
            // This side promises no push, so there is nothing to cancel (section 7.2.3).
            Kind::CancelPush => {
                self.id(kind)?;
                return Err(Fault::connection(Reason::IdError, "H3: rx cancel push without a push"));
            }
            _ => {}
        }
        Ok(Event::Useless)
    }

    /// Returns the id that is the whole payload.
    fn id(&self, kind: Kind) -> Result<u64, Fault> {
        match varint::read(&self.payload) {
            Some((id, len)) if len == self.payload.len() => Ok(id),
            _ => Err(wrong_length(kind)),
        }
    }
}

fn unexpected<T>(kind: Kind) -> Result<T, Fault> {
    let text = format!("H3: unexpected {} frame on the control stream", kind.name());
    Err(Fault::connection(Reason::FrameUnexpected, text))
}

fn wrong_length(kind: Kind) -> Fault {
    Fault::connection(Reason::FrameError, format!("H3: rx {} with a wrong length", kind.name()))
}
