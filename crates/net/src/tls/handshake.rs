//! The handshake, without sockets: rustls handles the messages, and then hands over the keys.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{CommonState, Error, ExtractedSecrets};

use super::failure::Failure;
use super::keys::record_len;
use super::session::{Kernel, Session};

/// The maximum number of received bytes that a handshake holds: the longest message that rustls accepts, and a record.
const MAX_INPUT: usize = (1 << 16) + (1 << 15);

/// A side of a handshake: client or server.
pub trait Side {
    type Data;

    /// Whether this end is the server.
    const IS_SERVER: bool;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Returns the facts that are agreed so far.
    fn common(&self) -> &CommonState;

    /// Takes the keys after the handshake.
    fn finish(self) -> Result<(ExtractedSecrets, Kernel), Error>;
}

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    const IS_SERVER: bool = true;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }

    fn common(&self) -> &CommonState {
        self
    }

    fn finish(self) -> Result<(ExtractedSecrets, Kernel), Error> {
        let (secrets, kernel): (_, KernelConnection<_>) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Kernel::Server(kernel)))
    }
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    const IS_SERVER: bool = false;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }

    fn common(&self) -> &CommonState {
        self
    }

    fn finish(self) -> Result<(ExtractedSecrets, Kernel), Error> {
        let (secrets, kernel): (_, KernelConnection<_>) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Kernel::Client(kernel)))
    }
}

/// The effect of one call of rustls.
enum Step {
    /// It is to be called again.
    Again,
    /// It needs another record.
    More,
    Failed(Failure),
}

/// A handshake in progress.
pub struct Handshake<S> {
    side: S,
    /// The received bytes. rustls has seen the first `shown` of them, which are whole records: bytes behind the
    /// handshake belong to the session.
    input: Vec<u8>,
    shown: usize,
    /// The bytes to send.
    output: Vec<u8>,
}

impl<S: Side> Handshake<S> {
    /// Begins a handshake; `received` has already arrived.
    pub fn new(side: S, received: Vec<u8>) -> Handshake<S> {
        Handshake { side, input: received, shown: 0, output: Vec::new() }
    }

    pub fn common(&self) -> &CommonState {
        self.side.common()
    }

    /// Adds received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Removes and returns the bytes to send.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns whether bytes have arrived that the handshake has not used.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Handles the records that have arrived. Returns whether the handshake is complete. After a failure, the bytes to
    /// send contain the alert.
    pub fn advance(&mut self) -> Result<bool, Failure> {
        let mut failed = None;
        loop {
            let UnbufferedStatus { discard, state, .. } = self.side.process(&mut self.input[..self.shown]);
            let step = apply(state, &mut self.output);
            self.input.drain(..discard);
            self.shown -= discard;
            match step {
                // The alert is sent first.
                Step::Failed(failure) if failed.is_none() => failed = Some(failure),
                Step::Failed(_) | Step::More if let Some(failure) = failed.take() => return Err(failure),
                Step::Failed(failure) => return Err(failure),
                Step::More if !self.side.common().is_handshaking() => return Ok(true),
                Step::More if !self.show_record()? => return Ok(false),
                Step::Again | Step::More => {}
            }
        }
    }

    /// Shows rustls one more record. Returns false if none is complete.
    fn show_record(&mut self) -> Result<bool, Failure> {
        if self.input.len() > MAX_INPUT {
            return Err(Failure::TooMuch("bytes of a handshake"));
        }
        let hidden = &self.input[self.shown..];
        match record_len(hidden)? {
            Some(len) if len <= hidden.len() => {
                self.shown += len;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Returns the session after a complete handshake. `unsent` are its last messages, if they are not sent yet.
    pub fn finish(self, unsent: &[u8]) -> Result<Session, Failure> {
        let (secrets, kernel) = self.side.finish()?;
        Session::new(secrets, kernel, &self.input, unsent)
    }
}

/// Does what rustls asks for. Bytes to send are appended to `output`.
fn apply<D>(state: Result<ConnectionState<'_, '_, D>, Error>, output: &mut Vec<u8>) -> Step {
    match state {
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            let needed = match message.encode(&mut []) {
                Err(EncodeError::InsufficientSize(needed)) => needed.required_size,
                _ => return Step::Again,
            };
            let at = output.len();
            output.resize(at + needed, 0);
            match message.encode(&mut output[at..]) {
                Ok(_) => Step::Again,
                Err(_) => Step::Failed(Failure::Internal("a message that cannot be encoded")),
            }
        }
        Ok(ConnectionState::TransmitTlsData(sent)) => {
            sent.done();
            Step::Again
        }
        Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => Step::More,
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Step::Failed(Failure::Truncated),
        Ok(_) => Step::Failed(Failure::Unexpected("data before the end of the handshake")),
        Err(error) => Step::Failed(error.into()),
    }
}
