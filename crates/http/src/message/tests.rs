//! Tests of header lists: lookup, editing, token lists, filters.

use super::*;
use crate::header_table::*;

fn message(lines: &[&str]) -> (Message, Workspace) {
    let mut ws = Workspace::new(4096);
    let mut m = Message::new(64);
    for line in lines {
        m.append_line_copy(&mut ws, line.as_bytes()).unwrap();
    }
    (m, ws)
}

fn lines(m: &Message, ws: &Workspace) -> Vec<String> {
    m.lines(ws).map(|l| String::from_utf8_lossy(l).into_owned()).collect()
}

#[test]
fn lookup_ignores_case_and_blanks() {
    let (m, ws) = message(&["HOST:  a.example", "X-Foo:bar", "x-foo: second", "Hosts: no"]);
    assert_eq!(m.get(&ws, HOST), Some(&b"a.example"[..]));
    assert_eq!(m.get(&ws, HeaderName::new(b"x-FOO")), Some(&b"bar"[..]));
    assert_eq!(m.count(&ws, HeaderName::new(b"X-Foo")), 2);
    assert_eq!(m.get(&ws, HeaderName::new(b"X-Fo")), None);
    assert_eq!(m.get_all(&ws, HeaderName::new(b"X-Foo")).collect::<Vec<_>>(), [&b"bar"[..], b"second"]);
}

#[test]
fn set_removes_all_and_appends() {
    let (mut m, mut ws) = message(&["A: 1", "Host: x", "a: 2"]);
    let mut removed = Vec::new();
    m.set(&mut ws, HeaderName::new(b"A"), b"3", |l| removed.push(l.to_vec())).unwrap();
    assert_eq!(removed, [b"A: 1", b"a: 2"]);
    assert_eq!(lines(&m, &ws), ["Host: x", "A: 3"]);
    let parts = [&b""[..], b" ", b"4", b"", b"5"];
    m.set_parts(&mut ws, HeaderName::new(b"A"), parts.into_iter(), |_| ()).unwrap();
    assert_eq!(lines(&m, &ws), ["Host: x", "A:  45"]);
    assert_eq!(m.get(&ws, HeaderName::new(b"a")), Some(&b"45"[..]));
    m.set_parts(&mut ws, HeaderName::new(b"A"), [&b"3"[..]].into_iter(), |_| ()).unwrap();
    assert_eq!(m.force(&mut ws, HOST, b"X", |_| ()), Ok(None));
    assert!(m.force(&mut ws, HOST, b"y", |_| ()).unwrap().is_some());
    assert_eq!(lines(&m, &ws), ["A: 3", "Host: y"]);
}

#[test]
fn a_value_without_room_leaves_the_old_header() {
    let mut ws = Workspace::new(64);
    let mut m = Message::new(64);
    m.append_line_copy(&mut ws, b"A: 1").unwrap();
    let parts = [&[b'x'; 32][..]; 2];
    let removed = |_: &[u8]| panic!("the old header is removed");
    assert_eq!(m.set_parts(&mut ws, HeaderName::new(b"A"), parts.into_iter(), removed), Err(Overflow));
    assert!(ws.overflowed());
    assert_eq!(lines(&m, &ws), ["A: 1"]);
}

#[test]
fn the_header_limit_counts_the_start_line() {
    let mut ws = Workspace::new(4096);
    let mut m = Message::new(7);
    for _ in 0..2 {
        m.append(&mut ws, HOST, b"x").unwrap();
    }
    assert_eq!(m.append(&mut ws, HOST, b"x"), Err(Overflow));
    assert!(ws.overflowed());
}

#[test]
fn headers_are_merged_and_values_appended() {
    let (mut m, mut ws) = message(&["Via: a", "Host: h", "via:  b", "Via: c"]);
    m.collect(&mut ws, VIA, b", ").unwrap();
    assert_eq!(lines(&m, &ws), ["Via: a, b, c", "Host: h"]);
    m.append_value(&mut ws, VIA, b"1.1 x (Varnish/7.7)", |_| ()).unwrap();
    m.append_value(&mut ws, X_FORWARDED_FOR, b"1.2.3.4", |_| ()).unwrap();
    assert_eq!(lines(&m, &ws), ["Host: h", "Via: a, b, c, 1.1 x (Varnish/7.7)", "X-Forwarded-For: 1.2.3.4"]);
    assert_eq!(m.get(&ws, VIA), Some(&b"a, b, c, 1.1 x (Varnish/7.7)"[..]));
}

#[test]
fn tokens_and_qualities_are_found_in_lists() {
    let (m, ws) = message(&[
        "Cache-Control: public, Max-Age = 10, s-maxage=20 , \"foo\"=1, stale-while-revalidate",
        "Accept-Encoding: x, gzip;q=0.25 , br; q=.5, deflate;q=0, zstd;v=1",
    ]);
    assert!(m.has_token(&ws, CACHE_CONTROL, b"public"));
    assert!(!m.has_token(&ws, CACHE_CONTROL, b"pub"));
    assert!(!m.has_token(&ws, CACHE_CONTROL, b"age"));
    assert!(m.has_token(&ws, CACHE_CONTROL, b"foo"));
    assert_eq!(m.get_field(&ws, CACHE_CONTROL, b"max-age").unwrap().unwrap().get(..3), Some(&b"10,"[..]));
    assert_eq!(m.get_field(&ws, CACHE_CONTROL, b"stale-while-revalidate"), Some(None));
    assert_eq!(m.get_field(&ws, CACHE_CONTROL, b"public"), Some(None));
    assert_eq!(m.get_field(&ws, CACHE_CONTROL, b"private"), None);
    let q = |t: &[u8]| m.quality(&ws, ACCEPT_ENCODING, t);
    assert_eq!(q(b"gzip"), 0.25);
    assert_eq!(q(b"br"), 0.5);
    assert_eq!(q(b"deflate"), 0.0);
    assert_eq!(q(b"x"), 1.0);
    assert_eq!(q(b"zstd"), 1.0);
    assert_eq!(q(b"nope"), 0.0);
}

#[test]
fn filtered_headers_are_not_copied() {
    let (mut m, ws) = message(&["Host: h", "Connection: x", "Range: bytes=1-", "TE: x", "Foo: 1", "X: y"]);
    m.put(&ws, Slot::Proto, fixed::HTTP_11);
    m.fields_mut()[4].dropped = true;
    let mut to_ws = Workspace::new(512);
    let mut to = Message::new(64);
    to.copy_from(&mut to_ws, &m, &ws, Filter::FETCH).unwrap();
    assert_eq!(lines(&to, &to_ws), ["Host: h", "X: y"]);
    assert_eq!(to.proto(&to_ws), b"HTTP/1.1");
    assert_eq!(to.version(), 11);
    to.copy_from(&mut to_ws, &m, &ws, Filter::PASS).unwrap();
    assert_eq!(lines(&to, &to_ws), ["Host: h", "Range: bytes=1-", "X: y"]);
    assert_eq!(to.copy_from(&mut Workspace::new(32), &m, &ws, Filter::PASS), Err(Overflow));
    assert!(to.fields().is_empty());
}

#[test]
fn statuses_and_versions_are_recognized() {
    let mut ws = Workspace::new(64);
    let mut m = Message::new(64);
    m.set_response(&mut ws, 1404).unwrap();
    assert_eq!((m.status(), m.status_text(&ws), m.reason(&ws)), (1404, &b"404"[..], &b"Not Found"[..]));
    assert_eq!(ws.used(), 0);
    m.set_status(&mut ws, 777).unwrap();
    assert_eq!((m.status_text(&ws), m.reason(&ws)), (&b"777"[..], &b"Unknown HTTP Status"[..]));
    for (proto, version) in
        [("HTTP/1.0", 10), ("http/1.1", 11), ("HTTP/1.1 ", 0), ("HTTP/11", 0), ("", 0), ("HTTP/2.0", 20)]
    {
        assert_eq!(version_of(proto.as_bytes()), version, "{proto}");
    }
}
