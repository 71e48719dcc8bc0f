//! Targets: sorting the parameters of a query, so that the same question is cached once, and
//! percent-encoding.

use crate::workspace::{Overflow, Text, Workspace};

/// What Varnish's implementation spends of the workspace per boundary of a parameter; kept so that
/// a workspace which is too small for the one is too small for the other.
const BOUNDARY_COST: usize = 8;

/// `std.querysort`: the target with its query's parameters in order and the empty ones left out.
/// Answers with `url` itself when there is nothing to sort.
pub fn sort_query(ws: &mut Workspace, url: Text) -> Result<Text, Overflow> {
    let bytes = ws.get(url);
    let Some(query_at) = bytes.iter().position(|&b| b == b'?').map(|n| n + 1) else { return Ok(url) };
    let parameters = bytes[query_at..].split(|&b| b == b'&').count();
    if parameters < 2 {
        return Ok(url);
    }
    let sorted = ws.alloc_text(url.len())?;
    if ws.free_space() < (2 * parameters + 2).max(4) * BOUNDARY_COST {
        ws.set_overflowed();
        return Err(Overflow);
    }
    // Few parameters are sorted on the stack, many on the heap.
    const FEW: usize = 32;
    let mut few = [(0u32, 0u32); FEW];
    let mut many;
    let spans = if parameters <= FEW {
        &mut few[..parameters]
    } else {
        many = vec![(0u32, 0u32); parameters];
        &mut many[..]
    };
    let bytes = ws.get(url);
    let mut at = query_at;
    for (span, parameter) in spans.iter_mut().zip(bytes[query_at..].split(|&b| b == b'&')) {
        *span = (at as u32, (at + parameter.len()) as u32);
        at += parameter.len() + 1;
    }
    let slice = |&(from, to): &(u32, u32)| &bytes[from as usize..to as usize];
    spans.sort_by(|a, b| slice(a).cmp(slice(b)));

    ws.move_into(url.slice(0, query_at), sorted.offset());
    let mut len = query_at;
    for &(from, to) in spans.iter().filter(|(from, to)| from < to) {
        if len > query_at {
            ws.write_at(sorted.offset() + len, b"&");
            len += 1;
        }
        let parameter = url.slice(from as usize, to as usize);
        ws.move_into(parameter, sorted.offset() + len);
        len += parameter.len();
    }
    Ok(sorted.slice(0, len))
}

/// Whether every '%' is followed by two hex digits.
pub fn is_well_encoded(target: &[u8]) -> bool {
    let mut pieces = target.split(|&b| b == b'%');
    pieces.next();
    pieces.all(|piece| piece.len() >= 2 && piece[..2].iter().all(u8::is_ascii_hexdigit))
}

/// Path and query of a target; the query without its '?'.
pub fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match target.iter().position(|&b| b == b'?') {
        Some(n) => (&target[..n], Some(&target[n + 1..])),
        None => (target, None),
    }
}

/// Appends `text` with all but the unreserved characters (RFC 3986 section 2.3) encoded.
pub fn percent_encode(text: &[u8], out: &mut Vec<u8>) {
    for &b in text {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(b);
        } else {
            out.push(b'%');
            out.extend([b >> 4, b & 15].map(|d| b"0123456789ABCDEF"[d as usize]));
        }
    }
}

/// Appends `text` decoded; what is not well encoded stays as it is.
pub fn percent_decode(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let [b, tail @ ..] = rest {
        if *b == b'%'
            && let [high, low, after @ ..] = tail
            && let (Some(high), Some(low)) = ((*high as char).to_digit(16), (*low as char).to_digit(16))
        {
            out.push((high * 16 + low) as u8);
            rest = after;
        } else {
            out.push(*b);
            rest = tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(url: &str, size: usize) -> Result<String, Overflow> {
        let mut ws = Workspace::new(size);
        let text = ws.copy(url.as_bytes())?;
        let result = sort_query(&mut ws, text)?;
        Ok(String::from_utf8_lossy(ws.get(result)).into_owned())
    }

    #[test]
    fn queries_are_sorted() {
        let table = [
            ("/foo", "/foo"),
            ("/foo?b", "/foo?b"),
            ("/foo?", "/foo?"),
            ("/foo?b&a", "/foo?a&b"),
            ("/foo?&&c=1&&b=2&a&", "/foo?a&b=2&c=1"),
            ("/?a=2&a=10&ab&a=1", "/?a=1&a=10&a=2&ab"),
            ("/?&", "/?"),
        ];
        for (url, expected) in table {
            assert_eq!(sorted(url, 4096).as_deref(), Ok(expected), "{url}");
        }
        let many = (0..100).rev().map(|n| format!("{n:03}")).collect::<Vec<_>>().join("&");
        let result = sorted(&format!("/?{many}"), 65536).unwrap();
        assert!(result.starts_with("/?000&001&") && result.ends_with("&099"));
        assert_eq!(sorted("/?b&a", 40), Err(Overflow));
    }

    #[test]
    fn percent_encoding() {
        assert!(is_well_encoded(b"/%20a%fF"));
        assert!(!is_well_encoded(b"/%2"));
        assert!(!is_well_encoded(b"/%zz"));
        let mut out = Vec::new();
        percent_encode(b"a b/\xff~", &mut out);
        assert_eq!(out, b"a%20b%2F%FF~");
        let mut back = Vec::new();
        percent_decode(&out, &mut back);
        assert_eq!(back, b"a b/\xff~");
        assert_eq!(split_query(b"/a?b?c"), (&b"/a"[..], Some(&b"b?c"[..])));
    }
}
