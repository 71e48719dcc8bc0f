//! Clients of HTTP/3: orderly ones, whose responses are complete and correct whatever the network does to their
//! packets, and ones that cancel, read slowly, flood or vanish. The service goes on, in bounded memory.

mod certificates;
mod client;
mod malformed;
mod pieces;
mod relay;
mod replays;
mod tunnels;
mod upgrades;
mod uploads;

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use client::{Client, response, run, try_response};
use lacquer_testing::Random;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::effort;
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::shared_slot;
use relay::{Faults, Relay};
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// A certificate with its key, and the settings of clients that trust it.
struct Trusted {
    pem: String,
    config: Arc<ClientConfig>,
}

fn trusted() -> &'static Trusted {
    static TRUSTED: OnceLock<Trusted> = OnceLock::new();
    TRUSTED.get_or_init(|| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(vec!["example.test".to_owned()]).expect("a name");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        let der = rustls::pki_types::CertificateDer::from_pem_slice(certificate.pem().as_bytes());
        let mut roots = RootCertStore::empty();
        roots.add(der.expect("a certificate")).expect("a certificate");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Trusted { pem: certificate.pem() + &key.serialize_pem(), config: Arc::new(config) }
    })
}

/// Returns the body of this length that the origin serves: its bytes depend on their position.
fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 65_536) as u8).collect()
}

/// Serves `/SIZE/...` with SIZE bytes; the kind `private` is not cacheable.
fn serve(request: &str, stream: &mut TcpStream) -> bool {
    let path = request.split(' ').nth(1).unwrap_or_default();
    replays::record(path);
    let mut words = path.split('/').skip(1);
    let size = words.next().and_then(|word| word.parse().ok()).unwrap_or(100);
    let control = if words.next() == Some("private") { "private" } else { "max-age=3600" };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nETag: \"e\"\r\nCache-Control: {control}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body(size)).is_ok()
}

/// A daemon with a listener for HTTP/3.
struct Served {
    daemon: Daemon,
    address: SocketAddr,
    origin: Origin,
}

/// VCL that answers `/synth` itself, after the body of the request was read.
const SUBS: &str = "
import std;
import tls;
sub vcl_recv {
    if (req.url == \"/upload\") {
        if (!std.cache_req_body(50MB)) { return (synth(413)); }
        return (synth(200, req.http.Content-Length));
    }
    if (req.url == \"/facts\") { return (synth(200)); }
}
sub vcl_backend_fetch {
    if (bereq.http.Early-Data) { set bereq.url = bereq.url + \"/early\"; }
}
sub vcl_synth {
    set resp.http.X-Proto = req.proto;
    set resp.http.X-Transport = req.transport;
    set resp.http.X-Client = client.ip;
    set resp.http.X-Ja3 = tls.ja3();
    set resp.http.X-Cn = tls.client_cn();
    if (req.http.Early-Data) { set resp.http.X-Early = req.http.Early-Data; }
    if (req.url == \"/own\") { set resp.http.Alt-Svc = \"clear\"; }
}
";

fn start(options: &[&str]) -> Served {
    start_with("", options)
}

/// Starts a daemon with further sub-arguments of its listener.
fn start_with(listener: &str, options: &[&str]) -> Served {
    let origin = Origin::by_method(serve);
    let listener = format!("secure=127.0.0.1:0,https,h3{listener}");
    let given = ["-a", &listener, "-p", "reactors=4"];
    let mut daemon = Daemon::start(&vcl(origin.address, SUBS), &[&given[..], options].concat());
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.port_of("secure")));
    load_certificate(&mut daemon);
    Served { daemon, address, origin }
}

fn load_certificate(daemon: &mut Daemon) {
    let file = daemon.directory().with_extension("pem");
    std::fs::write(&file, &trusted().pem).expect("a file for the certificate");
    daemon.ok(&format!("tls.cert.load {}", file.display()));
    daemon.ok("tls.cert.commit");
}

impl Served {
    /// Requires that another client gets its page.
    fn serves(&self) {
        run(async {
            let client = Client::connect(self.address).await;
            let page = client.get("/1000").await;
            assert_eq!((page.status(), &page.body), ("200", &body(1000)));
            client.close().await;
        });
    }
}

#[test]
fn responses_are_complete_and_correct() {
    let _slot = shared_slot();
    let served = start(&[]);
    run(async {
        let client = Client::connect(served.address).await;
        for len in [0, 1, 100, 1000, 30_000, 40_000, 100_000, 1_000_000, 10_000_000] {
            for _miss_and_hit in 0..2 {
                let page = client.get(&format!("/{len}")).await;
                assert_eq!((page.status(), page.field("content-length")), ("200", Some(&*len.to_string())));
                assert!(page.body == body(len), "{len} bytes, not {}", page.body.len());
            }
            let passed = client.get(&format!("/{len}/private")).await;
            assert!(passed.body == body(len), "a pass of {len} bytes");
        }
        let head = client.send("HEAD", "/100000", &[], &[]).await;
        assert_eq!(
            (head.status(), head.field("content-length"), head.body.len()),
            ("200", Some("100000"), 0)
        );
        let unchanged = client.send("GET", "/100000", &[("if-none-match", "\"e\"")], &[]).await;
        assert_eq!((unchanged.status(), unchanged.body.len()), ("304", 0));
        let part = client.send("GET", "/100000", &[("range", "bytes=70000-70099")], &[]).await;
        assert_eq!((part.status(), &part.body[..]), ("206", &body(100_000)[70_000..70_100]));
        let parts = client.send("GET", "/100000", &[("range", "bytes=0-9,50-59")], &[]).await;
        assert_eq!(parts.status(), "206");
        for len in [1, 1000, 100_000, 5_000_000] {
            let length = len.to_string();
            let upload = client.send("POST", "/upload", &[("content-length", &length)], &body(len)).await;
            assert_eq!(upload.status(), "200", "an upload of {len} bytes");
        }
        let facts = client.get("/facts").await;
        assert_eq!(facts.field("x-proto"), Some("HTTP/3.0"));
        assert_eq!(facts.field("x-transport"), Some("HTTP/3"));
        assert_eq!(facts.field("x-client"), Some("127.0.0.1"));
        assert_eq!(facts.field("alt-svc"), None);
    });
}

/// VCL gets the fingerprint of a client (JA3) if `tls_ja3` is on.
#[test]
fn clients_have_fingerprints() {
    let _slot = shared_slot();
    for (options, is_on) in [(&["-p", "tls_ja3=on"][..], true), (&[], false)] {
        let served = start(options);
        run(async {
            let client = Client::connect(served.address).await;
            let facts = client.get("/facts").await;
            let ja3 = facts.field("x-ja3").unwrap_or_default();
            // The version, ciphers, extensions with those of QUIC in any order, groups and formats.
            let parts: Vec<_> = ja3.split(',').collect();
            let has_quic =
                parts.get(2).is_some_and(|extensions| extensions.split('-').any(|number| number == "57"));
            let is_one = parts[0] == "771" && parts.len() == 5 && has_quic;
            assert_eq!((is_one, ja3.is_empty()), (is_on, !is_on), "{ja3}");
        });
    }
}

/// A request with the first flight of a resumed session is marked and served, and one with effects waits. A worker
/// without the session refuses both, and the client repeats them.
#[test]
fn early_requests_are_served_or_wait() {
    let _slot = shared_slot();
    let mut served = start(&["-p", "tls_early_data=on"]);
    let config = client::early_config();
    let address = served.address;
    let early = |method: &'static str, expected: Option<&'static str>| {
        let config = &config;
        async move {
            let (client, accepted) = Client::connect_early(config, address).await;
            let body = if method == "GET" { &b""[..] } else { b"abc" };
            let page = client.send(method, "/facts", &[], body).await;
            assert_eq!((page.status(), page.field("x-early")), ("200", expected), "{method}");
            let later = client.get("/facts").await;
            assert_eq!((later.status(), later.field("x-early")), ("200", None));
            accepted.expect("a session").await
        }
    };
    run(async {
        let (client, accepted) = Client::connect_early(&config, served.address).await;
        assert!(accepted.is_none());
        assert_eq!(client.get("/facts").await.field("x-early"), None);
        assert!(early("GET", Some("1")).await);
        assert!(early("POST", None).await);
    });
    served.daemon.ok("stop");
    served.daemon.ok("start");
    run(async {
        let (client, accepted) = Client::connect_early(&config, address).await;
        assert!(!accepted.expect("a session").await);
        // The control stream was refused, too.
        drop(client);
        let (client, _) = Client::connect_early(&config, address).await;
        assert_eq!(client.get("/facts").await.status(), "200");
        assert!(early("GET", Some("1")).await);
    });
}

/// The listeners of a file of `-A` have HTTP/3 if it sets `h3`.
#[test]
fn a_listener_of_a_file_serves_http3() {
    let _slot = shared_slot();
    let folder = std::env::temp_dir().join(format!("lacquer-h3-file-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a directory");
    let (pem, conf) = (folder.join("pair.pem"), folder.join("tls.conf"));
    std::fs::write(&pem, &trusted().pem).expect("a file");
    let frontend = |name| format!("host = \"127.0.0.1\" port = \"0\" name = \"{name}\"");
    let text = format!(
        "h3 = on\nfrontend = {{ {} }}\nfrontend = {{ {} h3 = off }}\npem-file = \"{}\"\n",
        frontend("with"),
        frontend("without"),
        pem.display()
    );
    std::fs::write(&conf, text).expect("a file");
    let origin = Origin::by_method(serve);
    let mut daemon = Daemon::start(&vcl(origin.address, SUBS), &["-A", &conf.display().to_string()]);
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let (with, without) = (address(daemon.port_of("with")), address(daemon.port_of("without")));
    run(async {
        let client = Client::connect(with).await;
        assert_eq!(client.get("/1000").await.body, body(1000));
    });
    assert!(UdpSocket::bind(without).is_ok(), "the other port has no UDP socket");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn a_thousand_requests_use_one_connection() {
    let _slot = shared_slot();
    let served = start(&[]);
    run(async {
        let client = Client::connect(served.address).await;
        for _ in 0..20 {
            let mut streams = Vec::new();
            for _ in 0..50 {
                let (mut send, receive) = client.open("GET", "/1000", &[]).await;
                send.finish().expect("it is open");
                streams.push(receive);
            }
            for receive in &mut streams {
                assert_eq!(response(receive).await.body.len(), 1000);
            }
        }
    });
}

/// The responses over TCP announce HTTP/3, unless VCL announces something.
#[test]
fn responses_over_tcp_announce_http3() {
    let _slot = shared_slot();
    let served = start(&[]);
    let announced = |path: &str| {
        let mut tls = trusted().config.as_ref().clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = rustls::pki_types::ServerName::try_from("example.test").expect("a name");
        let connection = rustls::ClientConnection::new(Arc::new(tls), name).expect("a configuration");
        let stream = TcpStream::connect(served.address).expect("the daemon listens");
        let mut client = rustls::StreamOwned::new(connection, stream);
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).expect("it reads");
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut client, &mut bytes).expect("an orderly end");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.lines().filter(|line| line.starts_with("Alt-Svc")).map(str::to_owned).collect::<Vec<_>>()
    };
    let port = served.address.port();
    for _miss_and_hit in 0..2 {
        assert_eq!(announced("/100"), [format!("Alt-Svc: h3=\":{port}\"; ma=86400")]);
    }
}

/// A network that loses, repeats and reorders packets delays responses, and changes none.
#[test]
fn a_bad_network_changes_no_response() {
    let _slot = shared_slot();
    let served = start(&[]);
    let whole = effort(1, 5);
    for seed in 0..whole {
        let relay = Relay::start(served.address, Faults { lost: 3, repeated: 5, delayed: 10 }, seed);
        run(async {
            let client = Client::connect(relay.address).await;
            for len in [100, 100_000, 300_000] {
                let page = client.get(&format!("/{len}")).await;
                assert!(page.body == body(len), "seed {seed}: {len} bytes, not {}", page.body.len());
            }
            let upload =
                client.send("POST", "/upload", &[("content-length", "100000")], &body(100_000)).await;
            assert_eq!(upload.status(), "200", "seed {seed}");
        });
    }
}

/// A client that changes its address keeps its connection, also if its packets arrive at another reactor then.
#[test]
fn a_client_may_change_its_address() {
    let _slot = shared_slot();
    let served = start(&[]);
    run(async {
        let client = Client::connect(served.address).await;
        for _ in 0..12 {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            client.endpoint.rebind(socket).expect("the socket works");
            let page = client.get("/100000").await;
            assert!(page.body == body(100_000));
        }
    });
}

/// An upload that stops is cancelled. It is not rejected: the origin may have seen the request, so that the client must not
/// repeat it by itself.
#[test]
fn uploads_that_stop_are_cancelled() {
    let _slot = shared_slot();
    let served = start(&["-p", "timeout_idle=1"]);
    run(async {
        let client = Client::connect(served.address).await;
        let (_send, mut receive) = client.open("POST", "/100/private", &[("content-length", "1000")]).await;
        let reset = try_response(&mut receive).await.expect_err("it is reset");
        assert!(reset.to_string().ends_with("error 268"), "{reset}");
    });
    served.serves();
}

/// Cancelled downloads end, and so do those of clients that vanish.
#[test]
fn cancelled_and_abandoned_downloads_end() {
    let _slot = shared_slot();
    let served = start(&["-p", "h2_rapid_reset_limit=0"]);
    run(async {
        let client = Client::connect(served.address).await;
        client.get("/10000000").await;
        for _ in 0..effort(50, 500) {
            let (mut send, mut receive) = client.open("GET", "/10000000", &[]).await;
            send.finish().expect("it is open");
            let mut some = [0; 1000];
            let _ = receive.read(&mut some).await.expect("the response begins");
            receive.stop(0x10c_u32.into()).expect("it is open");
        }
        let page = client.get("/1000").await;
        assert_eq!(page.body, body(1000));
        // The request itself is cancelled.
        let (mut send, mut receive) = client.open("POST", "/upload", &[("content-length", "1000")]).await;
        send.reset(0x10c_u32.into()).expect("it is open");
        assert!(try_response(&mut receive).await.is_err());
        assert_eq!(client.get("/1000").await.status(), "200");
    });
    served.serves();
}

/// Too many resets end the connection, as over HTTP/2.
#[test]
fn rapid_resets_end_the_connection() {
    let _slot = shared_slot();
    let served = start(&["-p", "h2_rapid_reset_limit=20"]);
    run(async {
        let client = Client::connect(served.address).await;
        for _ in 0..100 {
            let Ok((mut send, _receive)) = client.connection.open_bi().await else { break };
            if send.write_all(&[1]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            let _ = send.reset(0x10c_u32.into());
        }
        let reason = tokio::time::timeout(Duration::from_secs(10), client.connection.closed()).await;
        let text = format!("{:?}", reason.expect("the connection ends"));
        assert!(text.contains("ApplicationClosed") && text.contains("263"), "{text}");
    });
    served.serves();
}

/// Requests whose responses the client refuses in the same packet are resets, and are not executed.
#[test]
fn refused_responses_count_as_resets() {
    let _slot = shared_slot();
    let served = start(&["-p", "h2_rapid_reset_limit=20"]);
    run(async {
        let client = Client::connect(served.address).await;
        let mut streams = Vec::new();
        for _ in 0..90 {
            // The packet leaves when this task waits.
            let Ok((send, mut receive)) = client.try_open("GET", "/100/private", &[]).await else { break };
            let _ = receive.stop(0x10c_u32.into());
            streams.push((send, receive));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let reason = tokio::time::timeout(Duration::from_secs(10), client.connection.closed()).await;
        let text = format!("{:?}", reason.expect("the connection ends"));
        assert!(text.contains("ApplicationClosed") && text.contains("263"), "{text}");
    });
    assert!(served.origin.requests() < 50, "{} requests", served.origin.requests());
    served.serves();
}

/// A client that has proved its address is refused before its handshake, if its address has too many connections.
#[test]
fn connections_count_before_their_handshake() {
    let _slot = shared_slot();
    let options = ["reactors=1", "client_max_connections=2", "tls_handshake_timeout=60"];
    let served = start(&options.map(|option| ["-p", option]).concat());
    // From now on, all clients have to prove their address.
    let _silent = upgrades::begin_handshakes(served.address, 200);
    run(async {
        let clients = [Client::connect(served.address).await, Client::connect(served.address).await];
        for client in &clients {
            assert_eq!(client.get("/100").await.status(), "200");
        }
        let refused = Client::try_connect(served.address).await.err();
        let is_early = matches!(refused, Some(quinn::ConnectionError::ConnectionClosed(_)));
        assert!(is_early, "{refused:?}");
        assert_eq!(clients[0].get("/100").await.status(), "200");
    });
}

/// A client that does not read its responses holds a bounded amount of memory, and its requests end.
#[test]
fn a_client_that_does_not_read_is_bounded() {
    let mut served = start(&["-p", "idle_send_timeout=2", "-p", "send_timeout=5"]);
    served.serves();
    run(async {
        let client = Client::connect(served.address).await;
        client.get("/10000000").await;
        let before = served.daemon.resident().memory;
        let mut streams = Vec::new();
        for _ in 0..90 {
            let (mut send, receive) = client.open("GET", "/10000000", &[]).await;
            send.finish().expect("it is open");
            streams.push(receive);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let grown = served.daemon.resident().memory.saturating_sub(before);
        assert!(grown < 12 << 20, "{} kB for unread responses", grown >> 10);
        tokio::time::sleep(Duration::from_secs(5)).await;
        for receive in &mut streams {
            assert!(try_response(receive).await.is_err(), "an unread response is complete");
        }
        assert_eq!(client.get("/1000").await.status(), "200");
    });
}

/// Clients that acknowledge nothing hold little memory.
#[test]
fn clients_that_acknowledge_nothing_hold_little() {
    const CLIENTS: u64 = 40;
    let mut served = start(&[]);
    served.serves();
    run(async {
        let mut clients = Vec::new();
        for seed in 0..CLIENTS {
            let relay = Relay::start(served.address, Faults { lost: 0, repeated: 0, delayed: 0 }, seed);
            let client = Client::connect(relay.address).await;
            client.get(if seed == 0 { "/10000000" } else { "/100" }).await;
            clients.push((relay, client));
        }
        let before = served.daemon.resident().memory;
        let (mut streams, long) = (Vec::new(), "x".repeat(400));
        for (relay, client) in &clients {
            relay.mute();
            let (mut send, receive) = client.open("GET", "/10000000", &[("x-long", &long)]).await;
            send.finish().expect("it is open");
            streams.push((send, receive));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let grown = served.daemon.resident().memory.saturating_sub(before);
        assert!(grown < CLIENTS * (300 << 10), "{} kB for {CLIENTS} clients", grown >> 10);
        for (_, receive) in &mut streams {
            let mut some = [0; 1000];
            assert!(receive.read(&mut some).await.is_ok_and(|n| n.is_some()), "the response has begun");
        }
    });
    served.serves();
}

/// A new worker resets the connections of the old one at once, and serves new ones.
#[test]
fn clients_notice_that_the_worker_was_replaced() {
    let mut served = start(&[]);
    run(async {
        let client = Client::connect(served.address).await;
        client.get("/1000").await;
        let worker = served.daemon.worker();
        let status = std::process::Command::new("kill").args(["-9", &worker.to_string()]).status();
        assert!(status.expect("kill runs").success());
        let begun = Instant::now();
        let (mut send, mut receive) = client.open("GET", "/1000", &[]).await;
        let _ = send.finish();
        assert!(try_response(&mut receive).await.is_err());
        let reason = client.connection.close_reason();
        assert!(matches!(reason, Some(quinn::ConnectionError::Reset)), "{reason:?}");
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    });
    served.serves();
}

/// A worker that is about to stop announces it, answers the requests in progress, and closes its connections without an
/// error.
#[test]
fn a_draining_worker_loses_no_request() {
    let mut served = start(&[]);
    run(async {
        let client = Client::connect(served.address).await;
        let (mut send, mut receive) = client.open("POST", "/upload", &[("content-length", "1000")]).await;
        client.get("/1000").await;
        let manager = served.daemon.manager();
        let status = std::process::Command::new("kill").args(["-TERM", &manager.to_string()]).status();
        assert!(status.expect("kill runs").success());
        tokio::time::sleep(Duration::from_millis(500)).await;
        send.write_all(lacquer_h3::frame::data_header(1000).as_slice()).await.expect("it reads");
        send.write_all(&body(1000)).await.expect("it reads");
        send.finish().expect("it is open");
        assert_eq!(response(&mut receive).await.status(), "200");
        let reason = tokio::time::timeout(Duration::from_secs(10), client.connection.closed()).await;
        let text = format!("{:?}", reason.expect("the connection ends"));
        assert!(text.contains("ApplicationClosed") && text.contains("256"), "{text}");
    });
    assert_eq!(served.daemon.end(), Some(0));
}

/// Datagrams without sense, and first packets of clients that never go on, do not end the service.
#[test]
fn floods_of_packets_do_not_end_the_service() {
    let mut served = start(&["-p", "tls_handshake_timeout=1"]);
    served.serves();
    let before = served.daemon.resident().memory;
    let mut random = Random(7);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..effort(5_000, 100_000) {
        let len = 1 + random.below(1300) as usize;
        let mut bytes = random.bytes(len);
        if random.below(2) == 0 {
            // An Initial packet of version 1, with a damaged payload.
            bytes.resize(1200, 0);
            bytes[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
        }
        let _ = socket.send_to(&bytes, served.address);
    }
    run(async {
        for _ in 0..effort(200, 2000) {
            let endpoint = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket");
            let connecting = endpoint.connect_with(client::config(), served.address, "example.test");
            let _ = tokio::time::timeout(Duration::from_micros(500), connecting.expect("a name")).await;
        }
    });
    served.serves();
    let grown = served.daemon.resident().memory.saturating_sub(before);
    assert!(grown < 30 << 20, "{} kB", grown >> 10);
}
