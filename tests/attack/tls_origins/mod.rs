//! Origins with TLS: those with a wrong certificate get no request, truncated bodies are not cached, and no origin holds
//! a request for longer than the timeouts allow.

pub mod server;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::Daemon;
use lacquer_testing::slots::shared_slot;
use lacquer_testing::until;
use rcgen::date_time_ymd;

use self::server::{Authority, Seen, TestFile, Then, TlsOrigin, backend, params, sized};

/// Requests to `/NAME` are for the backend of that name. Their responses are not cached, unless the path has more
/// parts.
fn vcl(backends: &[(&str, String)]) -> String {
    let mut text = "vcl 4.1;\nimport tls;\n".to_owned();
    let mut rules = String::new();
    for (name, backend) in backends {
        text.push_str(backend);
        let _ = writeln!(rules, "if (req.url ~ \"^/{name}(/|$)\") {{ set req.backend_hint = {name}; }}");
    }
    text + &format!(
        "sub vcl_recv {{ {rules} if (req.url !~ \"^/[a-z_]+/\") {{ return (pass); }} }}\n\
         sub vcl_backend_response {{ set beresp.http.tls = tls.version() + \" \" + tls.cipher(); }}\n"
    )
}

/// Serves the body "secure".
fn secure(config: Arc<rustls::ServerConfig>) -> TlsOrigin {
    TlsOrigin::start(config, |_, stream| sized("secure", stream))
}

#[test]
fn wrong_certificates_get_no_request_and_a_reason() {
    let _slot = shared_slot();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let ca = TestFile::new("ca.pem", &ours.pem());
    let trust = format!(".ssl_ca_file = \"{}\";", ca.path());
    let mut old = params(&["good.example"]);
    (old.not_before, old.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let own_key = rcgen::KeyPair::generate().expect("a key");
    let own = params(&["good.example"]).self_signed(&own_key).expect("a certificate");
    let own = server::Pair { certificate: own, key: own_key };
    let own_file = TestFile::new("own.pem", &own.certificate.pem());
    let good = secure(ours.certificate(&["good.example"]).server(None));
    let foreign = secure(theirs.certificate(&["good.example"]).server(None));
    let expired = secure(ours.sign(&old).server(None));
    let selfsigned = secure(own.server(None));
    let named = format!(".host_header = \"good.example\"; .ssl_verify_host = 1; {trust}");
    let other_name = format!(".host_header = \"other.example\"; .ssl_verify_host = 1; {trust}");
    let unchecked_name = format!(".host_header = \"other.example\"; {trust}");
    let own_trust = format!(
        ".host_header = \"good.example\"; .ssl_verify_host = 1; .ssl_ca_file = \"{}\";",
        own_file.path()
    );
    let daemon = Daemon::start(
        &vcl(&[
            ("good", good.backend("good", &named)),
            ("other_name", good.backend("other_name", &other_name)),
            ("unchecked_name", good.backend("unchecked_name", &unchecked_name)),
            ("foreign", foreign.backend("foreign", &named)),
            ("expired", expired.backend("expired", &named)),
            ("selfsigned", selfsigned.backend("selfsigned", &named)),
            ("own", selfsigned.backend("own", &own_trust)),
            ("unchecked", expired.backend("unchecked", ".ssl_verify_peer = 0;")),
        ]),
        &[],
    );
    for (path, reason) in [
        ("/good", None),
        ("/other_name", Some("hostname mismatch: it is not for other.example but for good.example; set")),
        ("/unchecked_name", None),
        ("/foreign", Some("unable to get local issuer certificate: no trusted authority has signed it")),
        (
            "/expired",
            Some("certificate has expired: it was valid until Fri, 01 Jan 2021 00:00:00 GMT; renew"),
        ),
        ("/selfsigned", Some("unable to get local issuer certificate: no trusted")),
        ("/own", None),
        ("/unchecked", None),
    ] {
        let response = get(daemon.address, path).expect("a response");
        match reason {
            None => {
                assert_eq!((response.status, &response.body[..]), (200, &b"secure"[..]), "{path}");
                let tls = response.header("tls").unwrap_or_default();
                assert!(tls.starts_with("TLSv1.3 TLS_"), "{tls}");
            }
            Some(reason) => {
                assert_eq!(response.status, 503, "{path}");
                assert!(daemon.logs(&format!("Server verification failed: {reason}")), "{path}");
                assert!(daemon.logs(&format!("backend {}: fail ({reason}", &path[1..])), "{path}");
            }
        }
    }
    let sent: Vec<_> = good.seen().into_iter().map(|seen| seen.name).collect();
    let expected = [Some("good.example".to_owned()), Some("other.example".to_owned())];
    assert_eq!(sent, expected, "each name has its own connections");
    assert!(foreign.seen().is_empty(), "no request was sent");
}

/// Starts an origin that treats each connection with a function.
fn raw_origin(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Answers the first message with these bytes, then waits for the end.
fn answers(bytes: &'static [u8]) -> SocketAddr {
    raw_origin(move |mut stream| {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(bytes);
        while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
    })
}

#[test]
fn broken_handshakes_end_in_time_with_a_reason() {
    let _slot = shared_slot();
    let trickle = raw_origin(|mut stream| {
        // The beginning of a long record, byte by byte.
        for byte in [0x16, 3, 3, 0x3f, 0xff].into_iter().chain([2; 1000]) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
    let cases: [(&str, SocketAddr, &str); 9] = [
        ("silent", raw_origin(|_stream| thread::sleep(Duration::from_secs(9))), "fail errno 110 ("),
        ("trickle", trickle, "fail errno 110 ("),
        (
            "http",
            answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "fail (the origin does not speak TLS on this port; check",
        ),
        (
            "smtp",
            answers(b"220 mail.example ESMTP\r\n"),
            "fail (the origin does not speak TLS on this port; check",
        ),
        (
            "closing",
            raw_origin(|mut stream| drop(stream.read(&mut [0; 4096]))),
            "fail (the origin closed the connection during",
        ),
        // Alerts: protocol_version, handshake_failure, unrecognized_name.
        ("old_tls", answers(&[0x15, 3, 1, 0, 2, 2, 70]), "fail (the origin refuses TLS 1.2 and TLS 1.3"),
        (
            "ciphers",
            answers(&[0x15, 3, 3, 0, 2, 2, 40]),
            "fail (the origin ended the handshake (alert HandshakeFailure)",
        ),
        ("no_site", answers(&[0x15, 3, 3, 0, 2, 2, 112]), "fail (the origin has no site of this name"),
        ("oversized", answers(&[0x16, 3, 3, 0xff, 0xff, 2, 0, 0, 0]), "fail ("),
    ];
    let attributes = ".ssl_verify_peer = 0; .connect_timeout = 0.7s;";
    let backends: Vec<_> =
        cases.iter().map(|(name, address, _)| (*name, backend(name, *address, attributes))).collect();
    let daemon = Daemon::start(&vcl(&backends), &[]);
    for (name, _, reason) in &cases {
        let begun = Instant::now();
        assert_eq!(get(daemon.address, &format!("/{name}")).expect("a response").status, 503, "{name}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{name}");
        assert!(daemon.logs(&format!("backend {name}: {reason}")), "{name}: {reason}");
    }
    assert!(daemon.logs("Handshake failed: the origin does not speak TLS"));
}

/// Serves bodies that end with the connection.
fn until_close(requests: Arc<AtomicUsize>, server: &server::Pair) -> TlsOrigin {
    TlsOrigin::start(server.server(None), move |path, stream| {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nConnection: close\r\n\r\nbody {number}"
        );
        if path.ends_with("cut") { Then::Cut } else { Then::Close }
    })
}

#[test]
fn truncated_bodies_are_not_cached() {
    let _slot = shared_slot();
    let server = Authority::new("ours").certificate(&["a"]);
    let requests = Arc::new(AtomicUsize::new(0));
    let origin = until_close(requests.clone(), &server);
    let mut daemon = Daemon::start(&vcl(&[("a", origin.backend("a", ".ssl_verify_peer = 0;"))]), &[]);
    let whole = |path: &str, address| {
        let response = get(address, path).ok().filter(|response| response.status == 200)?;
        Some(String::from_utf8_lossy(&response.body).into_owned())
    };
    assert_eq!(whole("/a/whole", daemon.address).as_deref(), Some("body 0"));
    assert_eq!(whole("/a/whole", daemon.address).as_deref(), Some("body 0"), "a whole body is cached");
    assert_eq!(whole("/a/cut", daemon.address), None);
    assert_eq!(whole("/a/cut", daemon.address), None);
    assert_eq!(requests.load(Ordering::SeqCst), 3, "a truncated body is not cached");
    assert!(daemon.logs("the origin closed the connection without close_notify: bytes may be missing"));
    daemon.ok("param.set ssl_accept_truncation on");
    assert!(until(|| whole("/a/cut", daemon.address).is_some()), "as Varnish does");
}

/// A connection is used again, although tickets arrive on it behind the handshake, and a new one resumes the session.
#[test]
fn connections_are_reused_and_sessions_resumed() {
    let _slot = shared_slot();
    let ours = Authority::new("ours");
    let ca = TestFile::new("ca.pem", &ours.pem());
    let origin = TlsOrigin::start(ours.certificate(&["a.example"]).server(None), |path, stream| {
        if path.ends_with("close") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            return Then::Close;
        }
        sized("ok", stream)
    });
    let attributes =
        format!(".host_header = \"a.example\"; .ssl_verify_host = 1; .ssl_ca_file = \"{}\";", ca.path());
    let mut daemon = Daemon::start(&vcl(&[("a", origin.backend("a", &attributes))]), &[]);
    let mut client = Client::connect(daemon.address).expect("it accepts");
    for _ in 0..5 {
        assert_eq!(client.get("/a").expect("a response").body, b"ok");
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(origin.seen().len(), 1, "the connection is kept");
    assert_eq!(client.get("/a?close").expect("a response").body, b"ok");
    assert_eq!(client.get("/a").expect("a response").body, b"ok");
    let resumed: Vec<bool> = origin.seen().iter().map(|seen| seen.is_resumed).collect();
    assert_eq!(resumed, [false, true]);
    assert!(!daemon.log_has("surplus"), "tickets are no surplus");
    // Another program of equal settings shares the connections.
    let again = vcl(&[("a", origin.backend("a", &attributes))]);
    let file = TestFile::new("again.vcl", &again);
    daemon.ok(&format!("vcl.load again {}", file.path()));
    daemon.ok("vcl.use again");
    assert_eq!(client.get("/a").expect("a response").body, b"ok");
    assert_eq!(origin.seen().len(), 2);
}

/// The header is read by a proxy that does not decrypt.
#[test]
fn proxy_headers_precede_the_handshake() {
    let _slot = shared_slot();
    let server = Authority::new("ours").certificate(&["a"]).server(None);
    let origin = TlsOrigin::behind(true, server, |_, stream| sized("secure", stream));
    let attributes = ".ssl_verify_peer = 0; .proxy_header = 1; .probe = { .interval = 0.2s; .initial = 0; }";
    let daemon = Daemon::start(&vcl(&[("a", origin.backend("a", attributes))]), &[]);
    assert!(until(|| get(daemon.address, "/a").is_ok_and(|response| response.body == b"secure")));
    let client = |seen: &Seen| seen.header.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 ");
    assert!(origin.seen().iter().all(client), "{:?}", origin.seen());
}

#[test]
fn probes_and_pipes_use_tls() {
    let _slot = shared_slot();
    let ours = Authority::new("ours");
    let ca = TestFile::new("ca.pem", &ours.pem());
    let origin = TlsOrigin::start(ours.certificate(&["a.example"]).server(None), |path, stream| {
        if path != "/a" {
            return sized("probed", stream);
        }
        let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
        let mut buffer = [0; 100];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&buffer[..n].to_ascii_uppercase());
            let _ = stream.flush();
        }
        Then::Close
    });
    let probed = |name: &str| {
        format!(
            ".host_header = \"{name}\"; .ssl_verify_host = 1; .ssl_ca_file = \"{}\"; \
             .probe = {{ .interval = 0.1s; .initial = 0; .window = 3; .threshold = 1; }}",
            ca.path()
        )
    };
    let backends = [
        ("a", origin.backend("a", &probed("a.example"))),
        ("wrong", origin.backend("wrong", &probed("b.example"))),
    ];
    let piped = format!(
        "{}sub vcl_recv {{ return (pipe); }}\n",
        vcl(&backends).replace("return (pass)", "return (pipe)")
    );
    let mut daemon = Daemon::start(&piped, &[]);
    let healthy = |daemon: &mut Daemon, name: &str| {
        let list = daemon.ok("backend.list");
        list.lines().any(|line| line.starts_with(&format!("boot.{name} ")) && line.contains("healthy"))
    };
    assert!(until(|| healthy(&mut daemon, "a")));
    assert!(daemon.logs("Open error (hostname mismatch: it is not for b.example but for a.example"));
    assert!(!healthy(&mut daemon, "wrong"));
    let mut client = daemon.connect();
    client.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    let mut received = String::new();
    let mut buffer = [0; 200];
    while !received.contains("\r\n\r\n") {
        let n = client.read(&mut buffer).expect("a response");
        assert!(n > 0, "{received}");
        received.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    assert!(received.starts_with("HTTP/1.1 101 "), "{received}");
    for word in ["hello", "again"] {
        client.write_all(word.as_bytes()).expect("it reads");
        let mut answer = [0; 5];
        client.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, *word.to_uppercase().as_bytes());
    }
    // The end of the client's direction reaches the origin, and the origin's end the client.
    client.shutdown(std::net::Shutdown::Write).expect("open");
    assert_eq!(client.read(&mut buffer).expect("the end"), 0);
}

#[test]
fn client_certificates_are_sent_and_checked() {
    let _slot = shared_slot();
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let ca = TestFile::new("ca.pem", &ours.pem());
    let identity = clients.certificate(&["cache"]);
    let file = TestFile::new("identity.pem", &identity.pem());
    let (chain, key) = (
        TestFile::new("chain.pem", &identity.certificate.pem()),
        TestFile::new("key.pem", &identity.key.serialize_pem()),
    );
    let origin = secure(ours.certificate(&["a"]).server(Some(&clients)));
    let trust = format!(".ssl_ca_file = \"{}\";", ca.path());
    let one = format!("{trust} .certificate = \"{}\";", file.path());
    let two = format!("{trust} .certificate = \"{}\"; .private_key = \"{}\";", chain.path(), key.path());
    let backends = [
        ("one", origin.backend("one", &one)),
        ("two", origin.backend("two", &two)),
        ("none", origin.backend("none", &trust)),
    ];
    let mut daemon = Daemon::start(&vcl(&backends), &[]);
    assert_eq!(get(daemon.address, "/one").expect("a response").body, b"secure");
    assert_eq!(get(daemon.address, "/two").expect("a response").body, b"secure");
    assert_eq!(get(daemon.address, "/none").expect("a response").status, 503);
    assert!(
        daemon.logs("the origin wants a client certificate (alert CertificateRequired); set .certificate")
    );
    // A new worker gets the key again.
    let worker = daemon.worker();
    lacquer_testing::daemon::signal(worker, "-KILL");
    assert!(until(|| get(daemon.address, "/one").is_ok_and(|response| response.body == b"secure")));
    let other = TestFile::new("other.pem", &clients.certificate(&["other"]).key.serialize_pem());
    let half = TestFile::new("half.pem", &ours.pem()[..200]);
    for (attributes, reason) in [
        (".ssl_ca_file = \"/nonexistent\";".to_owned(), "/nonexistent: No such file or directory"),
        (format!(".ssl_ca_file = \"{}\";", key.path()), "it contains no certificate"),
        (format!(".ssl_ca_file = \"{}\";", half.path()), "the PEM format is damaged"),
        (".ssl_ca_file = \"/dev/zero\";".to_owned(), "Not a regular file"),
        (format!(".certificate = \"{}\";", chain.path()), "there is no private key"),
        (
            format!(".certificate = \"{}\"; .private_key = \"{}\";", chain.path(), other.path()),
            "the private key belongs to another certificate",
        ),
    ] {
        let file = TestFile::new("wrong.vcl", &vcl(&[("a", origin.backend("a", &attributes))]));
        let (status, text) = daemon.cli(&format!("vcl.load wrong {}", file.path()));
        assert!(status == 106 && text.contains(reason), "{attributes}: {text}");
    }
    assert_eq!(get(daemon.address, "/one").expect("a response").body, b"secure");
}
