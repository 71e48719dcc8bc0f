//! The fields of interim responses, which a proxy forwards (RFC 9110 section 15.2).

use crate::ascii::{is_ows, is_tchar, trim_ows};
use crate::header_table::{CONNECTION, CONTENT_LENGTH, Filter, HeaderName, X_LACQUER_WHY};

/// The largest number of fields of an interim response that is forwarded.
pub const MOST_INTERIM_FIELDS: usize = 64;

/// Returns the fields of an interim head that may be forwarded, with their values. Fields that are malformed or belong
/// to the connection are skipped. Returns `None` if there are more than [`MOST_INTERIM_FIELDS`].
pub fn interim_fields(head: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let lines = head.split(|&b| b == b'\n').skip_while(|line| line.trim_ascii().is_empty()).skip(1);
    let all: Vec<_> = lines.filter_map(field).take(MOST_INTERIM_FIELDS + 1).collect();
    if all.len() > MOST_INTERIM_FIELDS {
        return None;
    }
    let lists = all.iter().filter(|(name, _)| CONNECTION.matches(name)).map(|(_, list)| list);
    let named: Vec<_> = lists.flat_map(|list| list.split(|&b| b == b',')).map(trim_ows).collect();
    let is_named = |name: &[u8]| named.iter().any(|element| element.eq_ignore_ascii_case(name));
    let may_pass = |name: &[u8]| {
        !HeaderName::new(name).is_filtered(Filter::HTTP2)
            && !CONTENT_LENGTH.matches(name)
            && !X_LACQUER_WHY.matches(name)
            && !is_named(name)
    };
    Some(all.iter().copied().filter(|(name, _)| may_pass(name)).collect())
}

/// Splits a line; `None` if it is malformed.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let colon = line.iter().position(|&b| b == b':')?;
    let (name, value) = (&line[..colon], trim_ows(&line[colon + 1..]));
    let is_sound = !name.is_empty()
        && name.iter().all(|&b| is_tchar(b))
        && value.iter().all(|&b| is_ows(b) || (b > b' ' && b != 0x7f));
    is_sound.then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_connection_are_not_forwarded() {
        let table: &[(&str, &[(&str, &str)])] = &[
            ("HTTP/1.1 102 Processing\r\n\r\n", &[]),
            (
                "\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; as=style\r\nX-A:b\r\n\r\n",
                &[("Link", "</a>; as=style"), ("X-A", "b")],
            ),
            ("HTTP/1.1 103 x\nLink: </a>\n\n", &[("Link", "</a>")]),
            (
                "HTTP/1.1 103 x\r\nConnection: close, X-A\r\nX-A: b\r\nKeep-Alive: c\r\nLink: d\r\n\r\n",
                &[("Link", "d")],
            ),
            ("HTTP/1.1 103 x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nUpgrade: y\r\n\r\n", &[]),
            ("HTTP/1.1 103 x\r\nA B: c\r\n: d\r\nno colon\r\n folded: e\r\nA: f\rg\r\nB: \0\r\n\r\n", &[]),
        ];
        for (head, expected) in table {
            let found = interim_fields(head.as_bytes());
            let expected: Vec<_> = expected.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
            assert_eq!(found, Some(expected), "{head:?}");
        }
    }

    #[test]
    fn heads_with_many_fields_are_not_forwarded() {
        let head = |fields: usize| format!("HTTP/1.1 103 x\r\n{}\r\n", "Link: </a>\r\n".repeat(fields));
        let found = |fields| interim_fields(head(fields).as_bytes()).map(|fields| fields.len());
        assert_eq!((found(MOST_INTERIM_FIELDS), found(MOST_INTERIM_FIELDS + 1)), (Some(64), None));
    }

    #[test]
    fn long_heads_take_little_time() {
        let (count, lines) = if cfg!(miri) { (100, 1000) } else { (1 << 16, 1 << 20) };
        let names = "a,".repeat(count);
        let head = format!("HTTP/1.1 103 x\r\nConnection: {names}\r\n{}\r\n", "b:\r\n".repeat(63));
        let begun = std::time::Instant::now();
        assert_eq!(interim_fields(head.as_bytes()).map(|fields| fields.len()), Some(63));
        assert_eq!(interim_fields(format!("{head}{}", "b:\n".repeat(lines)).as_bytes()), None);
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "it took {:?}", begun.elapsed());
    }
}
