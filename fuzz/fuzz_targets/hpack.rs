//! Header blocks of one connection, each after a byte for its length. Decoded fields are the same after they are
//! encoded again, and a block that arrives byte by byte decodes like the whole block.
#![no_main]

use lacquer_h2::hpack::{Decoder, HpackError, Step, encode, huffman};
use libfuzzer_sys::fuzz_target;

const TABLE: usize = 256;

/// The name and value of a field.
type Field = (Vec<u8>, Vec<u8>);

/// Decodes a block that arrives in pieces of `step` bytes.
fn decode(decoder: &mut Decoder, block: &[u8], step: usize) -> Result<Vec<Field>, HpackError> {
    let (mut fields, mut out) = (Vec::new(), vec![0; decoder.field_size_bound(block)]);
    let (mut start, mut end) = (0, 0);
    decoder.begin();
    loop {
        let mut input = &block[start..end];
        let found = decoder.next(&mut input, &mut out)?;
        start = end - input.len();
        match found {
            Step::Field(line) => fields.push((line.name(&out).to_vec(), line.value(&out).to_vec())),
            Step::Full => unreachable!("there is room for the largest field"),
            Step::End | Step::More { .. } if end == block.len() => return Ok(fields),
            Step::End | Step::More { .. } => end = (end + step).min(block.len()),
        }
    }
}

/// Returns the blocks, without the bytes for their lengths.
fn blocks(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&len, rest) = bytes.split_first()?;
        let (block, rest) = rest.split_at((len as usize).min(rest.len()));
        bytes = rest;
        Some(block)
    })
}

fn same(a: &[Field], b: &[Field]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0.eq_ignore_ascii_case(&b.0) && a.1 == b.1)
}

fuzz_target!(|bytes: &[u8]| {
    let (mut whole, mut bytewise) = (Decoder::new(TABLE), Decoder::new(TABLE));
    let mut again = Decoder::new(TABLE);
    for block in blocks(bytes) {
        let fields = decode(&mut whole, block, block.len().max(1));
        assert_eq!(fields, decode(&mut bytewise, block, 1));
        let Ok(fields) = fields else { break };
        let mut written = Vec::new();
        for (i, (name, value)) in fields.iter().enumerate() {
            if i % 2 == 0 {
                encode::remembered(&mut written, name, value);
            } else {
                encode::field(&mut written, name, value);
            }
        }
        let read = decode(&mut again, &written, written.len().max(1));
        assert!(read.is_ok_and(|read| same(&fields, &read)));
    }
    let mut text = vec![0; 2 * bytes.len()];
    if let Ok(Some(len)) = huffman::decode(bytes, &mut text) {
        let mut code = Vec::new();
        huffman::encode(&text[..len], &mut code);
        assert_eq!(code, bytes, "each text has one code");
    }
});
