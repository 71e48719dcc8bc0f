//! The admin listener with TLS: what is not TLS gets nothing, handshakes that stop lock nobody out, and a daemon whose
//! certificate cannot be used does not start.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lacquer_testing::admin::AdminPort;
use lacquer_testing::daemon::{Daemon, refused, until, vcl};
use lacquer_testing::slots::shared_slot;

use crate::tls::{closed, connect, tls_client, trusted};
use crate::tls_origins::server::TestFile;

/// Sends a request over TLS. Returns the response.
fn ask(port: &AdminPort, request: &str) -> io::Result<String> {
    let mut client = tls_client(port.address);
    client.write_all(request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut response = String::new();
    client.read_to_string(&mut response)?;
    Ok(response)
}

#[test]
fn a_listener_with_a_certificate_speaks_tls_alone() {
    let file = TestFile::new("admin.pem", &trusted().pem);
    let option = format!("127.0.0.1:0,cert={}", file.path());
    let daemon = Daemon::start(&vcl(([127, 0, 0, 1], 1).into(), ""), &["-w", &option, "-s", "malloc,32M"]);
    let port = AdminPort::of(&daemon.directory()).expect("the daemon publishes its listener");
    let status = |request: &str| ask(&port, request).ok()?.get(9..12)?.parse::<u16>().ok();
    let open = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\n\r\n", port.address);
    assert!(until(|| status(&open) == Some(200)), "{}", daemon.stderr());
    assert_eq!(status(&port.request("GET", "/api/v1/storages", "")), Some(200));
    assert_eq!(status(&open.replace("/readyz", "/metrics")), Some(401));
    let data = port.request("GET", "/api/v1/storages", "");
    assert_eq!(status(&data.replace("127.0.0.1", "evil.example")), Some(421));
    // Without TLS there is no response.
    let mut plain = connect(port.address);
    plain.write_all(open.as_bytes()).expect("it is accepted");
    let (sent, _) = closed(&mut plain).expect("it is closed at once");
    assert!(!sent.starts_with(b"HTTP"), "{sent:?}");
    // More handshakes that do not begin than there may be strangers. The last one ends by the time for a head.
    let begun = Instant::now();
    let mut silent: Vec<TcpStream> = (0..300).map(|_| connect(port.address)).collect();
    let mut last = silent.pop().expect("there are some");
    last.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    for _ in 0..10 {
        assert_eq!(status(&open), Some(200));
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let end = closed(&mut last).map(|_| begun.elapsed());
    assert!(end.is_some_and(|end| end > Duration::from_secs(14)), "{end:?}");
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_at_the_start() {
    let _slot = shared_slot();
    let pair = TestFile::new("pair.pem", &trusted().pem);
    let key = rcgen::KeyPair::generate().expect("a key");
    let (other, empty) = (TestFile::new("key.pem", &key.serialize_pem()), TestFile::new("empty.pem", ""));
    let (pair, other, empty) = (pair.path(), other.path(), empty.path());
    for (argument, why) in [
        ("cert=/nonexistent/pair.pem".to_owned(), "cannot read /nonexistent/pair.pem: No such file"),
        (format!("cert={empty}"), "empty.pem: Error loading certificate"),
        (format!("cert={other}"), "key.pem: Error loading certificate"),
        (format!("cert={pair},key={other}"), "key.pem"),
        (format!("cert={pair},key={empty}"), "Error loading private key"),
        (format!("key={pair}"), "key= needs cert="),
        ("cert=".to_owned(), "Invalid sub-arg cert="),
    ] {
        let said = refused(&[], &format!("exec \"$@\" -w 127.0.0.1:0,{argument}"));
        assert!(said.contains(why), "{argument}: {said}");
    }
    for (argument, why) in [
        (format!("otlp=https://127.0.0.1,ca={empty}"), "empty.pem: it contains no certificate"),
        ("otlp=https://127.0.0.1,ca=/nonexistent".to_owned(), "the authorities /nonexistent: No such file"),
        (format!("otlp=http://127.0.0.1,ca={pair}"), "the address must begin with https://"),
        ("otlp=ftp://127.0.0.1".to_owned(), "begins with http:// or https://"),
    ] {
        let said = refused(&[], &format!("exec \"$@\" -w {argument}"));
        assert!(said.contains(why), "{argument}: {said}");
    }
}
