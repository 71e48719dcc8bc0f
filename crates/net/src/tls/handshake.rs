//! The handshake, without sockets: rustls handles the messages, and then hands over the keys.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, ReadEarlyData, UnbufferedStatus, WriteTraffic};
use rustls::{CommonState, Error, ExtractedSecrets};

use super::failure::Failure;
use super::keys::{OVERHEAD, record_len};
use super::traffic::{Kernel, Traffic};

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

    /// Appends the data that has arrived before the end of the handshake.
    fn read_early_data(data: ReadEarlyData<'_, '_, Self::Data>, early: &mut Vec<u8>) -> Result<(), Failure>;
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

    fn read_early_data(
        mut data: ReadEarlyData<'_, '_, Self::Data>,
        early: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        while let Some(record) = data.next_record() {
            early.extend_from_slice(record?.payload);
        }
        Ok(())
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

    fn read_early_data(_: ReadEarlyData<'_, '_, Self::Data>, _: &mut Vec<u8>) -> Result<(), Failure> {
        Err(Failure::Unexpected("data before the end of the handshake"))
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

/// The result of a complete handshake.
pub struct Finished {
    pub traffic: Traffic,
    /// The bytes that have arrived behind the handshake.
    pub received: Vec<u8>,
    /// The data that the client has sent before its end.
    pub early: Vec<u8>,
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
    /// The data that the client has sent before the end of the handshake. rustls limits it.
    early: Vec<u8>,
}

impl<S: Side> Handshake<S> {
    /// Begins a handshake; `received` has already arrived.
    pub fn new(side: S, received: Vec<u8>) -> Handshake<S> {
        Handshake { side, input: received, shown: 0, output: Vec::new(), early: Vec::new() }
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

    /// Returns whether bytes have arrived that the handshake has not used, or early data.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty() || self.has_early_data()
    }

    pub fn has_early_data(&self) -> bool {
        !self.early.is_empty()
    }

    /// Removes and returns the early data.
    pub fn take_early_data(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.early)
    }

    /// Returns data that was taken to the early data, before the rest.
    pub fn untake_early_data(&mut self, data: &[u8]) {
        self.early.splice(..0, data.iter().copied());
    }

    /// Removes and returns the bytes behind the records that rustls has seen.
    pub fn take_hidden(&mut self) -> Vec<u8> {
        self.input.split_off(self.shown)
    }

    /// Handles the records that have arrived. Returns whether the handshake is complete. After a failure, the bytes to
    /// send contain the alert.
    pub fn advance(&mut self) -> Result<bool, Failure> {
        let mut failed = None;
        loop {
            let UnbufferedStatus { discard, state, .. } = self.side.process(&mut self.input[..self.shown]);
            let step = apply::<S>(state, &mut self.output, &mut self.early);
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

    /// Returns the keys after a complete handshake, and what has arrived.
    pub fn finish(self) -> Result<Finished, Failure> {
        let (secrets, kernel) = self.side.finish()?;
        let traffic = Traffic::new(secrets, kernel)?;
        Ok(Finished { traffic, received: self.input, early: self.early })
    }
}

impl Handshake<UnbufferedServerConnection> {
    /// Seals data for a client whose early data was accepted, before the end of the handshake. `write` gets the means to
    /// do so, and a buffer with `room` bytes; it returns how many it has used.
    fn seal_with(
        &mut self,
        room: usize,
        write: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>, &mut [u8]) -> Option<usize>,
    ) -> Result<Vec<u8>, Failure> {
        let mut sealed = vec![0; room];
        let UnbufferedStatus { state, .. } = self.side.process(&mut []);
        let used = match state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => write(&mut traffic, &mut sealed),
            _ => None,
        };
        sealed.truncate(used.ok_or(Failure::Internal("data that cannot be sealed within the handshake"))?);
        Ok(sealed)
    }

    /// Seals data in one record.
    pub fn seal(&mut self, data: &[u8]) -> Result<Vec<u8>, Failure> {
        self.seal_with(data.len() + OVERHEAD, |traffic, out| traffic.encrypt(data, out).ok())
    }

    /// Seals close_notify.
    pub fn seal_close(&mut self) -> Result<Vec<u8>, Failure> {
        self.seal_with(OVERHEAD, |traffic, out| traffic.queue_close_notify(out).ok())
    }
}

/// Does what rustls asks for. Bytes to send are appended to `output`, data to `early`.
fn apply<S: Side>(
    state: Result<ConnectionState<'_, '_, S::Data>, Error>,
    output: &mut Vec<u8>,
    early: &mut Vec<u8>,
) -> Step {
    match state {
        Ok(ConnectionState::ReadEarlyData(data)) => match S::read_early_data(data, early) {
            Ok(()) => Step::Again,
            Err(failure) => Step::Failed(failure),
        },
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
