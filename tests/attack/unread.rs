//! Tests origins that stop reading: uploads and pipes to them end, and their connections and memory are freed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, MAX_WAIT, until, vcl};
use lacquer_testing::effort;
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::shared_slot;

/// The size of a body that the buffers of two sockets cannot hold.
const BODY: usize = 16 << 20;
/// The time limit that is configured in the daemons, and the time within which an expired limit must have taken effect.
const LIMIT: Duration = Duration::from_secs(1);
/// The limit counts from the last byte that the kernel accepted, which may be seconds after the receiver stopped.
const SOON: Duration = Duration::from_secs(12);

/// An origin that does not read request bodies: for `/deaf/` pages it reads nothing, for `/slow/` pages it reads
/// slowly.
struct Deaf {
    origin: Origin,
    /// The number of open connections that the origin does not read.
    held: Arc<AtomicUsize>,
}

impl Deaf {
    fn start() -> Deaf {
        let held = Arc::new(AtomicUsize::new(0));
        let count = held.clone();
        let origin = Origin::start(move |path: &str, stream: &mut TcpStream| match path.split('/').nth(1) {
            Some("deaf") => hold(stream, &count),
            Some("slow") => read_slowly(stream) && sized(path, stream),
            _ => sized(path, stream),
        });
        Deaf { origin, held }
    }

    /// Starts a daemon that caches the request bodies of pages with `cached` in their name, and pipes requests to pages
    /// with `pipe` in their name. `options` set the limits of requests and pipes.
    fn daemon(&self, options: &[&str]) -> Daemon {
        let subs = "import std;
            sub vcl_recv {
                if (req.url ~ \"cached\" && !std.cache_req_body(64MB)) { return (synth(400)); }
                if (req.url ~ \"pipe\") { return (pipe); }
            }
            sub vcl_backend_fetch {
                if (bereq.url ~ \"by_vcl\") { set bereq.first_byte_timeout = 1s; }
            }";
        let always = ["-s", "malloc,32M", "-p", "timeout_idle=60"];
        Daemon::start(&vcl(self.origin.address, subs), &[&always[..], options].concat())
    }

    fn holds(&self, count: usize) -> bool {
        until(|| self.held.load(Ordering::SeqCst) == count)
    }
}

/// Reads nothing until the daemon resets the connection. A normal end of the connection would arrive after the body.
fn hold(stream: &mut TcpStream, count: &AtomicUsize) -> bool {
    count.fetch_add(1, Ordering::SeqCst);
    while matches!(stream.take_error(), Ok(None)) {
        thread::sleep(Duration::from_millis(10));
    }
    count.fetch_sub(1, Ordering::SeqCst);
    false
}

/// Reads some of the body in each tenth of `LIMIT` for three times `LIMIT`, then the rest. Stops 64 kB before the end,
/// because the first part of the body was read with the head.
fn read_slowly(stream: &mut TcpStream) -> bool {
    // A kernel reports room to the sender only once a sixteenth of its buffer is free. If the buffer grows, that takes
    // longer than `LIMIT`.
    sockopt::set_socket_recv_buffer_size(&*stream, 128 << 10).expect("sockets have buffers");
    let mut left = BODY - (64 << 10);
    let mut piece = vec![0; 64 << 10];
    let begun = Instant::now();
    while left > 0 {
        let Ok(n @ 1..) = stream.read(&mut piece) else { return false };
        left = left.saturating_sub(n);
        if begun.elapsed() < 3 * LIMIT {
            thread::sleep(LIMIT / 10);
        }
    }
    true
}

/// Starts a client that posts a body and waits for the response. The thread returns the status of the response, or
/// `None`.
fn post(daemon: &Daemon, path: &str, coding: &str) -> JoinHandle<Option<u16>> {
    let mut client = daemon.connect();
    client.set_read_timeout(Some(MAX_WAIT)).expect("sockets have time-outs");
    let head = format!("POST {path} HTTP/1.1\r\nHost: robust\r\n{coding}\r\n\r\n");
    let is_chunked = coding.contains("chunked");
    thread::spawn(move || {
        let mut sender = client.try_clone().ok()?;
        // The daemon may stop reading and send its response while the body is being sent.
        let sending = thread::spawn(move || {
            sender.write_all(head.as_bytes())?;
            let frame = |text: String| if is_chunked { text } else { String::new() };
            sender.write_all(frame(format!("{BODY:x}\r\n")).as_bytes())?;
            sender.write_all(&vec![b'x'; BODY])?;
            sender.write_all(frame("\r\n0\r\n\r\n".to_owned()).as_bytes())
        });
        let mut head = [0; 12];
        let read = client.read_exact(&mut head);
        let _ = client.shutdown(std::net::Shutdown::Both);
        let _ = sending.join();
        read.ok().and_then(|()| str::from_utf8(&head[9..]).ok()?.parse().ok())
    })
}

fn sized_body() -> String {
    format!("Content-Length: {BODY}")
}

/// Sends requests and waits until all of them have reached the origin, which then reads nothing more.
fn posts(deaf: &Deaf, daemon: &Daemon, path: &str, coding: &str) -> Vec<JoinHandle<Option<u16>>> {
    let clients: Vec<_> = (0..effort(2, 10)).map(|_| post(daemon, path, coding)).collect();
    assert!(deaf.holds(clients.len()), "{path}: the origin has the requests");
    clients
}

/// Checks that the connections to the origin end soon, and that the clients receive this status, or no response.
fn all_end(deaf: &Deaf, clients: Vec<JoinHandle<Option<u16>>>, what: &str, status: Option<u16>) {
    let since = Instant::now();
    assert!(deaf.holds(0), "{what}: connections to the origin stay");
    assert!(since.elapsed() < SOON, "{what}: they ended after {:?}", since.elapsed());
    for client in clients {
        assert_eq!(client.join().expect("it does not panic"), status, "{what}");
    }
}

/// An upload that the origin does not read fails after `first_byte_timeout`: the client receives an error, the origin's
/// connection is reset, and the log names the limit.
#[test]
fn uploads_that_are_not_read_fail() {
    let _slot = shared_slot();
    let deaf = Deaf::start();
    let daemon = deaf.daemon(&["-p", "first_byte_timeout=1", "-p", "max_retries=0"]);
    for path in ["/deaf/streamed", "/deaf/cached"] {
        for coding in [sized_body(), "Transfer-Encoding: chunked".to_owned()] {
            let clients = posts(&deaf, &daemon, path, &coding);
            all_end(&deaf, clients, path, Some(503));
        }
    }
    assert!(daemon.logs("send timeout (first_byte_timeout)"));
    assert_eq!(get(daemon.address, "/100/").expect("it serves").status, 200);
}

/// A limit that VCL sets for a request takes precedence over the parameter.
#[test]
fn vcl_limits_uploads() {
    let _slot = shared_slot();
    let deaf = Deaf::start();
    let daemon = deaf.daemon(&["-p", "first_byte_timeout=never"]);
    let clients = posts(&deaf, &daemon, "/deaf/by_vcl", &sized_body());
    all_end(&deaf, clients, "by_vcl", Some(503));
}

/// An origin that reads slowly receives all of an upload or a pipe, however long that takes.
#[test]
fn origins_that_read_slowly_get_all() {
    let _slot = shared_slot();
    let deaf = Deaf::start();
    let daemon = deaf.daemon(&["-p", "first_byte_timeout=1", "-p", "pipe_timeout=1"]);
    for path in ["/slow/", "/slow/cached", "/slow/pipe", "/slow/pipe/cached"] {
        let begun = Instant::now();
        let client = post(&daemon, path, &sized_body());
        assert_eq!(client.join().expect("it does not panic"), Some(200), "{path}");
        assert!(begun.elapsed() > 2 * LIMIT, "{path} took {:?} only", begun.elapsed());
    }
}

/// A pipe in which no byte moves ends after `pipe_timeout`, even before the whole request was sent.
#[test]
fn pipes_that_are_not_read_end() {
    let _slot = shared_slot();
    let deaf = Deaf::start();
    let daemon = deaf.daemon(&["-p", "pipe_timeout=1"]);
    for path in ["/deaf/pipe", "/deaf/pipe/cached"] {
        let clients = posts(&deaf, &daemon, path, &sized_body());
        all_end(&deaf, clients, path, None);
    }
    assert_eq!(get(daemon.address, "/100/").expect("it serves").status, 200);
}

/// A pipe ends at its deadline, even before the whole request was sent.
#[test]
fn pipes_that_are_not_read_have_a_deadline() {
    let _slot = shared_slot();
    let deaf = Deaf::start();
    let daemon = deaf.daemon(&["-p", "pipe_timeout=never", "-p", "pipe_task_deadline=3"]);
    for path in ["/deaf/pipe", "/deaf/pipe/cached"] {
        let clients = posts(&deaf, &daemon, path, &sized_body());
        all_end(&deaf, clients, path, None);
    }
}

/// A pipe to an origin that does not read ends when its client resets the connection, even without a limit.
#[test]
fn pipes_that_are_not_read_end_with_their_client() {
    let _slot = shared_slot();
    let deaf = Deaf::start();
    let mut daemon = deaf.daemon(&["-p", "pipe_timeout=never"]);
    let worker = daemon.worker();
    let descriptors = || std::fs::read_dir(format!("/proc/{worker}/fd")).map_or(0, Iterator::count);
    let before = descriptors();
    for path in ["/deaf/pipe", "/deaf/pipe/cached"] {
        let mut client = daemon.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: robust\r\n{}\r\n\r\n", sized_body());
        client.write_all(head.as_bytes()).expect("requests can be written");
        client.set_write_timeout(Some(LIMIT)).expect("sockets have time-outs");
        // The daemon reads only a part of a body that it does not cache. A client that only closes looks like one that
        // waits for a response; a reset arrives at once.
        let _ = client.write_all(&vec![b'x'; BODY]);
        sockopt::set_socket_linger(&client, Some(Duration::ZERO)).expect("sockets can be reset");
        assert!(deaf.holds(1), "{path}: the origin has the request");
        drop(client);
        all_end(&deaf, Vec::new(), path, None);
    }
    assert!(until(|| descriptors() <= before), "{} descriptors, {before} before", descriptors());
}

/// A client that shuts down its sending side and waits for the response keeps its pipe, however long the origin pauses
/// within `pipe_timeout`.
#[test]
fn pipes_of_half_closed_clients_are_sent_whole() {
    let _slot = shared_slot();
    let received = Arc::new(AtomicUsize::new(0));
    let count = received.clone();
    let origin = Origin::start(move |_: &str, stream: &mut TcpStream| {
        thread::sleep(3 * LIMIT);
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            count.fetch_add(n, Ordering::SeqCst);
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        false
    });
    let deaf = Deaf { origin, held: Arc::default() };
    let daemon = deaf.daemon(&["-p", "half_close_timeout=1"]);
    let mut client = daemon.connect();
    let head = format!("POST /pipe HTTP/1.1\r\nHost: robust\r\n{}\r\n\r\n", sized_body());
    client.write_all(head.as_bytes()).expect("requests can be written");
    client.write_all(&vec![b'x'; BODY]).expect("the origin reads in the end");
    client.shutdown(std::net::Shutdown::Write).expect("sockets can be half-closed");
    let mut response = Vec::new();
    client.set_read_timeout(Some(MAX_WAIT)).expect("sockets have time-outs");
    client.read_to_end(&mut response).expect("the origin responds");
    assert!(response.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&response));
    // The origin's beginning of the body was read with the head.
    assert!(received.load(Ordering::SeqCst) >= BODY - (64 << 10));
}
