//! Checks accepted requests of HTTP/2 and HTTP/3.

use lacquer_http::h1::{parse_request, write_request_head};
use lacquer_http::trailers::{RequestTrailers, fields, may_trail};
use lacquer_http::{Message, Slot, Workspace, fixed};

/// Checks that an HTTP/1 origin reads the request with the same meaning, so that no request can be smuggled through the
/// change of protocols.
pub fn check(request: &mut Message, request_ws: &Workspace) {
    request.put(request_ws, Slot::Proto, fixed::HTTP_11);
    let mut wire = Vec::new();
    write_request_head(request, request_ws, &mut wire);
    let (mut ws, mut msg) = (Workspace::new(65536), Message::new(64));
    let rx = ws.copy(&wire).expect("the workspace is larger than the limit");
    let read = parse_request(&mut ws, rx, &mut msg, 4096);
    assert_eq!(msg.method(&ws), request.method(request_ws));
    assert_eq!(msg.url(&ws), request.url(request_ws));
    let expected = request.lines(request_ws).map(<[u8]>::trim_ascii_end);
    assert!(msg.lines(&ws).map(<[u8]>::trim_ascii_end).eq(expected));
    // HTTP/1 has no HEAD with a body.
    assert!(msg.method(&ws) == b"HEAD" || read.is_ok_and(|head| head.len == wire.len()));
}

/// Checks that the lines of trailers are fields that trailers may contain, and nothing else.
pub fn check_trailers(trailers: &RequestTrailers) {
    let mut lines = Vec::new();
    for (name, value) in fields(trailers.lines()) {
        assert!(!name.is_empty() && may_trail(name));
        lines.extend([name, b": ", value, b"\r\n"].concat());
    }
    assert_eq!(lines, trailers.lines());
}
