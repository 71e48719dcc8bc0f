//! The admin listener under attack: strangers, pages of other sites, bombs, clients that are slow or do not read, and
//! streams without number. Meanwhile traffic is served, and an operator is.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lacquer_testing::admin::AdminPort;
use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, refused, until, vcl};
use lacquer_testing::effort;
use lacquer_testing::slots::shared_slot;

use crate::exhaustion::many_descriptors;

const SYNTH: &str = "sub vcl_recv { return (synth(200)); }";
/// Connections that have shown no token, of which there may be 256.
const STRANGERS: usize = 256;
/// Connections in total, of which there may be 2,048.
const CONNECTIONS: usize = 2048;

fn daemon(script: &str) -> (Daemon, AdminPort) {
    let options = ["-w", "127.0.0.1:0", "-s", "malloc,32M"];
    let daemon = Daemon::start_by(&vcl(([127, 0, 0, 1], 1).into(), SYNTH), &options, script);
    let port = AdminPort::when_ready(&daemon);
    (daemon, port)
}

fn start() -> (Daemon, AdminPort) {
    daemon("exec \"$@\"")
}

/// Returns the status of the response to bytes that are sent as they are; `None` if there is no response.
fn status_of(port: &AdminPort, bytes: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(port.address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    // The server may refuse the rest.
    let _ = stream.write_all(bytes);
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head[9..]).ok()?.parse().ok()
}

fn request(fields: &[(&str, &str)], line: &str, body: &str) -> Vec<u8> {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let fields = fields.concat();
    format!("{line} HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[test]
fn strangers_and_other_sites_are_refused_and_change_nothing() {
    let _slot = shared_slot();
    let (mut daemon, port) = start();
    let host = port.address.to_string();
    let bearer = format!("Bearer {}", port.token);
    let (host, right) = (("Host", host.as_str()), ("Authorization", bearer.as_str()));
    let json = ("Content-Type", "application/json");
    let ban = "POST /api/v1/bans";
    let body = "{\"expression\": \"req.url ~ attacked\"}";
    for (fields, status) in [
        (vec![host, json], 401),
        (vec![host, json, ("Authorization", "Bearer 0123456789abcdef0123456789abcdef")], 401),
        (vec![host, json, ("Authorization", "Bearer")], 401),
        (vec![host, json, ("Cookie", &format!("token={}", port.token))], 401),
        (vec![host, json, right, ("Origin", "https://evil.example")], 403),
        (vec![host, json, right, ("Origin", "null")], 403),
        (vec![host, json, right, ("Sec-Fetch-Site", "cross-site")], 403),
        (vec![("Host", "evil.example"), json, right], 421),
        (vec![("Host", "evil.example"), json, right, ("Origin", "http://evil.example")], 421),
        (vec![json, right], 421),
        // Forms of other sites can send these media.
        (vec![host, right, ("Content-Type", "text/plain")], 415),
        (vec![host, right], 415),
    ] {
        assert_eq!(status_of(&port, &request(&fields, ban, body)), Some(status), "{fields:?}");
    }
    let bans = daemon.ok("ban.list");
    assert!(!bans.contains("attacked"), "{bans}");
    for path in ["/metrics", "/api/v1/vcl", "/api/v1/params", "/openapi.json", "/api/v1/events", "/nothing"] {
        let refused = port.ask_openly(path).expect("a response");
        assert_eq!((refused.status, refused.header("Access-Control-Allow-Origin")), (401, None), "{path}");
    }
    // A browser asks before it sends a request with a token for another site, and gets no permission.
    let asked = request(&[host, ("Origin", "https://evil.example")], "OPTIONS /api/v1/bans", "");
    assert_eq!(status_of(&port, &asked), Some(403));
    assert_eq!(port.ask("POST", "/api/v1/bans", body).expect("a response").status, 200);
    assert!(daemon.ok("ban.list").contains("attacked"));
}

#[test]
fn a_token_that_others_may_read_is_refused_at_the_start() {
    let _slot = shared_slot();
    let token = "echo 0123456789abcdef > $dir/token; chmod MODE $dir/token; exec \"$@\" -w 127.0.0.1:0,token=$dir/token";
    for (mode, why) in [("644", "Others may use the token"), ("622", "Others may use the token")] {
        let said = refused(&[], &token.replace("MODE", mode));
        assert!(said.contains(why), "{mode}: {said}");
    }
    let short = "echo short > $dir/token; chmod 600 $dir/token; exec \"$@\" -w 127.0.0.1:0,token=$dir/token";
    for (script, why) in [
        (short, "must be one line of 16"),
        ("exec \"$@\" -w 127.0.0.1:0,token=$dir/none", "Cannot read the token"),
        ("exec \"$@\" -w nonsense:x", "-w nonsense:x"),
        ("exec \"$@\" -w 127.0.0.1:0,proxy", "Invalid sub-arg proxy in -w"),
    ] {
        let said = refused(&[], script);
        assert!(said.contains(why), "{script}: {said}");
    }
}

#[test]
fn bombs_are_refused_and_their_memory_is_not_taken() {
    let _slot = shared_slot();
    let (daemon, port) = start();
    let long = "x".repeat(64 << 10);
    let many = (0..500).map(|number| format!("a{number}: b\r\n")).collect::<Vec<_>>().concat();
    let right = format!("Host: {}\r\nAuthorization: Bearer {}\r\n", port.address, port.token);
    let json = format!("{right}Content-Type: application/json\r\n");
    for (bytes, status) in [
        (format!("GET /{long} HTTP/1.1\r\n{right}\r\n"), &[414, 431][..]),
        (format!("GET / HTTP/1.1\r\n{right}X: {long}\r\n\r\n"), &[431]),
        (format!("GET / HTTP/1.1\r\n{right}{many}\r\n"), &[431]),
        (format!("POST /api/v1/tag HTTP/1.1\r\n{json}Content-Length: 99999999999\r\n\r\n"), &[413]),
        (format!("POST /api/v1/vcl HTTP/1.1\r\n{json}Content-Length: 9999999\r\n\r\n"), &[413]),
        (
            format!(
                "POST /api/v1/tag HTTP/1.1\r\n{json}Transfer-Encoding: chunked\r\n\r\n10000\r\n{long}\r\n10000\r\n{long}\r\n"
            ),
            &[413],
        ),
        (
            format!("POST /api/v1/tag HTTP/1.1\r\n{json}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            &[400],
        ),
        (
            format!("POST /api/v1/tag HTTP/1.1\r\n{json}Content-Length: 60000\r\n\r\n{}", "[".repeat(60_000)),
            &[400],
        ),
        (format!("GET /api/v1/log?limit=99999999999999999999 HTTP/1.1\r\n{right}\r\n"), &[400]),
        (format!("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n{right}\r\n"), &[404]),
        ("\0\u{1}\u{2}\r\n\r\n".to_owned(), &[400]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), &[400, 421, 505]),
    ] {
        let found = status_of(&port, bytes.as_bytes());
        let shown: String = bytes.chars().take(60).collect();
        assert!(found.is_none_or(|found| status.contains(&found)), "{shown}: {found:?}");
    }
    // Commands are quoted: none of these ends a command and begins another one.
    for name in ["boot\\nstop", "a b", "\\\"", "<<EOF", "{", "-j"] {
        let body = format!("{{\"name\": \"{name}\", \"text\": \"vcl 4.1; backend default none;\"}}");
        let status = port.ask("POST", "/api/v1/vcl", &body).expect("a response").status;
        assert!(status == 400 || status == 409, "{name}: {status}");
    }
    assert_eq!(get(daemon.address, "/").expect("traffic is served").status, 200);
    assert_eq!(port.ask("GET", "/api/v1/vcl", "").expect("a response").status, 200);
}

/// Words from paths and bodies are operands of one command each, and requests that are made for an operator are whole.
#[test]
fn words_are_neither_options_nor_commands() {
    let _slot = shared_slot();
    let (mut daemon, port) = start();
    let before = (daemon.ok("vcl.list"), daemon.ok("ban.list"), daemon.ok("param.show -j"));
    for word in [
        "-l",
        "-j",
        "-v",
        "--",
        "boot%0Astop",
        "boot%0D%0Astop",
        "a%00b",
        "%22",
        "%5C",
        "%3C%3CEOF",
        "%3C%3C",
        "%FF",
        "a%20b",
    ] {
        for (method, path, body) in [
            ("GET", format!("/api/v1/params/{word}"), ""),
            ("PUT", format!("/api/v1/params/{word}"), "{\"value\": \"1\"}"),
            ("DELETE", format!("/api/v1/params/{word}"), ""),
            ("GET", format!("/api/v1/vcl/{word}"), ""),
            ("POST", format!("/api/v1/vcl/{word}/use"), ""),
            ("DELETE", format!("/api/v1/vcl/{word}"), ""),
        ] {
            let status = port.ask(method, &path, body).expect("a response").status;
            assert!((400..=415).contains(&status), "{method} {path}: {status}");
        }
    }
    for (path, body) in [
        ("/api/v1/tag", "{\"tags\": [\"-s\"]}"),
        ("/api/v1/tag", "{\"tags\": [\"<<\", \"x\"]}"),
        ("/api/v1/bans", "{\"expression\": \"req.url ~ << x\"}"),
        ("/api/v1/bans", "{\"expression\": \"req.url ~ a\\nstop\"}"),
        ("/api/v1/bans", "{\"expression\": \"-x\"}"),
        ("/api/v1/why", "{\"url\": \"/\", \"headers\": [\"X: y\\r\\n\\r\\nGET / HTTP/1.1\"]}"),
        ("/api/v1/why", "{\"url\": \"/\", \"headers\": [\"no field\"]}"),
        ("/api/v1/why", "{\"url\": \"/\", \"method\": \"GET / HTTP/1.1\\r\\nX: y\\r\\n\\r\\nGET\"}"),
    ] {
        let response = port.ask("POST", path, body).expect("a response");
        assert!((400..=415).contains(&response.status), "{path} {body}: {}", response.status);
    }
    let after = (daemon.ok("vcl.list"), daemon.ok("ban.list"), daemon.ok("param.show -j"));
    assert_eq!(before.0, after.0);
    assert_eq!(before.1.lines().count(), after.1.lines().count(), "{}", after.1);
    assert_eq!(before.2.lines().skip(3).collect::<Vec<_>>(), after.2.lines().skip(3).collect::<Vec<_>>());
    // Bytes that no URL may contain are encoded.
    let why = port.ask("POST", "/api/v1/why", "{\"url\": \"/a HTTP/1.1\\r\\nX: y\"}").expect("a response");
    let text = String::from_utf8_lossy(&why.body).into_owned();
    assert!(why.status == 200 && text.contains("/a%20HTTP/1.1%0D%0AX:%20y"), "{text}");
    // A URL is one word, whatever it contains.
    let purged = port.ask("POST", "/api/v1/purge", "{\"url\": \"/a\\r\\nstop\"}").expect("a response");
    assert_eq!(purged.status, 200);
    assert_eq!(get(daemon.address, "/").expect("traffic is served").status, 200);
}

#[test]
fn slow_strangers_lock_nobody_out() {
    let (daemon, port) = start();
    let mut silent = Vec::new();
    for number in 0..STRANGERS * 2 {
        let mut stream = TcpStream::connect(port.address).expect("the backlog is long");
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lo");
        }
        silent.push(stream);
    }
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(port.ask("GET", "/openapi.json", "").expect("the operator is served").status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(get(daemon.address, "/").expect("traffic is served").status, 200);
    // The oldest half was closed; the rest is closed by the time for a head.
    let is_closed = |stream: &mut TcpStream| {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
        matches!(stream.read(&mut [0; 512]), Ok(0)) || stream.write_all(b"x").is_err()
    };
    assert!(until(|| silent[..STRANGERS / 2].iter_mut().all(is_closed)));
}

#[test]
fn streams_are_bounded_and_cost_traffic_nothing() {
    let streams = effort(200, 1500);
    let (daemon, port) = daemon("ulimit -n 8192; exec \"$@\"");
    let open = |count: usize| -> Vec<(u16, Client)> {
        let request = port.request("GET", "/api/v1/events?log=1", "");
        (0..count)
            .filter_map(|_| {
                let mut client = Client::connect(port.address).ok()?;
                client.send(&request).ok()?;
                let head = client.head().ok()?;
                Some((head.status, client))
            })
            .collect()
    };
    // None of these clients reads its events.
    let all = open(streams);
    let accepted = all.iter().filter(|(status, _)| *status == 200).count();
    assert!(
        accepted == streams.min(1024) && all.iter().all(|(status, _)| [200, 503].contains(status)),
        "{accepted}"
    );
    let mut client = Client::connect(daemon.address).expect("traffic is accepted");
    let begun = Instant::now();
    for number in 0..2000 {
        assert_eq!(client.get(&format!("/{number}")).expect("traffic is served").status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let dropped = || {
        let metrics = port.ask("GET", "/metrics", "").expect("the operator is served");
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix("lacquer_admin_dropped_total "));
        value.and_then(|value| value.parse::<u64>().ok()).expect("a metric")
    };
    // A busy machine is slower than the limit of lines per second. Then the buffers of the kernel have to fill first.
    let long = format!("/{}", "u".repeat(6000));
    let mut more = || (0..100).all(|_| client.get(&long).is_ok_and(|response| response.status == 200));
    assert!(until(|| dropped() > 0 || !more()) && dropped() > 0);
    drop(all);
    let streams_left = || {
        let text = port
            .ask("GET", "/metrics", "")
            .map(|metrics| String::from_utf8_lossy(&metrics.body).into_owned());
        text.is_ok_and(|text| text.contains("\nlacquer_admin_streams 0\n"))
    };
    assert!(until(streams_left));
}

/// A request that is made after the head of a stream was received is in the stream.
#[test]
fn a_stream_shows_the_first_request_after_its_head() {
    let _slot = shared_slot();
    let (daemon, port) = start();
    for number in 0..20 {
        let mut stream = TcpStream::connect(port.address).expect("the operator is served");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("sockets have timeouts");
        let request = port.request("GET", "/api/v1/events?log=1", "");
        stream.write_all(request.as_bytes()).expect("the operator is served");
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        assert!(lines.by_ref().any(|line| line.is_empty()), "no head");
        let path = format!("/first/{number}");
        assert_eq!(get(daemon.address, &path).expect("traffic is served").status, 200);
        // Other events go on.
        let begun = Instant::now();
        let mut events = lines.take_while(|_| begun.elapsed() < Duration::from_secs(10));
        assert!(events.any(|line| line.contains(&path)), "stream {number} misses its first request");
        drop(events);
        // Between streams, the log is not read.
        std::thread::sleep(Duration::from_millis(150));
    }
}

/// Returns the number of open connections, without the one that asks.
fn other_connections(port: &AdminPort) -> usize {
    let metrics = port.ask("GET", "/metrics", "").expect("the operator is served");
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let value = text.lines().find_map(|line| line.strip_prefix("lacquer_admin_connections "));
    value.and_then(|value| value.parse::<usize>().ok()).expect("a metric") - 1
}

/// The token protects no connection from the limits on time: of one that sends half a head, of one whose body arrives a byte
/// at a time, and of one that does not read.
#[test]
fn clients_that_stop_are_disconnected_although_they_have_the_token() {
    let (daemon, port) = start();
    let right = format!("Host: {}\r\nAuthorization: Bearer {}\r\n", port.address, port.token);
    let begun = Instant::now();
    let connect = || {
        let stream = TcpStream::connect(port.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
        stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a socket");
        stream
    };
    let (mut head, mut body, mut unread) = (connect(), connect(), connect());
    let page = format!("GET / HTTP/1.1\r\n{right}\r\n");
    head.write_all(format!("{page}GET /metr").as_bytes()).expect("it listens");
    let upload = format!("POST /api/v1/tag HTTP/1.1\r\n{right}Content-Type: application/json\r\n");
    body.write_all(format!("{upload}Content-Length: 1000\r\n\r\n").as_bytes()).expect("it listens");
    // More pages than the buffers of both sides hold.
    unread.write_all(page.repeat(400).as_bytes()).expect("requests are buffered");
    // Returns whether a connection has ended, and adds what it has received.
    let has_ended = |stream: &mut TcpStream, received: &mut Vec<u8>| {
        let mut piece = [0; 16 << 10];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => return true,
                Ok(length) => received.extend_from_slice(&piece[..length]),
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    };
    let (mut of_head, mut of_body) = (Vec::new(), Vec::new());
    let [mut head_end, mut body_end, mut all_end] = [None; 3];
    while all_end.is_none() && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(500));
        if head_end.is_none() && has_ended(&mut head, &mut of_head) {
            head_end = Some(begun.elapsed());
        }
        if body_end.is_none() {
            let _ = body.write_all(b" ");
            body_end = has_ended(&mut body, &mut of_body).then(|| begun.elapsed());
        }
        // The end of the one that does not read is seen only by its number.
        let others = other_connections(&port);
        assert!(others == 3 || begun.elapsed() > Duration::from_secs(14), "{others}");
        all_end = (others == 0).then(|| begun.elapsed());
    }
    let is_about = |end: Option<Duration>, seconds: u64| {
        let (from, to) = (Duration::from_secs(seconds - 1), Duration::from_secs(seconds + 15));
        end.is_some_and(|end| end >= from && end <= to)
    };
    assert!(is_about(head_end, 15) && is_about(body_end, 20), "{head_end:?} {body_end:?}");
    assert!(is_about(all_end, 20), "{all_end:?}");
    assert!(of_body.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&of_body));
    assert!(of_head.starts_with(b"HTTP/1.1 200"), "its first request was served");
    drop(unread);
    assert_eq!(get(daemon.address, "/").expect("traffic is served").status, 200);
}

#[test]
fn connections_with_the_token_are_bounded_too() {
    let _slot = shared_slot();
    let most = many_descriptors();
    assert!(most > CONNECTIONS + 500, "the test needs more descriptors: {most}");
    let (daemon, port) = daemon("ulimit -n 8192; exec \"$@\"");
    let request = port.request("GET", "/healthz", "");
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..CONNECTIONS + 20 {
        let mut client = Client::connect(port.address).expect("the backlog is long");
        match client.ask(&request) {
            Ok(response) => {
                assert_eq!(response.status, 200);
                open.push(client);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused >= 20 && open.len() > CONNECTIONS - 20, "{refused} refused, {} open", open.len());
    for client in [0, CONNECTIONS / 2, open.len() - 1] {
        assert_eq!(open[client].ask(&request).expect("it stays open").status, 200);
    }
    assert_eq!(get(daemon.address, "/").expect("traffic is served").status, 200);
    drop(open);
    assert!(until(|| port.ask("GET", "/openapi.json", "").is_ok_and(|response| response.status == 200)));
}
