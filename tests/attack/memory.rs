//! Clients that do not read, and clients that leave: memory stays within the configuration, and is released afterwards.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, until, vcl};
use lacquer_testing::effort;
use lacquer_testing::h2::{H2Client, INITIAL_WINDOW_SIZE, kind};
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::shared_slot;

use crate::gz;

const MB: u64 = 1 << 20;

/// Sends a request whose response is not read.
fn ask_and_stall(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connections are accepted");
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: attack\r\n\r\n").as_bytes())
        .expect("requests can be sent");
    stream
}

/// Sends a request on an HTTP/2 stream with the largest windows. The response is not read.
fn ask_and_stall_h2(address: SocketAddr, path: &str) -> TcpStream {
    const MOST: u32 = 0x7fff_ffff;
    let mut client =
        H2Client::connect(address, &[(INITIAL_WINDOW_SIZE, MOST)]).expect("connections are accepted");
    let more = (MOST - 0xffff).to_be_bytes();
    client.send(kind::WINDOW_UPDATE, 0, 0, &more).expect("frames can be written");
    client.get(path).expect("requests can be sent");
    client.socket().expect("there is a handle")
}

/// Returns the resident memory once it no longer grows.
fn settled(daemon: &mut Daemon) -> u64 {
    let mut last = daemon.resident().memory;
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(300));
        let now = daemon.resident().memory;
        if now < last + MB / 2 {
            return now;
        }
        last = now;
    }
    last
}

/// Starts an origin. `/bomb` is 51 kB of gzip that decompress to 50 MB; `/page` includes it, and is gzipped too.
fn bombs() -> Origin {
    let bomb = gz::zeros(50 << 20);
    Origin::start(move |path, stream| {
        let (body, encoding) = match path {
            "/page" => (b"<p>before</p><esi:include src=\"/bomb\"/><p>after</p>".as_slice(), ""),
            _ => (bomb.as_slice(), "Content-Encoding: gzip\r\n"),
        };
        let head = format!("HTTP/1.1 200 OK\r\n{encoding}Content-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(body).is_ok()
    })
}

/// Lets clients stall on a path. Memory above idle stays below 150 kB for each, plus 10 MB for all.
fn stalls(path: &str, options: &[&str], ask: fn(SocketAddr, &str) -> TcpStream) {
    let clients = effort(150, 1000);
    let origin = bombs();
    let subs = "sub vcl_backend_response { if (bereq.url == \"/page\") { set beresp.do_esi = true; } }";
    let all = [&["-s", "malloc,64M", "-p", "idle_send_timeout=120"], options].concat();
    let mut daemon = Daemon::start(&vcl(origin.address, subs), &all);
    let mut first = Client::connect(daemon.address).expect("connections are accepted");
    let packed = first.ask("GET /page HTTP/1.1\r\nHost: attack\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(packed.expect("the page is served").status, 200);
    let idle = settled(&mut daemon);
    let stalled: Vec<_> = (0..clients).map(|_| ask(daemon.address, path)).collect();
    let above = settled(&mut daemon).saturating_sub(idle);
    eprintln!("{clients} stalled clients of {path}: {} kB above idle", above >> 10);
    let limit = (150 * MB * clients) / 1000 + if clients < 1000 { 10 * MB } else { 0 };
    assert!(above < limit, "{clients} stalled clients of {path} take {} MB", above / MB);
    drop(stalled);
}

/// A client that does not read a body that is decompressed for it costs at most 150 kB.
#[test]
fn stalled_clients_of_a_bomb_hold_one_step_each() {
    let _slot = shared_slot();
    stalls("/bomb", &[], ask_and_stall);
}

/// The same if the body is included in a page.
#[test]
fn stalled_clients_of_an_included_bomb_hold_one_step_each() {
    let _slot = shared_slot();
    stalls("/page", &[], ask_and_stall);
}

/// The same over HTTP/2, whatever windows the client grants.
#[test]
fn stalled_streams_of_a_bomb_hold_one_step_each() {
    let _slot = shared_slot();
    stalls("/bomb", &["-p", "feature=+http2"], ask_and_stall_h2);
}

/// Starts an origin. `/SIZE/FORM` is a body of SIZE megabytes, with a length or chunked. The second value counts the
/// megabytes that were read of all bodies.
fn large() -> (Origin, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let counter = sent.clone();
    // Made once: making it for each request takes more time than the daemon needs.
    let plain: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_be_bytes).collect();
    let chunk = [b"100000\r\n", plain.as_slice(), b"\r\n"].concat();
    let origin = Origin::start(move |path, stream| {
        let mut words = path.split('/').skip(1);
        let megabytes: usize = words.next().and_then(|w| w.parse().ok()).unwrap_or(1);
        let chunked = words.next() == Some("chunked");
        let framing = if chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {}", megabytes << 20)
        };
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: private\r\n{framing}\r\n\r\n");
        let mut written = stream.write_all(head.as_bytes()).is_ok();
        let piece = if chunked { &chunk } else { &plain };
        for _ in 0..megabytes {
            written = written && stream.write_all(piece).is_ok();
            counter.fetch_add(u64::from(written), Ordering::Relaxed);
        }
        written && (!chunked || stream.write_all(b"0\r\n\r\n").is_ok())
    });
    (origin, sent)
}

const PASS: &str = "sub vcl_recv { return (pass); }";

/// The fetch of a response that does not enter the cache is at most `transit_buffer` ahead of its client.
#[test]
fn a_stalled_pass_waits_for_its_client() {
    let _slot = shared_slot();
    let megabytes = effort(150, 600);
    for form in ["length", "chunked"] {
        let (origin, sent) = large();
        let mut daemon = Daemon::start(&vcl(origin.address, PASS), &["-s", "malloc,64M"]);
        get(daemon.address, "/1/length").expect("a response arrives");
        let idle = settled(&mut daemon);
        let stalled = ask_and_stall(daemon.address, &format!("/{megabytes}/{form}"));
        let above = settled(&mut daemon).saturating_sub(idle);
        let taken = sent.load(Ordering::Relaxed);
        eprintln!("a stalled pass ({form}): {} kB above idle, {taken} MB taken of the origin", above >> 10);
        assert!(above < 20 * MB, "a stalled pass ({form}) takes {} MB", above / MB);
        drop(stalled);
    }
}

/// A range far beyond `transit_buffer` is delivered, although no bytes before it are.
#[test]
fn a_range_far_into_a_pass_is_delivered() {
    let _slot = shared_slot();
    let (origin, _) = large();
    let subs = "sub vcl_recv { return (pass); } sub vcl_backend_fetch { unset bereq.http.Range; }";
    let daemon = Daemon::start(&vcl(origin.address, subs), &["-s", "malloc,64M"]);
    for form in ["length", "chunked"] {
        let request =
            format!("GET /20/{form} HTTP/1.1\r\nHost: attack\r\nRange: bytes=15728640-15728647\r\n\r\n");
        let mut client = Client::connect(daemon.address).expect("connections are accepted");
        let answer = client.ask(&request).expect("a response arrives");
        assert_eq!((answer.status, answer.body.as_slice()), (206, [0u8, 0, 0, 0, 0, 0, 0, 1].as_slice()));
    }
}

/// A background fetch whose response turns out to be uncacheable has no reader, so it ends.
#[test]
fn a_background_fetch_without_reader_ends() {
    let _slot = shared_slot();
    let (origin, sent) = large();
    let subs = "sub vcl_backend_response {
        if (bereq.is_bgfetch) { set beresp.uncacheable = true; set beresp.ttl = 60s; }
        else { unset beresp.http.Cache-Control; set beresp.ttl = 0.1s; set beresp.grace = 60s; } }";
    let mut daemon = Daemon::start(&vcl(origin.address, subs), &["-s", "malloc,64M"]);
    get(daemon.address, "/30/length").expect("a response arrives");
    std::thread::sleep(Duration::from_millis(200));
    let before = settled(&mut daemon);
    get(daemon.address, "/30/length").expect("a stale response arrives");
    let above = settled(&mut daemon).saturating_sub(before);
    assert!(above < 10 * MB, "the hit-for-miss object keeps {} MB", above / MB);
    assert!(until(|| origin.requests() == 2), "a fetch in the background was made");
    assert!(sent.load(Ordering::Relaxed) < 60, "all of it was fetched");
}

/// After a peak, memory returns to the system within half a minute.
#[test]
fn memory_is_released_after_abandoned_passes() {
    let passes = effort(600, 10_000);
    let (origin, _) = large();
    let mut daemon = Daemon::start(&vcl(origin.address, PASS), &["-s", "malloc,64M"]);
    for _ in 0..20 {
        get(daemon.address, "/1/length").expect("a response arrives");
    }
    let before = settled(&mut daemon);
    let mut open = std::collections::VecDeque::new();
    let mut peak = 0;
    for number in 0..passes {
        let form = ["length", "chunked"][number % 2];
        open.push_back(ask_and_stall(daemon.address, &format!("/2/{form}")));
        if open.len() > 100 {
            drop(open.pop_front());
        }
        if number % 200 == 0 {
            peak = daemon.resident().memory.max(peak);
        }
    }
    drop(open);
    let by = Instant::now() + Duration::from_secs(30);
    let mut after = daemon.resident().memory;
    while after > before + 20 * MB && Instant::now() < by {
        std::thread::sleep(Duration::from_millis(500));
        after = daemon.resident().memory;
    }
    let waited = 30 - by.saturating_duration_since(Instant::now()).as_secs();
    eprintln!(
        "{passes} abandoned passes: {} MB before, {} at the peak, {} after {waited} s",
        before / MB,
        peak / MB,
        after / MB
    );
    assert!(after <= before + 20 * MB, "{} MB before and {} MB after", before / MB, after / MB);
}
