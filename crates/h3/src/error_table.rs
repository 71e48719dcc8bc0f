//! The errors of HTTP/3 (RFC 9114 section 8.1) and QPACK (RFC 9204 section 6). Some reasons share a code with another
//! one, because they close the session for another reason. Each row contains the code on the wire, the reason for
//! closing the session, and the text.

use lacquer_h2::Reason as H2;
use lacquer_http::SessClose;
use lacquer_http::SessClose::{Overload, RapidReset, RemClose, ReqHttp20, RxJunk, RxTimeout, VclFailure};

macro_rules! reasons {
    ($($variant:ident $name:literal $code:literal $close:expr, $text:literal;)*) => {
        /// The reason why a connection or a stream ends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($variant),* }

        impl Reason {
            #[cfg(test)]
            const ALL: &'static [Reason] = &[$(Reason::$variant),*];

            /// Returns the code on the wire.
            pub const fn code(self) -> u64 { match self { $(Reason::$variant => $code),* } }

            /// Returns the name of RFC 9114 or RFC 9204.
            pub const fn name(self) -> &'static str { match self { $(Reason::$variant => $name),* } }

            /// Returns the text of log records.
            pub const fn text(self) -> &'static str { match self { $(Reason::$variant => $text),* } }

            /// Returns the reason for closing the session, for `SessClose` and its counter.
            pub const fn close(self) -> SessClose { match self { $(Reason::$variant => $close),* } }
        }
    };
}

reasons! {
    NoError "H3_NO_ERROR" 0x100 RemClose, "Graceful shutdown";
    GeneralProtocolError "H3_GENERAL_PROTOCOL_ERROR" 0x101 RxJunk, "Protocol error detected";
    InternalError "H3_INTERNAL_ERROR" 0x102 VclFailure, "Implementation fault";
    StreamCreationError "H3_STREAM_CREATION_ERROR" 0x103 RxJunk, "Stream type not acceptable";
    ClosedCriticalStream "H3_CLOSED_CRITICAL_STREAM" 0x104 RxJunk, "Required stream closed";
    FrameUnexpected "H3_FRAME_UNEXPECTED" 0x105 RxJunk, "Frame not permitted in this state or on this stream";
    FrameError "H3_FRAME_ERROR" 0x106 RxJunk, "Frame layout or size incorrect";
    ExcessiveLoad "H3_EXCESSIVE_LOAD" 0x107 Overload, "Processing capacity exceeded";
    IdError "H3_ID_ERROR" 0x108 RxJunk, "Identifier used incorrectly";
    SettingsError "H3_SETTINGS_ERROR" 0x109 RxJunk, "Error in the payload of SETTINGS";
    MissingSettings "H3_MISSING_SETTINGS" 0x10a RxJunk, "No SETTINGS at the start of the control stream";
    RequestRejected "H3_REQUEST_REJECTED" 0x10b Overload, "Stream not processed";
    RequestCancelled "H3_REQUEST_CANCELLED" 0x10c RemClose, "Stream cancelled";
    RequestIncomplete "H3_REQUEST_INCOMPLETE" 0x10d RxJunk, "Stream ended without a complete request";
    MessageError "H3_MESSAGE_ERROR" 0x10e RxJunk, "Malformed request";
    ConnectError "H3_CONNECT_ERROR" 0x10f RxJunk, "TCP connection error for CONNECT method";
    VersionFallback "H3_VERSION_FALLBACK" 0x110 ReqHttp20, "Use HTTP/1.1 for the request";
    DecompressionFailed "QPACK_DECOMPRESSION_FAILED" 0x200 RxJunk, "Field section cannot be decoded";
    EncoderStreamError "QPACK_ENCODER_STREAM_ERROR" 0x201 RxJunk, "Invalid instruction on the encoder stream";
    DecoderStreamError "QPACK_DECODER_STREAM_ERROR" 0x202 RxJunk, "Invalid instruction on the decoder stream";
    RapidReset "H3_EXCESSIVE_LOAD" 0x107 RapidReset, "Rapid reset detected";
    HeaderTimeout "H3_EXCESSIVE_LOAD" 0x107 RxTimeout, "Header section not complete in time";
}

/// The number of reasons whose codes are their own. They precede the others in the table.
const OWN_CODES: usize = 20;

/// The reasons that peers can send.
const ON_THE_WIRE: [Reason; OWN_CODES] = [
    Reason::NoError,
    Reason::GeneralProtocolError,
    Reason::InternalError,
    Reason::StreamCreationError,
    Reason::ClosedCriticalStream,
    Reason::FrameUnexpected,
    Reason::FrameError,
    Reason::ExcessiveLoad,
    Reason::IdError,
    Reason::SettingsError,
    Reason::MissingSettings,
    Reason::RequestRejected,
    Reason::RequestCancelled,
    Reason::RequestIncomplete,
    Reason::MessageError,
    Reason::ConnectError,
    Reason::VersionFallback,
    Reason::DecompressionFailed,
    Reason::EncoderStreamError,
    Reason::DecoderStreamError,
];

impl Reason {
    /// Returns the reason for a code that a peer sent. Unknown codes are equivalent to H3_NO_ERROR (RFC 9114 section
    /// 9).
    pub fn of(code: u64) -> Reason {
        ON_THE_WIRE.into_iter().find(|reason| reason.code() == code).unwrap_or(Reason::NoError)
    }
}

/// The end of a connection with all its streams, or of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    Connection(Reason),
    Stream(Reason),
}

impl Error {
    pub const fn reason(self) -> Reason {
        match self {
            Error::Connection(reason) | Error::Stream(reason) => reason,
        }
    }

    /// Returns the code on the wire: of CONNECTION_CLOSE, or of RESET_STREAM and STOP_SENDING.
    pub const fn code(self) -> u64 {
        self.reason().code()
    }

    pub const fn name(self) -> &'static str {
        self.reason().name()
    }

    pub const fn text(self) -> &'static str {
        self.reason().text()
    }

    pub const fn is_connection(self) -> bool {
        matches!(self, Error::Connection(_))
    }

    /// Returns the reason for closing the session, for `SessClose` and its counter.
    pub const fn close(self) -> SessClose {
        self.reason().close()
    }
}

/// Translates an error of the checks that HTTP/2 and HTTP/3 share.
impl From<lacquer_h2::Error> for Error {
    fn from(error: lacquer_h2::Error) -> Error {
        let reason = match error.reason() {
            H2::NoError => Reason::NoError,
            H2::ProtocolError | H2::MissingScheme => Reason::MessageError,
            H2::EnhanceYourCalm | H2::ReqSize | H2::Bankrupt => Reason::ExcessiveLoad,
            H2::RapidReset => Reason::RapidReset,
            H2::HeaderTimeout => Reason::HeaderTimeout,
            H2::RefusedStream => Reason::RequestRejected,
            H2::Cancel | H2::BrokeWindow => Reason::RequestCancelled,
            H2::InternalError => Reason::InternalError,
            H2::CompressionError => Reason::DecompressionFailed,
            H2::ConnectError => Reason::ConnectError,
            H2::Http11Required => Reason::VersionFallback,
            H2::FrameSizeError
            | H2::FlowControlError
            | H2::SettingsTimeout
            | H2::StreamClosed
            | H2::InadequateSecurity
            | H2::Unknown => Reason::GeneralProtocolError,
        };
        if error.is_connection() { Error::Connection(reason) } else { Error::Stream(reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_rfcs() {
        assert_eq!(ON_THE_WIRE, Reason::ALL[..OWN_CODES]);
        let codes = (0x100..=0x110).chain(0x200..=0x202);
        assert!(ON_THE_WIRE.iter().map(|reason| reason.code()).eq(codes));
        for reason in ON_THE_WIRE {
            assert_eq!(Reason::of(reason.code()), reason);
        }
        for unknown in [0, 1, 0xff, 0x111, 0x203, 0x21, u64::MAX] {
            assert_eq!(Reason::of(unknown), Reason::NoError);
        }
    }

    #[test]
    fn errors_of_shared_checks_are_translated() {
        use lacquer_h2::Error as Shared;
        for (shared, error) in [
            (Shared::Stream(H2::ProtocolError), Error::Stream(Reason::MessageError)),
            (Shared::Stream(H2::MissingScheme), Error::Stream(Reason::MessageError)),
            (Shared::Stream(H2::ReqSize), Error::Stream(Reason::ExcessiveLoad)),
            (Shared::Connection(H2::EnhanceYourCalm), Error::Connection(Reason::ExcessiveLoad)),
            (Shared::Connection(H2::RapidReset), Error::Connection(Reason::RapidReset)),
        ] {
            assert_eq!(Error::from(shared), error);
        }
        assert_eq!(Error::Connection(Reason::RapidReset).close(), SessClose::RapidReset);
        assert_eq!(Error::Connection(Reason::RapidReset).code(), 0x107);
    }
}
