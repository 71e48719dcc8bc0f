//! Responses that vary: many fields, repeated and malformed names, and values that only look equal.

use std::time::{Duration, Instant};

use lacquer_testing::effort;
use lacquer_testing::slots::shared_slot;

use super::{ask, case_of, daemon, numbered, path, report, text};

/// The value of `Vary`, lines of two requests, and whether they share a response.
const VARYING: [(&str, &str, &str, bool); 30] = [
    ("X-A", "X-A: 1", "X-A: 1", true),
    ("X-A", "X-A: 1", "X-A: 2", false),
    ("X-A", "X-A: 1", "", false),
    ("X-A", "X-A:", "", false),
    ("x-a, X-A, X-a", "X-A: 1", "x-A: 1", true),
    ("x-a, X-A, X-a", "X-A: 1", "X-A: 2", false),
    ("X-B, X-A", "X-A: 1", "X-A: 2", false),
    (",,X-A,,", "X-A: 1", "X-A: 2", false),
    ("X-B,\tX-A\t", "X-A: 1", "X-A: 2", false),
    ("*", "", "", false),
    ("*, X-A", "", "", false),
    ("X-A, *", "", "", false),
    ("X-A\r\nVary: *", "", "", false),
    ("X-B\r\nVary: X-A", "X-A: 1", "X-A: 2", false),
    ("X-A", "X-A: 1, 2", "X-A: 1,2", true),
    ("X-A", "X-A: 1, 2", "X-A: 1\r\nX-A: 2", true),
    ("X-A", "X-A: 1, 2", "X-A: 2, 1", false),
    ("X-A", "X-A: 1 2", "X-A: 12", false),
    ("X-A", "X-A: a", "X-A: A", false),
    ("X-A", "X-A: \"a, b\"", "X-A: \"a,b\"", false),
    ("X-A", "X-A: \"a,\" b", "X-A: \"a,\"b", false),
    ("X-A", "X-A: a", "X-A: a,", false),
    ("Accept-Language", "Accept-Language: EN, de", "Accept-Language: de,en", true),
    ("Accept-Language", "Accept-Language: en;q=0.1, de", "Accept-Language: en, de;q=0.1", false),
    ("Accept-Language", "Accept-Language: en", "Accept-Language: *", false),
    ("Accept-Language", "Accept-Language: en-de", "Accept-Language: en, de", false),
    ("Cookie", "Cookie: a=b", "Cookie: a=c", false),
    ("Authorization", "Authorization: a", "Authorization: b", false),
    ("Host", "", "", true),
    ("Accept-Encoding, X-A", "X-A: 1", "X-A: 3", false),
];

/// Promise: two requests that differ in a field of `Vary` do not share a response, unless the values mean the same.
#[test]
fn requests_with_different_fields_share_nothing() {
    let _slot = shared_slot();
    let origin = numbered(|path| {
        format!("Cache-Control: max-age=60, public\r\nVary: {}\r\n", VARYING[case_of(path)].0)
    });
    let daemon = daemon(&origin);
    let line = |text: &str| if text.is_empty() { String::new() } else { format!("{text}\r\n") };
    let mut faults = Vec::new();
    for (number, (vary, first, second, is_shared)) in VARYING.into_iter().enumerate() {
        let own = ask(&daemon, &path(number), &line(first));
        let other = ask(&daemon, &path(number), &line(second));
        if (own.body == other.body) != is_shared || own.status != 200 || other.status != 200 {
            faults.push(format!("{vary:?}, {first:?}, {second:?}: {}", text(&other)));
        }
    }
    report(&faults);
}

/// Promise: a malformed `Vary` has either no effect beyond its own response, or that of its valid names.
#[test]
fn malformed_names_share_nothing_between_users() {
    const VALUES: [&str; 8] =
        ["X-A X-B", "X-A;q=1", "\"X-A\"", "X-A:", "(X-A)", "X-A=1", "X\u{e9}, X-A", ": X-A"];
    let _slot = shared_slot();
    let origin = numbered(|path| format!("Cache-Control: max-age=60\r\nVary: {}\r\n", VALUES[case_of(path)]));
    let daemon = daemon(&origin);
    for (number, value) in VALUES.into_iter().enumerate() {
        let own = ask(&daemon, &path(number), "X-A: 1\r\n");
        let other = ask(&daemon, &path(number), "X-A: 2\r\n");
        assert!(own.body != other.body || own.status == 503, "{value:?}: {}", text(&other));
    }
}

/// Promise: a response that varies by a hundred fields is shared by requests that agree in all of them, and by no
/// others. Its cost is bounded, also with many variants.
#[test]
fn a_hundred_fields_are_all_compared() {
    let origin = numbered(|path| {
        let most = if path == "/many" { 100 } else { 1 };
        let names: Vec<_> = (0..most).map(|n| format!("X-{n}, x-{n}")).collect();
        format!("Cache-Control: max-age=60\r\nVary: {}\r\n", names.join(", "))
    });
    let daemon = daemon(&origin);
    let fields = |last: usize| {
        (0..40).map(|n| format!("X-{n}: {}\r\n", if n == 39 { last } else { n })).collect::<Vec<_>>().concat()
    };
    let first = ask(&daemon, "/many", &fields(0));
    assert_eq!(first.status, 200, "{}", first.head);
    assert_eq!(first.body, ask(&daemon, "/many", &fields(0)).body);
    assert_ne!(first.body, ask(&daemon, "/many", &fields(1)).body);
    assert_ne!(first.body, ask(&daemon, "/many", "").body);
    let begun = Instant::now();
    let most: u64 = effort(300, 3000);
    for number in 0..most {
        assert_eq!(ask(&daemon, "/flood", &format!("X-0: {number}\r\n")).status, 200);
    }
    assert!(begun.elapsed() < Duration::from_millis(20 * most), "{:?}", begun.elapsed());
}
