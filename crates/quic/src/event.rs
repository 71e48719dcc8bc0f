//! The events of a connection.

use quinn_proto::{ConnectionError, Dir, StreamId, TransportErrorCode};

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete.
    Connected,
    /// The client has opened streams, which [`accept`](crate::Connection::accept) returns.
    Opened(Dir),
    /// A stream has bytes, its end, or a reset to read.
    Readable(StreamId),
    /// More can be written to a stream that was blocked.
    Writable(StreamId),
    /// The client does not want the rest of a stream, for the reason of this code.
    Stopped(StreamId, u64),
    /// The client has all bytes of a stream that this side has finished.
    Finished(StreamId),
    /// The connection has ended, unless this side has closed it.
    Closed(CloseReason),
}

/// The reason why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client has closed it with this code of HTTP/3.
    Application(u64),
    /// The client has closed it with this code of QUIC.
    Transport(u64),
    /// The client has sent nothing for longer than the idle limit.
    Idle,
    /// The client has lost the connection.
    Reset,
    /// The client has broken a rule, which this text names.
    Fault(String),
    /// The handshake has failed, for the reason in this text.
    Handshake(String),
    /// This side has closed it.
    Local,
}

/// The codes of TLS alerts (RFC 9001 section 4.8).
const ALERTS: std::ops::Range<u64> = 0x100..0x200;

impl CloseReason {
    pub(crate) fn of(error: &ConnectionError) -> CloseReason {
        match error {
            ConnectionError::ApplicationClosed(close) => {
                CloseReason::Application(close.error_code.into_inner())
            }
            ConnectionError::ConnectionClosed(close) => CloseReason::Transport(u64::from(close.error_code)),
            ConnectionError::TimedOut => CloseReason::Idle,
            ConnectionError::Reset => CloseReason::Reset,
            ConnectionError::TransportError(fault) if is_alert(fault.code) => {
                CloseReason::Handshake(fault.reason.clone())
            }
            ConnectionError::TransportError(fault) => CloseReason::Fault(fault.to_string()),
            ConnectionError::VersionMismatch => CloseReason::Fault("unsupported version".to_owned()),
            ConnectionError::LocallyClosed | ConnectionError::CidsExhausted => CloseReason::Local,
        }
    }
}

fn is_alert(code: TransportErrorCode) -> bool {
    ALERTS.contains(&u64::from(code))
}
