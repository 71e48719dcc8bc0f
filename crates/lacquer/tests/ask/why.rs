//! `lacquer why`: each outcome, with a real daemon.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use lacquer_testing::client::get;
use lacquer_testing::until;

use crate::{Site, lacquer, on};

const SUBS: &str = r#"
sub vcl_recv {
    if (req.method == "PURGE") {
        return (purge);
    }
    if (req.url ~ "^/admin") {
        return (pass);
    }
    if (req.url == "/synth") { return (synth(403)); }
    if (req.url == "/pipe") { return (pipe); }
    if (req.url == "/fail") { return (fail("no such page")); }
    if (req.url == "/restart" && req.restarts == 0) {
        set req.url = "/minute/restarted";
        return (restart);
    }
    if (req.http.X-Force) {
        set req.hash_always_miss = true;
    }
}
sub vcl_backend_response {
    set beresp.grace = 1m;
    if (bereq.url ~ "^/tag/" || bereq.url ~ "^/short/") {
        set beresp.grace = 0s;
        set beresp.keep = 1m;
    }
    if (bereq.url ~ "^/hfp") {
        return (pass(100s));
    }
    if (bereq.url == "/minute/abandon") {
        return (abandon);
    }
    if (bereq.url ~ "^/ttl") {
        set beresp.ttl = 30s;
    }
    set beresp.do_esi = bereq.url == "/esi";
}
"#;

#[test]
fn each_outcome_has_its_sentence() {
    let site = Site::start(SUBS, &[]);
    site.expect("/minute/a", &[], "miss", "Cache-Control: max-age=60");
    site.expect("/minute/a", &[], "hit", "fresh copy");
    let text = site.run(&["why", "/minute/a"]).out;
    assert!(
        text.contains("HIT\n") && text.contains("What to change: Nothing") && !text.contains('\x1b'),
        "{text}"
    );
    site.expect("/plain", &[], "miss", "default_ttl");
    site.expect("/ttl", &[], "miss", "`set beresp.ttl = 30s`");
    site.expect("/admin/x", &[], "pass-vcl", "boot.vcl, in vcl_recv (`return (pass)`)");
    site.expect("/minute/a", &["-H", "Cookie: a=b"], "pass-cookie", "vcl_req_cookie");
    site.expect("/minute/a", &["-H", "Authorization: x"], "pass-authorization", "vcl_req_authorization");
    site.expect("/minute/a", &["--method", "POST"], "pass-method", "POST");
    site.expect("/cookie", &[], "miss", "Set-Cookie");
    site.expect("/cookie", &[], "hit-for-miss", "Set-Cookie");
    site.expect("/private", &[], "miss", "Cache-Control: private");
    site.expect("/zero", &[], "miss", "max-age=0");
    site.expect("/all", &[], "miss", "Vary: *");
    site.expect("/error", &[], "miss", "500");
    site.expect("/hfp", &[], "miss", "return (pass(100s))");
    site.expect("/hfp", &[], "hit-for-pass", "decision of VCL");
    site.expect("/synth", &[], "synth", "return (synth(403))");
    site.expect("/pipe", &[], "pipe", "return (pipe)");
    site.expect("/x", &["--method", "POST", "-H", "Content-Length: x"], "rejected", "before VCL");
    site.expect("/fail", &[], "vcl-failed", "no such page");
    site.expect("/broken", &[], "origin-failed", "backend");
    site.expect("/minute/abandon", &[], "origin-failed", "status 200, at line");
    site.expect("/minute/abandon", &[], "origin-failed", "VCL abandoned the response");
    site.expect("/restart", &[], "miss", "Restart");
    site.expect("/esi", &[], "miss", "/minute/part: miss");
    site.expect("/minute/a", &["-H", "X-Force: 1"], "miss-forced", "hash_always_miss");
    site.expect("/vary/a", &["-H", "Accept-Language: de"], "miss", "Accept-Language: de");
    site.expect("/vary/a", &["-H", "Accept-Language: en"], "miss-variant", "Normalize Accept-Language");
    site.expect("/vary/a", &["-H", "Accept-Language: de"], "hit", "Accept-Language: de");
}

#[test]
fn objects_that_are_gone_have_their_reason() {
    let mut site = Site::start(SUBS, &[]);
    site.expect("/minute/p", &[], "miss", "");
    site.expect("/minute/p", &["--method", "PURGE"], "purged", "return (purge)");
    site.expect("/minute/p", &[], "miss-purged", "127.0.0.1");
    site.daemon.ok("ban req.url == /minute/other");
    site.daemon.ok("ban req.url ~ ^/minute/p");
    site.expect("/minute/p", &[], "miss-banned", "the ban `req.url ~ ^/minute/p` matches");
    site.daemon.ok("param.set ban_lurker_age 0.1");
    site.daemon.ok("ban obj.http.Cache-Control ~ max-age=60");
    assert!(site.daemon.logs("banned by lurker"));
    site.expect("/minute/p", &[], "miss-banned", "a ban had removed it");
    site.expect("/tag/a", &[], "miss", "max-age=1");
    site.expect("/short/a", &[], "miss", "max-age=1");
    site.expect("/second/a", &[], "miss", "max-age=1");
    thread::sleep(Duration::from_millis(2200));
    site.expect("/tag/a", &[], "revalidated", "304");
    site.expect("/short/a", &[], "miss-expired", "expired");
    site.expect("/second/a", &[], "graced-hit", "in the background");
}

#[test]
fn requests_that_remove_other_pages_are_named() {
    let subs = "import xkey;
        sub vcl_recv {
            if (req.method == \"PURGE\") { return (synth(200, \"\" + xkey.purge(req.http.xkey))); }
        }
        sub vcl_backend_response { set beresp.http.xkey = \"blue red\"; }";
    let site = Site::start(subs, &["-p", "feature=+rfc9111"]);
    site.expect("/minute/p", &[], "miss", "");
    site.expect("/minute/p", &["--method", "PUT"], "pass-method", "");
    site.expect("/minute/p", &[], "miss-invalidated", "PUT /minute/p of 127.0.0.1");
    site.expect("/other", &["--method", "PURGE", "-H", "xkey: green blue"], "synth", "");
    site.expect("/minute/p", &[], "miss-tagged", "by its tag blue, in a purge by a request of 127.0.0.1");
    site.expect("/minute/p", &[], "hit", "");
}

#[test]
fn evicted_objects_are_named() {
    let site = Site::start(SUBS, &["-s", "malloc,2m"]);
    site.expect("http://robust/big/0", &[], "miss", "");
    site.expect("http://robust/big/0", &[], "hit", "");
    for page in 1..20 {
        assert!(get(site.daemon.address, &format!("/big/{page}")).is_ok());
    }
    site.expect("http://robust/big/0", &[], "miss-evicted", "storage");
}

#[test]
fn the_log_is_set_back() {
    let mut site = Site::start(SUBS, &[]);
    let before = (site.daemon.ok("param.show vsl_mask"), site.daemon.ok("param.show feature"));
    site.expect("/minute/a", &[], "miss", "Cache key");
    assert_eq!((site.daemon.ok("param.show vsl_mask"), site.daemon.ok("param.show feature")), before);
}

/// Sends a request for a page that the origin holds back, and, once it has arrived there, one by `lacquer why`. The page
/// is released when this counter has become 1.
fn expect_while_held(path: &str, counter: &str, outcome: &str, words: &str) {
    let site = Site::start(SUBS, &[]);
    let mut first = TcpStream::connect(site.daemon.address).expect("the daemon listens");
    write!(first, "GET {path} HTTP/1.1\r\nHost: robust\r\nConnection: close\r\n\r\n").expect("it reads");
    assert!(until(|| site.origin.requests() == 1));
    let mut response = Vec::new();
    // The first half of a page arrives after its object has been inserted.
    while path.starts_with("/drip") && !response.ends_with(b"hello") {
        let mut byte = [0];
        first.read_exact(&mut byte).expect("the first half");
        response.extend(byte);
    }
    let is_one = || site.run(&["stat", counter, "--json"]).json()[format!("MAIN.{counter}")]["value"] == 1;
    let is_counted = thread::scope(|scope| {
        scope.spawn(|| site.expect(&format!("http://robust{path}"), &[], outcome, words));
        let is_counted = until(is_one);
        site.gate.open();
        is_counted
    });
    assert!(is_counted, "{counter} is not 1");
    first.read_to_end(&mut response).expect("the rest");
    assert!(response.starts_with(b"HTTP/1.1 200") && response.ends_with(b"hello"));
    assert_eq!(site.origin.requests(), 1);
}

#[test]
fn a_page_that_still_arrives_is_a_hit() {
    expect_while_held("/drip/a", "cache_hit", "hit-in-progress", "still being fetched");
}

#[test]
fn a_request_that_waits_is_coalesced() {
    expect_while_held("/slow/a", "busy_sleep", "coalesced-hit", "waited");
}

#[test]
fn hostile_requests_and_absent_daemons_have_clear_errors() {
    let site = Site::start(SUBS, &[]);
    let text = site.run(&["why", "http://h/\x1b[2Jx y", "-H", "X: \u{202e}"]).out;
    assert!(!text.contains('\x1b') && text.contains("/%1B[2Jx%20y"), "{text}");
    for (words, message) in [
        (&["why"][..], "needs URL"),
        (&["why", "ftp://x/"], "scheme"),
        (&["why", "/", "-H", "a: b\r\nc: d"], "control character"),
        (&["why", "/", "--method", "GET /x HTTP/1.1\r\n"], "not a method"),
        (&["why", "/", "-n", "/nonexistent"], "no daemon runs"),
        (&["log", "-n", "/nonexistent"], "no daemon runs"),
        (&["stat", "-n", "/nonexistent"], "no daemon runs"),
    ] {
        let ran = lacquer(words);
        assert!(ran.code == Some(2) && ran.err.contains(message), "{words:?}: {ran:?}");
    }
    let directory = site.daemon.directory();
    let ran = lacquer(&["why", "/", "-n", directory.to_str().expect("text"), "--to", "127.0.0.1:1"]);
    assert!(ran.code == Some(2) && ran.err.contains("failed"), "{ran:?}");
    on(&directory, &["why", "/"]);
}

#[test]
fn a_daemon_without_a_management_port_is_explained_by_its_log() {
    let site = Site::start(SUBS, &["-T", "none"]);
    let directory = site.daemon.directory();
    let name = directory.to_str().expect("text");
    // Nothing has named a listener yet.
    let ran = lacquer(&["why", "/minute/a", "-n", name]);
    assert!(ran.code == Some(2) && ran.err.contains("--to"), "{ran:?}");
    let listener = site.daemon.address.to_string();
    site.expect("/minute/a", &["--to", &listener], "miss", "publishes no management port");
    site.expect("/minute/a", &[], "hit", "fresh copy");
    site.expect("/minute/a", &["-H", "Cookie: a=b"], "pass-cookie", "Cookie");
    let ran = lacquer(&["param", "-n", name]);
    assert!(ran.code == Some(2) && ran.err.contains("publishes no management port"), "{ran:?}");
}

#[test]
fn a_listener_of_another_program_is_not_the_daemons() {
    let site = Site::start(SUBS, &[]);
    let origin = site.origin.address.to_string();
    let directory = site.daemon.directory();
    let ran = lacquer(&["why", "/", "-n", directory.to_str().expect("text"), "--to", &origin]);
    assert!(ran.code == Some(2) && ran.err.contains("not in the log"), "{ran:?}");
}
