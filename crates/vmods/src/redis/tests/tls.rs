//! Servers with TLS, right and wrong ones.

use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::fake::{Fake, command};
use super::{database, execute, fault_of, run, settings, text};
use crate::redis::database::Settings;
use crate::redis::server::Role;
use crate::redis::tls::{Files, Tls};

/// A folder with the certificate of an authority, and a server with a certificate from it.
struct World {
    folder: PathBuf,
    place: String,
}

impl World {
    /// Starts a server whose certificate is for this name.
    fn start(test: &str, name: &str) -> World {
        let folder = std::env::temp_dir().join(format!("lacquer-redis-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        fs::write(folder.join("ca.pem"), pem).expect("a file");
        let authority = Issuer::new(params, key);
        let key = KeyPair::generate().expect("a key");
        let own = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let own = own.signed_by(&key, &authority).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![own.der().clone()], key).expect("they fit"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let place = listener.local_addr().expect("it is bound").to_string();
        // The thread ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let session = ServerConnection::new(config.clone()).expect("a session");
                let mut input = BufReader::new(StreamOwned::new(session, stream));
                thread::spawn(move || {
                    while let Ok(command) = command(&mut input) {
                        let reply = format!("${}\r\n{command}\r\n", command.len());
                        if input.get_mut().write_all(reply.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        World { folder, place }
    }

    fn settings(&self, files: Files) -> Settings {
        let authorities = self.folder.join("ca.pem").to_string_lossy().into_owned();
        let tls = Tls::read(&Files { authorities, ..files }).expect("the files are valid");
        Settings { tls: Some(tls), ..settings() }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn commands_are_sent_over_tls() {
    let world = World::start("address", "127.0.0.1");
    let database = database(&[(&world.place, Role::Master)], world.settings(Files::default()));
    run(async {
        for _ in 0..3 {
            let outcome = execute(&database, &["GET", "key"]).await;
            assert_eq!(outcome.reply, text("GET key"), "{:?}", outcome.faults);
        }
    });
    // Session tickets of the server do not close the connection.
    assert_eq!(database.counters.get("connections.total"), Some(1));
}

#[test]
fn the_certificate_must_be_for_the_server() {
    let world = World::start("name", "redis.example");
    let fault = fault_of(&world.place, world.settings(Files::default()));
    assert!(fault.contains("cannot connect: TLS: invalid peer certificate"), "{fault}");
    let named = Files { name: "redis.example".to_owned(), ..Files::default() };
    let database = database(&[(&world.place, Role::Master)], world.settings(named));
    assert_eq!(run(execute(&database, &["GET", "key"])).reply, text("GET key"));
}

#[test]
fn an_unknown_authority_is_refused() {
    let (world, other) = (World::start("own", "127.0.0.1"), World::start("other", "127.0.0.1"));
    let fault = fault_of(&world.place, other.settings(Files::default()));
    // The authorities have the same name, but other keys.
    assert!(fault.contains("cannot connect: TLS: invalid peer certificate: BadSignature"), "{fault}");
}

#[test]
fn a_server_without_tls_is_refused() {
    let world = World::start("plain", "127.0.0.1");
    let fake = Fake::constant("+OK\r\n");
    let settings = Settings {
        connection_timeout: std::time::Duration::from_secs(1),
        ..world.settings(Files::default())
    };
    let fault = fault_of(&fake.place, settings);
    assert!(fault.contains("cannot connect"), "{fault}");
    assert!(fake.commands().is_empty(), "nothing was sent in clear text");
}

#[test]
fn files_that_are_missing_or_wrong_fail_the_load() {
    let world = World::start("files", "127.0.0.1");
    let path = |name: &str| world.folder.join(name).to_string_lossy().into_owned();
    fs::write(path("text"), "no certificate").expect("a file");
    fs::create_dir_all(path("empty")).expect("a folder");
    let fault = |files: Files| Tls::read(&files).err().expect("it fails");
    assert!(fault(Files { authorities: path("missing"), ..Files::default() }).contains("No such file"));
    assert!(
        fault(Files { authorities: path("text"), ..Files::default() }).contains("contains no certificate")
    );
    assert!(fault(Files { folder: path("empty"), ..Files::default() }).contains("contains no certificates"));
    let given = |certificate: &str, key: &str| Files {
        authorities: path("ca.pem"),
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        ..Files::default()
    };
    assert!(fault(given("", &path("ca.pem"))).contains("tls_keyfile needs tls_certfile"));
    assert!(fault(given(&path("ca.pem"), "")).contains("there is no private key"));
    let folder = Files { folder: world.folder.to_string_lossy().into_owned(), ..Files::default() };
    let settings = Settings { tls: Some(Tls::read(&folder).expect("a certificate is in it")), ..settings() };
    let database = database(&[(&world.place, Role::Master)], settings);
    assert_eq!(run(execute(&database, &["GET", "key"])).reply, text("GET key"));
}
