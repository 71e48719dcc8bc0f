//! The data that is stored with an object in addition to head and body: the uncompressed length and the ESI program.

use lacquer_cache::Object;
use lacquer_filters::esi;

/// The bits of the first byte. Each is set if that part follows; the parts are in this order.
const HAS_LENGTH: u8 = 1;
const HAS_PROGRAM: u8 = 2;

/// Returns the uncompressed length and the ESI program.
fn parts(extra: &[u8]) -> Option<(Option<u64>, Option<&[u8]>)> {
    let (kinds, mut rest) = extra.split_first()?;
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
    parts(object.extra())?.0
}

/// Returns the ESI program of a body with ESI.
pub fn esi_program(object: &Object) -> Option<&[u8]> {
    parts(object.extra())?.1
}

/// Checks data that comes from outside this process, for a body of `body` bytes. Returns whether [`of`] could have
/// written it.
pub fn is_sound(extra: &[u8], body: u64) -> bool {
    let Some(kinds) = extra.first() else { return true };
    matches!(*kinds, 1..=3)
        && parts(extra).is_some_and(|(unpacked, program)| {
            unpacked.is_none_or(|length| length <= longest_unpacked(body))
                && match program {
                    Some(program) => esi::is_sound(program, body),
                    None => extra.len() == 1 + size_of::<u64>(),
                }
        })
}

/// Returns a bound of the length of a gzipped body after decompression. A block of deflate has up to 1032 bytes for each
/// of its bytes.
fn longest_unpacked(body: u64) -> u64 {
    body.saturating_add(1).saturating_mul(1032)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_data_is_checked() {
        let program: &[u8] = &[0, 2, 5];
        for (unpacked, program) in
            [(None, None), (Some(9), None), (None, Some(program)), (Some(9), Some(program))]
        {
            let extra = of(unpacked, program);
            assert!(is_sound(&extra, 5), "{extra:?}");
            assert_eq!(parts(&extra).unwrap_or_default(), (unpacked, program));
            assert_eq!(is_sound(&extra, 4), program.is_none());
        }
        for extra in [&[4][..], &[0], &[1, 0], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 7], &[2], &[2, 0, 9]] {
            assert!(!is_sound(extra, 100), "{extra:?}");
        }
        for (length, body) in [(u64::MAX, 100), (1 << 40, 100), (104_233, 100), (1033, 0)] {
            assert!(!is_sound(&of(Some(length), None), body), "{length} of {body}");
        }
        assert!(is_sound(&of(Some(103_000), None), 100));
    }
}
