//! The header `X-Lacquer-Why`: its text, and who receives it.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use lacquer_testing::client::{Client, Response};
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::Origin;

const NAME: &str = "X-Lacquer-Why";
const TOKEN: &str = "0123456789abcdef";

/// An origin that explains its own responses, which a cache must not take over.
fn page(path: &str, stream: &mut TcpStream) -> bool {
    let body = if path.contains("/esi") { "<esi:include src=\"/part\"/>" } else { "hello" };
    let length = body.len();
    let more = match path {
        "/brief" => "max-age=1",
        _ if path.contains("/private") => "private",
        _ => "max-age=40",
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nX-Lacquer-Why: from-the-origin\r\nCache-Control: {more}\r\n\r\n{body}"
    )
    .is_ok()
}

const SUBS: &str = r#"
sub vcl_recv {
    if (req.http.X-Lacquer-Why) { set req.http.X-Seen = "1"; }
    if (req.url == "/synth") { return (synth(403)); }
    if (req.url == "/rollback") {
        std.rollback(req);
        return (pass);
    }
}
sub vcl_backend_fetch {
    if (bereq.http.X-Lacquer-Why) { set bereq.http.X-Asked = "1"; }
}
sub vcl_backend_response {
    if (bereq.http.X-Asked) { set beresp.http.X-Asked = "1"; }
    set beresp.grace = 1m;
    set beresp.do_esi = bereq.url ~ "/esi$";
    if (bereq.url == "/ttl") {
        set beresp.ttl = 30s;
    }
    if (bereq.url == "/never") {
        set beresp.uncacheable = true;
    }
}
sub vcl_deliver {
    if (req.http.X-Seen) { set resp.http.X-Seen = "1"; }
}
"#;

struct Site {
    daemon: Daemon,
    _origin: Origin,
}

impl Site {
    fn start(why_header: &str) -> Site {
        let origin = Origin::start(page);
        let text = vcl(origin.address, SUBS).replacen("vcl 4.1;", "vcl 4.1;\nimport std;", 1);
        let daemon = Daemon::start(&text, &["-p", &format!("why_header={why_header}")]);
        Site { daemon, _origin: origin }
    }

    fn get(&self, path: &str, headers: &str) -> Response {
        let mut client = Client::connect(self.daemon.address).expect("the daemon listens");
        client.ask(&format!("GET {path} HTTP/1.1\r\nHost: h\r\n{headers}\r\n")).expect("a response")
    }

    /// Returns the explanation of the response to a request.
    fn why(&self, path: &str, headers: &str) -> Option<String> {
        let response = self.get(path, headers);
        let found = response.header(NAME).map(str::to_owned);
        let control = response.header("Cache-Control").unwrap_or_default();
        assert_eq!(control.contains("private=\"X-Lacquer-Why\""), found.is_some(), "{control}");
        found
    }

    fn expect(&self, path: &str, headers: &str, begin: &str, parts: &[&str]) {
        let line = self.why(path, headers).unwrap_or_default();
        assert!(line.starts_with(begin) && parts.iter().all(|part| line.contains(part)), "{path}: {line}");
        assert!(line.len() < 1000 && line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{line}");
    }
}

#[test]
fn it_explains_a_response_in_one_line() {
    let site = Site::start("127.0.0.0/8");
    site.expect("/a", "", "miss; stored; ttl=40;", &["grace=60", "by=\"Cache-Control: max-age=40\""]);
    // The time that is left is shown in milliseconds, so that a hit at once shows all of it.
    thread::sleep(Duration::from_millis(5));
    site.expect("/a", "", "hit; ttl=3", &["by=\"Cache-Control: max-age=40\""]);
    let has_milliseconds = || {
        let line = site.why("/a", "").expect("it is explained");
        line.split(';').nth(1).is_some_and(|ttl| ttl.contains('.'))
    };
    // Once in a thousand requests, they are zero.
    assert!((0..3).any(|_| has_milliseconds()));
    site.expect("/ttl", "", "miss; stored; ttl=30;", &["by=\"VCL boot boot.vcl:", "vcl_backend_response\""]);
    site.expect("/ttl", "", "hit; ttl=", &["by=\"VCL\""]);
    site.expect("/never", "", "miss; not-stored;", &["because=\"VCL boot boot.vcl:"]);
    site.expect("/never", "", "hit-for-miss; not-stored;", &["because=\"VCL boot boot.vcl:"]);
    site.expect("/private", "", "miss; not-stored;", &["because=\"Cache-Control: private\""]);
    site.expect("/synth", "", "synth;", &["vcl=\"boot boot.vcl:", " vcl_recv\""]);
    site.expect("/rollback", "", "pass-vcl;", &["vcl=\"boot boot.vcl:", " vcl_recv\""]);
    site.expect("/a", "Cookie: a=b\r\n", "pass-cookie;", &["vcl_req_cookie\""]);
    site.expect("/brief", "", "miss; stored; ttl=1;", &["by=\"Cache-Control: max-age=1\""]);
    thread::sleep(Duration::from_millis(1500));
    site.expect("/brief", "", "graced-hit; ttl=-", &["grace=60"]);
    site.expect("/esi", "", "miss; stored", &[]);
    assert_eq!(site.get("/esi", "").header(NAME).map(|line| &line[..3]), Some("hit"));
}

#[test]
fn only_listed_clients_receive_it() {
    let mut site = Site::start("");
    for (list, ask, is_shown) in [
        ("", "", false),
        ("10.0.0.0/8", "", false),
        ("10.0.0.0/8 127.0.0.1", "", true),
        (&*format!("token={TOKEN}"), "", false),
        (&*format!("token={TOKEN}"), "X-Lacquer-Why: 0123456789abcdeF\r\n", false),
        (&*format!("token={TOKEN}"), &*format!("x-lacquer-why: {TOKEN}\r\n"), true),
        ("", &*format!("x-lacquer-why: {TOKEN}\r\n"), false),
    ] {
        site.daemon.ok(&format!("param.set why_header \"{list}\""));
        for path in ["/a", "/a", "/esi", "/private", "/synth"] {
            assert_eq!(site.why(path, ask).is_some(), is_shown, "{list} {ask} {path}");
        }
    }
    let (status, text) = site.daemon.cli("param.set why_header token=short");
    assert!(status != 200 && text.contains("16"), "{text}");
}

#[test]
fn it_passes_through_no_cache() {
    let mut site = Site::start(&format!("token={TOKEN}"));
    let ask = format!("{NAME}: {TOKEN}\r\n");
    // VCL, the log and the origin do not see the secret.
    for path in ["/secret/a", "/secret/esi", "/secret/private", "/rollback"] {
        let response = site.get(path, &ask);
        let passed_on = ["X-Seen", "X-Asked"].map(|name| response.header(name));
        assert!(response.header(NAME).is_some() && passed_on == [None, None], "{path}");
        // Others receive neither an explanation nor the origin's.
        for other in ["", "X-Lacquer-Why: from-a-client\r\n"] {
            let response = site.get(path, other);
            assert_eq!((response.header(NAME), response.header("X-Seen")), (None, None), "{path}");
            assert_eq!(response.header("X-Asked"), None, "{path}");
        }
    }
    assert!(!site.daemon.log_has(&format!("{NAME}: {TOKEN}")));
    site.daemon.ok("param.set why_header \"\"");
    for ask in [&*ask, ""] {
        for path in ["/secret/off", "/secret/off", "/secret/private"] {
            let response = site.get(path, ask);
            assert_eq!((response.header(NAME), response.header("X-Asked")), (None, None), "{path}");
        }
    }
}
