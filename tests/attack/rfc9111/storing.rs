//! Which responses are shared: malformed directives, targeted fields, dates and ages, credentials and cookies, and
//! reports that an origin injects.

use std::time::{Duration, Instant};

use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::recorder::Recorder;
use lacquer_testing::slots::shared_slot;

use super::{ask, case_of, daemon, numbered, page, path, path_of, report, text};

/// Asks for each case twice, with these lines in the first request, and compares whether the second client gets the
/// response of the first one with the table.
fn expect_shared(table: &'static [(&'static str, &'static str, bool)]) {
    let origin = numbered(|path| format!("{}\r\n", table[case_of(path)].1));
    let daemon = daemon(&origin);
    let mut faults = Vec::new();
    for (number, (asked, lines, is_shared)) in table.iter().enumerate() {
        let asked = if asked.is_empty() { String::new() } else { format!("{asked}\r\n") };
        let first = ask(&daemon, &path(number), &asked);
        let second = ask(&daemon, &path(number), "");
        let was_shared = first.body == second.body;
        if first.status != 200 || second.status != 200 || was_shared != *is_shared {
            faults.push(format!("{asked:?}, {lines:?}: {was_shared}: {}", text(&second)));
        }
        if let Some(age) = second.header("Age")
            && (age.is_empty() || !age.bytes().all(|b| b.is_ascii_digit()))
        {
            faults.push(format!("{lines:?}: the age is {age:?}"));
        }
    }
    report(&faults);
}

/// Promise: a directive that forbids sharing is obeyed, however malformed it is.
#[test]
fn prohibitions_are_obeyed_in_every_form() {
    let _slot = shared_slot();
    expect_shared(&[
        ("", "Cache-Control: max-age=60", true),
        ("", "Cache-Control: max-age=60, PRIVATE", false),
        ("", "Cache-Control: max-age=60, private=\"", false),
        ("", "Cache-Control: max-age=60, private=\"x", false),
        ("", "Cache-Control: private;max-age=60", false),
        ("", "Cache-Control: ,,,private,,,max-age=60", false),
        ("", "Cache-Control: max-age=60,\tprivate\t", false),
        ("", "Cache-Control: max-age=60, private x", false),
        ("", "Cache-Control: max-age=60\r\nCache-Control: private", false),
        ("", "Cache-Control: max-age=60\r\nX-A: b\r\nCACHE-CONTROL: No-Store", false),
        ("", "Cache-Control: max-age=60\r\nCache-Control:\r\n no-store", false),
        ("", "Cache-Control: no-store=\"x\", max-age=60", false),
        ("", "Cache-Control: x=\"\\\"\", no-store, max-age=60", false),
        ("", "Cache-Control: max-age=60, no-cache", false),
        ("", "Cache-Control: public, max-age=60, private", false),
        ("", "Cache-Control: must-understand, private, max-age=60", false),
        ("", "Cache-Control: max-age=60, x=\"private, no-store\"", true),
        ("", "Cache-Control: max-age=60, privateer, no-storey", true),
        ("", "Cache-Control: max-age=0, max-age=60", false),
        ("", "Cache-Control: max-age=60;max-age=0", false),
        ("", "Cache-Control: max-age=-60", false),
        ("", "Cache-Control: max-age=+60", false),
        ("", "Cache-Control: max-age=60.0", false),
        ("", "Cache-Control: max-age=\"60", true),
        ("", "Cache-Control: s-maxage=0, max-age=60", false),
        ("", "Cache-Control: s-maxage=, max-age=60", false),
        ("", "Cache-Control: max-age=99999999999999999999999999999999999999999", true),
        ("", "Cache-Control: max-age=4294967297", true),
        ("", "Cache-Control: stale-while-revalidate=99999999999999999999", true),
        ("", "Cache-Control: max-age=0, stale-while-revalidate=-1, stale-if-error=x", false),
    ]);
}

/// Promise: a response to a request with credentials is shared only if the origin permits that.
#[test]
fn responses_for_one_user_are_not_shared() {
    const USER: &str = "Authorization: Basic dTpw";
    let _slot = shared_slot();
    expect_shared(&[
        (USER, "Cache-Control: max-age=60", false),
        (USER, "Expires: Fri, 31 Dec 9999 23:59:59 GMT", false),
        (USER, "ETag: \"a\"", false),
        (USER, "Cache-Control: max-age=60, public", true),
        (USER, "Cache-Control: max-age=60, must-revalidate", true),
        (USER, "Cache-Control: s-maxage=60", true),
        (USER, "Cache-Control: max-age=60, proxy-revalidate", false),
        (USER, "Cache-Control: max-age=60, x=\"public\"", false),
        (USER, "Cache-Control: max-age=60, publicly", false),
        (USER, "Cache-Control: max-age=60, \"public\"", false),
        (USER, "Cache-Control: max-age=60, x=\"a\\\", public", false),
        (USER, "Cache-Control: max-age=60\r\nX-Cache-Control: public", false),
        (USER, "Cache-Control: max-age=60, public, private", false),
        (USER, "Cache-Control: max-age=60, public, no-store", false),
        (USER, "CDN-Cache-Control: max-age=60\r\nCache-Control: public, max-age=60", false),
        (USER, "CDN-Cache-Control: max-age=60, public=?0", false),
        (USER, "CDN-Cache-Control: max-age=60, public", true),
        ("AUTHORIZATION:\tx", "Cache-Control: max-age=60", false),
        ("Authorization:", "Cache-Control: max-age=60", false),
        ("Cookie: a=b", "ETag: \"a\"", false),
        ("Cookie: a=b", "Cache-Control: max-age=0\r\nETag: \"a\"", false),
        ("Cookie: a=b", "Cache-Control: x=\"max-age=60, public\"", false),
        ("Cookie: a=b", "Cache-Control: max-age=60", true),
        ("", "Set-Cookie: a=b", false),
        ("", "Set-Cookie: a=b\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT", false),
        ("", "Set-Cookie: a=b\r\nCache-Control: private, max-age=60", false),
        ("", "SET-COOKIE: a=b\r\nCache-Control: max-age=-1\r\nETag: \"a\"", false),
    ]);
}

/// Promise: a targeted field that is not a valid dictionary is ignored as a whole, so that `Cache-Control` counts.
#[test]
fn malformed_targeted_fields_are_ignored() {
    const VALUES: &[(&str, bool)] = &[
        ("max-age=60", true),
        ("max-age=60;a=1;b=?0", true),
        ("max-age=60, x=(1 2);y", true),
        ("max-age=60, x=:YWJj:", true),
        ("max-age=60, no-store, no-store=?0", true),
        ("max-age=0, max-age=60", true),
        ("max-age=60, private", false),
        ("max-age=60, private;x=?0", false),
        ("max-age=60, no-store=?1", false),
        ("max-age=60, max-age=0", false),
        ("max-age=-60", false),
        ("", false),
        (",", false),
        ("max-age=60,", false),
        ("max-age=60,,x", false),
        ("max-age = 60", false),
        ("max-age=60;", false),
        ("max-age=60 x", false),
        ("max-age=(60)", false),
        ("max-age=(60", false),
        ("max-age=:YWJj:", false),
        ("max-age=60, x=:YWJj", false),
        ("max-age=60, x=\"", false),
        ("max-age=60, x=\"\\a\"", false),
        ("max-age=60, x=?2", false),
        ("max-age=60, x=@9999999999999999", false),
        ("max-age=1234567890123456", false),
        ("max-age=60.5", false),
        ("max-age=\"60\"", false),
        ("MAX-AGE=60", false),
        ("max-age=60, \u{e9}", false),
    ];
    let _slot = shared_slot();
    let origin = numbered(|path| {
        let value = VALUES[case_of(path)].0;
        format!("Cache-Control: no-store\r\nCDN-Cache-Control: {value}\r\n")
    });
    let daemon = daemon(&origin);
    let mut faults = Vec::new();
    for (number, (value, is_shared)) in VALUES.iter().enumerate() {
        let (first, second) = (ask(&daemon, &path(number), ""), ask(&daemon, &path(number), ""));
        if (first.body == second.body) != *is_shared {
            faults.push(format!("{value:?}: {}", text(&second)));
        }
    }
    report(&faults);
    // Nested and long values end in bounded time.
    for value in ["(".repeat(7000), "a=(1 2);".repeat(800), "x,".repeat(3500), "a=\"".repeat(2000)] {
        let lines = format!("Cache-Control: no-store\r\nCDN-Cache-Control: {value}\r\n");
        let origin = numbered(move |_| lines.clone());
        let daemon = super::daemon(&origin);
        let took = || {
            let begun = Instant::now();
            assert_ne!(ask(&daemon, "/", "").body, ask(&daemon, "/", "").body, "{value:.20}");
            begun.elapsed()
        };
        // A busy machine may stall.
        assert!((0..5).any(|_| took() < Duration::from_secs(2)), "{value:.20}");
    }
}

/// Promise: dates and ages of any value neither prolong the use of a response nor appear in another form.
#[test]
fn dates_and_ages_of_any_value_are_safe() {
    let _slot = shared_slot();
    expect_shared(&[
        ("", "Cache-Control: max-age=60\r\nAge: 61", false),
        ("", "Cache-Control: max-age=60\r\nAge: 99999999999999999999999", false),
        ("", "Cache-Control: max-age=60\r\nAge: 61, 0", false),
        ("", "Cache-Control: max-age=60\r\nAge: 0, 61", true),
        ("", "Cache-Control: max-age=60\r\nAge: -61", true),
        ("", "Cache-Control: max-age=60\r\nAge: 1e9", true),
        ("", "Cache-Control: max-age=60\r\nAge: \"61\"", true),
        ("", "Cache-Control: max-age=60\r\nAge:", true),
        ("", "Cache-Control: max-age=60\r\nDate: Fri, 31 Dec 9999 23:59:59 GMT", true),
        ("", "Cache-Control: max-age=60\r\nDate: Mon, 01 Jan 0001 00:00:00 GMT", true),
        ("", "Cache-Control: max-age=60\r\nDate: x", true),
        ("", "Expires: Fri, 31 Dec 9999 23:59:59 GMT", true),
        ("", "Expires: Fri, 31 Dec 99999 23:59:59 GMT", false),
        ("", "Expires: 0", false),
        ("", "Expires: -1", false),
        ("", "Expires:", false),
        ("", "Expires: 99999999999", false),
        ("", "Expires: Thu, 32 Feb 2099 25:61:61 GMT", false),
        ("", "Expires: Fri, 31 Dec 9999 23:59:59 GMT, Fri, 31 Dec 9999 23:59:59 GMT", false),
        ("", "Expires: Fri, 31 Dec 9999 23:59:59 GMT\r\nExpires: Thu, 01 Jan 1970 00:00:00 GMT", false),
        (
            "",
            "Expires: Sun, 06 Nov 1994 08:49:37 GMT\r\nDate: Sun, 06 Nov 1994 08:49:36 GMT\r\nAge: 2",
            false,
        ),
        ("", "Expires: Fri, 31 Dec 9999 23:59:59 GMT\r\nDate: Fri, 31 Dec 9999 23:59:59 GMT", false),
        ("", "Last-Modified: Fri, 31 Dec 9999 23:59:59 GMT", false),
        ("", "Last-Modified: Mon, 01 Jan 0001 00:00:00 GMT", true),
    ]);
}

/// Promise: what an origin sends as a report of caches does not change that of this cache, and contains no control
/// characters when it is delivered.
#[test]
fn reports_of_origins_do_not_change_ours() {
    const VALUES: &[&str] = &[
        "Origin; hit; ttl=60",
        "Lacquer; hit; ttl=99999",
        "x; detail=\"a, Lacquer; hit\"",
        "x; detail=\"a, Lacquer; hit",
        "\"\\",
        ",,,",
        "",
        "x; detail=\"a\u{1}\"",
        "x\u{7f}y",
        "x\r\nCache-Status: Lacquer; hit",
        "a; fwd=miss, b; fwd=miss, c; fwd=miss",
    ];
    let _slot = shared_slot();
    let origin = numbered(|path| {
        let value = VALUES[case_of(path)];
        format!("Cache-Control: max-age=60\r\nCache-Status: {value}\r\nProxy-Status: {value}\r\n")
    });
    let daemon = daemon(&origin);
    let mut faults = Vec::new();
    for (number, value) in VALUES.iter().enumerate() {
        for own in ["Lacquer; fwd=uri-miss", "Lacquer; hit"] {
            let found = ask(&daemon, &path(number), "");
            let lines: Vec<_> = found
                .head
                .lines()
                .filter(|line| line.to_ascii_lowercase().starts_with("cache-status:"))
                .collect();
            let last = lines.last().and_then(|line| line.rsplit([',', ':']).next()).unwrap_or_default();
            let has_control = found.head.bytes().any(|b| b.is_ascii_control() && !b"\r\n\t".contains(&b));
            let is_refused = found.status == 503 && value.bytes().any(|b| b.is_ascii_control());
            if has_control || !(is_refused || last.trim().starts_with(own)) {
                faults.push(format!("{value:?}: {:?}", found.head));
            }
        }
    }
    report(&faults);
    // A long report leaves no room for ours, but the response arrives.
    let long = format!("Cache-Control: max-age=60\r\nCache-Status: {}\r\n", "x; hit, ".repeat(900));
    let origin = numbered(move |_| long.clone());
    let daemon = super::daemon(&origin);
    for _ in 0..2 {
        let found = ask(&daemon, "/", "");
        assert!(matches!(found.status, 200 | 503), "{}", text(&found));
    }
}

/// Promise: a daemon that is its own origin ends each request with an error in bounded time.
#[test]
fn a_loop_of_caches_ends() {
    let _slot = shared_slot();
    let origin = Recorder::start(|request| page("", path_of(request)));
    let options = ["-s", "malloc,32M", "-p", "feature=+rfc9111", "-p", "first_byte_timeout=1"];
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &options);
    let of_itself = vcl(daemon.address, "");
    let of_itself = of_itself.replace('"', "\\\"").replace('\n', "\\n");
    daemon.ok(&format!("vcl.inline loop \"{of_itself}\""));
    daemon.ok("vcl.use loop");
    for value in ["max-stale", "no-cache", "only-if-cached"] {
        let begun = Instant::now();
        let found = ask(&daemon, "/", &format!("Cache-Control: {value}\r\n"));
        assert!(matches!(found.status, 503 | 504), "{value}: {}", found.head);
        assert!(begun.elapsed() < Duration::from_secs(10), "{value}: {:?}", begun.elapsed());
    }
    daemon.ok("vcl.use boot");
    assert_eq!(ask(&daemon, "/other", "").status, 200);
}
