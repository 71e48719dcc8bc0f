//! An accepted request has the same meaning for the next reader after it is written again, which prevents request
//! smuggling.
#![no_main]

use lacquer_http::h1::{Framing, parse_request, write_request_head};
use lacquer_http::{Message, Workspace};
use libfuzzer_sys::fuzz_target;

const HDR_LEN: usize = 8192;

struct Meaning {
    method: Vec<u8>,
    url: Vec<u8>,
    headers: usize,
    framing: Framing,
}

fn read(bytes: &[u8]) -> Option<(Meaning, Vec<u8>)> {
    let mut ws = Workspace::new(256 * 1024);
    let rx = ws.copy(bytes).ok()?;
    let mut msg = Message::new(64);
    let head = parse_request(&mut ws, rx, &mut msg, HDR_LEN).ok()?;
    assert!(head.len <= bytes.len());
    let mut written = Vec::new();
    write_request_head(&msg, &ws, &mut written);
    let meaning = Meaning {
        method: msg.method(&ws).to_vec(),
        url: msg.url(&ws).to_vec(),
        headers: msg.fields().len(),
        framing: head.framing,
    };
    Some((meaning, written))
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((first, written)) = read(bytes) {
        let (second, _) = read(&written).expect("an accepted request is written in an acceptable form");
        assert_eq!((first.method, first.url, first.headers), (second.method, second.url, second.headers));
        assert_eq!(first.framing, second.framing);
    }
});
