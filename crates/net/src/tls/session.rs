//! The state of a TLS connection after its handshake, without sockets: received bytes become data or messages of the
//! protocol, and data becomes records to send.

use rustls::{AlertDescription, HandshakeType, ProtocolVersion};

use super::early::{Early, Fed};
use super::failure::Failure;
use super::input::Input;
use super::keys::kind;
use super::output::{Output, Parts};
use super::traffic::{Kernel, Traffic};

/// The maximum number of records in a row that carry no data: alerts, key updates, tickets, empty records.
const MAX_USELESS: u32 = 32;
/// The maximum length of a message of the protocol after the handshake, such as a ticket.
const MAX_MESSAGE: usize = 1 << 16;

const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// How far the directions of the connection have ended.
#[derive(Default)]
struct Ends {
    /// The peer has sent close_notify.
    peer: bool,
    /// This end has sealed close_notify.
    own: bool,
    failed: Option<Failure>,
}

/// The protection of records.
enum Protection {
    Keys(Box<Traffic>),
    /// The handshake is not complete, and the client has sent data that was accepted.
    Early(Box<Early>),
}

/// A TLS connection after its handshake, or with early data.
pub struct Session {
    protection: Protection,
    input: Input,
    output: Output,
    ends: Ends,
    /// The beginning of a message that is split into several records.
    message: Vec<u8>,
    /// The number of the last records in a row without data.
    useless: u32,
    /// The peer has requested new keys for what this end sends.
    owes_update: bool,
}

/// The result of [`Session::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Data was written to the reader's memory.
    Read(usize),
    /// Data waits to be taken.
    Data,
    /// The peer has ended its direction in order.
    End,
    /// The handshake of a client that has sent early data is complete. Its last messages wait to be sent.
    Handshaken,
    /// More bytes are needed.
    More,
}

impl Session {
    /// Creates the state after a handshake. `received` are bytes that arrived behind it, `unsent` its last messages.
    pub fn new(keys: Traffic, received: &[u8], unsent: &[u8]) -> Session {
        let mut session = Session::with(Protection::Keys(Box::new(keys)), received);
        session.output.add_sealed(unsent);
        session
    }

    /// Creates the state of a handshake whose client has sent early data. `received` are the bytes behind the records
    /// that the handshake has seen.
    pub fn early(early: Early, received: &[u8]) -> Session {
        Session::with(Protection::Early(Box::new(early)), received)
    }

    fn with(protection: Protection, received: &[u8]) -> Session {
        Session {
            protection,
            input: Input::holding(received),
            output: Output::default(),
            ends: Ends::default(),
            message: Vec::new(),
            useless: 0,
            owes_update: false,
        }
    }

    /// Returns whether the handshake is not complete, so that data may be a repetition of an earlier client's.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.protection, Protection::Early(_))
    }

    /// Continues the handshake with what has arrived. The data stays for the reader. Returns whether it is complete.
    pub fn advance_handshake(&mut self) -> Result<bool, Failure> {
        let advanced = self.try_advance_handshake();
        advanced.inspect_err(|failure| self.fail(failure.clone()))
    }

    fn try_advance_handshake(&mut self) -> Result<bool, Failure> {
        if let Some(failure) = &self.ends.failed {
            return Err(failure.clone());
        }
        while let Protection::Early(early) = &mut self.protection {
            early.untake(&self.input.remove_data());
            match early.feed(&mut self.input, &mut self.output)? {
                Fed::Record => {}
                Fed::Nothing => return Ok(false),
                Fed::Handshaken(keys) => self.protection = Protection::Keys(keys),
            }
        }
        Ok(true)
    }

    /// Opens records of early data until there is some.
    #[cold]
    fn advance_early(&mut self) -> Result<Advance, Failure> {
        while let Protection::Early(early) = &mut self.protection {
            if early.pass_on(&mut self.input) {
                return Ok(Advance::Data);
            }
            match early.feed(&mut self.input, &mut self.output)? {
                Fed::Record => {}
                Fed::Nothing => return Ok(Advance::More),
                Fed::Handshaken(keys) => self.protection = Protection::Keys(keys),
            }
        }
        Ok(Advance::Handshaken)
    }

    pub fn input(&mut self) -> &mut Input {
        &mut self.input
    }

    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Opens records until there is data. Writes the data to `out` if it fits there.
    pub fn advance(&mut self, out: Option<&mut [u8]>) -> Result<Advance, Failure> {
        let advanced = self.try_advance(out);
        advanced.inspect_err(|failure| self.fail(failure.clone()))
    }

    fn try_advance(&mut self, mut out: Option<&mut [u8]>) -> Result<Advance, Failure> {
        loop {
            if self.input.has_data() {
                return Ok(Advance::Data);
            }
            if let Some(failure) = &self.ends.failed {
                return Err(failure.clone());
            }
            if self.ends.peer {
                return Ok(Advance::End);
            }
            let Protection::Keys(keys) = &mut self.protection else { return self.advance_early() };
            let Some(place) = self.input.next_record()? else { return Ok(Advance::More) };
            let at = place.start + keys.rx.plain_at();
            let most = keys.rx.opened_len(place.len());
            let direct = out.as_deref_mut().and_then(|out| out.get_mut(..most));
            let is_direct = direct.is_some();
            let opened = keys.rx.open(self.input.record(place), direct)?;
            let content = at..at + opened.len;
            if opened.kind != kind::DATA {
                let bytes = match &out {
                    Some(out) if is_direct => out[..opened.len].to_vec(),
                    _ => self.input.record(content).to_vec(),
                };
                self.receive_message(opened.kind, &bytes)?;
                continue;
            }
            if opened.len == 0 {
                self.count_useless("empty records")?;
                continue;
            }
            if !self.message.is_empty() {
                return Err(Failure::Unexpected("data within a message"));
            }
            self.useless = 0;
            self.output.begin_burst();
            if is_direct {
                return Ok(Advance::Read(opened.len));
            }
            self.input.set_data(content);
        }
    }

    fn count_useless(&mut self, what: &'static str) -> Result<(), Failure> {
        self.useless += 1;
        if self.useless > MAX_USELESS { Err(Failure::TooMuch(what)) } else { Ok(()) }
    }

    fn receive_message(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Failure> {
        match kind {
            kind::ALERT => self.receive_alert(bytes),
            kind::HANDSHAKE => {
                self.count_useless("messages without data")?;
                if self.message.len() + bytes.len() > MAX_MESSAGE {
                    return Err(Failure::TooMuch("bytes of a message"));
                }
                self.message.extend_from_slice(bytes);
                self.receive_handshake()
            }
            _ => Err(Failure::Unexpected("a record of an unexpected type")),
        }
    }

    fn receive_alert(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let &[level, description] = bytes else { return Err(Failure::Unexpected("a malformed alert")) };
        let is_13 = self.is_13();
        let description = AlertDescription::from(description);
        match description {
            AlertDescription::CloseNotify => {
                self.ends.peer = true;
                self.input.clear();
                Ok(())
            }
            AlertDescription::UserCanceled => self.count_useless("alerts"),
            _ if level == WARNING && !is_13 => self.count_useless("alerts"),
            _ => Err(Failure::Alert(description)),
        }
    }

    fn is_13(&self) -> bool {
        match &self.protection {
            Protection::Keys(keys) => keys.is_13(),
            Protection::Early(_) => true,
        }
    }

    /// Handles the whole messages that were received.
    fn receive_handshake(&mut self) -> Result<(), Failure> {
        let Protection::Keys(keys) = &mut self.protection else { return Ok(()) };
        while let Some((typ, body, len)) = split_message(&self.message) {
            let is_last = len == self.message.len();
            match (typ, &mut keys.kernel) {
                (HandshakeType::NewSessionTicket, Kernel::Client(kernel)) => {
                    kernel.handle_new_session_ticket(body)?;
                }
                (HandshakeType::KeyUpdate, kernel) if kernel.version() == ProtocolVersion::TLSv1_3 => {
                    let is_requested = match body {
                        [0] => false,
                        [1] => true,
                        _ => return Err(Failure::Unexpected("a malformed key update")),
                    };
                    // The keys change with the next record (RFC 8446 section 5.1).
                    if !is_last {
                        return Err(Failure::Unexpected("a message behind a key update"));
                    }
                    keys.rx = kernel.next_rx()?;
                    self.owes_update |= is_requested;
                }
                (HandshakeType::HelloRequest | HandshakeType::ClientHello, kernel)
                    if kernel.version() != ProtocolVersion::TLSv1_3 =>
                {
                    return Err(Failure::Renegotiation);
                }
                _ => return Err(Failure::Unexpected("a message of the handshake")),
            }
            self.message.drain(..len);
        }
        if self.message.is_empty() {
            self.message = Vec::new();
        }
        Ok(())
    }

    /// The socket has ended. Returns an error if the peer has not announced it.
    pub fn end_of_stream(&mut self) -> Result<(), Failure> {
        if self.ends.peer {
            return Ok(());
        }
        self.fail(Failure::Truncated);
        Err(Failure::Truncated)
    }

    /// Ends the connection. The peer gets an alert, if there is room for it.
    pub fn fail(&mut self, failure: Failure) {
        if self.ends.failed.is_some() {
            return;
        }
        if let Some(alert) = failure.alert().filter(|_| !self.ends.own) {
            let alert = [FATAL, u8::from(alert)];
            // Before the end of a handshake, rustls sends the alert.
            if let Protection::Keys(keys) = &mut self.protection {
                let _ = self.output.seal_message(&mut keys.tx, kind::ALERT, &alert);
            }
        }
        self.ends.failed = Some(failure);
        self.input.clear();
    }

    /// Returns the failure that has ended the connection.
    pub fn failure(&self) -> Option<&Failure> {
        self.ends.failed.as_ref()
    }

    /// Returns whether data may be sent.
    pub fn is_open(&self) -> bool {
        self.ends.failed.is_none() && !self.ends.own
    }

    /// Seals data into the output. Returns the number of sealed bytes; 0 if there is no room.
    pub fn seal(&mut self, parts: &mut Parts<'_>) -> Result<usize, Failure> {
        let sealed = match &mut self.protection {
            Protection::Keys(keys) => {
                if self.owes_update || keys.tx.is_worn() {
                    keys.update_tx(&mut self.output)?;
                    self.owes_update = false;
                }
                self.output.seal(&mut keys.tx, parts)
            }
            Protection::Early(early) => early.seal(parts, &mut self.output),
        };
        sealed.inspect_err(|failure| self.fail(failure.clone()))
    }

    /// Seals close_notify, unless the connection has failed or it was sealed before.
    pub fn close(&mut self) {
        if self.is_open() {
            self.ends.own = true;
            let alert = [WARNING, u8::from(AlertDescription::CloseNotify)];
            let _ = match &mut self.protection {
                Protection::Keys(keys) => self.output.seal_message(&mut keys.tx, kind::ALERT, &alert),
                Protection::Early(early) => early.seal_close(&mut self.output),
            };
        }
    }
}

/// Returns the type and body of the first message, and its length with the header; `None` if it is incomplete.
fn split_message(bytes: &[u8]) -> Option<(HandshakeType, &[u8], usize)> {
    let (&[typ, a, b, c], rest) = bytes.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    Some((HandshakeType::from(typ), rest.get(..len)?, 4 + len))
}
