//! Tests whether a head is complete. It searches only for the empty line, starting at the end of the last scan.

use crate::ascii::{find_byte, is_lws};

/// The first bytes that HTTP/2 clients with prior knowledge send.
pub const H2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The result of one scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadScan {
    /// The bytes are only line ends and blanks, which count as nothing received.
    Empty,
    /// More bytes are needed. Pass `scanned` to the next scan.
    More { scanned: usize },
    /// There is an empty line, so the parsers will find the end of the head.
    Complete,
    /// The bytes begin with the complete HTTP/2 preface.
    H2Preface,
}

/// Scans for the end of a head. `scanned` is 0 in the first call, and then the number in [`HeadScan::More`].
pub fn head_complete(buf: &[u8], scanned: usize) -> HeadScan {
    let mut at = scanned;
    if at == 0 {
        at = buf.iter().take_while(|&&b| is_lws(b)).count();
        if at == buf.len() {
            return HeadScan::Empty;
        }
    }
    if buf[0] == b'P' {
        if buf.starts_with(H2_PREFACE) {
            return HeadScan::H2Preface;
        }
        if H2_PREFACE.starts_with(buf) {
            return HeadScan::More { scanned: 0 };
        }
    }
    // The usual case: the bytes read end with the head.
    if buf.ends_with(b"\r\n\r\n") {
        return HeadScan::Complete;
    }
    at = skip_lines(buf, at);
    while let Some(newline) = find_byte(buf, at, b'\n') {
        match buf[newline + 1..] {
            [b'\n', ..] | [b'\r', b'\n', ..] => return HeadScan::Complete,
            [] | [b'\r'] => return HeadScan::More { scanned: newline },
            _ => at = newline + 1,
        }
    }
    HeadScan::More { scanned: buf.len() }
}

/// Returns the status and the length of a complete head if it is an interim response (100 to 199). 101 is a final
/// response (RFC 9110, 15.2.2).
pub fn interim_head(buf: &[u8]) -> Option<(u16, usize)> {
    let start = buf.iter().take_while(|&&b| is_lws(b)).count();
    let status = buf[start..].strip_prefix(b"HTTP/1.")?.get(1..)?;
    let [b' ', b'1', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b' ' | b'\r' | b'\n', ..] = *status else {
        return None;
    };
    let status = 100 + u16::from(tens - b'0') * 10 + u16::from(ones - b'0');
    let mut at = start;
    while let Some(newline) = find_byte(buf, at, b'\n') {
        match buf[newline + 1..] {
            [b'\n', ..] => return Some((status, newline + 2)).filter(|_| status != 101),
            [b'\r', b'\n', ..] => return Some((status, newline + 3)).filter(|_| status != 101),
            _ => at = newline + 1,
        }
    }
    None
}

/// Returns the next index from `at` on at which an empty line may begin. Tests sixteen bytes at a time, which the
/// compiler vectorizes.
fn skip_lines(buf: &[u8], mut at: usize) -> usize {
    while let Some(window) = buf.get(at..).and_then(<[u8]>::first_chunk::<18>) {
        let is_newline = |i: usize| window[i] == b'\n';
        if (0..16).fold(false, |any, i| any | is_newline(i) & (is_newline(i + 1) | is_newline(i + 2))) {
            break;
        }
        at += 16;
    }
    at
}
