//! Every gzip stream that both the stream reader and the decompressor accept can become a part of another stream.
#![no_main]

use lacquer_filters::splice::{self, Strip};
use lacquer_filters::{Chain, Gunzip};
use libfuzzer_sys::fuzz_target;

fn unpack(mut packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut chain = Chain::new(vec![Box::new(Gunzip::new())], 32 << 10);
    let mut all = Vec::new();
    while let Some(out) = chain.next(&mut packed, true)? {
        all.extend_from_slice(out);
    }
    Ok(all)
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(marks) = splice::landmarks(bytes) else { return };
    let Ok(unpacked) = unpack(bytes) else { return };
    let mut stream = splice::HEADER.to_vec();
    let mut strip = Strip::new(marks);
    strip.push(bytes, &mut stream);
    stream.extend_from_slice(&splice::trailer(strip.checksum()));
    let again = unpack(&stream).expect("the part can be decompressed");
    assert_eq!(unpacked, again);
});
