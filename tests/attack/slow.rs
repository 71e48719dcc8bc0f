//! Clients that are just fast enough for each single timeout. Every transaction also has a limit as a whole.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::client::{self, Client};
use lacquer_testing::daemon::{Daemon, MAX_WAIT, vcl};
use lacquer_testing::h2::{
    END_HEADERS, END_STREAM, End, H2Client, INITIAL_WINDOW_SIZE, PREFACE, block, kind, put,
};
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::{in_parallel, shared_slot};

const STEP: Duration = Duration::from_millis(100);
const CANCEL: u32 = 8;

/// Starts a daemon with short timeouts.
fn start(options: &[&str]) -> (Origin, Daemon) {
    let origin = Origin::start(sized);
    let subs = "sub vcl_recv { if (req.method == \"POST\") { return (pass); } }";
    let given = ["-p", "timeout_idle=0.5", "-p", "feature=+http2"];
    let daemon = Daemon::start(&vcl(origin.address, subs), &[&given[..], options].concat());
    (origin, daemon)
}

/// Sends one byte per `step`. Returns the time after which the peer closed the connection.
fn trickle(mut stream: TcpStream, bytes: &[u8], step: Duration) -> Option<Duration> {
    let begun = Instant::now();
    stream.set_read_timeout(Some(step)).unwrap();
    for byte in bytes.iter().cycle() {
        if begun.elapsed() > MAX_WAIT {
            return None;
        }
        let _ = stream.write_all(&[*byte]);
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer) {
                Ok(1..) => {}
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock) => break,
                _ => return Some(begun.elapsed()),
            }
        }
    }
    None
}

fn ends(daemon: &Daemon, opening: &[u8], rest: &[u8], record: &str) {
    let mut stream = daemon.connect();
    stream.write_all(opening).unwrap();
    let after = trickle(stream, rest, STEP);
    assert!(after.is_some_and(|after| after < Duration::from_secs(4)), "{record}: {after:?}");
    assert!(daemon.logs(record), "{record}");
}

/// A request head must be complete within `timeout_idle`, however often a byte of it arrives. The same holds for the
/// HTTP/2 preface.
#[test]
fn a_head_that_trickles_ends() {
    let slot = shared_slot();
    let (_origin, daemon) = start(&[]);
    let upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
        HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let heads: [(&[u8], &[u8], &str); 4] = [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"x", "Hit timeout_idle in a request head"),
        (b"\r\n\r\n", b"\r\n", "RX_CLOSE_IDLE"),
        (b"", &PREFACE[..20], "Hit timeout_idle in a request head"),
        (upgrade, &PREFACE[..20], "Hit timeout_idle in a preface"),
    ];
    in_parallel(&slot, heads, |(opening, rest, record)| ends(&daemon, opening, rest, record));
}

/// A PROXY header must be complete within `timeout_idle`.
#[test]
fn a_proxy_header_that_trickles_ends() {
    let _slot = shared_slot();
    let (_origin, mut daemon) = start(&["-a", "proxied=127.0.0.1:0,PROXY"]);
    let port = daemon.port_of("proxied");
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let after = trickle(stream, b"PROXY TCP4 192.0.2.1 192.0.2.2 12345 80", STEP);
    assert!(after.is_some_and(|after| after < Duration::from_secs(4)), "{after:?}");
    assert!(daemon.logs("Hit timeout_idle in a PROXY header"));
}

/// A body that is slower than `req_body_min_rate` ends after six times `timeout_idle`, with either framing and over
/// either protocol. A body above the rate is accepted, however long it takes.
#[test]
fn a_body_that_trickles_ends() {
    let _slot = shared_slot();
    let (_origin, daemon) = start(&["-p", "timeout_idle=0.3"]);
    let limit = Duration::from_secs(6);
    thread::scope(|scope| {
        let length = scope.spawn(|| {
            let mut stream = daemon.connect();
            stream.write_all(b"POST /100 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n").unwrap();
            trickle(stream, b"x", STEP)
        });
        let chunked = scope.spawn(|| {
            let mut stream = daemon.connect();
            let head = b"POST /100 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head).unwrap();
            trickle(stream, b"1\r\nx\r\n", STEP)
        });
        let stream_body = scope.spawn(|| {
            let mut client = H2Client::connect(daemon.address, &[]).unwrap();
            let begun = Instant::now();
            client.send(kind::HEADERS, END_HEADERS, 1, &block("POST", "/100", &[])).unwrap();
            let mut socket = client.socket().unwrap();
            let sender = thread::spawn(move || {
                let mut byte = Vec::new();
                put(&mut byte, kind::DATA, 0, 1, b"x");
                while begun.elapsed() < MAX_WAIT && socket.write_all(&byte).is_ok() {
                    thread::sleep(STEP);
                }
            });
            let ended = client.outcome().ok().map(|outcome| (outcome.reset, begun.elapsed()));
            client.close();
            sender.join().unwrap();
            // The origin has seen the request, so that the client must not repeat it.
            let (reset, after) = ended?;
            assert_eq!(reset, Some(CANCEL));
            Some(after)
        });
        let steady = scope.spawn(|| {
            let mut client = Client::connect(daemon.address).unwrap();
            client.send("POST /100 HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n").unwrap();
            for _ in 0..20 {
                thread::sleep(STEP * 3 / 2);
                client.send(&"x".repeat(25)).unwrap();
            }
            client.response().map(|answer| answer.status)
        });
        for (name, ended) in [("length", length), ("chunked", chunked), ("stream", stream_body)] {
            let after = ended.join().unwrap();
            assert!(after.is_some_and(|after| after > STEP && after < limit), "{name}: {after:?}");
        }
        assert_eq!(steady.join().unwrap().unwrap(), 200);
    });
    assert!(daemon.logs("Hit req_body_min_rate"));
}

/// Sends a header block in CONTINUATION frames or in the bytes of one, beside another request or alone. Returns how the
/// connection ended.
fn header_block_in_pieces(daemon: &Daemon, busy: bool, whole_frames: bool) -> End {
    let mut client = H2Client::connect(daemon.address, &[]).unwrap();
    if busy {
        client.get("/stuck").unwrap();
    }
    let stream = client.new_stream();
    let piece = block("GET", "/", &[("x", "y")]);
    let mut bytes = Vec::new();
    put(&mut bytes, kind::HEADERS, END_STREAM, stream, &piece[..1]);
    if whole_frames {
        client.send_bytes(&bytes).unwrap();
        bytes.clear();
        put(&mut bytes, kind::CONTINUATION, 0, stream, &[]);
    }
    let step = bytes.len() / if whole_frames { 1 } else { 10 };
    let mut socket = client.socket().unwrap();
    let begun = Instant::now();
    let sender = thread::spawn(move || {
        for piece in bytes.chunks(step).cycle() {
            if begun.elapsed() > MAX_WAIT || socket.write_all(piece).is_err() {
                return;
            }
            // Only the nine bytes of a frame header, and then nothing more.
            thread::sleep(if whole_frames { STEP } else { MAX_WAIT / 4 });
        }
    });
    let end = client.end(Duration::from_secs(4));
    client.close();
    sender.join().unwrap();
    end
}

/// An HTTP/2 header block must be complete within `timeout_idle`, whether frames or bytes of a frame trickle, also on a
/// connection with other active streams.
#[test]
fn a_header_block_in_pieces_ends() {
    let slot = shared_slot();
    let origin = Origin::start(|_, _| {
        thread::sleep(MAX_WAIT);
        false
    });
    let options = ["-p", "timeout_idle=1", "-p", "feature=+http2"];
    let daemon = Daemon::start(&vcl(origin.address, ""), &options);
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    in_parallel(&slot, kinds, |(busy, whole_frames)| {
        let end = header_block_in_pieces(&daemon, busy, whole_frames);
        assert_ne!(end, End::Open, "busy: {busy}, frames: {whole_frames}");
    });
    assert!(daemon.logs("Hit timeout_idle in a header block"));
    assert!(daemon.logs("Hit timeout_idle in a frame"));
}

/// A client that opens its windows byte by byte has no more than `send_timeout` for a response.
#[test]
fn windows_of_a_byte_do_not_hold_a_response() {
    let _slot = shared_slot();
    let (_origin, daemon) = start(&["-p", "send_timeout=2"]);
    let mut client = H2Client::connect(daemon.address, &[(INITIAL_WINDOW_SIZE, 1)]).unwrap();
    let begun = Instant::now();
    let stream = client.get("/100000").unwrap();
    let mut socket = client.socket().unwrap();
    let sender = thread::spawn(move || {
        let mut byte = Vec::new();
        put(&mut byte, kind::WINDOW_UPDATE, 0, stream, &1u32.to_be_bytes());
        while begun.elapsed() < MAX_WAIT && socket.write_all(&byte).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let (_, body) = client.response(stream).unwrap();
    let after = begun.elapsed();
    assert!(body.len() > 2 && body.len() < 1000, "{} bytes", body.len());
    assert!(after > Duration::from_secs(1) && after < Duration::from_secs(5), "{after:?}");
    assert!(daemon.logs("Hit send_timeout"));
    client.close();
    sender.join().unwrap();
}

/// A stream whose window stays closed ends after `h2_window_timeout`.
#[test]
fn windows_that_stay_closed_end_the_stream() {
    let _slot = shared_slot();
    let (_origin, daemon) = start(&["-p", "h2_window_timeout=1"]);
    let mut client = H2Client::connect(daemon.address, &[(INITIAL_WINDOW_SIZE, 0)]).unwrap();
    client.get("/100000").unwrap();
    assert_ne!(client.end(Duration::from_secs(4)), End::Open);
    assert!(daemon.logs("Hit h2_window_timeout"));
}

/// The parts that a page includes are fetched although the clients of the page read nothing of what precedes them.
#[test]
fn clients_that_read_nothing_of_a_page_hold_up_no_one_else() {
    const PARTS: u32 = 20;
    let _slot = shared_slot();
    let include = |part| format!("<p>{}</p><esi:include src=\"/{part}\"/>", "x".repeat(300));
    let page: String = (0..PARTS).map(include).collect();
    let origin = Origin::start(move |path, stream| {
        let body = if path == "/page" { &*page } else { "part" };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(body.as_bytes()).is_ok()
    });
    let subs = "sub vcl_backend_response { if (bereq.url == \"/page\") { set beresp.do_esi = true; } }";
    let daemon = Daemon::start(&vcl(origin.address, subs), &["-p", "feature=+http2"]);
    let mut deaf = H2Client::connect(daemon.address, &[(INITIAL_WINDOW_SIZE, 1000)]).unwrap();
    for _ in 0..5 {
        deaf.get("/page").unwrap();
    }
    // The responses begin, until the window is used up.
    thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    for part in 0..PARTS {
        assert_eq!(client::get(daemon.address, &format!("/{part}")).unwrap().body, b"part");
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

const LARGE: &str = "GET /30000000 HTTP/1.1\r\nHost: a\r\n\r\n";

fn reads_nothing(daemon: &Daemon) {
    let mut silent = daemon.connect();
    silent.write_all(LARGE.as_bytes()).unwrap();
    assert!(daemon.logs("Hit idle_send_timeout"));
}

fn reads_a_little(daemon: &Daemon) {
    let begun = Instant::now();
    let mut slow = daemon.connect();
    slow.write_all(b"GET /100000000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // So much at a time that the daemon can send again within `idle_send_timeout`, whatever the kernel buffers.
    let (mut got, mut buffer) = (0, vec![0; 1_500_000]);
    while begun.elapsed() < MAX_WAIT {
        thread::sleep(STEP);
        match slow.read(&mut buffer) {
            Ok(n @ 1..) => got += n,
            _ => break,
        }
    }
    assert!(begun.elapsed() < MAX_WAIT && got < 100_000_000, "{got} bytes after {:?}", begun.elapsed());
    assert!(daemon.logs("Hit send_timeout"), "{got} bytes after {:?}", begun.elapsed());
}

fn reads_nothing_of_many_streams(daemon: &Daemon) {
    let mut deaf = H2Client::connect(daemon.address, &[(INITIAL_WINDOW_SIZE, 1 << 30)]).unwrap();
    deaf.send(kind::WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()).unwrap();
    for _ in 0..90 {
        deaf.get("/30000000").unwrap();
    }
    assert!(daemon.logs(": Hit idle_send_timeout"), "over HTTP/2");
}

/// A client that reads steadily gets the whole body, although the system reports room for more only from time to time.
#[test]
fn steady_readers_get_the_whole_body() {
    const BODY: usize = 7_000_000;
    const STEP: usize = 100_000;
    const WINDOW: u32 = 1 << 30;
    let _slot = shared_slot();
    let (_origin, daemon) = start(&["-s", "malloc,64M", "-p", "idle_send_timeout=1"]);
    let read = |mut slow: TcpStream| {
        slow.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let (mut got, mut buffer) = (0, vec![0; STEP]);
        while got <= BODY {
            thread::sleep(Duration::from_millis(150));
            let mut step = 0;
            while step < STEP && got + step <= BODY {
                match slow.read(&mut buffer[step..]) {
                    Ok(n @ 1..) => step += n,
                    _ => return got + step,
                }
            }
            got += step;
        }
        got
    };
    let mut one = daemon.connect();
    one.write_all(format!("GET /{BODY} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    let got = read(one);
    assert!(got > BODY, "HTTP/1: {got} bytes with the head");
    let mut two = H2Client::connect(daemon.address, &[(INITIAL_WINDOW_SIZE, WINDOW)]).unwrap();
    two.send(kind::WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes()).unwrap();
    two.get(&format!("/{BODY}")).unwrap();
    let got = read(two.socket().unwrap());
    assert!(got > BODY, "HTTP/2: {got} bytes with the head");
    assert!(!daemon.log_has("Hit idle_send_timeout"));
}

/// A client that reads nothing is disconnected after `idle_send_timeout`, and one that reads a little occasionally
/// after `send_timeout`.
#[test]
fn slow_readers_are_disconnected() {
    let slot = shared_slot();
    let (_origin, daemon) =
        start(&["-s", "malloc,512M", "-p", "idle_send_timeout=1", "-p", "send_timeout=3"]);
    assert_eq!(client::get(daemon.address, "/30000000").unwrap().body.len(), 30_000_000);
    let readers = [reads_nothing, reads_a_little, reads_nothing_of_many_streams];
    in_parallel(&slot, readers, |reads| reads(&daemon));
}
