//! Invalidation by unsafe methods (RFC 9111 section 4.4). A client or an origin that names pages of another site, or
//! that fails, removes nothing.

use std::time::{Duration, Instant};

use lacquer_testing::client::Client;
use lacquer_testing::effort;
use lacquer_testing::recorder::Recorder;
use lacquer_testing::slots::shared_slot;

use super::{ask, case_of, daemon, page, path_of, report, send};

/// The status and the lines of a response to a POST to `/case/N/form` on host `a`, and whether it removes
/// `/case/N/page` of that host. `{}` is `/case/N`.
const ANSWERS: [(&str, &str, bool); 40] = [
    ("200 OK", "Location: {}/page", true),
    ("201 Created", "Content-Location: {}/page", true),
    ("303 See Other", "Location: page", true),
    ("200 OK", "Location: http://a{}/page", true),
    ("200 OK", "Location: http://A:80{}/page#x", true),
    ("200 OK", "Location: //a{}/page", true),
    ("200 OK", "Location: {}/x/y/../../page", true),
    ("200 OK", "Location: {}/x/../../../../../../..{}/page", true),
    ("200 OK", "Location: ./././page", true),
    ("400 Bad Request", "Location: {}/page", false),
    ("404 Not Found", "Content-Location: {}/page", false),
    ("409 Conflict", "Location: {}/page\r\nContent-Location: {}/page", false),
    ("500 Internal Server Error", "Location: {}/page", false),
    ("599 Any", "Location: {}/page", false),
    ("200 OK", "Location: http://b{}/page", false),
    ("200 OK", "Location: http://a.b{}/page", false),
    ("200 OK", "Location: http://a:8080{}/page", false),
    ("200 OK", "Location: http://a:80:80{}/page", false),
    ("200 OK", "Location: http://user@a{}/page", false),
    ("200 OK", "Location: http://a@b{}/page", false),
    ("200 OK", "Location: http://user:word@a:80{}/page", false),
    ("200 OK", "Location: http://a\\@b{}/page", false),
    ("200 OK", "Location: //b{}/page", false),
    ("200 OK", "Location: ///a{}/page", false),
    ("200 OK", "Location: http:{}/page", false),
    ("200 OK", "Location: http:page", false),
    ("200 OK", "Location: ftp://a{}/page", false),
    ("200 OK", "Location: javascript://a{}/page", false),
    ("200 OK", "Location: data:{}/page", false),
    ("200 OK", "Location: {}/page x", false),
    ("200 OK", "Location: {}/pag%65", false),
    ("200 OK", "Location: {}/page\u{e9}", false),
    ("200 OK", "Location: {}/PAGE", false),
    ("200 OK", "Location: {}/page?", false),
    ("200 OK", "Location: {}/page/..", false),
    ("200 OK", "Location: {}\\page", false),
    ("200 OK", "Location:", false),
    ("200 OK", "Refresh: {}/page", false),
    ("200 OK", "X-Location: {}/page\r\nContent-Base: {}/page", false),
    ("200 OK", "Link: <{}/page>; rel=self", false),
];

/// Starts an origin. Its pages are cacheable, and its forms respond as the table states.
fn forms() -> Recorder {
    Recorder::start(|request| {
        let path = path_of(request);
        if !path.ends_with("/form") {
            return page("Cache-Control: max-age=3600\r\n", path);
        }
        let (status, lines, _) = ANSWERS[case_of(path)];
        let lines = lines.replace("{}", path.trim_end_matches("/form"));
        format!("HTTP/1.1 {status}\r\n{lines}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    })
}

/// Promise: only a successful request removes pages, and only pages of its own site.
#[test]
fn only_pages_of_the_same_site_are_removed() {
    let _slot = shared_slot();
    let origin = forms();
    let daemon = daemon(&origin);
    let mut faults = Vec::new();
    for (number, (status, lines, is_removed)) in ANSWERS.into_iter().enumerate() {
        let (form, target) = (format!("/case/{number}/form"), format!("/case/{number}/page"));
        let hosts = ["a", "b", "a.b", "a:8080"];
        for host in hosts {
            send(&daemon, "GET", host, &target, "");
        }
        let answer = send(&daemon, "POST", "a", &form, "Content-Length: 0\r\n");
        if !status.starts_with(&answer.status.to_string()) {
            faults.push(format!("{status}: {}", answer.status));
        }
        origin.take();
        for host in hosts {
            send(&daemon, "GET", host, &target, "");
            let was_removed = !origin.take().is_empty();
            if was_removed != (is_removed && host == "a") {
                faults.push(format!("{status} {lines:?}: removed on {host}: {was_removed}"));
            }
        }
    }
    report(&faults);
}

/// Promise: methods that are safe, and requests that the cache refuses or that do not reach an origin, remove nothing.
#[test]
fn safe_and_refused_requests_remove_nothing() {
    let _slot = shared_slot();
    let origin = forms();
    let daemon = daemon(&origin);
    ask(&daemon, "/case/0/page", "");
    ask(&daemon, "/case/0/form", "");
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        let mut client = Client::connect(daemon.address).expect("connections are accepted");
        client
            .send(&format!("{method} /case/0/form HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
            .expect("requests can be sent");
        client.response_to(method).expect("a response arrives");
    }
    for bad in [
        "POST /case/0/page HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        "POST /case/0/page HTTP/1.1\r\nHost: a\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "POST /case/0/page HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n",
        "PO\u{7f}ST /case/0/page HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = Client::connect(daemon.address).expect("connections are accepted");
        client.send(bad).expect("requests can be sent");
        assert_eq!(client.response().map_or(400, |response| response.status), 400, "{bad:?}");
    }
    origin.take();
    ask(&daemon, "/case/0/page", "");
    assert_eq!(origin.take().len(), 0);
    // Any other method is unsafe.
    for method in ["PUT", "DELETE", "PATCH", "M-SEARCH", "get"] {
        send(&daemon, method, "a", "/case/0/form", "Content-Length: 0\r\n");
        origin.take();
        ask(&daemon, "/case/0/page", "");
        assert_eq!(origin.take().len(), 1, "{method}");
    }
}

/// Promise: a response removes the pages of at most three URIs, however many it names.
#[test]
fn a_response_removes_at_most_three_pages() {
    let _slot = shared_slot();
    let origin = Recorder::start(|request| {
        if !request.starts_with("POST") {
            return page("Cache-Control: max-age=3600\r\n", path_of(request));
        }
        let named =
            |name| (0..20).map(move |n| format!("{name}: /{name}/{n}\r\n")).collect::<Vec<_>>().concat();
        let list = format!("Location: {}\r\n", ["/list/0", "/list/1", "/list/2"].join(", "));
        page(&(named("Location") + &named("Content-Location") + &list), "")
    });
    let daemon = daemon(&origin);
    let pages: Vec<_> = ["Location", "Content-Location", "list"]
        .iter()
        .flat_map(|name| (0..20).map(move |number| format!("/{name}/{number}")))
        .chain(["/form".to_owned()])
        .collect();
    for path in &pages {
        ask(&daemon, path, "");
    }
    send(&daemon, "POST", "a", "/form", "Content-Length: 0\r\n");
    origin.take();
    for path in &pages {
        ask(&daemon, path, "");
    }
    let removed: Vec<_> = origin.take().iter().map(|request| path_of(request).to_owned()).collect();
    assert!(removed.contains(&"/form".to_owned()) && removed.len() <= 3, "{removed:?}");
}

/// Promise: floods of unsafe requests leave other sites and pages in the cache, and their cost is bounded.
#[test]
fn floods_of_unsafe_requests_are_bounded() {
    let origin = Recorder::start(|request| {
        if request.starts_with("POST") {
            let long = "../x/".repeat(700);
            return page(&format!("Location: {long}other\r\nContent-Location: {long}page?{long}\r\n"), "");
        }
        page("Cache-Control: max-age=3600\r\n", path_of(request))
    });
    let mut daemon = daemon(&origin);
    for number in 0..100 {
        send(&daemon, "GET", "b", &format!("/x/{number}"), "");
        send(&daemon, "GET", "a", &format!("/y/{number}"), "");
    }
    let before = daemon.resident().memory;
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    let begun = Instant::now();
    let most: u64 = effort(500, 5000);
    for number in 0..most {
        let request = format!("POST /x/{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.ask(&request).expect("a response arrives").status, 200);
    }
    assert!(begun.elapsed() < Duration::from_millis(20 * most), "{:?}", begun.elapsed());
    let grown = daemon.resident().memory.saturating_sub(before);
    assert!(grown < 8 << 20, "{} kB more memory", grown >> 10);
    origin.take();
    for number in 0..100 {
        send(&daemon, "GET", "b", &format!("/x/{number}"), "");
        send(&daemon, "GET", "a", &format!("/y/{number}"), "");
    }
    assert_eq!(origin.take().len(), 0);
}
