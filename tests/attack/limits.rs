//! Limits per client address.

use std::io::Read;
use std::thread;
use std::time::Duration;

use lacquer_testing::client::{self, Client};
use lacquer_testing::daemon::{Daemon, MAX_WAIT, until, vcl};
use lacquer_testing::effort;
use lacquer_testing::h2::{END_HEADERS, END_STREAM, End, H2Client, block, kind, put};
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::shared_slot;

const PASS: &str = "sub vcl_recv { return (pass); }";

/// Starts an origin whose responses below `/stuck` are late.
fn slow_origin(after: Duration) -> Origin {
    Origin::start(move |path, stream| {
        if path.starts_with("/stuck") {
            thread::sleep(after);
        }
        sized("/100", stream)
    })
}

/// A client address has at most `client_max_connections` connections. Further connections are closed at once; when one
/// closes, another is accepted.
#[test]
fn connections_of_an_address_are_limited() {
    let _slot = shared_slot();
    let origin = Origin::start(sized);
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-p", "client_max_connections=20"]);
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect(daemon.address).unwrap()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/100").unwrap().status, 200);
    }
    for _ in 0..effort(50, 2000) {
        let mut refused = daemon.connect();
        refused.set_read_timeout(Some(MAX_WAIT)).unwrap();
        assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0, "closed");
    }
    assert!(daemon.logs("Hit client_max_connections (20)"));
    clients.pop();
    assert!(until(|| client::get(daemon.address, "/100").is_ok_and(|answer| answer.status == 200)));
    assert_eq!(clients[0].get("/100").unwrap().status, 200, "open connections stay");
}

/// Connections count from before their handshake.
#[test]
fn connections_without_a_handshake_are_limited() {
    let _slot = shared_slot();
    let origin = Origin::start(sized);
    let options = ["-a", "secure=127.0.0.1:0,https", "-p", "client_max_connections=3"];
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &options);
    let secure = ([127, 0, 0, 1], daemon.port_of("secure")).into();
    let mut silent = Vec::new();
    // A connection whose end the daemon has not seen yet may have taken the place of a silent one.
    assert!(until(|| {
        silent.push(Client::connect(secure).unwrap());
        client::get(daemon.address, "/100").is_err()
    }));
    assert!(daemon.logs("Hit client_max_connections (3)"));
    drop(silent);
    assert!(until(|| client::get(daemon.address, "/100").is_ok_and(|answer| answer.status == 200)));
}

/// The address is that in the PROXY header, and IPv6 clients are counted by network.
#[test]
fn limits_count_the_address_in_the_proxy_header() {
    let _slot = shared_slot();
    let origin = Origin::start(sized);
    let options = ["-a", "proxied=127.0.0.1:0,PROXY", "-p", "client_max_connections=2"];
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &options);
    let port = daemon.port_of("proxied");
    let mut kept = Vec::new();
    let mut served = |family: &str, ip: &str| {
        let mut client = Client::connect(([127, 0, 0, 1], port).into()).unwrap();
        let there = if family == "TCP4" { "192.0.2.99" } else { "2001:db8::99" };
        client.send(&format!("PROXY {family} {ip} {there} 1234 80\r\n")).unwrap();
        let answer = client.get("/100");
        kept.push(client);
        answer.is_ok()
    };
    let outcomes = ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|ip| served("TCP4", ip));
    assert_eq!(outcomes, [true, true, false, true]);
    let ips = ["2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:1:9::3", "2001:db8:0:2::1"];
    assert_eq!(ips.map(|ip| served("TCP6", ip)), [true, true, false, true]);
}

/// A client address has at most `client_max_requests` active requests, over both protocols; further ones get 429 at
/// once.
#[test]
fn requests_of_an_address_are_limited() {
    let _slot = shared_slot();
    let origin = slow_origin(Duration::from_secs(2));
    let subs = "sub vcl_recv { if (req.url ~ \"^/stuck\") { return (pass); } }
        sub vcl_deliver { set resp.http.at-work = client.requests; set resp.http.conns = client.connections; }";
    let options = ["-p", "client_max_requests=10", "-p", "feature=+http2"];
    let daemon = Daemon::start(&vcl(origin.address, subs), &options);
    let answer = client::get(daemon.address, "/100").unwrap();
    assert_eq!((answer.header("at-work"), answer.header("conns")), (Some("1"), Some("1")));
    let mut stuck: Vec<_> = (0..5).map(|_| Client::connect(daemon.address).unwrap()).collect();
    for client in &mut stuck {
        client.send("GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    let mut h2 = H2Client::connect(daemon.address, &[]).unwrap();
    let streams = (0..5).map(|_| h2.get("/stuck").unwrap()).count();
    assert!(until(|| origin.requests() >= 11));
    assert_eq!(client::get(daemon.address, "/100").unwrap().status, 429);
    let mut beyond = H2Client::connect(daemon.address, &[]).unwrap();
    let stream = beyond.get("/100").unwrap();
    assert_eq!(beyond.response(stream).unwrap().0, Some(429));
    assert!(daemon.logs("Hit client_max_requests (10)"));
    for client in &mut stuck {
        assert_eq!(client.response().unwrap().status, 200);
    }
    let mut ended = 0;
    while ended < streams {
        let frame = h2.frame().unwrap();
        assert!(!matches!(frame.kind, kind::RST_STREAM | kind::GOAWAY), "{frame:?}");
        ended += usize::from(frame.kind == kind::DATA && frame.flags & END_STREAM != 0);
    }
    assert!(until(|| client::get(daemon.address, "/100").is_ok_and(|answer| answer.status == 200)));
}

/// Resets are budgeted per address, so that new connections bring no new budget. Other clients of the address that
/// reset nothing are served all the time.
#[test]
fn new_connections_bring_no_new_budget_of_resets() {
    let _slot = shared_slot();
    let origin = slow_origin(Duration::from_millis(100));
    let budget = effort(500, 10_000);
    let limit = format!("h2_rapid_reset_address_limit={budget}");
    let daemon = Daemon::start(&vcl(origin.address, PASS), &["-p", "feature=+http2", "-p", &limit]);
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..2 * budget / 90 {
        let mut client = H2Client::connect(daemon.address, &[]).unwrap();
        let mut frames = Vec::new();
        for n in 0..90u32 {
            let stream = 2 * n + 1;
            put(&mut frames, kind::HEADERS, END_HEADERS | END_STREAM, stream, &block("GET", "/stuck", &[]));
            put(&mut frames, kind::RST_STREAM, 0, stream, &8u32.to_be_bytes());
        }
        put(&mut frames, kind::PING, 0, 0, &[7; 8]);
        let _ = client.send_bytes(&frames);
        let pong = std::iter::from_fn(|| client.frame().ok())
            .find(|frame| matches!(frame.kind, kind::PING | kind::GOAWAY))
            .is_some_and(|frame| frame.kind == kind::PING);
        *(if pong { &mut accepted } else { &mut refused }) += 1;
        if !pong {
            assert_eq!(client.end(MAX_WAIT), End::Closed, "closed after its GOAWAY");
        }
        if round % 10 == 0 {
            let answer = client::get(daemon.address, "/100").unwrap();
            assert_eq!(answer.status, 200);
        }
    }
    let allowed = budget / 90;
    assert!(
        accepted >= allowed && accepted <= allowed + allowed / 4 + 1,
        "{accepted} of {allowed}, {refused}"
    );
    assert!(daemon.logs("Hit h2_rapid_reset_address_limit"));
}
