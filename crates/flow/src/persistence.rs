//! The persistence of a client's connection, and its announcement in the response (RFC 9112 section 9.3). Each decision
//! returns the reason to close the connection, or `None` to keep it; only [`after_sending`] returns a [`Consequence`].
//! An earlier reason stays in force unless noted otherwise.

use lacquer_http::SessClose;

/// The transport of one request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// An HTTP/1 connection. It transports one exchange at a time, and may close after it.
    Connection,
    /// A stream of a connection that has other streams. It ends with the exchange.
    Stream,
}

/// Closes the connection after a broken request body, because the start of the next request is unknown. This
/// overrides a reason that came from the client's request.
#[inline]
pub fn after_body(close: Option<SessClose>, is_broken: bool) -> Option<SessClose> {
    match close {
        None | Some(SessClose::ReqClose | SessClose::ReqHttp10) if is_broken => Some(SessClose::RxBody),
        _ => close,
    }
}

/// Closes the connection after the response if the worker is about to stop. A connection of streams announces its end
/// by itself.
#[inline]
pub fn before_response(close: Option<SessClose>, carrier: Carrier, is_draining: bool) -> Option<SessClose> {
    let ends = is_draining && carrier == Carrier::Connection;
    close.or(ends.then_some(SessClose::RespClose))
}

/// The treatment of a response's `Connection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    Unchanged,
    /// It becomes "close" (RFC 9112 section 9.6).
    Close,
    /// It becomes "keep-alive", for clients for which that is not the default.
    KeepAlive,
}

/// Decides before a response is sent. `has_close` means that VCL has set `Connection` to "close", which ends the
/// connection. `has_field` returns whether there is a `Connection` field.
#[inline]
pub fn announce(
    close: Option<SessClose>,
    has_close: bool,
    has_field: impl FnOnce() -> bool,
) -> (Option<SessClose>, Announcement) {
    let announcement = match close {
        _ if has_close => Announcement::Unchanged,
        Some(_) => Announcement::Close,
        None if has_field() => Announcement::Unchanged,
        None => Announcement::KeepAlive,
    };
    (close.or(has_close.then_some(SessClose::RespClose)), announcement)
}

/// The result of sending a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The whole response was sent.
    Whole,
    /// The stored body ended early, because its fetch failed.
    SourceFailed,
    /// A filter or an include failed.
    PipelineFailed,
    /// The client has closed the connection.
    ClientGone,
    /// The connection failed for another reason, or timed out.
    ConnectionFailed,
}

/// The effect of a sent response on its connection or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    Nothing,
    /// The connection closes for this reason, which replaces earlier ones. A stream is reset.
    Close(SessClose),
    /// The stream ends with an error, so that the client does not take its bytes for the whole body.
    Abort,
}

/// The bytes that a response lacks of the length that its head has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Nothing,
    OfBody,
    OfRange,
}

/// Decides after a response was sent. A client that received a whole response with missing bytes would take those of the
/// next response for them.
#[inline]
pub fn after_sending(carrier: Carrier, sent: Sent, missing: Missing) -> Consequence {
    use Consequence::{Abort, Close, Nothing};
    match (carrier, sent) {
        (_, Sent::Whole) | (Carrier::Connection, Sent::SourceFailed) if missing == Missing::OfRange => {
            Close(SessClose::RangeShort)
        }
        (_, Sent::Whole) if missing == Missing::OfBody => Close(SessClose::TxError),
        // If the client of a stream is gone, the stream has ended already.
        (_, Sent::Whole) | (Carrier::Stream, Sent::ClientGone | Sent::ConnectionFailed) => Nothing,
        (Carrier::Connection, Sent::SourceFailed | Sent::PipelineFailed | Sent::ClientGone) => {
            Close(SessClose::RemClose)
        }
        (Carrier::Connection, Sent::ConnectionFailed) => Close(SessClose::TxError),
        (Carrier::Stream, Sent::SourceFailed | Sent::PipelineFailed) => Abort,
    }
}

/// Decides after a response has ended. If the object's fetch failed, the client may have received too few bytes.
#[inline]
pub fn after_response(close: Option<SessClose>, has_object_failed: bool) -> Option<SessClose> {
    close.or(has_object_failed.then_some(SessClose::TxError))
}

/// Decides after a request has ended. Unread bytes of its body would be parsed as the next request.
#[inline]
pub fn after_request(close: Option<SessClose>, is_body_read: bool) -> Option<SessClose> {
    close.or((!is_body_read).then_some(SessClose::RxBody))
}

#[cfg(test)]
mod tests {
    use super::*;
    use SessClose::*;

    #[test]
    fn broken_bodies_end_connections() {
        let table = [
            ((None, false), None),
            ((None, true), Some(RxBody)),
            ((Some(ReqClose), false), Some(ReqClose)),
            ((Some(ReqClose), true), Some(RxBody)),
            ((Some(ReqHttp10), true), Some(RxBody)),
            ((Some(TxError), true), Some(TxError)),
            ((Some(RespClose), true), Some(RespClose)),
        ];
        for ((close, is_broken), expected) in table {
            assert_eq!(after_body(close, is_broken), expected, "{close:?} {is_broken}");
        }
    }

    #[test]
    fn connections_end_with_the_response_while_the_worker_is_drained() {
        let table = [
            // the reason so far, the carrier, whether the worker is drained: the reason
            ((None, Carrier::Connection, false), None),
            ((None, Carrier::Connection, true), Some(RespClose)),
            ((None, Carrier::Stream, true), None),
            ((Some(ReqClose), Carrier::Connection, true), Some(ReqClose)),
        ];
        for ((close, carrier, is_draining), expected) in table {
            assert_eq!(
                before_response(close, carrier, is_draining),
                expected,
                "{close:?} {carrier:?} {is_draining}"
            );
        }
    }

    #[test]
    fn responses_announce_whether_the_connection_stays_open() {
        let table = [
            // the reason so far, "Connection: close", any Connection: the reason, and the treatment of the field
            ((None, false, false), (None, Announcement::KeepAlive)),
            ((None, false, true), (None, Announcement::Unchanged)),
            ((None, true, true), (Some(RespClose), Announcement::Unchanged)),
            ((Some(ReqClose), false, false), (Some(ReqClose), Announcement::Close)),
            ((Some(ReqClose), false, true), (Some(ReqClose), Announcement::Close)),
            ((Some(ReqClose), true, true), (Some(ReqClose), Announcement::Unchanged)),
        ];
        for ((close, has_close, has_field), expected) in table {
            assert_eq!(
                announce(close, has_close, || has_field),
                expected,
                "{close:?} {has_close} {has_field}"
            );
        }
    }

    #[test]
    fn failures_end_connections_or_streams() {
        use Consequence::{Abort, Close, Nothing};
        let table = [
            // the result of sending, what is missing: the consequence for a connection, and for a stream
            ((Sent::Whole, Missing::Nothing), Nothing, Nothing),
            ((Sent::Whole, Missing::OfBody), Close(TxError), Close(TxError)),
            ((Sent::Whole, Missing::OfRange), Close(RangeShort), Close(RangeShort)),
            ((Sent::SourceFailed, Missing::Nothing), Close(RemClose), Abort),
            ((Sent::SourceFailed, Missing::OfBody), Close(RemClose), Abort),
            ((Sent::SourceFailed, Missing::OfRange), Close(RangeShort), Abort),
            ((Sent::PipelineFailed, Missing::Nothing), Close(RemClose), Abort),
            ((Sent::PipelineFailed, Missing::OfRange), Close(RemClose), Abort),
            ((Sent::ClientGone, Missing::OfBody), Close(RemClose), Nothing),
            ((Sent::ClientGone, Missing::OfRange), Close(RemClose), Nothing),
            ((Sent::ConnectionFailed, Missing::OfRange), Close(TxError), Nothing),
        ];
        for ((sent, missing), connection, stream) in table {
            for (carrier, expected) in [(Carrier::Connection, connection), (Carrier::Stream, stream)] {
                let decided = after_sending(carrier, sent, missing);
                assert_eq!(decided, expected, "{carrier:?} {sent:?} {missing:?}");
            }
        }
        assert_eq!(after_response(None, false), None);
        assert_eq!(after_response(None, true), Some(TxError));
        assert_eq!(after_response(Some(ReqClose), true), Some(ReqClose));
        assert_eq!(after_request(None, true), None);
        assert_eq!(after_request(None, false), Some(RxBody));
        assert_eq!(after_request(Some(Overload), false), Some(Overload));
    }
}
