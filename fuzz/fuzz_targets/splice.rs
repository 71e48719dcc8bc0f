//! Whatever the reader of gzip streams finds sound, and unpacking too, can become a part of another stream.
#![no_main]

use lacquer_filters::splice::{self, Strip};
use lacquer_filters::{Filter, Gunzip};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(marks) = splice::landmarks(bytes) else { return };
    let mut unpacked = Vec::new();
    if Gunzip::new().push(bytes, true, &mut unpacked).is_err() {
        return;
    }
    let mut stream = splice::HEADER.to_vec();
    let mut strip = Strip::new(marks);
    strip.push(bytes, &mut stream);
    stream.extend_from_slice(&splice::trailer(strip.checksum()));
    let mut again = Vec::new();
    Gunzip::new().push(&stream, true, &mut again).expect("a part is as good as the whole");
    assert_eq!(unpacked, again);
});
