//! Sessions of TLS outlive the worker, and the program itself in an upgrade.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lacquer_testing::daemon::signal;
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::shared_slot;
use lacquer_testing::until;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

use crate::upgrade::Upgradable;

/// Returns the settings of a client, which keep its sessions.
fn client(roots: &RootCertStore, version: &'static rustls::SupportedProtocolVersion) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_protocol_versions(&[version]).expect("a version");
    Arc::new(builder.with_root_certificates(roots.clone()).with_no_client_auth())
}

/// Fetches a page, and returns the kind of the handshake.
fn fetch(address: SocketAddr, config: &Arc<ClientConfig>) -> HandshakeKind {
    let name = "example.test".try_into().expect("a name");
    let connection = ClientConnection::new(config.clone(), name).expect("settings");
    let socket = TcpStream::connect(address).expect("the daemon listens");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(b"GET /100 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("an orderly end");
    assert!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
    stream.conn.handshake_kind().expect("a handshake")
}

#[test]
fn sessions_are_resumed_after_upgrades_and_crashes() {
    let _slot = shared_slot();
    let pair = rcgen::generate_simple_self_signed(vec!["example.test".to_owned()]).expect("a certificate");
    let folder = std::env::temp_dir().join(format!("lacquer-sessions-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a directory");
    let (pem, conf) = (folder.join("pair.pem"), folder.join("tls.conf"));
    fs::write(&pem, pair.cert.pem() + &pair.signing_key.serialize_pem()).expect("a file");
    let text = format!(
        "frontend = {{ host = \"127.0.0.1\" port = \"0\" name = \"secure\" }}\npem-file = \"{}\"\n",
        pem.display()
    );
    fs::write(&conf, text).expect("a file");
    let mut roots = RootCertStore::empty();
    roots.add(pair.cert.der().clone()).expect("a certificate");

    let origin = Origin::start(sized);
    let mut it = Upgradable::start("sessions", &origin, &["-A", &conf.display().to_string()]);
    let address = SocketAddr::from(([127, 0, 0, 1], it.daemon.port_of("secure")));
    let clients = [&rustls::version::TLS12, &rustls::version::TLS13].map(|version| client(&roots, version));
    for client in &clients {
        assert_eq!(fetch(address, client), HandshakeKind::Full);
        assert_eq!(fetch(address, client), HandshakeKind::Resumed);
    }
    for _ in 0..2 {
        it.upgrade();
        for client in &clients {
            assert_eq!(fetch(address, client), HandshakeKind::Resumed, "after an upgrade");
        }
        let worker = it.daemon.worker();
        signal(worker, "-KILL");
        assert!(until(|| it.daemon.ok("status").contains("running") && it.daemon.worker() != worker));
        for client in &clients {
            assert_eq!(fetch(address, client), HandshakeKind::Resumed, "after a crash");
        }
        it.settle();
    }
    // A client that has no session makes a full handshake.
    assert_eq!(fetch(address, &client(&roots, &rustls::version::TLS13)), HandshakeKind::Full);
    let _ = fs::remove_dir_all(&folder);
}
