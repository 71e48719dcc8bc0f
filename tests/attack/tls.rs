//! Clients that attack TLS: handshakes that stop, trickle or are no handshakes, floods, and connections that end in the
//! middle. Each is bounded in time and memory, and never ends the service.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::Random;
use lacquer_testing::client;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::effort;
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::shared_slot;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

pub type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// A certificate with its key in a file, and the settings of clients that trust it.
pub struct Trusted {
    pub pem: String,
    pub config: Arc<ClientConfig>,
}

pub fn trusted() -> &'static Trusted {
    static TRUSTED: OnceLock<Trusted> = OnceLock::new();
    TRUSTED.get_or_init(|| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(vec!["example.test".to_owned()]).expect("a name");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        let mut roots = RootCertStore::empty();
        let der = rustls::pki_types::CertificateDer::from_pem_slice(certificate.pem().as_bytes());
        roots.add(der.expect("a certificate")).expect("a certificate");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Trusted { pem: certificate.pem() + &key.serialize_pem(), config: Arc::new(config) }
    })
}

/// A daemon with a listener for TLS.
pub struct Served {
    pub daemon: Daemon,
    pub address: SocketAddr,
    pub origin: Origin,
}

pub fn start(options: &[&str]) -> Served {
    start_with("", "", options)
}

/// Starts a daemon with these subroutines and further sub-arguments of its listener.
pub fn start_with(subs: &str, listener: &str, options: &[&str]) -> Served {
    let origin = Origin::start(sized);
    let listener = format!("secure=127.0.0.1:0,https{listener}");
    let given = ["-a", &listener, "-p", "feature=+http2"];
    let mut daemon = Daemon::start(&vcl(origin.address, subs), &[&given[..], options].concat());
    let file = daemon.directory().join("pair.pem");
    std::fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).expect("a directory");
    std::fs::write(&file, &trusted().pem).expect("a file for the certificate");
    daemon.ok(&format!("tls.cert.load {}", file.display()));
    daemon.ok("tls.cert.commit");
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.port_of("secure")));
    Served { daemon, address, origin }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the daemon listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    stream
}

pub fn tls_client(address: SocketAddr) -> TlsClient {
    let name = ServerName::try_from("example.test").expect("a name");
    let connection = ClientConnection::new(trusted().config.clone(), name).expect("a configuration");
    StreamOwned::new(connection, connect(address))
}

impl Served {
    /// Requires that another client gets its page.
    pub fn serves(&self) {
        let mut client = tls_client(self.address);
        client.write_all(b"GET /100 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut response = Vec::new();
        client.read_to_end(&mut response).expect("an orderly end");
        assert!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
    }
}

/// Reads until the daemon closes the connection. Returns the bytes and the time that took; `None` if it does not.
pub fn closed(stream: &mut TcpStream) -> Option<(Vec<u8>, Duration)> {
    let begun = Instant::now();
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Some((all, begun.elapsed())),
            Ok(n) => all.extend_from_slice(&piece[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return Some((all, begun.elapsed()));
            }
            Err(_) => return None,
        }
    }
}

/// Returns the first message of a client.
pub fn hello() -> Vec<u8> {
    let name = ServerName::try_from("example.test").expect("a name");
    let mut connection = ClientConnection::new(trusted().config.clone(), name).expect("a configuration");
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).expect("memory");
    bytes
}

/// A handshake must be complete within `tls_handshake_timeout`, however often a byte of it arrives.
#[test]
fn a_handshake_that_stops_or_trickles_ends() {
    let _slot = shared_slot();
    let served = start(&["-p", "tls_handshake_timeout=1"]);
    let hello = hello();
    for sent in [0, 1, 5, 100, hello.len()] {
        let mut stream = connect(served.address);
        stream.write_all(&hello[..sent]).expect("it reads");
        let (_, after) = closed(&mut stream).unwrap_or_else(|| panic!("open after {sent} bytes"));
        assert!(after < Duration::from_secs(5), "{sent} bytes: {after:?}");
    }
    let mut stream = connect(served.address);
    let begun = Instant::now();
    for byte in &hello {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert!(closed(&mut stream).is_some());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(served.daemon.logs("Handshake timeout"));
    served.serves();
}

/// Bytes that are no handshake end the connection at once, and the log names the reason.
#[test]
fn what_is_no_handshake_ends_at_once() {
    let _slot = shared_slot();
    let served = start(&[]);
    let alerts = [0x15, 3, 3, 0, 2, 1, 41].repeat(20_000);
    let empty = [0x16, 3, 3, 0, 0].repeat(20_000);
    let cases: [(&[u8], &str); 7] = [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "SSL routines::http request"),
        (b"\x80\x2e\x01\x00\x02\x00\x15", "wrong version number"),
        (b"\x16\x03\x01\xff\xff\x01\x00", "data length too long"),
        (b"\x17\x03\x03\x00\x05hello", "SSL routines"),
        (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", "SSL routines"),
        (&alerts, "SSL routines"),
        (&empty, "SSL routines"),
    ];
    for (bytes, reason) in cases {
        let mut stream = connect(served.address);
        let _ = stream.write_all(bytes);
        let (_, after) = closed(&mut stream).unwrap_or_else(|| panic!("open: {reason}"));
        assert!(after < Duration::from_secs(5), "{reason}: {after:?}");
        assert!(served.daemon.logs(reason), "{reason}");
    }
    let mut random = Random(7);
    let hello = hello();
    for _ in 0..effort(100, 2000) {
        let mut bytes = hello.clone();
        for _ in 0..3 {
            let at = random.index(bytes.len());
            bytes[at] = random.number() as u8;
        }
        let mut stream = connect(served.address);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(closed(&mut stream).is_some());
    }
    served.serves();
}

/// Messages without data are limited after the handshake too.
#[test]
fn a_flood_of_key_updates_ends() {
    let _slot = shared_slot();
    let served = start(&[]);
    let mut client = tls_client(served.address);
    client.write_all(b"GET /100 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    client.flush().expect("it reads");
    assert!(client.read(&mut [0; 4096]).expect("a response") > 0);
    let failed = (0..10_000).any(|_| {
        client.conn.refresh_traffic_keys().is_err() || client.conn.write_tls(&mut client.sock).is_err()
    });
    let ended = failed
        || loop {
            match client.read(&mut [0; 4096]) {
                Ok(0) | Err(_) => break true,
                Ok(_) => {}
            }
        };
    assert!(ended && served.daemon.logs("too many messages without data"));
    served.serves();
}

/// A client cannot start a second handshake on its connection.
#[test]
fn renegotiation_is_refused() {
    let _slot = shared_slot();
    let served = start(&[]);
    let script = format!(
        "(sleep 0.5; echo R; sleep 1) | openssl s_client -tls1_2 -legacy_renegotiation -connect {} 2>&1",
        served.address
    );
    let output = Command::new("sh").args(["-c", &script]).output().expect("the shell runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("RENEGOTIATING"), "{text}");
    assert!(served.daemon.logs("no renegotiation"), "{text}");
    served.serves();
}

/// A response that is cut ends without close_notify, so that a client which reads to the end of the connection detects
/// the gap. A whole one ends in order.
#[test]
fn a_cut_response_has_no_orderly_end() {
    let _slot = shared_slot();
    let origin = Origin::start(|path: &str, stream: &mut TcpStream| {
        let length = if path == "/whole" { 200_000 } else { 500_000 };
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let _ = stream.write_all(&vec![b'x'; 200_000]);
        // The response is on its way when it is cut.
        thread::sleep(Duration::from_millis(300));
        false
    });
    let given = ["-a", "secure=127.0.0.1:0,https"];
    let subs = "sub vcl_backend_response { set beresp.do_stream = true; set beresp.uncacheable = true; }";
    let mut daemon = Daemon::start(&vcl(origin.address, subs), &given);
    let file = daemon.directory().join("pair.pem");
    std::fs::write(&file, &trusted().pem).expect("a file for the certificate");
    daemon.ok(&format!("tls.cert.load {}", file.display()));
    daemon.ok("tls.cert.commit");
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.port_of("secure")));
    let served = Served { daemon, address, origin };
    for (path, is_whole) in [("/whole", true), ("/cut", false)] {
        let mut client = tls_client(served.address);
        write!(client, "GET {path} HTTP/1.0\r\n\r\n").expect("it reads");
        let mut response = Vec::new();
        let ended = client.read_to_end(&mut response);
        assert!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
        assert_eq!(ended.is_ok(), is_whole, "{path}: {ended:?}");
    }
}

/// A client that asks for names without certificates costs no more memory than others.
#[test]
fn many_unknown_names_leave_no_memory() {
    let mut served = start(&[]);
    let address = served.address;
    let ask = |i: usize| {
        let name = ServerName::try_from(format!("host{i}.example.test")).expect("a name");
        let config = trusted().config.clone();
        let mut connection = ClientConnection::new(config, name).expect("a configuration");
        let mut stream = connect(address);
        // The client refuses the certificate.
        let _ = connection.complete_io(&mut stream);
    };
    (0..100).for_each(ask);
    let before = served.daemon.resident().memory;
    (0..effort(300, 3000)).for_each(ask);
    let after = served.daemon.resident().memory;
    assert!(after < before + (4 << 20), "{before} to {after} bytes");
    served.serves();
}

/// An idle connection takes at most 16 kB.
#[test]
fn an_idle_connection_is_small() {
    let mut served = start(&["-p", "timeout_idle=600"]);
    let address = served.address;
    let open = |n: usize| -> Vec<TlsClient> {
        let client = |_| {
            let mut client = tls_client(address);
            client.write_all(b"GET /100 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
            assert!(client.read(&mut [0; 4096]).expect("a response") > 0);
            client
        };
        (0..n).map(client).collect()
    };
    let few = open(20);
    let before = served.daemon.resident().memory;
    let n = effort(300, 2000);
    let many = open(n);
    let after = served.daemon.resident().memory;
    let each = after.saturating_sub(before) / n as u64;
    eprintln!("{each} bytes for each idle connection");
    assert!(each <= 16 << 10, "{each} bytes");
    drop((few, many));
}

/// A flood of handshakes does not delay hits on other connections: their work has a budget.
#[test]
fn a_flood_of_handshakes_does_not_stop_plain_hits() {
    let mut served = start(&[]);
    let plain = served.daemon.address;
    client::get(plain, "/100").expect("a response");
    let ends = AtomicBool::new(false);
    let mut machine = served.daemon.machine();
    let hello = hello();
    let (slowest, handshakes) = thread::scope(|scope| {
        let flood = || {
            let mut done = 0;
            while !ends.load(Ordering::Relaxed) {
                let streams: Vec<TcpStream> = (0..20).map(|_| connect(served.address)).collect();
                for mut stream in &streams {
                    let _ = stream.write_all(&hello);
                }
                for mut stream in &streams {
                    done += usize::from(stream.read(&mut [0; 100]).is_ok_and(|n| n > 0));
                }
            }
            done
        };
        let floods: Vec<_> = (0..4).map(|_| scope.spawn(flood)).collect();
        thread::sleep(Duration::from_millis(300));
        let mut client = client::Client::connect(plain).expect("the daemon listens");
        machine.restart();
        let slowest = (0..effort(200, 2000)).map(|_| {
            let begun = Instant::now();
            client.get("/100").expect("a response");
            begun.elapsed()
        });
        let slowest = slowest.max();
        ends.store(true, Ordering::Relaxed);
        (slowest, floods.into_iter().map(|flood| flood.join().expect("no panic")).sum::<usize>())
    });
    assert!(handshakes > 20, "{handshakes}");
    let limit = Duration::from_millis(100) * machine.slack();
    assert!(slowest.is_some_and(|slowest| slowest < limit), "{slowest:?} during {handshakes} handshakes");
    served.serves();
}
