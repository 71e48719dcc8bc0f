//! SIGTERM drains the daemon: requests in progress end, new connections are refused, idle ones are closed.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, signal, vcl};
use lacquer_testing::h2::{H2Client, kind};
use lacquer_testing::origin::Origin;
use lacquer_testing::until;

use crate::disk_waits::counter;

/// An origin that sends the first half of each response at once, and the second one when it is told to.
struct Halves {
    origin: Origin,
    finish: SyncSender<()>,
}

impl Halves {
    fn start() -> Halves {
        let (finish, wait) = mpsc::sync_channel(16);
        let wait: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(wait));
        let origin = Origin::start(move |_, stream| {
            let head = "HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: 10\r\n\r\nfirst";
            let begun = stream.write_all(head.as_bytes()).is_ok();
            let told = wait.lock().is_ok_and(|wait| wait.recv().is_ok());
            begun && told && stream.write_all(b"other").is_ok()
        });
        Halves { origin, finish }
    }

    fn daemon(&self, options: &[&str]) -> Daemon {
        Daemon::start(&vcl(self.origin.address, ""), options)
    }

    fn has_requests(&self, count: usize) -> bool {
        until(|| self.origin.requests() == count)
    }

    /// Returns a client whose request the origin has received.
    fn client(&self, daemon: &Daemon) -> Client {
        let before = self.origin.requests();
        let mut client = Client::connect(daemon.address).expect("it accepts");
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is open");
        assert!(self.has_requests(before + 1));
        client
    }

    fn finish(&self) {
        self.finish.send(()).expect("the origin waits");
    }
}

fn refuses(daemon: &Daemon) -> bool {
    until(|| TcpStream::connect(daemon.address).is_err())
}

#[test]
fn requests_in_progress_end_and_idle_connections_close() {
    let halves = Halves::start();
    let mut daemon = halves.daemon(&[]);
    let mut idle = halves.client(&daemon);
    halves.finish();
    assert!(idle.response().is_ok_and(|response| response.header("Connection") == Some("keep-alive")));
    let mut active = halves.client(&daemon);
    signal(daemon.manager(), "-TERM");
    assert!(refuses(&daemon));
    assert!(idle.response().is_err(), "it is closed without a response");
    halves.finish();
    assert_eq!(active.response().expect("it is complete").body, b"firstother");
    assert!(active.response().is_err(), "it is closed");
    assert_eq!(daemon.end(), Some(0));
}

#[test]
fn a_response_that_begins_meanwhile_announces_the_end() {
    // Idle connections stay open for a second. A machine that stalls for so long proves nothing.
    let is_asked = || {
        let halves = Halves::start();
        let daemon = halves.daemon(&[]);
        let mut client = Client::connect(daemon.address).expect("it accepts");
        assert!(until(|| counter(&daemon, "MAIN.sess_conn") == Some(1)), "the worker has the connection");
        let begun = Instant::now();
        signal(daemon.manager(), "-TERM");
        assert!(refuses(&daemon));
        // The reactors follow within one sweep of their deadlines.
        std::thread::sleep(Duration::from_millis(200));
        let sent = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let in_time = begun.elapsed() < Duration::from_millis(900);
        assert!(!in_time || sent.is_ok(), "an idle connection stays open for a second");
        in_time.then_some((halves, daemon, client))
    };
    let asked = (0..10).find_map(|_| is_asked());
    let (halves, mut daemon, mut client) = asked.expect("a request is sent within a second");
    halves.finish();
    let response = client.response().expect("it is answered");
    assert_eq!((response.header("Connection"), &response.body[..]), (Some("close"), &b"firstother"[..]));
    assert_eq!(daemon.end(), Some(0));
}

#[test]
fn http2_announces_the_end_and_finishes_its_streams() {
    let halves = Halves::start();
    let mut daemon = halves.daemon(&["-p", "feature=+http2"]);
    let mut client = H2Client::connect(daemon.address, &[]).expect("it accepts");
    let early = client.get("/").expect("it is open");
    assert!(halves.has_requests(1));
    signal(daemon.manager(), "-TERM");
    assert!(refuses(&daemon));
    std::thread::sleep(Duration::from_millis(200));
    // It was sent before the client could know.
    let late = client.get("/").expect("it is open");
    let mut last_streams = Vec::new();
    let mut bodies = [Vec::new(), Vec::new()];
    assert!(halves.has_requests(2));
    halves.finish();
    halves.finish();
    while let Ok(frame) = client.frame() {
        match frame.kind {
            kind::DATA => bodies[usize::from(frame.stream == late)].extend(frame.payload),
            kind::GOAWAY => last_streams.push(frame.payload[..4].to_vec()),
            _ => {}
        }
    }
    assert_eq!(bodies, [b"firstother", b"firstother"], "streams {early} and {late}");
    assert_eq!(last_streams, [vec![0x7f, 0xff, 0xff, 0xff], vec![0, 0, 0, 3]]);
    assert_eq!(daemon.end(), Some(0));
}

#[test]
fn requests_that_take_too_long_are_cut() {
    let halves = Halves::start();
    let mut daemon = halves.daemon(&["-p", "drain_timeout=0.5"]);
    let mut client = halves.client(&daemon);
    let begun = Instant::now();
    signal(daemon.manager(), "-TERM");
    assert!(client.response().is_err());
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert_eq!(daemon.end(), Some(0));
}

#[test]
fn a_second_signal_stops_at_once() {
    let halves = Halves::start();
    let mut daemon = halves.daemon(&["-p", "drain_timeout=600"]);
    let mut client = halves.client(&daemon);
    signal(daemon.manager(), "-TERM");
    assert!(refuses(&daemon));
    assert_eq!(daemon.ok("status"), "Child in state draining");
    signal(daemon.manager(), "-TERM");
    assert!(client.response().is_err());
    assert_eq!(daemon.end(), Some(0));
}
