//! Chunked bodies decode to the same bytes however the network splits them, and the strict decoder accepts nothing that
//! the lenient one decodes differently.
#![no_main]

use lacquer_http::h1::ChunkedDecoder;
use libfuzzer_sys::fuzz_target;

/// Returns the data, whether the body is complete, and the number of bytes read; `None` for a malformed body.
fn decode(mut decoder: ChunkedDecoder, parts: &[&[u8]]) -> Option<(Vec<u8>, bool, usize)> {
    let (mut data, mut taken) = (Vec::new(), 0);
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() && !decoder.is_done() {
            let piece = decoder.decode(rest).ok()?;
            assert!(piece.consumed > 0 && piece.consumed <= rest.len());
            data.extend_from_slice(piece.data(rest));
            taken += piece.consumed;
            rest = &rest[piece.consumed..];
        }
    }
    Some((data, decoder.is_done(), taken))
}

/// Decodes in runs, as the engine decodes bodies.
fn decode_runs(mut decoder: ChunkedDecoder, body: &[u8]) -> Option<(Vec<u8>, bool, usize)> {
    let (mut data, mut taken, mut rest) = (Vec::new(), 0, body.to_vec());
    while !rest.is_empty() && !decoder.is_done() {
        let run = decoder.decode_run(&mut rest).ok()?;
        data.extend_from_slice(&rest[run.start..run.end]);
        taken += run.consumed;
        rest.drain(..run.consumed);
    }
    Some((data, decoder.is_done(), taken))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, body)) = bytes.split_first() else { return };
    let (a, b) = body.split_at((cut as usize).min(body.len()));
    let whole = decode(ChunkedDecoder::new(), &[body]);
    assert_eq!(whole, decode(ChunkedDecoder::new(), &[a, b]));
    assert_eq!(whole, decode_runs(ChunkedDecoder::new(), body));
    let lenient = decode(ChunkedDecoder::lenient(), &[body]);
    assert_eq!(lenient, decode(ChunkedDecoder::lenient(), &[a, b]));
    if let Some(strict) = whole {
        assert_eq!(Some(strict), lenient);
    }
});
