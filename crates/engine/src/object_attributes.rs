//! The data that is stored with an object in addition to head and body: the uncompressed length and the ESI program.

use lacquer_cache::Object;

/// The bits of the first byte. Each is set if that part follows; the parts are in this order.
const HAS_LENGTH: u8 = 1;
const HAS_PROGRAM: u8 = 2;

/// Returns the uncompressed length and the ESI program.
fn parts(object: &Object) -> Option<(Option<u64>, Option<&[u8]>)> {
    let (kinds, mut rest) = object.extra().split_first()?;
    let mut length = None;
    if kinds & HAS_LENGTH != 0 {
        let (bytes, after) = rest.split_first_chunk()?;
        length = Some(u64::from_le_bytes(*bytes));
        rest = after;
    }
    Some((length, (kinds & HAS_PROGRAM != 0).then_some(rest)))
}

/// Returns the length of a gzipped body after decompression, if the fetch has recorded it.
pub fn unpacked_len(object: &Object) -> Option<u64> {
    parts(object)?.0
}

/// Returns the ESI program of a body with ESI.
pub fn esi_program(object: &Object) -> Option<&[u8]> {
    parts(object)?.1
}

/// Encodes the data for an object, in the format that the other functions read.
pub fn of(unpacked: Option<u64>, program: Option<&[u8]>) -> Vec<u8> {
    if unpacked.is_none() && program.is_none() {
        return Vec::new();
    }
    let mut bytes = vec![0];
    if let Some(length) = unpacked {
        bytes[0] |= HAS_LENGTH;
        bytes.extend(length.to_le_bytes());
    }
    if let Some(program) = program {
        bytes[0] |= HAS_PROGRAM;
        bytes.extend(program);
    }
    bytes
}
