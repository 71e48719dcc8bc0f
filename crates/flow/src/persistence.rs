//! The persistence of a client's connection, and its announcement in the response (RFC 9112 section 9.3). Each
//! decision returns the reason to close the connection, or `None` to keep it. An earlier reason stays in force unless
//! noted otherwise.

use lacquer_http::SessClose;

/// Closes the connection after a broken request body, because the start of the next request is unknown. This
/// overrides a reason that came from the client's request.
#[inline]
pub fn after_body(close: Option<SessClose>, is_broken: bool) -> Option<SessClose> {
    match close {
        None | Some(SessClose::ReqClose | SessClose::ReqHttp10) if is_broken => Some(SessClose::RxBody),
        _ => close,
    }
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

/// Decides after a response was sent. A reason found here replaces earlier ones. `is_short` means that the response
/// has fewer bytes than the range that was announced.
#[inline]
pub fn after_sending(sent: Sent, is_short: bool) -> Option<SessClose> {
    match sent {
        Sent::Whole | Sent::SourceFailed if is_short => Some(SessClose::RangeShort),
        Sent::Whole => None,
        Sent::SourceFailed | Sent::PipelineFailed | Sent::ClientGone => Some(SessClose::RemClose),
        Sent::ConnectionFailed => Some(SessClose::TxError),
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
    fn failures_end_connections() {
        let table = [
            ((Sent::Whole, false), None),
            ((Sent::Whole, true), Some(RangeShort)),
            ((Sent::SourceFailed, false), Some(RemClose)),
            ((Sent::SourceFailed, true), Some(RangeShort)),
            ((Sent::PipelineFailed, false), Some(RemClose)),
            ((Sent::PipelineFailed, true), Some(RemClose)),
            ((Sent::ClientGone, true), Some(RemClose)),
            ((Sent::ConnectionFailed, true), Some(TxError)),
        ];
        for ((sent, is_short), expected) in table {
            assert_eq!(after_sending(sent, is_short), expected, "{sent:?} {is_short}");
        }
        assert_eq!(after_response(None, false), None);
        assert_eq!(after_response(None, true), Some(TxError));
        assert_eq!(after_response(Some(ReqClose), true), Some(ReqClose));
        assert_eq!(after_request(None, true), None);
        assert_eq!(after_request(None, false), Some(RxBody));
        assert_eq!(after_request(Some(Overload), false), Some(Overload));
    }
}
