//! Traces under attack: clients whose context is not valid, and collectors that hang, refuse, send garbage, or go and come
//! back. Meanwhile traffic is served, and the memory of the sender is bounded.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::admin::AdminPort;
use lacquer_testing::client::{Client, get};
use lacquer_testing::collector::Collector;
use lacquer_testing::daemon::{Daemon, children, has_ended, is_root, signal, until, vcl};
use lacquer_testing::recorder::{Recorder, ok};
use lacquer_testing::slots::shared_slot;

use crate::tls_origins::server::{Authority, TestFile, Then, TlsOrigin, sized};

const SYNTH: &str = "sub vcl_recv { if (req.url ~ \"^/synth\") { return (synth(200)); } }";

/// Starts a daemon that sends all spans to a collector.
fn start(otlp: &str, origin: Option<&Recorder>) -> (Daemon, AdminPort) {
    let address = origin.map_or(([127, 0, 0, 1], 1).into(), |origin| origin.address);
    let options = ["-w", otlp, "-w", "127.0.0.1:0", "-p", "trace_rate=1", "-s", "malloc,32M"];
    let daemon = Daemon::start(&vcl(address, SYNTH), &options);
    let port = AdminPort::when_ready(&daemon);
    (daemon, port)
}

/// Returns the number of spans with this outcome.
fn spans(port: &AdminPort, outcome: &str) -> u64 {
    let response = port.ask("GET", "/metrics", "").expect("a response");
    let text = String::from_utf8_lossy(&response.body).into_owned();
    let name = format!("lacquer_otlp_spans_total{{outcome=\"{outcome}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).expect("it is a metric")
}

fn resident_kilobytes(daemon: &Daemon) -> u64 {
    let of = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let is_admin = status.lines().next()?.ends_with("lacquer-admin");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        is_admin.then(|| line.trim().trim_end_matches(" kB").parse().ok())?
    };
    children(daemon.manager()).into_iter().find_map(of).expect("the process runs")
}

#[test]
fn a_collector_that_hangs_delays_nobody_and_costs_bounded_memory() {
    let _slot = shared_slot();
    let collector = Collector::start();
    collector.reply_with(None);
    let (daemon, port) = start(&collector.option(), None);
    let before = resident_kilobytes(&daemon);
    let mut client = Client::connect(daemon.address).expect("it listens");
    let mut longest = Duration::ZERO;
    // A request has four spans, and 16,384 may wait.
    let is_dropping = until(|| {
        for _ in 0..500 {
            let begun = Instant::now();
            let response = client.ask("GET /synth HTTP/1.1\r\nHost: a\r\n\r\n").expect("a response");
            assert_eq!(response.status, 200);
            longest = longest.max(begun.elapsed());
        }
        spans(&port, "dropped") > 0
    });
    assert!(is_dropping && longest < Duration::from_secs(2), "{longest:?}");
    let grown = resident_kilobytes(&daemon).saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} kB");
    let is_over =
        || daemon.stderr().contains("does not take spans: no response in time; the next try is in 1 s");
    // A request has as much time as this wait.
    assert!(until(is_over) || until(is_over));
    collector.take_all();
    assert!(until(|| spans(&port, "sent") > 10_000), "{}", daemon.stderr());
    assert!(daemon.stderr().contains("takes spans again"), "{}", daemon.stderr());
}

#[test]
fn failures_of_a_collector_are_repeated_as_it_asks_or_not_at_all() {
    let _slot = shared_slot();
    let collector = Collector::start();
    collector.reply_with(Some("HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\n\r\n"));
    let (daemon, port) = start(&collector.option(), None);
    let is_asked = || {
        assert_eq!(get(daemon.address, "/synth").expect("a response").status, 200);
        !collector.received().requests.is_empty()
    };
    assert!(until(is_asked));
    assert!(until(|| daemon.stderr().contains("does not take spans: status 429; the next try is in 3 s")));
    collector.reply_with(Some("SSH-2.0-OpenSSH_9.2\r\n\r\n"));
    let asked = collector.received().requests.len();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(collector.received().requests.len(), asked, "it waits as the collector has asked");
    assert!(until(|| daemon
        .stderr()
        .contains("does not take spans: no valid response; the next try is in 2 s")));
    assert_eq!(spans(&port, "sent") + spans(&port, "dropped") + spans(&port, "refused"), 0);
    // These are not repeated.
    collector.reply_with(Some("HTTP/1.1 400 Bad Request\r\nContent-Length: 99999999999999999999\r\n\r\nx"));
    assert!(until(|| spans(&port, "refused") > 0), "{}", daemon.stderr());
    assert!(daemon.stderr().contains("refuses spans: status 400"), "{}", daemon.stderr());
    // The collector has refused one of the spans.
    collector.reply_with(Some("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\n\u{2}\u{8}\u{1}"));
    let refused = spans(&port, "refused");
    get(daemon.address, "/synth").expect("a response");
    assert!(until(|| spans(&port, "sent") > 0));
    assert_eq!(spans(&port, "refused"), refused + 1);
}

#[test]
fn a_collector_that_comes_back_gets_what_was_kept() {
    let _slot = shared_slot();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let (daemon, _) = start(&format!("otlp=http://{address}"), None);
    let is_refused = || {
        get(daemon.address, "/synth").expect("a response");
        daemon.stderr().contains("Connection refused (os error 111); the next try is in 1 s")
    };
    assert!(until(is_refused), "{}", daemon.stderr());
    let collector = Collector::at(address).expect("the port is still free");
    assert!(until(|| !collector.received().spans.is_empty()), "{}", daemon.stderr());
    assert!(until(|| daemon.stderr().contains("takes spans again; 0 were dropped")), "{}", daemon.stderr());
    assert_eq!(collector.received().faults, Vec::<String>::new());
}

/// A container may start before its collector, and a machine before its name servers.
#[test]
fn a_collector_whose_name_is_not_known_yet_delays_nothing() {
    let _slot = shared_slot();
    if !is_root() {
        eprintln!("skipped: only root can mount the files of names");
        return;
    }
    let (hosts, servers) = (
        TestFile::new("hosts", "127.0.0.1 localhost\n"),
        TestFile::new("resolv.conf", "nameserver 127.0.0.1\n"),
    );
    let mount = format!(
        "mount --bind {} /etc/hosts && mount --bind {} /etc/resolv.conf",
        hosts.path(),
        servers.path()
    );
    let collector = Collector::start();
    let otlp = format!("otlp=http://collector.example:{}", collector.address.port());
    let options = ["-w", &otlp, "-w", "127.0.0.1:0", "-p", "trace_rate=1", "-s", "malloc,32M"];
    let daemon = Daemon::start_by(
        &vcl(([127, 0, 0, 1], 1).into(), SYNTH),
        &options,
        &format!("exec unshare --mount sh -c '{mount} && exec \"$@\"' sh \"$@\""),
    );
    let port = AdminPort::when_ready(&daemon);
    assert!(
        until(|| daemon.stderr().contains("The collector collector.example:")
            && daemon.stderr().contains("has no address: ")),
        "{}",
        daemon.stderr()
    );
    assert_eq!(get(daemon.address, "/synth").expect("a response").status, 200);
    assert!(until(|| daemon.stderr().contains("its host has no address yet")), "{}", daemon.stderr());
    assert_eq!(spans(&port, "sent"), 0);
    std::fs::write(hosts.path(), "127.0.0.1 localhost collector.example\n").expect("it can be written");
    // The pauses between two lookups grow meanwhile.
    let is_sent = || until(|| spans(&port, "sent") > 0);
    assert!((0..4).any(|_| is_sent()), "{}", daemon.stderr());
    assert!(daemon.stderr().contains("has an address now"), "{}", daemon.stderr());
    assert!(!collector.received().spans.is_empty());
}

#[test]
fn contexts_of_clients_that_are_not_valid_are_not_passed_on() {
    let _slot = shared_slot();
    let (collector, origin) = (Collector::start(), Recorder::start(|_| ok("hello")));
    let (daemon, _) = start(&collector.option(), Some(&origin));
    let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let long = format!("{valid}-{}", "x".repeat(7000));
    let states: Vec<_> = (0..40).map(|number| format!("tracestate: v{number}=x\r\n")).collect();
    let states = states.concat();
    for (at, (values, is_continued)) in [
        (vec![valid], true),
        (vec![&valid.replace("00-4", "01-4")], true),
        (vec!["00"], false),
        (vec![""], false),
        (vec![&valid.replace("00-4", "ff-4")], false),
        (vec![&valid.to_uppercase()], false),
        (vec![&long], false),
        (vec![&valid.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32))], false),
        (vec![valid, valid], false),
        (vec![&valid.replace("4bf9", "4b\u{1}9")], false),
    ]
    .into_iter()
    .enumerate()
    {
        let lines: Vec<_> = values.iter().map(|value| format!("traceparent: {value}\r\n")).collect();
        let lines = lines.concat();
        let request = format!("GET /{at} HTTP/1.1\r\nHost: a\r\n{lines}{states}\r\n");
        let response = Client::connect(daemon.address).and_then(|mut client| client.ask(&request));
        let heads = origin.take();
        if response.is_ok_and(|response| response.status == 400) && heads.is_empty() {
            assert!(values[0].contains('\u{1}'), "{values:?}");
            continue;
        }
        let sent: Vec<&str> =
            heads[0].lines().filter_map(|line| line.strip_prefix("traceparent: ")).collect();
        assert!(sent.len() == 1 && sent[0].len() == 55 && sent[0].starts_with("00-"), "{values:?}: {sent:?}");
        assert_eq!(sent[0][3..35] == valid[3..35], is_continued, "{values:?}: {sent:?}");
        let kept = heads[0].matches("tracestate: ").count();
        assert_eq!(kept, if is_continued { 40 } else { 0 }, "{values:?}");
    }
    assert!(until(|| !collector.received().spans.is_empty()));
    assert_eq!(collector.received().faults, Vec::<String>::new());
}

/// A collector with TLS gets spans if an authority that is trusted has signed its certificate for its address. Otherwise it
/// gets nothing, and the message names the remedy.
#[test]
fn collectors_with_a_wrong_certificate_get_no_data() {
    let _slot = shared_slot();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let file = TestFile::new("authorities.pem", &ours.pem());
    let asked = Arc::new(AtomicUsize::new(0));
    let collector = |authority: &Authority, name: &str| {
        let asked = Arc::clone(&asked);
        TlsOrigin::start(authority.certificate(&[name]).server(None), move |_, stream| {
            asked.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            Then::Close
        })
    };
    let plain = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let plain_address = plain.local_addr().expect("it has an address");
    thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for (address, why) in [
        (collector(&theirs, "127.0.0.1").address, "no trusted authority has signed its certificate; name"),
        (collector(&ours, "good.example").address, "its certificate is refused"),
        (plain_address, "it does not speak TLS on this port; write http://"),
    ] {
        let (daemon, port) = start(&format!("otlp=https://{address},ca={}", file.path()), None);
        let is_refused = || {
            get(daemon.address, "/synth").expect("a response");
            daemon.stderr().contains(why)
        };
        assert!(until(is_refused), "{why}: {}", daemon.stderr());
        assert_eq!((spans(&port, "sent"), asked.load(Ordering::Relaxed)), (0, 0));
    }
    let good = collector(&ours, "127.0.0.1");
    let (daemon, port) = start(&format!("otlp=https://{},ca={}", good.address, file.path()), None);
    let is_sent = || {
        get(daemon.address, "/synth").expect("a response");
        spans(&port, "sent") > 0
    };
    assert!(until(is_sent), "{}", daemon.stderr());
}

#[test]
fn the_url_of_a_fetch_over_tls_says_so() {
    let _slot = shared_slot();
    let collector = Collector::start();
    let server = Authority::new("ours").certificate(&["a"]);
    let origin = TlsOrigin::start(server.server(None), |_, stream| sized("secure", stream));
    let text = format!("vcl 4.1; {}", origin.backend("a", ".ssl_verify_peer = 0;"));
    let daemon = Daemon::start(&text, &["-w", &collector.option(), "-p", "trace_rate=1"]);
    let ask = || {
        let response = Client::connect(daemon.address).and_then(|mut client| {
            client.ask("GET /page HTTP/1.1\r\nHost: h.example:81\r\nCookie: a=b\r\n\r\n")
        });
        assert_eq!(response.expect("a response").status, 200);
    };
    let of_kind = |kind: u64| collector.received().spans.into_iter().find(|span| span.kind == kind);
    // The first requests may precede the reader of the log.
    assert!(until(|| {
        ask();
        of_kind(2).is_some() && of_kind(3).is_some()
    }));
    let (request, fetch) = (of_kind(2).expect("a request"), of_kind(3).expect("a fetch"));
    assert_eq!(fetch.attributes["url.full"], "https://h.example:81/page");
    assert_eq!((&*request.attributes["url.scheme"], &*request.attributes["server.port"]), ("http", "81"));
}

/// A trust store is longer than the buffer of the connection to the process that needs it.
#[test]
fn authorities_that_fill_every_buffer_stop_nobody() {
    let _slot = shared_slot();
    let pem = Authority::new("one").pem();
    let file = TestFile::new("many.pem", &pem.repeat(1_000_000 / pem.len()));
    let (mut daemon, port) = start(&format!("otlp=https://127.0.0.1:9,ca={}", file.path()), None);
    assert!(daemon.ok("ping").starts_with("PONG"));
    assert_eq!(port.ask_openly("/healthz").expect("a response").status, 200);
    signal(daemon.manager(), "-TERM");
    assert!(until(|| has_ended(daemon.manager())), "{}", daemon.stderr());
}
