//! Directives of requests: malformed lists, numbers of any size, and floods of requests that demand more than others.

use std::io::Write;
use std::time::{Duration, Instant};

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::effort;
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::shared_slot;

use super::{ask, daemon, numbered, path_of, report, text};

const FRESH: &str = "Cache-Control: max-age=3600\r\n";

/// The value of `Cache-Control` in a request for a fresh response, and whether the stored one satisfies it.
const DIRECTIVES: [(&str, bool); 30] = [
    ("", true),
    (",,,,", true),
    ("=", true),
    ("=0", true),
    ("\"", true),
    ("\"no-cache", true),
    ("x=\"no-cache, max-age=0", true),
    ("x=\"\\", true),
    ("x=\"\\\", no-cache", true),
    ("x=\"\", no-cache", false),
    ("no-cache=\"", false),
    ("max-age=\"0", false),
    ("max-age=", false),
    ("max-age=-1", false),
    ("max-age=+1000", false),
    ("max-age=1e9", false),
    ("max-age=0x7fff", false),
    ("max-age=1000 000", true),
    ("max-age=2147483648", true),
    ("max-age=4294967296", true),
    ("max-age=18446744073709551616", true),
    ("max-age=99999999999999999999999999999999999999999999999999", true),
    ("max-age=00000000000000000000000000000000000000000000000000", false),
    ("min-fresh=99999999999999999999", false),
    ("min-fresh=-99999999999999999999", true),
    ("max-stale=99999999999999999999", true),
    ("max-stale=-1, min-fresh=-1", true),
    ("only-if-cached, no-cache=x", false),
    ("MAX-AGE=0, max-age=1000", false),
    ("no-cache;max-age=1000", false),
];

/// Promise: a malformed directive has one meaning, and never changes the response that others get.
#[test]
fn malformed_directives_have_one_meaning() {
    let _slot = shared_slot();
    let origin = numbered(|_| FRESH.to_owned());
    let daemon = daemon(&origin);
    let mut faults = Vec::new();
    for (number, (value, is_satisfied)) in DIRECTIVES.into_iter().enumerate() {
        let path = super::path(number);
        let first = text(&ask(&daemon, &path, ""));
        origin.take();
        let found = ask(&daemon, &path, &format!("Cache-Control: {value}\r\n"));
        let asked = origin.take().len();
        let is_refused = value.contains("only-if-cached") && found.status == 504;
        if (asked == 0) != (is_satisfied || is_refused) || asked > 1 {
            faults.push(format!("{value:?}: {asked} requests to the origin, {}", text(&found)));
        }
        if is_satisfied && text(&found) != first {
            faults.push(format!("{value:?}: {} instead of {first}", text(&found)));
        }
        // A request without directives gets a response from the cache.
        let plain = ask(&daemon, &path, "");
        if plain.status != 200 || !origin.take().is_empty() {
            faults.push(format!("{value:?}, then without: {}", text(&plain)));
        }
    }
    report(&faults);
}

/// Promise: the time for a request is bounded, however many directives it has.
#[test]
fn hundreds_of_directives_cost_little() {
    let origin = numbered(|_| FRESH.to_owned());
    let daemon = daemon(&origin);
    ask(&daemon, "/", "");
    origin.take();
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    let mut time = |lines: &str| {
        let begun = Instant::now();
        for _ in 0..effort(300, 3000) {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            let response = client.ask(&request).expect("a response arrives");
            assert_eq!(response.status, 200, "{lines:?}");
        }
        begun.elapsed()
    };
    let plain = time(&format!("X-Other: {}\r\n", "x".repeat(7000)));
    for value in ["x, ".repeat(2300), "max-stale=\"1\", ".repeat(450), "\"".repeat(7000), "\\\"".repeat(3500)]
    {
        let spent = time(&format!("Cache-Control: {value}\r\n"));
        assert!(
            spent < plain * 5 + Duration::from_millis(500),
            "{spent:?} instead of {plain:?}: {value:.20}"
        );
    }
    assert!(origin.take().is_empty());
}

/// Promise: `only-if-cached` never causes a request to the origin, and its 504 is not stored. It neither waits for a
/// fetch nor makes others wait.
#[test]
fn only_if_cached_never_reaches_the_origin() {
    let _slot = shared_slot();
    let origin = numbered(|path| {
        if path.starts_with("/slow") {
            std::thread::sleep(Duration::from_secs(2));
        }
        FRESH.to_owned()
    });
    let daemon = daemon(&origin);
    for number in 0..effort(300, 3000) {
        let path = super::path(number % 100);
        let lines = ["only-if-cached", "only-if-cached, no-store", "no-cache, only-if-cached, max-stale"];
        let found = ask(&daemon, &path, &format!("Cache-Control: {}\r\n", lines[number % 3]));
        assert_eq!(found.status, 504, "{}", text(&found));
    }
    assert_eq!(origin.take().len(), 0);
    assert_eq!(ask(&daemon, "/case/1", "").status, 200);
    assert_eq!(ask(&daemon, "/case/1", "Cache-Control: only-if-cached\r\n").status, 200);
    let took = |number| {
        let mut slow = daemon.connect();
        let request = format!("GET /slow{number} HTTP/1.1\r\nHost: a\r\n\r\n");
        slow.write_all(request.as_bytes()).expect("requests can be sent");
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        let found = ask(&daemon, &format!("/slow{number}"), "Cache-Control: only-if-cached\r\n");
        assert_eq!(found.status, 504);
        begun.elapsed()
    };
    // A busy machine may stall.
    assert!((0..5).any(|number| took(number) < Duration::from_millis(1200)), "it waited each time");
}

/// Promise: clients that demand validation do not delay others, and their requests end in at most one request each at
/// the origin. None of their responses is an older one than they accept.
#[test]
fn demands_for_validation_delay_nobody() {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        if path == "/slow" {
            std::thread::sleep(Duration::from_millis(1500));
        }
        stream.write_all(&super::page(FRESH, path)).is_ok()
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,32M", "-p", "feature=+rfc9111"]);
    ask(&daemon, "/slow", "");
    let before = origin.requests();
    let most = effort(40, 400);
    let mut floods = 0;
    let mut took = || {
        floods += 1;
        let demand = |number| {
            let value = ["max-age=0", "no-cache", "no-cache, no-store", "min-fresh=9999999"][number % 4];
            let mut stream = daemon.connect();
            let request = format!("GET /slow HTTP/1.1\r\nHost: a\r\nCache-Control: {value}\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("requests can be sent");
            stream
        };
        let _flood: Vec<_> = (0..most).map(demand).collect();
        std::thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        assert_eq!(ask(&daemon, "/slow", "").status, 200);
        begun.elapsed()
    };
    // A busy machine may stall.
    assert!((0..5).any(|_| took() < Duration::from_secs(1)), "it was delayed each time");
    std::thread::sleep(Duration::from_millis(1800));
    assert!(origin.requests() - before <= most * floods, "{} requests", origin.requests() - before);
    assert_eq!(ask(&daemon, "/slow", "Cache-Control: only-if-cached\r\n").status, 200);
}

/// Promise: the response to a request with `no-store` is not stored, whatever else the request demands, and the stored
/// response of others stays.
#[test]
fn responses_to_no_store_are_not_stored() {
    let _slot = shared_slot();
    let origin = numbered(|_| FRESH.to_owned());
    let daemon = daemon(&origin);
    for (number, value) in [
        "no-store",
        "NO-STORE",
        "no-store, no-cache",
        "no-cache, no-store, max-age=0",
        "no-store=\"",
        "no-store, max-stale",
    ]
    .into_iter()
    .enumerate()
    {
        let path = super::path(number);
        let lines = format!("Cache-Control: {value}\r\n");
        let own = text(&ask(&daemon, &path, &lines));
        let others = text(&ask(&daemon, &path, ""));
        assert_ne!(own, others, "{value}");
        if value.contains("no-cache") {
            assert_ne!(text(&ask(&daemon, &path, &lines)), others, "{value}");
        }
        let later = ask(&daemon, &path, "Cache-Control: only-if-cached\r\n");
        assert!(later.status == 200 && text(&later) != own, "{value}: {}", text(&later));
    }
    let seen = origin.take();
    assert!(seen.iter().all(|request| path_of(request).starts_with("/case/")));
}
