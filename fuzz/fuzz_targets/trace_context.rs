//! The headers of traces in a request: a context that was read is written so that it is read again, and there is one only
//! if the request has one line of `traceparent`.
#![no_main]

use lacquer_http::h1::parse_request;
use lacquer_http::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};
use lacquer_http::{Message, Workspace};
use libfuzzer_sys::fuzz_target;

const HDR_LEN: usize = 8192;

fn check(context: TraceContext) {
    assert!(context.trace() != 0 && context.span() != 0);
    assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(context));
    let other = context.with_span(context.span().wrapping_add(1)).with_sampled(!context.is_sampled());
    assert_eq!(TraceContext::parse(other.to_string().as_bytes()), Some(other));
    assert_eq!(other.trace(), context.trace());
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(context) = TraceContext::parse(bytes) {
        check(context);
    }
    let (mut ws, mut message) = (Workspace::new(256 * 1024), Message::new(64));
    let request = [b"GET / HTTP/1.1\r\nHost: a\r\n", bytes, b"\r\n\r\n"].concat();
    let Ok(received) = ws.copy(&request) else { return };
    if parse_request(&mut ws, received, &mut message, HDR_LEN).is_err() {
        return;
    }
    let found = TraceContext::of(&message, &ws);
    assert!(found.is_none() || message.count(&ws, TRACEPARENT) == 1);
    let _ = message.get(&ws, TRACESTATE);
    found.into_iter().for_each(check);
});
