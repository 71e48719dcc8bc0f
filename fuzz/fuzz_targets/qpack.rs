//! Bytes of an encoder stream and field sections in any order, each after a byte for its kind and one for its length.
//! Decoded fields are the same after they are encoded again, and an encoder stream that arrives byte by byte has the
//! same effect as the whole.
#![no_main]

use lacquer_h3::Fault;
use lacquer_h3::qpack::{Begun, Decoder, Feedback, QpackError, Step, begin, field};
use libfuzzer_sys::fuzz_target;

const TABLE: usize = 256;
const BLOCKED: usize = 2;

/// The name and value of a field.
type Field = (Vec<u8>, Vec<u8>);

/// Returns the fields of a section, or `None` if it is blocked.
fn decode(decoder: &mut Decoder, stream: u64, section: &[u8]) -> Result<Option<Vec<Field>>, QpackError> {
    let Begun::Section(mut section) = decoder.begin(stream, section)? else { return Ok(None) };
    let (mut fields, mut out) = (Vec::new(), vec![0; decoder.field_size_bound(&section)]);
    loop {
        match decoder.next(&mut section, &mut out)? {
            Step::Field(line) => fields.push((line.name(&out).to_vec(), line.value(&out).to_vec())),
            Step::Full => unreachable!("there is room for the largest field"),
            Step::End => break,
        }
    }
    decoder.finish(stream, &section);
    Ok(Some(fields))
}

/// Checks that the fields are the same after they are encoded.
fn encode_again(fields: &[Field]) {
    let mut written = Vec::new();
    begin(&mut written);
    for (name, value) in fields {
        field(&mut written, name, value);
    }
    let read = decode(&mut Decoder::new(0, 0), 0, &written);
    let read = read.expect("the encoder is correct").expect("the encoder uses no dynamic table");
    let is_same = |(a, b): (&Field, &Field)| a.0.eq_ignore_ascii_case(&b.0) && a.1 == b.1;
    assert!(read.len() == fields.len() && read.iter().zip(fields).all(is_same));
}

fn receive_bytewise(decoder: &mut Decoder, input: &[u8]) -> Result<bool, Fault> {
    let mut has_inserted = false;
    for byte in input.chunks(1) {
        has_inserted |= decoder.receive(byte)?;
    }
    Ok(has_inserted)
}

/// Returns kind and bytes of each part.
fn parts(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[kind, len], rest) = bytes.split_first_chunk()?;
        let (part, rest) = rest.split_at((len as usize).min(rest.len()));
        bytes = rest;
        Some((kind, part))
    })
}

fuzz_target!(|bytes: &[u8]| {
    let (mut whole, mut bytewise) = (Decoder::new(TABLE, BLOCKED), Decoder::new(TABLE, BLOCKED));
    let mut feedback = Feedback::default();
    for (kind, part) in parts(bytes) {
        match kind % 4 {
            0 => {
                let result = whole.receive(part);
                assert_eq!(result, receive_bytewise(&mut bytewise, part));
                if result.is_err() {
                    return;
                }
            }
            1 => {
                let stream = u64::from(kind);
                let fields = decode(&mut whole, stream, part);
                assert_eq!(fields, decode(&mut bytewise, stream, part));
                match fields {
                    Ok(Some(fields)) => encode_again(&fields),
                    Ok(None) => assert!(whole.unblocked().all(|ready| ready != stream)),
                    Err(_) => return,
                }
            }
            2 => {
                whole.cancel(u64::from(kind));
                bytewise.cancel(u64::from(kind));
            }
            _ => {
                if feedback.receive(part).is_err() {
                    return;
                }
            }
        }
        let (a, b) = (whole.output(), bytewise.output());
        assert_eq!(a.expect("it is short"), b.expect("it is short"));
        assert!(whole.unblocked().count() <= BLOCKED);
    }
});
