//! Bodies that identify their object: each block of 64 bytes contains its key, generation, offset and the whole length,
//! with a checksum, so that a foreign, shifted or truncated body or a mixture of generations is detected.

use std::io::Read;

pub const BLOCK: usize = 64;

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Returns the body of a key in a generation; the length is a multiple of a block.
pub fn body(key: usize, generation: u32, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(length);
    for offset in (0..length).step_by(BLOCK) {
        let text = format!("k{key:08x} g{generation:08x} o{offset:08x} l{length:08x} ");
        let line = format!("{text}s{:08x}", checksum(text.as_bytes()));
        out.extend_from_slice(format!("{line:-<63}\n").as_bytes());
    }
    out
}

/// Returns the generation that the first block names.
pub fn generation_of(bytes: &[u8]) -> Option<u32> {
    let text = str::from_utf8(bytes.get(11..19)?).ok()?;
    u32::from_str_radix(text, 16).ok()
}

/// Checks a part of a body, which begins with a whole block. Returns its generation.
pub fn check(key: usize, length: usize, from: usize, part: &[u8]) -> Result<u32, String> {
    let show = || String::from_utf8_lossy(&part[..part.len().min(160)]).into_owned();
    let generation = generation_of(part).ok_or_else(|| format!("no block of key {key}: {}", show()))?;
    let whole = body(key, generation, length);
    let wanted = whole.get(from..from + part.len());
    if wanted == Some(part) {
        return Ok(generation);
    }
    let at = wanted.and_then(|wanted| wanted.iter().zip(part).position(|(a, b)| a != b));
    Err(format!("key {key}, {from}+{} of {length}: differs at {at:?}: {}", part.len(), show()))
}

pub fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut out);
    read.map(|_| out).map_err(|error| format!("gzip: {error}"))
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let read = flate2::read::GzEncoder::new(bytes, flate2::Compression::fast()).read_to_end(&mut out);
    read.expect("memory can be read");
    out
}
