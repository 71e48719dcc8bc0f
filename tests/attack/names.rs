//! Hosts of backends whose addresses change, are slow to come, or are lies.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, signal, until};
use lacquer_testing::dns::{NameServer, Reply};
use lacquer_testing::slots::shared_slot;

/// Starts two origins with one port, at 127.0.0.1 and 127.0.0.2, which respond with their address.
fn origins() -> u16 {
    pair(|_| String::new())
}

/// Starts two proxies in the same way. Each expects a PROXY header, and responds with its own address and with the one
/// that the header asks for.
fn proxies() -> u16 {
    pair(|stream| {
        let mut head = [0; 16];
        stream.read_exact(&mut head).expect("a PROXY header");
        assert!(head.starts_with(b"\r\n\r\n\0\r\nQUIT\n"), "{head:?}");
        let mut rest = vec![0; usize::from(u16::from_be_bytes([head[14], head[15]]))];
        stream.read_exact(&mut rest).expect("a whole PROXY header");
        let to = <[u8; 4]>::try_from(&rest[4..8]).expect("four bytes");
        format!(" to {}", IpAddr::from(to))
    })
}

fn pair(greet: fn(&mut TcpStream) -> String) -> u16 {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = first.local_addr().expect("it is bound").port();
        if let Ok(second) = TcpListener::bind(("127.0.0.2", port)) {
            serve(first, greet);
            serve(second, greet);
            return port;
        }
    }
    panic!("no port is free at both addresses");
}

fn serve(listener: TcpListener, greet: fn(&mut TcpStream) -> String) {
    let own = listener.local_addr().expect("it is bound").ip().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let own = own.clone();
            thread::spawn(move || {
                let greeting = greet(&mut stream);
                answer(stream, &(own + &greeting));
            });
        }
    });
}

fn answer(mut stream: TcpStream, own: &str) {
    use std::io::{BufRead, BufReader};
    let mut input = BufReader::new(stream.try_clone().expect("a socket can be duplicated"));
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|length| length > 0) {
        if line == "\r\n" {
            let head =
                format!("HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: {}\r\n\r\n", own.len());
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(own.as_bytes())).is_err() {
                return;
            }
        }
        line.clear();
    }
}

fn daemon(server: &NameServer, vcl: &str) -> Daemon {
    let servers = format!("dns_servers={}", server.address);
    Daemon::start(&format!("vcl 4.1;\n{vcl}"), &["-p", &servers, "-p", "dns_retry=0.5"])
}

fn declared(host: &str, port: u16) -> String {
    format!("backend default {{ .host = \"{host}\"; .port = \"{port}\"; }} sub vcl_recv {{ return (pass); }}")
}

/// Returns the status and the body of a response.
fn page(at: SocketAddr) -> (u16, String) {
    let response = get(at, "/").expect("a response");
    (response.status, String::from_utf8_lossy(&response.body).into_owned())
}

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|address| address.parse().expect("an address")).collect()
}

#[test]
fn a_backend_moves_with_its_host() {
    let _slot = shared_slot();
    let (port, server) = (origins(), NameServer::start());
    server.addresses("moving.example", 1, &["127.0.0.1"]);
    let daemon = daemon(&server, &declared("moving.example", port));
    assert_eq!(page(daemon.address), (200, "127.0.0.1".to_owned()));
    let is_soon = |host: &&str| {
        server.addresses("moving.example", 1, &[host]);
        let moved = Instant::now();
        assert!(until(|| page(daemon.address).1 == **host));
        moved.elapsed() < Duration::from_secs(4)
    };
    // A busy machine may stall: then it moves again.
    let places = ["127.0.0.2", "127.0.0.1", "127.0.0.2", "127.0.0.1"];
    let place = places.into_iter().find(is_soon).expect("it moves within four seconds");
    for _ in 0..20 {
        assert_eq!(page(daemon.address).1, place, "no connection to the old address is used");
    }
}

#[test]
fn all_addresses_are_used_and_dead_ones_are_skipped() {
    let _slot = shared_slot();
    let (port, server) = (origins(), NameServer::start());
    server.addresses("both.example", 60, &["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let daemon = daemon(&server, &declared("both.example", port));
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..30 {
        let (status, own) = page(daemon.address);
        assert_eq!(status, 200, "nobody listens at 127.0.0.3");
        seen.push(own);
    }
    for own in ["127.0.0.1", "127.0.0.2"] {
        assert!(seen.iter().any(|one| one == own), "{own}: {seen:?}");
    }
}

/// The last good addresses serve, whatever the name service does.
#[test]
fn a_name_service_in_trouble_ends_no_service() {
    let _slot = shared_slot();
    let (port, server) = (origins(), NameServer::start());
    server.addresses("trouble.example", 1, &["127.0.0.1"]);
    let daemon = daemon(&server, &declared("trouble.example", port));
    let bad = addresses(&["127.0.0.2"]);
    let troubles = [
        Reply::Code(3),
        Reply::Code(2),
        Reply::Addresses(1, Vec::new()),
        Reply::Addresses(1, addresses(&["0.0.0.0", "224.0.0.1"])),
        Reply::WrongId(bad.clone()),
        Reply::WrongQuestion(bad.clone()),
        Reply::ForgedSource(bad),
        Reply::Bytes(vec![0xc0, 0x0c, 0, 1]),
        Reply::Silence,
    ];
    for trouble in troubles {
        server.set("trouble.example", trouble.clone());
        let before = server.queries("trouble.example");
        assert!(until(|| server.queries("trouble.example") > before + 1), "{trouble:?}");
        assert_eq!(page(daemon.address), (200, "127.0.0.1".to_owned()), "{trouble:?}");
    }
}

/// A name service that dies takes no backend with it, even if the worker does too.
#[test]
fn a_worker_without_a_name_service_starts_with_the_last_addresses() {
    let _slot = shared_slot();
    let (port, server) = (origins(), NameServer::start());
    server.addresses("kept.example", 1, &["127.0.0.2"]);
    let mut daemon = daemon(&server, &declared("kept.example", port));
    assert_eq!(page(daemon.address), (200, "127.0.0.2".to_owned()));
    // The manager asks for them now and then.
    thread::sleep(Duration::from_secs(7));
    for trouble in [Reply::Silence, Reply::Code(2)] {
        server.set("kept.example", trouble.clone());
        // The second of these workers has found out nothing itself.
        for _ in 0..2 {
            let before = daemon.worker();
            signal(before, "-KILL");
            // A connection to the dead worker may hang first.
            assert!((0..3).any(|_| until(|| get(daemon.address, "/").is_ok())), "{trouble:?}");
            assert_ne!(daemon.worker(), before);
            assert_eq!(page(daemon.address), (200, "127.0.0.2".to_owned()), "{trouble:?}");
        }
    }
    server.addresses("kept.example", 1, &["127.0.0.1"]);
    assert!(until(|| page(daemon.address).1 == "127.0.0.1"), "a lookup replaces them");
}

/// An upgrade keeps the addresses and the probes of a backend by name.
#[test]
fn an_upgrade_keeps_addresses_and_their_health() {
    let _slot = shared_slot();
    let (port, server) = (origins(), NameServer::start());
    server.addresses("kept.example", 1, &["127.0.0.2"]);
    // Without their history, the origin is sick until the second probe.
    let vcl = format!(
        "backend default {{
            .host = \"kept.example\"; .port = \"{port}\";
            .probe = {{ .expect_close = false; .initial = 0; .threshold = 2; .window = 8; .interval = 3s; }}
        }}
        sub vcl_recv {{ return (pass); }}"
    );
    let mut daemon = daemon(&server, &vcl);
    assert!(until(|| page(daemon.address).0 == 200));
    server.set("kept.example", Reply::Silence);
    let before = daemon.worker();
    signal(daemon.manager(), "-USR2");
    daemon.banner();
    assert!(daemon.ok("upgrade.show").starts_with("Upgraded from"), "{}", daemon.stderr());
    assert_ne!(daemon.worker(), before);
    assert_eq!(page(daemon.address), (200, "127.0.0.2".to_owned()), "{}", daemon.ok("backend.list -p"));
}

/// The host of a `.via` is followed like that of a backend, whether the other end has a name or an address.
#[test]
fn a_proxy_moves_with_its_host() {
    let _slot = shared_slot();
    let (port, server) = (proxies(), NameServer::start());
    server.addresses("proxy.example", 1, &["127.0.0.1"]);
    server.addresses("origin.example", 1, &["192.0.2.1"]);
    let vcl = format!(
        "backend proxy {{ .host = \"proxy.example\"; .port = \"{port}\"; }}
        backend named {{ .host = \"origin.example\"; .via = proxy; }}
        backend fixed {{ .host = \"192.0.2.9\"; .authority = \"fixed.example\"; .via = proxy; }}
        sub vcl_recv {{
            set req.backend_hint = named;
            if (req.http.Fixed) {{ set req.backend_hint = fixed; }}
            return (pass);
        }}"
    );
    let mut daemon = daemon(&server, &vcl);
    let fixed = |address| {
        let mut client = lacquer_testing::client::Client::connect(address).expect("a connection");
        let response = client.ask("GET / HTTP/1.1\r\nHost: a\r\nFixed: 1\r\n\r\n").expect("a response");
        String::from_utf8_lossy(&response.body).into_owned()
    };
    assert_eq!(page(daemon.address), (200, "127.0.0.1 to 192.0.2.1".to_owned()));
    assert_eq!(fixed(daemon.address), "127.0.0.1 to 192.0.2.9");
    server.addresses("proxy.example", 1, &["127.0.0.2"]);
    assert!(until(|| page(daemon.address).1 == "127.0.0.2 to 192.0.2.1"));
    assert!(until(|| fixed(daemon.address) == "127.0.0.2 to 192.0.2.9"));
    server.addresses("origin.example", 1, &["192.0.2.2"]);
    assert!(until(|| page(daemon.address).1 == "127.0.0.2 to 192.0.2.2"));
    for trouble in [Reply::Code(3), Reply::Code(2), Reply::Addresses(1, addresses(&["0.0.0.0"]))] {
        server.set("proxy.example", trouble.clone());
        let before = server.queries("proxy.example");
        assert!(until(|| server.queries("proxy.example") > before + 1), "{trouble:?}");
        for _ in 0..5 {
            assert_eq!(page(daemon.address).1, "127.0.0.2 to 192.0.2.2", "{trouble:?}");
            assert_eq!(fixed(daemon.address), "127.0.0.2 to 192.0.2.9", "{trouble:?}");
        }
    }
    server.addresses("proxy.example", 1, &["127.0.0.1", "127.0.0.2"]);
    assert!(until(|| daemon.ok("backend.list -p").contains("192.0.2.9 via 127.0.0.1 healthy")));
    let mut seen: Vec<String> = (0..20).map(|_| page(daemon.address).1).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, ["127.0.0.1 to 192.0.2.2", "127.0.0.2 to 192.0.2.2"]);
}

/// The backends that connect through a host that does not exist yet are sick until it does.
#[test]
fn a_proxy_may_be_born_late() {
    let _slot = shared_slot();
    let (port, server) = (proxies(), NameServer::start());
    let vcl = format!(
        "backend proxy {{ .host = \"late.example\"; .port = \"{port}\"; }}
        backend fixed {{ .host = \"192.0.2.9\"; .authority = \"fixed.example\"; .via = proxy; }}
        sub vcl_recv {{ set req.backend_hint = fixed; return (pass); }}"
    );
    let mut daemon = daemon(&server, &vcl);
    assert_eq!(page(daemon.address).0, 503);
    assert!(
        daemon.ok("backend.list -p").contains("late.example cannot be resolved: the name does not exist")
    );
    server.addresses("late.example", 60, &["127.0.0.2"]);
    assert!(until(|| page(daemon.address) == (200, "127.0.0.2 to 192.0.2.9".to_owned())));
}

/// A host that does not exist yet is a warning. Its backend is sick until it does.
#[test]
fn a_host_may_be_born_late() {
    let _slot = shared_slot();
    let (port, server) = (origins(), NameServer::start());
    let mut daemon = daemon(&server, &declared("late.example", port));
    assert_eq!(page(daemon.address).0, 503);
    assert!(daemon.ok("backend.list").contains("sick"));
    assert!(
        daemon.ok("backend.list -p").contains("late.example cannot be resolved: the name does not exist")
    );
    server.addresses("late.example", 60, &["127.0.0.2"]);
    assert!(until(|| page(daemon.address) == (200, "127.0.0.2".to_owned())));
    let (status, text) = {
        daemon.ok("param.set dns_strict on");
        daemon.cli("vcl.inline strict \"vcl 4.1; backend b { .host = \\\"never.example\\\"; }\"")
    };
    assert_eq!(status, 106, "{text}");
    assert!(text.contains("could not be resolved to an IP address"), "{text}");
}

/// The first lookup of a dynamic host holds neither other requests nor the reactor.
#[test]
fn a_slow_first_lookup_delays_its_request_alone() {
    let _slot = shared_slot();
    let (port, server) = (origins(), NameServer::start());
    let answer = Reply::Addresses(60, addresses(&["127.0.0.2"]));
    for number in 0..5 {
        let slow = Reply::Slow(Duration::from_secs(1), Box::new(answer.clone()));
        server.set(&format!("slow{number}.example"), slow);
        server.set(&format!("mute{number}.example"), Reply::Silence);
    }
    server.addresses("fast.example", 60, &["127.0.0.1"]);
    let vcl = format!(
        "import dynamic; backend none none;
        acl only_two {{ \"127.0.0.2\"; }}
        sub vcl_init {{
            new d = dynamic.director(port = \"{port}\", first_lookup_timeout = 3s, ttl_from = dns);
            new two = dynamic.director(port = \"{port}\", whitelist = only_two);
        }}
        sub vcl_recv {{
            set req.backend_hint = d.backend(req.http.Host);
            if (req.http.Host ~ \"^two\") {{ set req.backend_hint = two.backend(\"fast.example\"); }}
            return (pass);
        }}"
    );
    let mut daemon = daemon(&server, &vcl);
    daemon.ok("param.set thread_pools 1");
    let address = daemon.address;
    let ask = move |host: &str| {
        let mut client = lacquer_testing::client::Client::connect(address).expect("a connection");
        let answer = client.ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).expect("a response");
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    };
    let took = |number: usize| {
        let begun = Instant::now();
        let slow = thread::spawn(move || ask(&format!("slow{number}.example")));
        let mute = thread::spawn(move || (ask(&format!("mute{number}.example")), begun.elapsed()));
        thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        server.addresses(&format!("fast{number}.example"), 60, &["127.0.0.1"]);
        assert_eq!(ask(&format!("fast{number}.example")), (200, "127.0.0.1".to_owned()));
        let took = asked.elapsed();
        assert_eq!(slow.join().expect("no panic"), (200, "127.0.0.2".to_owned()));
        let (answer, time) = mute.join().expect("no panic");
        assert_eq!(answer.0, 503);
        assert!(time >= Duration::from_millis(2900), "{time:?}");
        took
    };
    // A busy machine may stall.
    assert!((0..5).any(|number| took(number) < Duration::from_secs(1)), "it was delayed each time");
    assert_eq!(ask("two.example").0, 503, "the acl refuses the address");
    for host in ["a..b", "-", "bad host", "x/y"] {
        assert!([400, 503].contains(&ask(host).0), "{host}");
    }
    assert_eq!(ask("127.0.0.2"), (200, "127.0.0.2".to_owned()), "an address is a host");
    assert!(daemon.ok("backend.list").contains("d(fast0.example:"));
}

/// The paths and hosts of fetches that have no backend, and the reason in their logs.
const WITHOUT_BACKENDS: [(&str, &str, &str); 13] = [
    (
        "/host",
        "absent.example",
        "backend d(absent.example:http): absent.example cannot be resolved: the name does not exist",
    ),
    ("/host", "broken.example", "broken.example cannot be resolved: the name server has failed (SERVFAIL)"),
    ("/host", "bare.example", "bare.example cannot be resolved: it has no addresses"),
    ("/host", "mute.example", "backend d(mute.example:http): mute.example is not resolved yet"),
    ("/host", "a..b", "No backend (vmod-dynamic d a..b:http is not a host name)"),
    ("/strict", "127.0.0.1", "No backend (vmod-dynamic strict 127.0.0.1:http whitelist mismatch)"),
    ("/strict", "other.example", "other.example has no addresses that may be used"),
    (
        "/service",
        "_absent._tcp.example",
        "No backend (vmod-dynamic d _absent._tcp.example cannot be resolved: the name does not exist)",
    ),
    (
        "/late",
        "_absent._tcp.example",
        "No backend (vmod-dynamic d _absent._tcp.example cannot be resolved: the name does not exist)",
    ),
    ("/service", "_bare._tcp.example", "_bare._tcp.example cannot be resolved: it has no SRV records)"),
    (
        "/service",
        "_closed._tcp.example",
        "_closed._tcp.example cannot be resolved: its SRV records state that it is not offered)",
    ),
    ("/service", "_late._tcp.example", "No backend (vmod-dynamic d _late._tcp.example is not resolved yet)"),
    ("/service", "a..b", "No backend (vmod-dynamic d a..b is not the name of a service)"),
];

const OF_PATHS: &str = r#"
import dynamic; backend none none;
acl nobody { "192.0.2.1"; }
sub vcl_init {
    new d = dynamic.director(first_lookup_timeout = 1s);
    new strict = dynamic.director(whitelist = nobody);
}
sub vcl_recv {
    if (req.url == "/service") {
        set req.backend_hint = d.service(req.http.Host);
    } else if (req.url == "/strict") {
        set req.backend_hint = strict.backend(req.http.Host);
    } else if (req.url == "/host") {
        set req.backend_hint = d.backend(req.http.Host);
    }
    return (pass);
}
sub vcl_backend_fetch {
    if (bereq.url == "/late") { set bereq.backend = d.service(bereq.http.Host); }
}
"#;

/// A fetch without a backend names the host, or the service, and why it has none.
#[test]
fn a_fetch_without_addresses_names_the_host_and_the_reason() {
    let _slot = shared_slot();
    let server = NameServer::start();
    server.set("absent.example", Reply::Code(3));
    server.set("broken.example", Reply::Code(2));
    server.set("bare.example", Reply::Addresses(1, Vec::new()));
    server.set("mute.example", Reply::Silence);
    server.addresses("other.example", 60, &["127.0.0.1"]);
    server.set("_absent._tcp.example", Reply::Code(3));
    server.set("_bare._tcp.example", Reply::Services(1, Vec::new()));
    server.set("_closed._tcp.example", Reply::Services(1, vec![(0, 0, 0, String::new())]));
    server.set("_late._tcp.example", Reply::Silence);
    let daemon = daemon(&server, OF_PATHS);
    for (path, host, reason) in WITHOUT_BACKENDS {
        let mut client = lacquer_testing::client::Client::connect(daemon.address).expect("a connection");
        let answer = client.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(answer.expect("a response").status, 503, "{path} {host}");
        assert!(daemon.logs(reason), "{path} {host}: {reason}");
    }
}
