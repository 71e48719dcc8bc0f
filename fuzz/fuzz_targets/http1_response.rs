//! An accepted response has the same meaning for the next reader after it is written again.
#![no_main]

use lacquer_http::h1::{Framing, parse_response, write_response_head};
use lacquer_http::{Message, Workspace};
use libfuzzer_sys::fuzz_target;

const HDR_LEN: usize = 8192;

fn read(bytes: &[u8]) -> Option<(u16, usize, Framing, Vec<u8>)> {
    let mut ws = Workspace::new(256 * 1024);
    let rx = ws.copy(bytes).ok()?;
    let mut msg = Message::new(64);
    let head = parse_response(&mut ws, rx, &mut msg, HDR_LEN, 11).ok()?;
    assert!(head.len <= bytes.len());
    let mut written = Vec::new();
    write_response_head(&msg, &ws, &mut written);
    Some((msg.status(), msg.fields().len(), head.framing, written))
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((status, headers, framing, written)) = read(bytes) {
        let second = read(&written).expect("an accepted response is written in an acceptable form");
        assert_eq!((status, headers, framing), (second.0, second.1, second.2));
    }
});
