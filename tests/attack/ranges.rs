//! Ranges that are served from parts of responses, with `feature=+rfc9111`: of bodies that were cut short, and of ranges
//! that VCL has requested. Promise: whatever the origin and the clients send, each response has the bytes that its
//! `Content-Range` states, of one version.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lacquer_testing::client::{Client, Response, get};
use lacquer_testing::daemon::{Daemon, signal, until, vcl};
use lacquer_testing::slots::shared_slot;

use crate::partial::{
    Does, FRESH, METHODS, MODE, Strict, TOTAL, V1, asks, cut, cut_short, head, is_version, named, version,
    whole,
};

/// Passes the client's range on to the origin.
const RANGES: &str = r#"
    sub vcl_recv {
        if (req.method == "PURGE") { return (purge); }
        unset req.http.X-Range;
        if (req.http.Range) { set req.http.X-Range = req.http.Range; }
    }
    sub vcl_backend_fetch {
        if (bereq.http.X-Range) { set bereq.http.Range = bereq.http.X-Range; }
    }
"#;

fn ask(daemon: &Daemon, path: &str, lines: &[&str]) -> Response {
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    let lines = [lines, &["", ""]].concat().join("\r\n");
    client.ask(&format!("GET {path} HTTP/1.1\r\nHost: robust\r\n{lines}")).expect("it is whole")
}

fn range(daemon: &Daemon, path: &str, range: &str) -> Response {
    ask(daemon, path, &[&format!("Range: bytes={range}")])
}

/// Returns whether a response is a range of a version.
fn is_part_of(answer: &Response, number: usize, first: usize, last: usize) -> bool {
    answer.status == 206
        && answer.body == version(number)[first..=last]
        && answer.header("Content-Range") == Some(&*format!("bytes {first}-{last}/{TOTAL}"))
        && answer.header("Content-Length") == Some(&*(last - first + 1).to_string())
}

/// Returns the range that a request head asks for.
fn wanted(head: &str) -> Option<(usize, usize)> {
    let (_, value) = head.split_once("\r\nRange: bytes=")?;
    let (first, last) = value.split("\r\n").next()?.split_once('-')?;
    let last = if last.is_empty() { TOTAL - 1 } else { last.parse().ok()? };
    Some((first.parse().ok()?, last))
}

/// Sends the requested range of a version with these lines, or all of it.
fn sends(request: &str, number: usize, lines: &[&str]) -> Does {
    let Some((first, last)) = wanted(request) else { return whole(number) };
    let range = format!("Content-Range: bytes {first}-{last}/{TOTAL}");
    let lines = [&[FRESH, &range], lines].concat();
    let head = head("206 Partial Content", last - first + 1, &lines);
    Does::Sends(head, version(number)[first..=last].to_vec())
}

#[test]
fn ranges_within_a_part_are_served_from_it() {
    let _slot = shared_slot();
    let origin = Strict::that_cuts_once();
    let daemon = Daemon::start(&vcl(origin.address, ""), &MODE);
    let path = "/within/40001";
    cut(&daemon, path, 40_001);
    for (first, last) in [(0, 0), (0, 99), (39_990, 40_000), (0, 40_000), (12_345, 23_456)] {
        let answer = range(&daemon, path, &format!("{first}-{last}"));
        assert!(is_part_of(&answer, 1, first, last), "{first}-{last}: {}", answer.head);
        assert_eq!(answer.header("ETag"), Some("\"v1\""));
        assert!(
            answer.header("Cache-Status").is_some_and(|status| status.contains("hit")),
            "{}",
            answer.head
        );
        assert!(answer.header("Age").is_some(), "{}", answer.head);
    }
    let answer = ask(&daemon, path, &["Range: bytes=5-9", "If-Range: \"v1\""]);
    assert!(is_part_of(&answer, 1, 5, 9), "{}", answer.head);
    assert_eq!(origin.requests(path).len(), 1);
    let answer = ask(&daemon, path, &["Range: bytes=5-9", "If-None-Match: \"v1\""]);
    assert_eq!(answer.status, 304, "{}", answer.head);
}

#[test]
fn other_requests_are_not_served_from_a_part() {
    let _slot = shared_slot();
    let origin = Strict::that_cuts_once();
    let daemon = Daemon::start(&vcl(origin.address, ""), &MODE);
    let table: [(&str, &[&str], Option<(usize, usize)>); 9] = [
        ("/beyond/40001", &["Range: bytes=39990-40001"], Some((39_990, 40_001))),
        ("/after/40002", &["Range: bytes=50000-50009"], Some((50_000, 50_009))),
        ("/open/40003", &["Range: bytes=10-"], Some((10, TOTAL - 1))),
        ("/suffix/40004", &["Range: bytes=-10"], Some((TOTAL - 10, TOTAL - 1))),
        ("/other-tag/40005", &["Range: bytes=0-9", "If-Range: \"v2\""], None),
        ("/weak-tag/40006", &["Range: bytes=0-9", "If-Range: W/\"v1\""], None),
        ("/no-range/40007", &["Range: items=0-9"], None),
        ("/whole/40008", &[], None),
        ("/new/40009", &["Range: bytes=0-9", "Cache-Control: no-cache"], Some((0, 9))),
    ];
    for (path, lines, expected) in table {
        cut(&daemon, path, named(path).1);
        let answer = ask(&daemon, path, lines);
        match expected {
            Some((first, last)) => assert!(is_part_of(&answer, 1, first, last), "{path}: {}", answer.head),
            None => assert!(is_version(&answer, 1), "{path}: {}", answer.head),
        }
        assert_eq!(origin.requests(path).len(), 2, "{path}");
        assert!(is_version(&get(daemon.address, path).expect("it is whole"), 1), "{path}");
    }
}

#[test]
fn gone_and_stale_parts_serve_no_ranges() {
    let _slot = shared_slot();
    let origin = Strict::start(|request, before| match (before, named(request)) {
        (0, ("/stale", cut)) => {
            let lines = ["Cache-Control: max-age=1", V1];
            Does::Sends(head("200 OK", TOTAL, &lines), version(1)[..cut].to_vec())
        }
        (0, (_, cut)) => cut_short(cut, &[V1]),
        _ => sends(request, 2, &["ETag: \"v2\""]),
    });
    let mut daemon = Daemon::start(&vcl(origin.address, METHODS), &MODE);
    for path in ["/purged/40001", "/banned/40002", "/banned-tag/40003", "/stale/40004"] {
        cut(&daemon, path, named(path).1);
        match named(path).0 {
            "/purged" => {
                let mut client = Client::connect(daemon.address).expect("connections are accepted");
                let answer = client.ask(&format!("PURGE {path} HTTP/1.1\r\nHost: robust\r\n\r\n"));
                assert_eq!(answer.expect("it is whole").status, 200);
            }
            "/banned" => drop(daemon.ok("ban req.url ~ /banned/")),
            "/banned-tag" => drop(daemon.ok("ban obj.http.ETag ~ v1")),
            _ => thread::sleep(Duration::from_millis(2100)),
        }
        let answer = range(&daemon, path, "0-99");
        assert!(is_part_of(&answer, 2, 0, 99), "{path}: {}", answer.head);
    }
}

#[test]
fn requested_ranges_are_stored_and_completed() {
    let _slot = shared_slot();
    let origin = Strict::start(|request, _| sends(request, 1, &[V1]));
    let daemon = Daemon::start(&vcl(origin.address, RANGES), &MODE);
    let mut sent = 0;
    // The range, and whether the origin is asked.
    for (first, last, is_asked) in [
        (20_000, 29_999, true),
        (20_000, 29_999, false),
        (25_000, 25_009, false),
        (29_000, 30_000, true),
        (20_000, 30_000, true),
        (29_500, 30_000, false),
        (50_000, 50_009, true),
        (0, 19_999, true),
        (19_000, 20_000, true),
        (0, 19_999, false),
        (20_000, 30_000, false),
        (50_009, 50_009, false),
    ] {
        let answer = range(&daemon, "/", &format!("{first}-{last}"));
        assert!(is_part_of(&answer, 1, first, last), "{first}-{last}: {}", answer.head);
        sent += usize::from(is_asked);
        assert_eq!(origin.requests("/").len(), sent, "{first}-{last}");
        // The fetch stores the part after the response was sent.
        thread::sleep(Duration::from_millis(300));
    }
    for _ in 0..2 {
        assert!(is_version(&get(daemon.address, "/").expect("it is whole"), 1));
        assert_eq!(origin.requests("/").len(), sent + 1);
    }
    assert!(asks(origin.requests("/").last().expect("there are some"), 20_000));
}

/// Promise: a response to a request for a range never answers a request for the whole, also if VCL stores all that it
/// may. No client can choose what others get.
#[test]
fn responses_for_ranges_do_not_answer_other_requests() {
    const STORES: &str = "sub vcl_backend_response { return (deliver); }";
    let _slot = shared_slot();
    let origin = Strict::start(|request, _| {
        if request.contains("/beyond") && wanted(request).is_some() {
            let lines = ["Cache-Control: max-age=60", "Content-Range: bytes */100000"];
            return Does::Sends(head("416 Range Not Satisfiable", 0, &lines), Vec::new());
        }
        sends(request, 1, if request.contains("/weak") { &["ETag: W/\"v1\""] } else { &[] })
    });
    for more in ["", STORES] {
        let daemon = Daemon::start(&vcl(origin.address, &format!("{RANGES}{more}")), &MODE);
        for path in ["/beyond", "/weak", "/none"] {
            let first = range(&daemon, path, "100-199");
            assert!(matches!(first.status, 206 | 416), "{path}: {}", first.head);
            thread::sleep(Duration::from_millis(200));
            assert!(is_version(&get(daemon.address, path).expect("it is whole"), 1), "{path} {more}");
        }
    }
}

/// Promise: a client that does not accept gzip gets no range of a packed body.
#[test]
fn packed_parts_are_for_clients_that_accept_them() {
    let _slot = shared_slot();
    let origin = Strict::start(|request, _| {
        sends(request, 1, &[V1, "Content-Encoding: gzip", "Vary: Accept-Encoding"])
    });
    let daemon = Daemon::start(&vcl(origin.address, RANGES), &MODE);
    let mut sent = 0;
    for (coding, is_asked) in
        [("gzip", true), ("gzip", false), ("gzip;q=0", true), ("identity", true), ("br", true)]
    {
        let answer = ask(&daemon, "/", &["Range: bytes=100-199", &format!("Accept-Encoding: {coding}")]);
        sent += usize::from(is_asked);
        assert_eq!(origin.requests("/").len(), sent, "{coding}: {}", answer.head);
        thread::sleep(Duration::from_millis(200));
    }
}

/// Promise: once a client got a newer whole response, no client gets a range of an older one.
#[test]
fn a_whole_response_replaces_older_parts() {
    let _slot = shared_slot();
    let current = Arc::new(AtomicUsize::new(1));
    let of_origin = current.clone();
    let origin = Strict::start(move |request, _| {
        let number = of_origin.load(Ordering::SeqCst);
        let tag = format!("ETag: \"v{number}\"");
        if number == 1 || wanted(request).is_some_and(|(first, _)| first == 0) {
            return sends(request, number, &[&tag]);
        }
        Does::Sends(head("200 OK", TOTAL, &[&tag, "Cache-Control: max-age=1"]), version(number))
    });
    let daemon = Daemon::start(&vcl(origin.address, RANGES), &MODE);
    assert!(is_part_of(&range(&daemon, "/", "50000-59999"), 1, 50_000, 59_999));
    thread::sleep(Duration::from_millis(300));
    current.store(2, Ordering::SeqCst);
    assert!(is_version(&get(daemon.address, "/").expect("it is whole"), 2));
    thread::sleep(Duration::from_millis(2100));
    let answer = range(&daemon, "/", "50000-50009");
    let is_older = is_part_of(&answer, 1, 50_000, 50_009);
    assert!(!is_older && answer.body != version(1)[50_000..=50_009], "{}", answer.head);
}

/// Returns the lines of the head of a 206 that is not stored.
const UNSTORED: [&[&str]; 6] = [
    &[],
    &["ETag: W/\"v1\""],
    &["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"],
    &[V1, "ETag: \"v2\""],
    &[V1, "Cache-Control: private"],
    &[V1, "Vary: *"],
];

#[test]
fn ranges_without_proof_are_not_stored() {
    let _slot = shared_slot();
    let origin = Strict::start(|request, _| {
        let number: usize = request.split(['/', ' ']).nth(2).and_then(|word| word.parse().ok()).unwrap_or(0);
        sends(request, 1, UNSTORED[number])
    });
    let daemon = Daemon::start(&vcl(origin.address, RANGES), &MODE);
    for number in 0..UNSTORED.len() {
        let path = format!("/{number}");
        for asked in 1..=3 {
            let answer = range(&daemon, &path, "100-199");
            assert!(is_part_of(&answer, 1, 100, 199), "{path}: {}", answer.head);
            thread::sleep(Duration::from_millis(200));
            assert_eq!(origin.requests(&path).len(), asked, "{path}");
        }
        assert!(is_version(&get(daemon.address, &path).expect("it is whole"), 1), "{path}");
    }
}

/// Promise: the bytes of two versions never become one response, in whatever order their ranges arrive.
#[test]
fn ranges_of_two_versions_do_not_mix() {
    let _slot = shared_slot();
    let current = Arc::new(AtomicUsize::new(1));
    let of_origin = current.clone();
    let origin = Strict::start(move |request, _| {
        let number = of_origin.load(Ordering::SeqCst);
        sends(request, number, &[&format!("ETag: \"v{number}\"")])
    });
    let daemon = Daemon::start(&vcl(origin.address, RANGES), &MODE);
    assert!(is_part_of(&range(&daemon, "/", "0-29999"), 1, 0, 29_999));
    thread::sleep(Duration::from_millis(300));
    current.store(2, Ordering::SeqCst);
    assert!(is_part_of(&range(&daemon, "/", "30000-39999"), 2, 30_000, 39_999));
    thread::sleep(Duration::from_millis(300));
    // The older part is gone.
    assert!(is_part_of(&range(&daemon, "/", "0-39999"), 2, 0, 39_999));
    assert!(is_part_of(&range(&daemon, "/", "10-19"), 2, 10, 19));
    current.store(3, Ordering::SeqCst);
    // The origin is asked for the rest, and has another version.
    let answer = get(daemon.address, "/").expect("it is whole");
    assert!(is_version(&answer, 3), "{}", answer.head);
}

#[test]
fn variants_have_their_own_parts() {
    let _slot = shared_slot();
    let origin = Strict::start(|request, _| {
        let number = if request.contains("\r\nAccept-Language: de\r\n") { 2 } else { 1 };
        sends(request, number, &[V1, "Vary: Accept-Language"])
    });
    let daemon = Daemon::start(&vcl(origin.address, RANGES), &MODE);
    for _ in 0..2 {
        for (number, language) in [(1, "en"), (2, "de")] {
            let language = format!("Accept-Language: {language}");
            let answer = ask(&daemon, "/", &["Range: bytes=100-199", &language]);
            assert!(is_part_of(&answer, number, 100, 199), "{}", answer.head);
            thread::sleep(Duration::from_millis(200));
        }
    }
    assert_eq!(origin.requests("/").len(), 2);
}

/// Promise: VCL that stores a 206 under a key with its range, or for its own time, gets what it has stored.
#[test]
fn vcl_stores_ranges_by_its_own_rules() {
    const BY_RANGE: &str = "
        sub vcl_hash { hash_data(req.http.Range); }
        sub vcl_backend_response { set beresp.ttl = 1h; return (deliver); }
    ";
    let _slot = shared_slot();
    let origin = Strict::start(|request, _| sends(request, 1, &[V1]));
    let daemon = Daemon::start(&vcl(origin.address, &format!("{RANGES}{BY_RANGE}")), &MODE);
    for (first, last) in [(0, 99), (50, 149), (0, 99), (50, 149)] {
        let answer = range(&daemon, "/", &format!("{first}-{last}"));
        assert!(is_part_of(&answer, 1, first, last), "{}", answer.head);
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(origin.requests("/").len(), 2);
}

/// Promise: no part survives its worker, so that none can be taken for a whole object.
#[test]
fn parts_end_with_their_worker() {
    let _slot = shared_slot();
    let file = std::env::temp_dir().join(format!("lacquer-parts-{}", std::process::id()));
    let disk = format!("disk,{},size=32m", file.display());
    for store in ["malloc,32M", &disk] {
        let origin = Strict::start(|request, before| match (before, named(request)) {
            (0, ("/cut", length)) => cut_short(length, &[V1]),
            (0, _) => sends(request, 1, &[V1]),
            _ => sends(request, 2, &["ETag: \"v2\""]),
        });
        let options = ["-s", store, "-p", "feature=+rfc9111"];
        let mut daemon = Daemon::start(&vcl(origin.address, RANGES), &options);
        cut(&daemon, "/cut/40001", 40_001);
        for path in ["/range/1", "/whole-range/1"] {
            assert!(is_part_of(&range(&daemon, path, "0-29999"), 1, 0, 29_999), "{store} {path}");
        }
        assert!(is_part_of(&range(&daemon, "/cut/40001", "0-99"), 1, 0, 99), "{store}");
        let before = daemon.worker();
        signal(before, "-KILL");
        assert!(until(|| get(daemon.address, "/up").is_ok()), "{store}: the next worker serves requests");
        assert_ne!(daemon.worker(), before);
        assert!(is_part_of(&range(&daemon, "/range/1", "100-199"), 2, 100, 199), "{store}");
        for path in ["/cut/40001", "/whole-range/1"] {
            assert!(is_version(&get(daemon.address, path).expect("it is whole"), 2), "{store} {path}");
            assert!(!origin.requests(path)[1].contains("Range: "), "{store} {path}");
        }
    }
    let _ = std::fs::remove_file(file);
}
