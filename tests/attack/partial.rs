//! Bodies that origins cut short, with `feature=+rfc9111`. The received part is completed by the next request, if the
//! origin proves that the rest belongs to it. Promise: whatever an origin sends as the rest, a client gets the bytes of
//! one version of a response, or notices that the response is incomplete.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use lacquer_testing::client::{Client, Response, get};
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::slots::shared_slot;

pub const TOTAL: usize = 100_000;
const CUT: usize = 40_000;

pub const MODE: [&str; 4] = ["-s", "malloc,32M", "-p", "feature=+rfc9111"];
pub const METHODS: &str = r#"
    sub vcl_recv {
        if (req.method == "PURGE") { return (purge); }
    }
"#;

/// Returns the body of a version. No two versions have a byte in common at the same place.
pub fn version(number: usize) -> Vec<u8> {
    (0..TOTAL).map(|at| ((at * 31 + at / 251 + number * 60) % 251) as u8).collect()
}

/// What an origin does with a request.
pub enum Does {
    /// Sends a head and these bytes, and closes the connection.
    Sends(String, Vec<u8>),
    /// Sends the same after the purge or ban that a channel announces.
    Waits(std::sync::mpsc::Receiver<()>, String, Vec<u8>),
    /// Sends the head and half of these bytes before the purge or ban, and the others after it.
    Pauses(std::sync::mpsc::Receiver<()>, String, Vec<u8>),
}

/// An origin that closes each connection after one response, and records the heads of requests.
#[derive(Clone)]
pub struct Strict {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Strict {
    /// Starts an origin. `does` is called with the head of a request, and the number of earlier ones for its path.
    pub fn start(does: impl Fn(&str, usize) -> Does + Send + Sync + 'static) -> Strict {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let origin = Strict { address, heads: Arc::default() };
        let (heads, does) = (origin.heads.clone(), Arc::new(does));
        let counts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heads, does, counts) = (heads.clone(), does.clone(), counts.clone());
                thread::spawn(move || serve(stream, &heads, &counts, &*does));
            }
        });
        origin
    }

    /// Starts an origin that cuts the first response for a path short, as [`named`] tells. It sends the rest to whoever
    /// asks for it as it should, and version 2 to others.
    pub fn that_cuts_once() -> Strict {
        Strict::start(|head, before| match (before, named(head).1) {
            (0, cut) => cut_short(cut, &[V1]),
            (_, cut) if asks(head, cut) => rest(cut),
            _ => whole(2),
        })
    }

    /// Returns the heads of the requests for a path, without the path.
    pub fn requests(&self, path: &str) -> Vec<String> {
        let first = format!("GET {path} ");
        let heads = self.heads.lock().expect("no thread panics while it holds the lock");
        heads.iter().filter_map(|head| head.strip_prefix(&first)).map(str::to_owned).collect()
    }
}

fn serve(
    mut stream: TcpStream,
    heads: &Mutex<Vec<String>>,
    counts: &Mutex<HashMap<String, usize>>,
    does: &impl Fn(&str, usize) -> Does,
) {
    let Ok(input) = stream.try_clone() else { return };
    let mut head = String::new();
    let mut input = BufReader::new(input);
    while !head.ends_with("\r\n\r\n") {
        if input.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let before = {
        let mut counts = counts.lock().expect("no thread panics while it holds the lock");
        let count = counts.entry(path).or_default();
        *count += 1;
        *count - 1
    };
    heads.lock().expect("no thread panics while it holds the lock").push(head.clone());
    let (early, until, late) = match does(&head, before) {
        Does::Sends(head, body) => ([head.into_bytes(), body].concat(), None, Vec::new()),
        Does::Waits(until, head, body) => (Vec::new(), Some(until), [head.into_bytes(), body].concat()),
        Does::Pauses(until, head, mut body) => {
            let late = body.split_off(body.len() / 2);
            ([head.into_bytes(), body].concat(), Some(until), late)
        }
    };
    let sent = stream.write_all(&early).and_then(|()| {
        let _ = until.map(|until| until.recv());
        stream.write_all(&late)
    });
    if sent.is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }
}

pub fn head(status: &str, length: usize, lines: &[&str]) -> String {
    let mut head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n");
    for line in lines {
        head += line;
        head += "\r\n";
    }
    head + "\r\n"
}

pub const FRESH: &str = "Cache-Control: max-age=3600";
pub const V1: &str = "ETag: \"v1\"";

/// The first `cut` bytes of version 1, with the length of all.
pub fn cut_short(cut: usize, lines: &[&str]) -> Does {
    Does::Sends(head("200 OK", TOTAL, &[&[FRESH], lines].concat()), version(1)[..cut].to_vec())
}

pub fn whole(number: usize) -> Does {
    Does::Sends(head("200 OK", TOTAL, &[FRESH, &format!("ETag: \"v{number}\"")]), version(number))
}

fn range_after(cut: usize) -> String {
    format!("Content-Range: bytes {cut}-{}/{TOTAL}", TOTAL - 1)
}

/// The rest of version 1 after `cut` bytes, as an honest origin sends it.
pub fn rest(cut: usize) -> Does {
    Does::Sends(
        head("206 Partial Content", TOTAL - cut, &[FRESH, V1, &range_after(cut)]),
        version(1)[cut..].to_vec(),
    )
}

pub fn asks(head: &str, cut: usize) -> bool {
    head.contains(&format!("\r\nRange: bytes={cut}-\r\n")) && head.contains("\r\nIf-Range: \"v1\"\r\n")
}

/// Returns the name and the length of the part in a head or path, as in `/name/40001`. The lengths of a test differ, so
/// that its log tells which part is kept.
pub fn named(head: &str) -> (&str, usize) {
    let path = head.split(' ').find(|word| word.starts_with('/')).unwrap_or_default();
    let (name, cut) = path.rsplit_once('/').unwrap_or((path, ""));
    (name, cut.parse().unwrap_or(CUT))
}

/// Returns whether a client has noticed that a response is incomplete: by its early end, or by a 503 if the end was
/// early enough.
fn is_failure(got: &std::io::Result<Response>) -> bool {
    got.as_ref().map_or(true, |answer| answer.status == 503)
}

/// Causes a part: a response that ends after `cut` bytes. Returns when the part is in the cache.
pub fn cut(daemon: &Daemon, path: &str, cut: usize) {
    assert!(
        is_failure(&get(daemon.address, path)),
        "{path}: a response that is cut short is taken for whole"
    );
    // The record is written when the part is in the index.
    assert!(daemon.logs(&format!("Received {cut} of {TOTAL} bytes, kept as a part")), "{path} {cut}");
}

pub fn is_version(answer: &Response, number: usize) -> bool {
    answer.status == 200 && answer.body == version(number) && answer.header("Content-Range").is_none()
}

/// A false rest: its status, the lines of its head, the length of its Content-Length and body relative to the right one.
type Lie = (&'static str, &'static [&'static str], isize, isize);

const RIGHT: &str = "Content-Range: bytes N-99999/100000";

/// Responses to the request for the rest. `N` stands for the length of the part. The body is that of version 2.
const LIES: [Lie; 33] = [
    ("206 P", &[RIGHT], 0, 0),
    ("206 P", &["ETag: \"v2\"", RIGHT], 0, 0),
    ("206 P", &["ETag: W/\"v1\"", RIGHT], 0, 0),
    ("206 P", &["ETag: v1", RIGHT], 0, 0),
    ("206 P", &["ETag: \"v2\"", V1, RIGHT], 0, 0),
    ("206 P", &[V1, "ETag: \"v2\"", RIGHT], 0, 0),
    ("206 P", &[V1], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes 0-99999/100000"], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes 39999-99998/100000"], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes N-99998/100000"], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes N-99999/100001"], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes N-100000/100001"], 1, 1),
    ("206 P", &[V1, "Content-Range: bytes N-99999/*"], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes */100000"], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes N-18446744073709551615/18446744073709551616"], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes 36893488147419143232-99999/100000"], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes N-99999/340282366920938463463374607431768311456"], 0, 0),
    ("206 P", &[V1, "Content-Range: bytes 99999-N/100000"], 0, 0),
    ("206 P", &[V1, "Content-Range: lines N-99999/100000"], 0, 0),
    ("206 P", &[V1, "Content-Range: ,;\u{80}"], 0, 0),
    ("206 P", &[V1, RIGHT, RIGHT], 0, 0),
    ("206 P", &[V1, RIGHT, "Content-Range: bytes 0-9/10"], 0, 0),
    ("206 P", &[V1, RIGHT], -1, -1),
    ("206 P", &[V1, RIGHT], 1, 1),
    ("206 P", &[V1, RIGHT], -59_000, -59_000),
    ("206 P", &[V1, RIGHT, "Content-Type: multipart/byteranges; boundary=x"], 0, 0),
    ("206 P", &[V1, "Content-Type: multipart/byteranges; boundary=x"], 0, 0),
    ("206 P", &[V1, RIGHT, "Content-Encoding: gzip"], 0, 0),
    ("206 P", &[V1, RIGHT, "Vary: User-Agent"], 0, 0),
    ("206 P", &[V1, RIGHT, "Vary: *"], 0, 0),
    ("304 N", &[V1], 0, 0),
    ("416 R", &["Content-Range: bytes */100000"], 0, 0),
    ("412 P", &[], 0, 0),
];

fn lie(of: &Lie, cut: usize) -> Does {
    let (status, lines, length, body) = *of;
    let lines: Vec<String> = lines.iter().map(|line| line.replace('N', &cut.to_string())).collect();
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    lines.push(FRESH);
    if status.starts_with("304") {
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{}\r\n\r\n", lines.join("\r\n"));
        return Does::Sends(head, Vec::new());
    }
    let [length, body] = [length, body].map(|by| (TOTAL - cut).saturating_add_signed(by));
    let bytes = version(2).into_iter().cycle().skip(cut).take(body).collect();
    Does::Sends(head(status, length, &lines), bytes)
}

#[test]
fn no_lie_becomes_the_rest_of_a_part() {
    let _slot = shared_slot();
    let number = |head: &str| -> usize {
        head.split([' ', '/']).nth(2).and_then(|word| word.parse().ok()).expect("paths are numbers")
    };
    let origin = Strict::start(move |head, before| {
        let at = number(head);
        match before {
            0 => cut_short(CUT + at, &[V1]),
            _ if asks(head, CUT + at) => lie(&LIES[at], CUT + at),
            _ => whole(2),
        }
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &MODE);
    let mut faults = Vec::new();
    for (at, lie) in LIES.iter().enumerate() {
        let path = format!("/{at}");
        cut(&daemon, &path, CUT + at);
        for _ in 0..2 {
            match get(daemon.address, &path) {
                Ok(answer) if is_version(&answer, 2) => {}
                Ok(answer) => faults.push(format!("{lie:?}: {} {}", answer.status, answer.body.len())),
                Err(error) => faults.push(format!("{lie:?}: {error}")),
            }
        }
        let requests = origin.requests(&path);
        let asked: Vec<bool> = requests.iter().map(|head| asks(head, CUT + at)).collect();
        if asked != [false, true, false] {
            faults.push(format!("{lie:?}: {requests:?}"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_rest_completes_a_part() {
    let _slot = shared_slot();
    let origin = Strict::start(|head, before| {
        let (name, cut) = named(head);
        let again = cut + 20_000;
        match (name, before) {
            ("/surplus", 1) => match rest(cut) {
                Does::Sends(head, body) => Does::Sends(head, [&body[..], b"and more"].concat()),
                waits @ (Does::Waits(..) | Does::Pauses(..)) => waits,
            },
            ("/twice", 1) => match rest(cut) {
                Does::Sends(head, body) => Does::Sends(head, body[..again - cut].to_vec()),
                waits @ (Does::Waits(..) | Does::Pauses(..)) => waits,
            },
            ("/twice", 2) if asks(head, again) => rest(again),
            ("/replaced", 1) => whole(2),
            ("/missing", 1) => Does::Sends(self::head("404 Not Found", 2, &[FRESH]), b"no".to_vec()),
            ("/failed", 1) => Does::Sends(self::head("503 Busy", 4, &[]), b"busy".to_vec()),
            (_, 0) => cut_short(cut, &[V1]),
            _ if asks(head, cut) => rest(cut),
            _ => whole(2),
        }
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &MODE);
    for path in [
        "/honest/40001",
        "/surplus/40002",
        "/twice/40003",
        "/replaced/40004",
        "/missing/40005",
        "/failed/40006",
    ] {
        let (name, length) = named(path);
        cut(&daemon, path, length);
        let second = get(daemon.address, path);
        assert!(asks(&origin.requests(path)[1], length), "{path}: {:?}", origin.requests(path));
        match name {
            "/twice" => {
                assert!(is_failure(&second), "{path}");
                assert!(daemon.logs("Received 60003 of 100000 bytes, kept as a part"));
            }
            "/missing" => assert_eq!(second.expect("it is whole").status, 404),
            "/failed" => assert_eq!(second.expect("it is whole").body, b"busy"),
            "/replaced" => assert!(is_version(&second.expect("it is whole"), 2), "{path}"),
            _ => {
                let second = second.expect("it is whole");
                assert!(is_version(&second, 1), "{path}: {}", second.head);
                assert_eq!(second.header("Content-Length"), Some("100000"));
                assert_eq!(second.header("ETag"), Some("\"v1\""));
            }
        }
        let requests = if matches!(name, "/twice" | "/failed") { 3 } else { 2 };
        for _ in 0..2 {
            let later = get(daemon.address, path).expect("it is whole");
            let expected = if name == "/replaced" { 2 } else { 1 };
            assert!(name == "/missing" || is_version(&later, expected), "{path}: {}", later.head);
            assert_eq!(origin.requests(path).len(), requests, "{path}: {:?}", origin.requests(path));
        }
    }
}

/// Promise: bytes after the rest are no part of the body, also if there are as many as those that are stored. The
/// workspace has room for all of them beside the head.
#[test]
fn surplus_bytes_do_not_replace_a_part() {
    let _slot = shared_slot();
    let origin = Strict::start(|head, before| match (before, named(head).1) {
        (0, cut) => cut_short(cut, &[V1]),
        (_, cut) if asks(head, cut) => match rest(cut) {
            Does::Sends(head, body) => Does::Sends(head, [&body[..], &version(2)[..cut]].concat()),
            waits @ (Does::Waits(..) | Does::Pauses(..)) => waits,
        },
        _ => whole(2),
    });
    let options = [&MODE[..], &["-p", "workspace_backend=512k"]].concat();
    let daemon = Daemon::start(&vcl(origin.address, ""), &options);
    for path in ["/much/20001", "/more/99000"] {
        cut(&daemon, path, named(path).1);
        for _ in 0..2 {
            let answer = get(daemon.address, path).expect("it is whole");
            assert!(is_version(&answer, 1) || is_version(&answer, 2), "{path}: {}", answer.head);
        }
    }
}

/// Promise: if a part and the rest do not fit into the storage together, the part gives way, and later requests succeed.
#[test]
fn a_part_does_not_fill_the_storage() {
    const LONG: usize = 5 << 20;
    const HELD: usize = 4 << 20;
    let _slot = shared_slot();
    let body: Arc<Vec<u8>> = Arc::new((0..LONG).map(|at| (at * 31 + at / 251) as u8).collect());
    let sent = body.clone();
    let origin = Strict::start(move |request, before| {
        let rest = format!("Content-Range: bytes {HELD}-{}/{LONG}", LONG - 1);
        match before {
            0 => Does::Sends(head("200 OK", LONG, &[FRESH, V1]), sent[..HELD].to_vec()),
            _ if asks(request, HELD) => {
                Does::Sends(head("206 P", LONG - HELD, &[FRESH, V1, &rest]), sent[HELD..].to_vec())
            }
            _ => Does::Sends(head("200 OK", LONG, &[FRESH, V1]), sent.to_vec()),
        }
    });
    let options = ["-s", "malloc,8M", "-s", "Transient=malloc,8M", "-p", "feature=+rfc9111"];
    let daemon = Daemon::start(&vcl(origin.address, ""), &options);
    assert!(is_failure(&get(daemon.address, "/")));
    assert!(daemon.logs("kept as a part"));
    // The first may fail.
    let _ = get(daemon.address, "/");
    for _ in 0..2 {
        let answer = get(daemon.address, "/").expect("it is whole");
        assert!(answer.status == 200 && answer.body == *body, "{}", answer.head);
    }
}

/// Promise: a request for a range gets that range, whether a part has it or not, and only whole bodies are called whole.
#[test]
fn ranges_beside_a_part_are_right() {
    let _slot = shared_slot();
    let origin = Strict::that_cuts_once();
    let daemon = Daemon::start(&vcl(origin.address, ""), &MODE);
    for (path, range) in [("/a/40001", 0..100), ("/b/40002", 39_990..40_010), ("/c/40003", 99_990..100_000)] {
        cut(&daemon, path, named(path).1);
        let mut client = Client::connect(daemon.address).expect("connections are accepted");
        let last = range.end - 1;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: robust\r\nRange: bytes={}-{last}\r\n\r\n", range.start);
        let answer = client.ask(&request).expect("it is whole");
        assert_eq!(answer.status, 206, "{path}");
        assert_eq!(answer.body, version(1)[range], "{path}");
        assert!(is_version(&get(daemon.address, path).expect("it is whole"), 1), "{path}");
        assert_eq!(origin.requests(path).len(), 2, "{path}");
    }
}

/// Promise: neither a purge nor a ban leaves a part behind, and none is completed that was removed meanwhile.
#[test]
fn purges_and_bans_remove_parts() {
    let _slot = shared_slot();
    let (removed, waits): (Vec<_>, Vec<_>) = (0..2).map(|_| std::sync::mpsc::channel()).unzip();
    let (mut removed, wait) = (removed, Mutex::new(waits));
    let origin = Strict::start(move |head, before| {
        let (name, cut) = named(head);
        match before {
            0 => cut_short(cut, &[V1, "xkey: all"]),
            1 if name.contains("late-purge") && asks(head, cut) => {
                match (rest(cut), wait.lock().expect("no panics").pop()) {
                    (Does::Sends(head, body), Some(until)) if name == "/late-purge" => {
                        Does::Waits(until, head, body)
                    }
                    (Does::Sends(head, body), Some(until)) => Does::Pauses(until, head, body),
                    (other, _) => other,
                }
            }
            _ if asks(head, cut) => rest(cut),
            _ => whole(2),
        }
    });
    let unstreamed = r#"sub vcl_backend_response { if (bereq.url ~ "^/very" && bereq.http.Range) { set beresp.do_stream = false; } }"#;
    let mut daemon = Daemon::start(&vcl(origin.address, &format!("{METHODS}{unstreamed}")), &MODE);
    let purge = |address: SocketAddr, path: &str| {
        let mut client = Client::connect(address).expect("connections are accepted");
        let answer = client.ask(&format!("PURGE {path} HTTP/1.1\r\nHost: robust\r\n\r\n"));
        assert_eq!(answer.expect("it is whole").status, 200);
    };
    for path in [
        "/purged/40001",
        "/banned/40002",
        "/banned-by-tag/40003",
        "/late-purge/40004",
        "/very-late-purge/40005",
    ] {
        let (name, length) = named(path);
        cut(&daemon, path, length);
        match name {
            "/purged" => purge(daemon.address, path),
            "/banned" => drop(daemon.ok("ban req.url ~ /banned/")),
            "/banned-by-tag" => drop(daemon.ok("ban obj.http.xkey == all")),
            _ => {
                let address = daemon.address;
                let client = thread::spawn(move || get(address, path));
                while origin.requests(path).len() < 2 {
                    thread::sleep(std::time::Duration::from_millis(10));
                }
                purge(address, path);
                removed.pop().expect("there is one for each").send(()).expect("the origin waits");
                let answer = client.join().expect("no panic").expect("it is whole");
                if name == "/late-purge" {
                    assert!(is_version(&answer, 2), "{path}: {}", answer.head);
                    assert_eq!(origin.requests(path).len(), 3, "{path}");
                }
                // The request began before the purge, the next one after it.
                assert!(is_version(&get(address, path).expect("it is whole"), 2), "{path}");
                continue;
            }
        }
        assert!(is_version(&get(daemon.address, path).expect("it is whole"), 2), "{path}");
        assert!(!origin.requests(path)[1].contains("Range: "), "{path}: {:?}", origin.requests(path));
    }
}

/// The path, the lines of a cut response, and the bytes that arrive of it. None of them is kept.
const UNKEPT: [(&str, &[&str], usize); 6] = [
    ("/weak", &["ETag: W/\"v1\""], CUT),
    ("/no-validator", &[], CUT),
    ("/date-only", &["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"], CUT),
    ("/small", &[V1], 1000),
    ("/private", &[V1, "Cache-Control: private"], CUT),
    ("/gzip", &[V1, "Content-Encoding: gzip"], CUT),
];

#[test]
fn parts_without_proof_are_not_kept() {
    let _slot = shared_slot();
    for options in [&MODE[..], &MODE[..2]] {
        let has_mode = options.len() > 2;
        let origin = Strict::start(|head, before| {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let (_, lines, cut) =
                UNKEPT.iter().find(|(of, ..)| *of == path).copied().unwrap_or(("", &[V1], CUT));
            if before == 0 { cut_short(cut, lines) } else { whole(2) }
        });
        let daemon = Daemon::start(&vcl(origin.address, ""), options);
        let without = (!has_mode).then_some("/without-the-mode");
        for path in UNKEPT.iter().map(|(path, ..)| *path).chain(without) {
            assert!(is_failure(&get(daemon.address, path)), "{path}");
            thread::sleep(std::time::Duration::from_millis(200));
            assert!(is_version(&get(daemon.address, path).expect("it is whole"), 2), "{path}");
            assert!(!origin.requests(path)[1].contains("Range: "), "{path}");
        }
        assert!(!daemon.log_has("kept as a part"));
    }
}

/// Promise: an origin that sends a part to a request for the whole does not get it into the cache.
#[test]
fn an_unrequested_part_is_refused() {
    let _slot = shared_slot();
    let origin = Strict::start(|_, before| if before == 0 { rest(CUT) } else { whole(2) });
    let daemon = Daemon::start(&vcl(origin.address, ""), &MODE);
    assert_eq!(get(daemon.address, "/").expect("it is whole").status, 503);
    assert!(is_version(&get(daemon.address, "/").expect("it is whole"), 2));
}

/// Promise: VCL decides about the request for the rest, and a part is completed only from its own target.
#[test]
fn a_part_belongs_to_the_target_of_its_request() {
    let _slot = shared_slot();
    let origin = Strict::start(|head, before| match (before, named(head)) {
        (_, (_, cut)) if asks(head, cut) => rest(cut),
        (0, (name, cut)) if name != "/other" => cut_short(cut, &[V1]),
        _ => whole(2),
    });
    let subs = r#"
        sub vcl_backend_fetch {
            if (bereq.http.X-Other) { set bereq.url = "/other/40001"; }
            if (bereq.http.X-Host) { set bereq.http.Host = "other"; }
            if (bereq.http.X-Whole) { unset bereq.http.Range; }
        }
    "#;
    let daemon = Daemon::start(&vcl(origin.address, subs), &MODE);
    for (path, line) in [("/url/40001", "X-Other"), ("/host/40002", "X-Host"), ("/whole/40003", "X-Whole")] {
        cut(&daemon, path, named(path).1);
        let mut client = Client::connect(daemon.address).expect("connections are accepted");
        let request = format!("GET {path} HTTP/1.1\r\nHost: robust\r\n{line}: 1\r\n\r\n");
        assert!(is_version(&client.ask(&request).expect("it is whole"), 2), "{path}");
        let sent = if line == "X-Other" { origin.requests("/other/40001") } else { origin.requests(path) };
        let last = sent.last().expect("a request arrived");
        assert!(!last.contains("Range: "), "{path}: {last}");
    }
}
