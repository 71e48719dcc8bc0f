//! Clients that leave before their response: work that nobody waits for ends, and nothing else does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, PATIENCE, until, vcl};
use lacquer_testing::http2::Http2;
use lacquer_testing::origin::Origin;

/// How soon the connection to the origin must be closed after the client's.
const SOON: Duration = Duration::from_secs(1);
/// How long an origin waits that is late.
const LATE: Duration = Duration::from_millis(500);

/// An origin that never completes some of its responses.
struct Stuck {
    origin: Origin,
    /// How many requests it has received and not answered on connections that are still open.
    held: Arc<AtomicUsize>,
}

impl Stuck {
    /// `/head/` stays silent, `/body/` stops within the body, `/late/` answers late and cacheable, `/slow/` late
    /// and private, everything else is answered at once.
    fn start() -> Stuck {
        let held = Arc::new(AtomicUsize::new(0));
        let count = held.clone();
        let origin = Origin::start(move |path: &str, stream: &mut TcpStream| {
            let kind = path.split('/').nth(1).unwrap_or_default();
            match kind {
                "head" => return hold(stream, &count),
                "body" => {
                    let head =
                        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nCache-Control: private\r\n\r\n";
                    let sent = stream.write_all(head).and_then(|()| stream.write_all(&[b'x'; 1000]));
                    return sent.is_ok() && hold(stream, &count);
                }
                "late" | "slow" => std::thread::sleep(LATE),
                _ => {}
            }
            let control = if kind == "late" { "max-age=3600" } else { "private" };
            let length = path.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nCache-Control: {control}\r\n\r\n");
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(path.as_bytes())).is_ok()
        });
        Stuck { origin, held }
    }

    fn daemon(&self, options: &[&str]) -> Daemon {
        let subs = "sub vcl_recv { if (req.url ~ \"^/(head|body|slow)/\") { return (pass); } }
            sub vcl_backend_response { if (bereq.url ~ \"whole\") { set beresp.do_stream = false; } }";
        let always = ["-s", "malloc,32M", "-p", "feature=+http2"];
        Daemon::start(&vcl(self.origin.address, subs), &[&always[..], options].concat())
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    fn comes_to_hold(&self, count: usize) {
        assert!(until(|| self.held() == count), "the origin holds {} requests, not {count}", self.held());
    }

    fn lets_go_soon(&self) {
        let asked = Instant::now();
        self.comes_to_hold(0);
        assert!(asked.elapsed() < SOON, "it took {:?}", asked.elapsed());
    }
}

/// Waits until the daemon closes the connection.
fn hold(stream: &mut TcpStream, count: &AtomicUsize) -> bool {
    count.fetch_add(1, Ordering::SeqCst);
    let _ = stream.read(&mut [0]);
    count.fetch_sub(1, Ordering::SeqCst);
    false
}

fn ask(daemon: &Daemon, path: &str) -> TcpStream {
    let mut stream = daemon.connect();
    stream.set_read_timeout(Some(PATIENCE)).expect("sockets have time-outs");
    let request = format!("GET {path} HTTP/1.1\r\nHost: robust\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("requests can be written");
    stream
}

/// A pass ends with its client, whatever it waits for: the head, the body, or the whole body before delivery.
#[test]
fn passes_end_with_their_client() {
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    for path in ["/head/", "/body/", "/body/whole"] {
        let clients: Vec<_> = (0..10).map(|_| ask(&daemon, path)).collect();
        stuck.comes_to_hold(clients.len());
        drop(clients);
        stuck.lets_go_soon();
    }
    let mut upload = daemon.connect();
    let request = b"POST /head/ HTTP/1.1\r\nHost: robust\r\nContent-Length: 5\r\n\r\nhello";
    upload.write_all(request).expect("requests can be written");
    stuck.comes_to_hold(1);
    drop(upload);
    stuck.lets_go_soon();
    assert_eq!(get(daemon.address, "/now/").expect("it serves").status, 200);
}

/// A pass over HTTP/2 ends with its stream; the connection and its other streams go on.
#[test]
fn passes_end_with_their_stream() {
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    let mut client = Http2::connect(daemon.address).expect("connections are accepted");
    for path in ["/head/", "/body/", "/body/whole"] {
        let streams: Vec<_> = (0..10).map(|_| client.get(path).expect("it can be asked")).collect();
        stuck.comes_to_hold(streams.len());
        for stream in streams {
            client.reset(stream).expect("streams can be reset");
        }
        stuck.lets_go_soon();
        let alive = client.get("/now/").expect("it can be asked");
        let answered = |client: &mut Http2| {
            let frame = client.event().expect("the connection is open");
            frame.stream == alive && frame.is_ok()
        };
        while !answered(&mut client) {}
    }
    client.get("/head/").expect("it can be asked");
    stuck.comes_to_hold(1);
    drop(client);
    stuck.lets_go_soon();
}

/// A fetch for the cache goes on without its client, and so does one that another request waits for.
#[test]
fn fetches_for_the_cache_go_on() {
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    drop(ask(&daemon, "/late/a"));
    assert!(until(|| stuck.origin.requests() == 1));
    let mut waiting = ask(&daemon, "/late/a");
    let mut head = [0; 15];
    waiting.read_exact(&mut head).expect("who waits for the same is served");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    drop(ask(&daemon, "/late/b"));
    std::thread::sleep(LATE + LATE);
    let asked = Instant::now();
    assert_eq!(get(daemon.address, "/late/b").expect("it serves").status, 200);
    assert!(asked.elapsed() < LATE, "the second was fetched again");
    assert_eq!(stuck.origin.requests(), 2);
}

/// Requests that come behind one that waits are neither lost nor taken for the client's end.
#[test]
fn pipelined_requests_are_answered() {
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    client.send("GET /slow/1 HTTP/1.1\r\nHost: robust\r\n\r\n").expect("it can be asked");
    std::thread::sleep(LATE / 5);
    client.send("GET /slow/2 HTTP/1.1\r\nHost: robust\r\n\r\n").expect("it can be asked");
    for path in ["/slow/1", "/slow/2"] {
        assert_eq!(client.response().expect("it is answered").body, path.as_bytes());
    }
}

/// Switched off, nothing ends with its client; a client that only shuts down its sending side gets its response
/// where that is allowed, and is told otherwise where it is not.
#[test]
fn parameters_decide_who_is_gone() {
    let stuck = Stuck::start();
    let half = |daemon: &Daemon, path: &str| {
        let mut client = ask(daemon, path);
        client.shutdown(Shutdown::Write).expect("sockets can be shut down");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("the daemon closes in order");
        answer
    };
    let mut daemon = stuck.daemon(&[]);
    assert!(half(&daemon, "/slow/").starts_with("HTTP/1.1 408 "));
    daemon.ok("param.set half_close_timeout 5");
    assert!(half(&daemon, "/slow/").starts_with("HTTP/1.1 200 OK"));
    daemon.ok("param.set half_close_timeout 0.1");
    assert!(half(&daemon, "/slow/").starts_with("HTTP/1.1 408 "));
    daemon.ok("param.set half_close_timeout never");
    assert!(half(&daemon, "/slow/").starts_with("HTTP/1.1 200 OK"));
    // Closed with something unread, a connection is reset.
    daemon.ok("param.set half_close_timeout never");
    let mut client = ask(&daemon, "/now/");
    client.write_all(b"GET /head/ HTTP/1.1\r\nHost: robust\r\n\r\n").expect("requests can be written");
    stuck.comes_to_hold(1);
    drop(client);
    stuck.lets_go_soon();
    daemon.ok("param.set cancel_abandoned off");
    assert!(half(&daemon, "/slow/").starts_with("HTTP/1.1 200 OK"));
    drop(ask(&daemon, "/head/"));
    stuck.comes_to_hold(1);
    std::thread::sleep(SOON);
    assert_eq!(stuck.held(), 1);
}
