//! The keys of a connection after its handshake, and the means to change them.

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ExtractedSecrets, HandshakeType, ProtocolVersion};

use super::failure::Failure;
use super::keys::{RecordKey, kind};
use super::output::Output;

/// The rest of rustls' state after a handshake, by the side that this end has.
pub enum Kernel {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

impl Kernel {
    pub fn version(&self) -> ProtocolVersion {
        match self {
            Kernel::Server(kernel) => kernel.protocol_version(),
            Kernel::Client(kernel) => kernel.protocol_version(),
        }
    }

    pub fn next_rx(&mut self) -> Result<RecordKey, Failure> {
        let secrets = match self {
            Kernel::Server(kernel) => kernel.update_rx_secret()?,
            Kernel::Client(kernel) => kernel.update_rx_secret()?,
        };
        RecordKey::new(secrets, self.version())
    }

    fn next_tx(&mut self) -> Result<RecordKey, Failure> {
        let secrets = match self {
            Kernel::Server(kernel) => kernel.update_tx_secret()?,
            Kernel::Client(kernel) => kernel.update_tx_secret()?,
        };
        RecordKey::new(secrets, self.version())
    }
}

/// The keys of both directions, and the means to change them.
pub struct Traffic {
    pub kernel: Kernel,
    pub rx: RecordKey,
    pub tx: RecordKey,
}

impl Traffic {
    pub fn new(secrets: ExtractedSecrets, kernel: Kernel) -> Result<Traffic, Failure> {
        let version = kernel.version();
        Ok(Traffic {
            rx: RecordKey::new(secrets.rx, version)?,
            tx: RecordKey::new(secrets.tx, version)?,
            kernel,
        })
    }

    pub fn is_13(&self) -> bool {
        self.kernel.version() == ProtocolVersion::TLSv1_3
    }

    /// Changes the keys for the records that follow.
    #[cold]
    pub fn update_tx(&mut self, output: &mut Output) -> Result<(), Failure> {
        if !self.is_13() {
            return Err(Failure::TooMuch("records with the keys of TLS 1.2"));
        }
        let message = [u8::from(HandshakeType::KeyUpdate), 0, 0, 1, 0];
        output.seal_message(&mut self.tx, kind::HANDSHAKE, &message)?;
        self.tx = self.kernel.next_tx()?;
        Ok(())
    }
}
