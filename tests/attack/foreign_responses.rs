//! Origins that send more than one response to a request, or one before a request. No client gets the response to
//! another request, and no such response stays in the cache.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::effort;
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::{in_parallel, shared_slot};

/// Requests with a `/bodyless` or `/pass` path are not for the cache.
const SUBS: &str = "sub vcl_recv {
    if (req.url ~ \"^/bodyless\" || req.url ~ \"^/pass\") { return (pass); }
}
sub vcl_backend_response { set beresp.http.X-Count = bereq.url; }";

/// A complete response that was not requested.
const FOREIGN: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: 7\r\n\r\nforeign";

/// How an origin sends its surplus bytes.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Microseconds between the response and the surplus; `None` for the same segment.
    late: Option<u64>,
    /// The response, and what it announces, is chunked.
    chunked: bool,
}

fn write_apart(stream: &mut TcpStream, first: &str, then: &str, late: Option<u64>) -> bool {
    match late {
        None => stream.write_all(format!("{first}{then}").as_bytes()).is_ok(),
        Some(micros) => {
            let _ = stream.write_all(first.as_bytes());
            std::thread::sleep(Duration::from_micros(micros));
            stream.write_all(then.as_bytes()).is_ok()
        }
    }
}

/// Sends an unsolicited response after a delay; the origin continues meanwhile.
fn write_later(stream: &TcpStream, late: Duration) {
    let stream = stream.try_clone().expect("sockets can be cloned");
    std::thread::spawn(move || {
        std::thread::sleep(late);
        let _ = (&stream).write_all(FOREIGN.as_bytes());
    });
}

/// Returns the response with this path as its body.
pub fn page(path: &str, chunked: bool) -> String {
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\n";
    if chunked {
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{path}\r\n0\r\n\r\n", path.len())
    } else {
        format!("{head}Content-Length: {}\r\n\r\n{path}", path.len())
    }
}

/// Returns a response that has no body by rule. The origin sends one nevertheless.
fn bodyless(number: u64, chunked: bool) -> String {
    let framing = if chunked {
        "Transfer-Encoding: chunked".into()
    } else {
        format!("Content-Length: {}", FOREIGN.len())
    };
    match number % 3 {
        0 => format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n"),
        1 => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        _ => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_owned(),
    }
}

/// Starts an origin that sends a body after responses that have none by rule; all others are correct.
fn surplus_after_bodyless(form: Form) -> Origin {
    Origin::by_method(move |request, stream| {
        let (method, path) = request.split_once(' ').unwrap_or_default();
        if !path.starts_with("/bodyless") {
            return stream.write_all(page(path, form.chunked).as_bytes()).is_ok();
        }
        let number = if method == "HEAD" { 0 } else { path.bytes().last().unwrap_or(0).into() };
        let body = if form.chunked {
            format!("{:x}\r\n{FOREIGN}\r\n0\r\n\r\n", FOREIGN.len())
        } else {
            FOREIGN.into()
        };
        // An unframed foreign response is the worst case, whatever was announced.
        let body = if form.late.is_some_and(|micros| micros % 2 == 1) { body } else { FOREIGN.to_owned() };
        write_apart(stream, &bodyless(number, form.chunked), &body, form.late)
    })
}

/// Responses that clients received and that do not belong to their request.
#[derive(Default)]
struct Wrong {
    count: AtomicUsize,
    first: Mutex<Option<String>>,
}

impl Wrong {
    fn add(&self, text: String) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.first.lock().expect("no thread panics while it holds the lock").get_or_insert(text);
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// Requests a page and checks that the body is its path. A 503 is acceptable.
fn ask_page(client: &mut Client, path: &str, wrong: &Wrong) -> bool {
    let Ok(answer) = client.get(path) else { return false };
    if answer.status != 503 && answer.body != path.as_bytes() {
        wrong.add(format!("{path}: {} {:?}", answer.status, String::from_utf8_lossy(&answer.body)));
    }
    true
}

fn ask_bodyless(client: &mut Client, number: u64, wrong: &Wrong) -> bool {
    let method = if number.is_multiple_of(3) { "HEAD" } else { "GET" };
    let path = format!("/bodyless/{number}/{}", number % 3);
    let request = format!("{method} {path} HTTP/1.1\r\nHost: robust\r\n\r\n");
    if client.send(&request).is_err() {
        return false;
    }
    let Ok(answer) = client.head() else { return false };
    if answer.header("X-Count").is_some_and(|url| url != path) {
        wrong.add(format!("{path}: {}", answer.head));
    }
    // Only responses that the cache generates have a body here, and they end the use of the connection.
    answer.status != 503 && !wrong_body(&answer.head)
}

fn wrong_body(head: &str) -> bool {
    head.contains("Content-Length: 7\r\n")
}

/// Runs clients that alternate between requests without a response body and requests for pages.
fn storm(address: SocketAddr, clients: u64, requests: u64, wrong: &Arc<Wrong>) {
    let number = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let (number, wrong) = (number.clone(), wrong.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(address).expect("connections are accepted");
                loop {
                    let n = number.fetch_add(1, Ordering::SeqCst);
                    if n >= requests {
                        return;
                    }
                    let alive = if n % 2 == 0 {
                        ask_bodyless(&mut client, n / 2, &wrong)
                    } else {
                        ask_page(&mut client, &format!("/page/{n}"), &wrong)
                    };
                    if !alive {
                        client = Client::connect(address).expect("connections are accepted");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("clients do not panic");
    }
}

/// Requests all pages again; those in the cache must be correct.
fn check_cache(address: SocketAddr, requests: u64, wrong: &Wrong) {
    let mut client = Client::connect(address).expect("connections are accepted");
    for n in (1..requests).step_by(2) {
        if !ask_page(&mut client, &format!("/page/{n}"), wrong) {
            client = Client::connect(address).expect("connections are accepted");
        }
    }
}

fn bodyless_round(form: Form, clients: u64, requests: u64, options: &[&str]) {
    let origin = surplus_after_bodyless(form);
    let all = [&["-s", "malloc,64M"], options].concat();
    let daemon = Daemon::start(&vcl(origin.address, SUBS), &all);
    let wrong = Arc::new(Wrong::default());
    storm(daemon.address, clients, requests, &wrong);
    check_cache(daemon.address, requests, &wrong);
    let first = wrong.first.lock().expect("no thread panics while it holds the lock").clone();
    assert_eq!(wrong.count(), 0, "{form:?}, {clients} clients, {options:?}: {first:?}");
}

/// After a response that has no body by rule, no client gets the bytes that an origin sends nevertheless.
#[test]
fn bodies_after_bodyless_responses_reach_no_client() {
    let lates = effort(
        &[None, Some(1), Some(20_000)][..],
        &[None, Some(0), Some(1), Some(1001), Some(5000), Some(20_000)],
    );
    for &late in lates {
        for clients in effort(&[1, 8][..], &[1, 2, 8]) {
            for chunked in effort(&[true][..], &[false, true]) {
                bodyless_round(Form { late, chunked: *chunked }, *clients, effort(100, 20_000), &[]);
            }
        }
    }
}

/// The same holds with `backend_suspicion_time=0`, where each response can be followed by surplus bytes again.
#[test]
fn bodies_after_bodyless_responses_reach_no_client_without_suspicion() {
    for late in effort(&[Some(20_000)][..], &[None, Some(20_000)]) {
        let form = Form { late: *late, chunked: false };
        bodyless_round(form, 8, effort(200, 5000), &["-p", "backend_suspicion_time=0"]);
    }
}

/// Starts an origin that sends a second response after each `nth` one.
fn two_answers(form: Form, nth: u64, slow: Duration) -> Origin {
    let number = AtomicU64::new(0);
    Origin::start(move |path, stream| {
        std::thread::sleep(slow);
        let own = page(path, form.chunked);
        if number.fetch_add(1, Ordering::SeqCst) % nth == nth - 1 {
            write_apart(stream, &own, FOREIGN, form.late)
        } else {
            stream.write_all(own.as_bytes()).is_ok()
        }
    })
}

fn pages(address: SocketAddr, clients: u64, requests: u64, wrong: &Arc<Wrong>) {
    let threads: Vec<_> = (0..clients)
        .map(|own| {
            let wrong = wrong.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(address).expect("connections are accepted");
                for n in (own..requests).step_by(clients as usize) {
                    if !ask_page(&mut client, &format!("/page/{}", 2 * n + 1), &wrong) {
                        client = Client::connect(address).expect("connections are accepted");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("clients do not panic");
    }
}

fn unsolicited_round(origin: &Origin, clients: u64, requests: u64, most: usize, name: &str) {
    let daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,64M"]);
    let wrong = Arc::new(Wrong::default());
    pages(daemon.address, clients, requests, &wrong);
    let first = wrong.first.lock().expect("no thread panics while it holds the lock").clone();
    assert!(wrong.count() <= most, "{name}: {} wrong, the first {first:?}", wrong.count());
    std::thread::sleep(Duration::from_secs(1));
    let cached = Wrong::default();
    check_cache(daemon.address, 2 * requests, &cached);
    let first = cached.first.lock().expect("no thread panics while it holds the lock").clone();
    assert_eq!(cached.count(), 0, "{name}: in the cache: {first:?}");
}

/// An unsolicited response reaches no client if it waits when the connection is taken. Otherwise it reaches at most one
/// client per origin and minute, and is not in the cache a second later.
#[test]
fn unsolicited_responses_reach_one_client_at_most() {
    let slot = shared_slot();
    let lates = effort(
        &[None, Some(100), Some(5000), Some(100_000)][..],
        &[None, Some(0), Some(100), Some(1000), Some(5000), Some(20_000), Some(100_000)],
    );
    let forms = lates.iter().flat_map(|&late| {
        let chunked = effort(&[false][..], &[false, true]);
        chunked.iter().map(move |&chunked| Form { late, chunked })
    });
    let rounds =
        forms.flat_map(|form| effort(&[1, 8][..], &[1, 2, 8]).iter().map(move |&clients| (form, clients)));
    in_parallel(&slot, rounds, |(form, clients)| {
        let origin = two_answers(form, 1, Duration::ZERO);
        let seconds = form.late.unwrap_or(0) / 1000 + 1;
        let requests = (effort(300, 20_000) / seconds).max(effort(24, 200));
        let most = usize::from(form.late.is_some());
        unsolicited_round(&origin, clients, requests, most, &format!("{form:?}, {clients} clients"));
    });
}

/// One unsolicited response shifts the responses of a slow origin for at most a second.
#[test]
fn a_shift_ends_by_itself() {
    let _slot = shared_slot();
    let once = AtomicU64::new(0);
    let origin = Origin::start(move |path, stream| {
        std::thread::sleep(Duration::from_millis(10));
        let n = once.fetch_add(1, Ordering::SeqCst);
        if n == 20 {
            write_later(stream, Duration::from_millis(5));
        }
        stream.write_all(page(path, false).as_bytes()).is_ok()
    });
    unsolicited_round(&origin, 1, effort(150, 3000), 120, "one shift");
}

/// An origin that was in order for long sends one unsolicited response: at most one client gets another's response,
/// however soon each connection is needed again, if the origin was seen to serve more connections.
#[test]
fn a_proven_origin_shifts_one_response() {
    let slot = shared_slot();
    let lates = effort(&[1, 5][..], &[0, 1, 2, 5, 20]);
    let rounds = lates
        .iter()
        .flat_map(|&late| effort(&[0, 3][..], &[0, 1, 3, 10]).iter().map(move |&slow| (late, slow)));
    in_parallel(&slot, rounds, |(late, slow)| {
        // Most clients leave before that.
        let stays: Vec<_> = (0..40).map(|own| if own < 8 { 3000 } else { 700 }).collect();
        late_shift_round(&stays, Duration::from_millis(late), Duration::from_millis(slow));
    });
}

/// The same with one client that sends its next request at once, if the origin takes the same time for each response: a
/// response that comes sooner is detected.
#[test]
fn an_origin_with_a_steady_pace_shifts_one_response() {
    let slot = shared_slot();
    let rounds = effort(&[(2, 20)][..], &[(1, 4), (2, 10), (2, 20), (10, 20), (10, 30)]);
    in_parallel(&slot, rounds.iter(), |&(late, slow)| {
        late_shift_round(&[4000], Duration::from_millis(late), Duration::from_millis(slow));
    });
}

/// Runs an origin that sends an unsolicited response after 1.5 s, `late` after a regular one. `stays` is how long each
/// client stays, in milliseconds.
fn late_shift_round(stays: &[u64], late: Duration, slow: Duration) {
    let (begun, done) = (Instant::now(), AtomicBool::new(false));
    let origin = Origin::start(move |path, stream| {
        std::thread::sleep(slow);
        let is_time = begun.elapsed() > Duration::from_millis(1500);
        if is_time && !done.swap(true, Ordering::SeqCst) {
            write_later(stream, late);
        }
        stream.write_all(page(path, false).as_bytes()).is_ok()
    });
    let daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,64M"]);
    let wrong = Arc::new(Wrong::default());
    let clients: Vec<_> = stays
        .iter()
        .enumerate()
        .map(|(own, &stays)| {
            let (wrong, address) = (wrong.clone(), daemon.address);
            std::thread::spawn(move || {
                let mut client = Client::connect(address).expect("connections are accepted");
                for n in 0.. {
                    if begun.elapsed() > Duration::from_millis(stays) {
                        break;
                    }
                    if !ask_page(&mut client, &format!("/pass/{own}/{n}"), &wrong) {
                        client = Client::connect(address).expect("connections are accepted");
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("clients do not panic");
    }
    let first = wrong.first.lock().expect("no thread panics while it holds the lock").clone();
    assert!(wrong.count() <= 1, "{late:?} {slow:?}: {} wrong, the first {first:?}", wrong.count());
}

/// A response that arrives before the request was sent is not used for it.
#[test]
fn an_early_response_is_not_used() {
    let _slot = shared_slot();
    answer_before_the_request(Duration::ZERO, Duration::ZERO);
}

/// The same, if the response to the request is so late that the connection carries a second request before it.
#[test]
fn an_early_response_is_not_used_if_the_regular_one_is_late() {
    let _slot = shared_slot();
    answer_before_the_request(SOON, QUIET.mul_f64(1.5));
}

/// The silence that is considered a proof. A shared machine may pause for half of this time.
const QUIET: Duration = Duration::from_secs(1);

/// A time after the opening of a connection within which a request that is sent at once arrives first.
pub const SOON: Duration = Duration::from_millis(2);

/// Starts an origin that sends a response `after` each connection is opened, before it reads a request. `late` returns
/// the time that it takes for regular responses, by the number of the connection.
pub fn speaks_first(after: Duration, late: impl Fn(usize) -> Duration + Copy + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for (number, mut stream) in listener.incoming().flatten().enumerate() {
            std::thread::sleep(after);
            let _ = stream.write_all(FOREIGN.as_bytes());
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut head) {
                    std::thread::sleep(late(number));
                    let text = String::from_utf8_lossy(&head[..length]);
                    let _ =
                        stream.write_all(page(text.split(' ').nth(1).unwrap_or_default(), false).as_bytes());
                }
            });
        }
    });
    address
}

/// `after` and `late`: see [`speaks_first`].
fn answer_before_the_request(after: Duration, late: Duration) {
    let address = speaks_first(after, move |_| late);
    let quiet = format!("backend_quiet_time={}", QUIET.as_secs());
    let daemon = Daemon::start(&vcl(address, ""), &["-s", "malloc,32M", "-p", &quiet]);
    let mut foreign = 0;
    for n in 0..effort(6, 40) {
        let answer = get(daemon.address, &format!("/{n}")).expect("every request gets a response");
        foreign += usize::from(answer.body == b"foreign");
        if n == 1 {
            // The response to the second request arrives, which belongs to no client.
            std::thread::sleep(2 * late);
        }
    }
    assert!(foreign < 2, "{foreign} responses were used although they came before the request");
}

/// Objects that came over a connection that later had surplus bytes are fetched again.
#[test]
fn objects_of_a_faulty_connection_leave_the_cache() {
    let _slot = shared_slot();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let paths = seen.clone();
    let origin = Origin::start(move |path, stream| {
        paths.lock().expect("no thread panics while it holds the lock").push(path.to_owned());
        let late = if path == "/late" { FOREIGN } else { "" };
        write_apart(stream, &page(path, false), late, Some(100_000))
    });
    let daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,32M"]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    for path in ["/a", "/b", "/late"] {
        assert_eq!(client.get(path).expect("a response arrives").body, path.as_bytes());
        std::thread::sleep(Duration::from_millis(200));
    }
    let before = origin.requests();
    for path in ["/a", "/b", "/late"] {
        assert_eq!(client.get(path).expect("a response arrives").body, path.as_bytes());
    }
    let again: HashSet<_> =
        seen.lock().expect("no thread panics while it holds the lock")[before..].iter().cloned().collect();
    assert_eq!(again.len(), 3, "{again:?}");
}

/// The rest of a body on one connection, which is not a response, drops no objects that came over other connections,
/// and is never part of a response. It does not hide an unsolicited response that arrives on another connection a
/// moment later: the objects that came over that one leave the cache.
#[test]
fn the_rest_of_a_body_affects_only_its_connection() {
    let _slot = shared_slot();
    for shifted in [false, true] {
        let (seen, used) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (paths, ports) = (seen.clone(), used.clone());
        let origin = Origin::start(move |path, stream| {
            paths.lock().expect("no thread panics while it holds the lock").push(path.to_owned());
            let port = stream.peer_addr().expect("it is connected").port();
            ports.lock().expect("no thread panics while it holds the lock").push((path.to_owned(), port));
            // The connection that became free last is used next.
            std::thread::sleep(Duration::from_millis(match path {
                "/kept/c" => 30,
                "/pass/long" => 0,
                _ => 20,
            }));
            match path {
                "/pass/long" => write_apart(stream, &page(path, false), "the rest of it", None),
                "/kept/d" if shifted => {
                    write_later(stream, Duration::from_millis(250));
                    stream.write_all(page(path, false).as_bytes()).is_ok()
                }
                _ => stream.write_all(page(path, false).as_bytes()).is_ok(),
            }
        });
        let daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,32M"]);
        let address = daemon.address;
        let ask = |path: &str| {
            let answer = get(address, path).expect("a response arrives");
            assert_eq!(answer.body, path.as_bytes());
        };
        // Opens two connections to the origin, which prove to be in step; then each gets a second response.
        let ask_at_once = |paths: [&'static str; 2]| {
            std::thread::scope(|scope| {
                for path in paths {
                    scope.spawn(move || ask(path));
                }
            });
        };
        ask_at_once(["/kept/a", "/kept/b"]);
        std::thread::sleep(Duration::from_millis(200));
        // The first reuse of a connection happens alone.
        ask("/pass/first");
        std::thread::sleep(Duration::from_millis(200));
        ask_at_once(["/kept/c", "/kept/d"]);
        std::thread::sleep(Duration::from_millis(100));
        ask("/pass/long");
        std::thread::sleep(Duration::from_millis(400));
        let before = origin.requests();
        let all = ["/kept/a", "/kept/b", "/kept/c", "/kept/d"];
        all.into_iter().for_each(ask);
        let port_of = |path: &str| {
            let used = used.lock().expect("no thread panics while it holds the lock");
            used.iter().find(|(asked, _)| asked == path).map(|(_, port)| *port)
        };
        let again = seen.lock().expect("no thread panics while it holds the lock")[before..].to_vec();
        for path in ["/kept/c", "/kept/d"] {
            let is_blamed = port_of(path) == port_of("/pass/long") || shifted && path == "/kept/d";
            assert_eq!(again.iter().any(|asked| asked == path), is_blamed, "{path}, {shifted}: {again:?}");
        }
    }
}

/// A slow origin that sends two responses to one request causes one wrong response, not one for each later request: the
/// early response makes the connection rest until the late one has arrived.
#[test]
fn a_slow_origin_is_out_of_step_for_one_response() {
    let _slot = shared_slot();
    let took = Duration::from_millis(700);
    let origin = Origin::start(move |path, stream| {
        if path == "/pass/3" {
            let _ = stream.write_all(FOREIGN.as_bytes());
        }
        std::thread::sleep(took);
        stream.write_all(page(path, false).as_bytes()).is_ok()
    });
    let daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,32M"]);
    let wrong = (0..8).filter(|number| {
        let path = format!("/pass/{number}");
        let answer = get(daemon.address, &path).expect("a response arrives");
        // Longer than a connection rests after a response of usual duration.
        std::thread::sleep(Duration::from_millis(550));
        answer.body != path.as_bytes()
    });
    assert!(wrong.count() <= 1);
}

/// If two responses arrive at once on a connection that was used before, the request is repeated if it is safe, and
/// gets a 503 otherwise. It never gets the first of the two, and is never carried out twice.
#[test]
fn an_unsafe_request_gets_no_foreign_response_and_is_not_repeated() {
    let _slot = shared_slot();
    let effects = Arc::new(AtomicUsize::new(0));
    let count = effects.clone();
    let origin = Origin::by_method(move |request, stream| {
        let (method, path) = request.split_once(' ').unwrap_or_default();
        if method == "POST" {
            count.fetch_add(1, Ordering::SeqCst);
        }
        let first = if path == "/pass/twice" { FOREIGN } else { "" };
        stream.write_all(format!("{first}{}", page(path, false)).as_bytes()).is_ok()
    });
    let daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,32M"]);
    for _ in 0..4 {
        assert_eq!(get(daemon.address, "/pass/warm").expect("a response arrives").body, b"/pass/warm");
        std::thread::sleep(Duration::from_millis(80));
    }
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    let request = "POST /pass/twice HTTP/1.1\r\nHost: robust\r\nContent-Length: 0\r\n\r\n";
    let answer = client.ask(request).expect("a response arrives");
    assert_eq!((answer.status, effects.load(Ordering::SeqCst)), (503, 1));
}
