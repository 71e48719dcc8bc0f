//! The errors of HTTP/2 with Varnish's names and texts. Some of Varnish's own errors share a code with another one.
//! Each row contains the code on the wire, whether the client gets a GOAWAY, the reason for closing the session, and
//! the text.

use lacquer_http::SessClose;

macro_rules! reasons {
    ($($variant:ident $name:literal $code:literal $goaway:literal $close:expr, $text:literal;)*) => {
        /// The reason why a connection or a stream ends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($variant),* }

        impl Reason {
            /// Returns the code on the wire.
            pub const fn code(self) -> u32 { match self { $(Reason::$variant => $code),* } }

            /// Returns the text of `Debug` records about the reset of a stream.
            pub const fn text(self) -> &'static str { match self { $(Reason::$variant => $text),* } }

            const fn sends_goaway(self) -> bool { match self { $(Reason::$variant => $goaway),* } }

            const fn close(self) -> Option<SessClose> { match self { $(Reason::$variant => $close),* } }
        }

        impl Error {
            /// Returns the name in `Debug` records.
            pub const fn name(self) -> &'static str {
                if matches!(self.reason(), Reason::Unknown) {
                    return "UNKNOWN_ERROR";
                }
                match self {
                    $(Error::Connection(Reason::$variant) => concat!("H2CE_", $name),)*
                    $(Error::Stream(Reason::$variant) => concat!("H2SE_", $name),)*
                }
            }
        }
    };
}

use SessClose::{Bankrupt, Overload, RapidReset, RemClose, ReqHttp20, RxJunk, RxTimeout, VclFailure};

reasons! {
    NoError "NO_ERROR" 0 true Some(RemClose), "Graceful shutdown";
    ProtocolError "PROTOCOL_ERROR" 1 true Some(RxJunk), "Protocol error detected";
    InternalError "INTERNAL_ERROR" 2 true Some(VclFailure), "Implementation fault";
    FlowControlError "FLOW_CONTROL_ERROR" 3 true Some(Overload), "Flow-control limits exceeded";
    SettingsTimeout "SETTINGS_TIMEOUT" 4 true Some(RxTimeout), "Settings not acknowledged";
    StreamClosed "STREAM_CLOSED" 5 true None, "Frame received for closed stream";
    FrameSizeError "FRAME_SIZE_ERROR" 6 true Some(RxJunk), "Frame size incorrect";
    RefusedStream "REFUSED_STREAM" 7 true None, "Stream not processed";
    Cancel "CANCEL" 8 true None, "Stream cancelled";
    CompressionError "COMPRESSION_ERROR" 9 true Some(RxJunk), "Compression state not updated";
    ConnectError "CONNECT_ERROR" 10 true None, "TCP connection error for CONNECT method";
    EnhanceYourCalm "ENHANCE_YOUR_CALM" 11 true Some(Overload), "Processing capacity exceeded";
    InadequateSecurity "INADEQUATE_SECURITY" 12 true Some(RxJunk), "Negotiated TLS parameters not acceptable";
    Http11Required "HTTP_1_1_REQUIRED" 13 true Some(ReqHttp20), "Use HTTP/1.1 for the request";
    RapidReset "RAPID_RESET" 11 true Some(RapidReset), "http/2 rapid reset detected";
    MissingScheme "MISSING_SCHEME" 1 true None, "Missing :scheme pseudo-header";
    BrokeWindow "BROKE_WINDOW" 8 false None, "http/2 stream out of window credits";
    Bankrupt "BANKRUPT" 11 false Some(Bankrupt), "http/2 bankrupt connection";
    HeaderTimeout "HEADER_TIMEOUT" 11 true Some(RxTimeout), "header block not complete in time";
    ReqSize "REQ_SIZE" 11 false None, "HTTP/2 header list exceeded http_req_size";
    Unknown "UNKNOWN" 0xffff_ffff false Some(RxJunk), "Unknown error number";
}

/// The end of a connection with all its streams, or of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    Connection(Reason),
    Stream(Reason),
}

/// The reasons that peers can send, by code.
const ON_THE_WIRE: [Reason; 14] = [
    Reason::NoError,
    Reason::ProtocolError,
    Reason::InternalError,
    Reason::FlowControlError,
    Reason::SettingsTimeout,
    Reason::StreamClosed,
    Reason::FrameSizeError,
    Reason::RefusedStream,
    Reason::Cancel,
    Reason::CompressionError,
    Reason::ConnectError,
    Reason::EnhanceYourCalm,
    Reason::InadequateSecurity,
    Reason::Http11Required,
];

impl Error {
    /// Returns the error for the code in a received RST_STREAM.
    pub fn of_stream(code: u32) -> Error {
        let reason = match received(code) {
            Reason::SettingsTimeout
            | Reason::CompressionError
            | Reason::InadequateSecurity
            | Reason::Http11Required => Reason::Unknown,
            reason => reason,
        };
        Error::Stream(reason)
    }

    /// Returns the error for the code in a received GOAWAY.
    pub fn of_connection(code: u32) -> Error {
        let reason = match received(code) {
            Reason::StreamClosed | Reason::RefusedStream | Reason::Cancel | Reason::ConnectError => {
                Reason::Unknown
            }
            reason => reason,
        };
        Error::Connection(reason)
    }

    pub const fn reason(self) -> Reason {
        match self {
            Error::Connection(reason) | Error::Stream(reason) => reason,
        }
    }

    pub const fn code(self) -> u32 {
        self.reason().code()
    }

    pub const fn text(self) -> &'static str {
        self.reason().text()
    }

    pub const fn is_connection(self) -> bool {
        matches!(self, Error::Connection(_))
    }

    /// Returns whether the client gets a GOAWAY when this ends the connection.
    pub const fn sends_goaway(self) -> bool {
        self.reason().sends_goaway()
    }

    /// Returns the reason for closing the session, for `SessClose` and its counter. An error of a stream ends the
    /// session when it occurs on stream 0.
    pub const fn close(self) -> SessClose {
        match self.reason().close() {
            Some(close) => close,
            None => SessClose::RxJunk,
        }
    }
}

fn received(code: u32) -> Reason {
    ON_THE_WIRE.get(code as usize).copied().unwrap_or(Reason::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_match_their_index_in_the_table() {
        for (code, reason) in ON_THE_WIRE.iter().enumerate() {
            assert_eq!(reason.code() as usize, code);
        }
        assert_eq!(Error::of_stream(8), Error::Stream(Reason::Cancel));
        assert_eq!(Error::of_stream(4).name(), "UNKNOWN_ERROR");
        assert_eq!(Error::of_stream(0x666).name(), "UNKNOWN_ERROR");
        assert_eq!(Error::of_connection(2).name(), "H2CE_INTERNAL_ERROR");
        assert_eq!(Error::of_connection(7).name(), "UNKNOWN_ERROR");
        assert_eq!(Error::Stream(Reason::MissingScheme).name(), "H2SE_MISSING_SCHEME");
        assert_eq!(Error::Stream(Reason::ReqSize).code(), 11);
    }
}
