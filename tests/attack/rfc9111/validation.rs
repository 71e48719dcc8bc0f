//! A 304 that contains fields of another response, and one for a request without conditions. The stored body stays with
//! the head that describes it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_testing::client::Response;
use lacquer_testing::recorder::Recorder;
use lacquer_testing::slots::shared_slot;

use super::{ask, case_of, daemon, page, path, path_of, report, text};

const BODY: &str = "the first body";
const NEW: &str = "the second body, which is longer";

/// Lines of the stored response, lines of the 304, and whether the 304 confirms it.
const ANSWERS: [(&str, &str, bool); 17] = [
    ("ETag: \"a\"", "ETag: \"a\"", true),
    ("ETag: \"a\"", "", true),
    ("ETag: W/\"a\"", "ETag: W/\"a\"", true),
    ("ETag: \"a\"", "ETag: W/\"a\"", true),
    ("ETag: \"a\"", "ETag: \"a\"\r\nContent-Length: 3", true),
    ("ETag: \"a\"", "ETag: \"a\"\r\nContent-Encoding: gzip", true),
    ("ETag: \"a\"", "ETag: \"a\"\r\nTransfer-Encoding: chunked", true),
    ("ETag: \"a\"", "ETag: \"a\"\r\nContent-Range: bytes 0-3/100", true),
    ("ETag: \"a\"", "ETag: \"a\"\r\nContent-Range: bytes 0-3/*\r\nContent-Length: 4", true),
    ("ETag: \"a\"", "ETag: \"a\"\r\nConnection: ETag, close", true),
    ("ETag: \"a\"", "ETag: \"b\"", false),
    ("ETag: \"a\"", "ETag: W/\"b\"", false),
    ("ETag: \"a\"", "ETag: \"a", false),
    ("ETag: \"a\"", "ETag: a", false),
    ("ETag: \"a\"", "ETag:", false),
    ("ETag: \"a\"", "ETag: \"a\", \"b\"", false),
    ("ETag: \"a\"", "ETag: \"A\"", false),
];

/// Starts an origin. The first response for a path has the body `BODY` and is stale; to conditions it responds with a
/// 304, and to all others with the body `NEW`.
fn confirming(
    stored: impl Fn(usize) -> String + Send + Sync + 'static,
    confirmed: impl Fn(usize, &str) -> String + Send + Sync + 'static,
) -> Recorder {
    let seen = Mutex::new(std::collections::HashSet::new());
    Recorder::start(move |request| {
        let path = path_of(request).to_owned();
        let case = case_of(&path);
        if request.to_ascii_lowercase().contains("\r\nif-none-match:") {
            return format!("HTTP/1.1 304 Not Modified\r\n{}\r\n", confirmed(case, request)).into_bytes();
        }
        let is_first = seen.lock().expect("no thread panics while it holds the lock").insert(path);
        page(&stored(case), if is_first { BODY } else { NEW })
    })
}

fn lines(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text}\r\n") }
}

/// Returns the faults of a response whose body must be described by its head.
fn faults_of(found: &Response, body: &str, with: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if found.status != 200 || found.body != body.as_bytes() {
        faults.push(format!("{with:?}: {}", text(found)));
    }
    for name in ["Content-Encoding", "Content-Range", "Transfer-Encoding"] {
        if let Some(value) = found.header(name) {
            faults.push(format!("{with:?}: {name}: {value}"));
        }
    }
    let length = found.header("Content-Length");
    if length != Some(body.len().to_string().as_str()) {
        faults.push(format!("{with:?}: the length is {length:?}"));
    }
    faults
}

/// Promise: a 304 changes no field that describes the body, and one for another response confirms nothing (RFC 9111
/// sections 3.2 and 4.3.4).
#[test]
fn a_304_never_describes_another_body() {
    let _slot = shared_slot();
    let origin = confirming(
        |case| format!("Cache-Control: max-age=0\r\n{}", lines(ANSWERS[case].0)),
        |case, _| lines(ANSWERS[case].1),
    );
    let daemon = daemon(&origin);
    let mut faults = Vec::new();
    for (number, (_, confirmed, is_confirmed)) in ANSWERS.into_iter().enumerate() {
        let first = ask(&daemon, &path(number), "");
        faults.extend(faults_of(&first, BODY, "first"));
        origin.take();
        let second = ask(&daemon, &path(number), "");
        faults.extend(faults_of(&second, if is_confirmed { BODY } else { NEW }, confirmed));
        let asked = origin.take().len();
        let expected = if is_confirmed { 1 } else { 2 };
        if asked != expected {
            faults.push(format!("{confirmed:?}: {asked} requests"));
        }
        if second.header("ETag").is_some_and(|tag| !tag.ends_with("\"a\"")) {
            faults.push(format!("{confirmed:?}: {:?}", second.header("ETag")));
        }
    }
    report(&faults);
}

/// Promise: a 304 for a request without conditions is an error and is not stored.
#[test]
fn a_304_without_conditions_is_refused() {
    let _slot = shared_slot();
    let count = AtomicUsize::new(0);
    let origin = Recorder::start(move |request| {
        if count.fetch_add(1, Ordering::SeqCst) < 3 {
            return b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n\r\n".to_vec();
        }
        page("", path_of(request))
    });
    let daemon = daemon(&origin);
    let mut statuses = Vec::new();
    for value in ["no-cache", "max-age=0", "max-stale", "max-stale", "max-stale"] {
        statuses.push(ask(&daemon, "/", &format!("Cache-Control: {value}\r\n")).status);
    }
    assert!(statuses.ends_with(&[200]) && statuses.iter().all(|s| matches!(s, 200 | 503)), "{statuses:?}");
}

/// Promise: what a 304 says to one user reaches no other one: cookies, `private`, `no-store` and a new `Vary`.
#[test]
fn fields_of_a_304_reach_only_its_user() {
    const CONFIRMED: [&str; 5] = [
        "Set-Cookie: user=1",
        "Set-Cookie: user=1\r\nCache-Control: private, max-age=60",
        "X-User: user=1\r\nCache-Control: no-store",
        "X-User: user=1\r\nCache-Control: private, max-age=60",
        "X-User: user=1\r\nCache-Control: max-age=60\r\nVary: X-Name",
    ];
    let _slot = shared_slot();
    let origin = confirming(
        |_| "Cache-Control: max-age=0\r\nETag: \"a\"\r\n".to_owned(),
        |case, request| if request.contains("X-Name: 1") { lines(CONFIRMED[case]) } else { String::new() },
    );
    let daemon = daemon(&origin);
    for (number, confirmed) in CONFIRMED.into_iter().enumerate() {
        ask(&daemon, &path(number), "");
        let first = ask(&daemon, &path(number), "X-Name: 1\r\n");
        assert!(first.head.contains("user=1") && first.status == 200, "{confirmed:?}: {}", first.head);
        let second = ask(&daemon, &path(number), "X-Name: 2\r\n");
        assert!(!second.head.contains("user=1") && second.status == 200, "{confirmed:?}: {}", second.head);
    }
}
