//! Origins with TLS, and the certificates of their tests.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// An authority.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub struct Pair {
    pub certificate: Certificate,
    pub key: KeyPair,
}

pub fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("valid names")
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("a certificate");
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key");
        Pair { certificate: params.signed_by(&key, &self.issuer).expect("a certificate"), key }
    }

    pub fn certificate(&self, names: &[&str]) -> Pair {
        self.sign(&params(names))
    }
}

impl Pair {
    pub fn pem(&self) -> String {
        format!("{}{}", self.certificate.pem(), self.key.serialize_pem())
    }

    /// Returns the settings of a server with this certificate, which requires one of its clients if `clients` is set.
    pub fn server(&self, clients: Option<&Authority>) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(clients.certificate.der().clone()).expect("an authority");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        let chain = vec![self.certificate.der().clone()];
        Arc::new(builder.with_single_cert(chain, key).expect("the certificate's key"))
    }
}

/// A file that is removed in the end.
pub struct TestFile(PathBuf);

impl TestFile {
    pub fn new(name: &str, content: &str) -> TestFile {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lacquer-{}-{number}-{name}", std::process::id()));
        fs::write(&path, content).expect("a temporary file can be written");
        TestFile(path)
    }

    pub fn path(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The fate of a connection after a response.
#[derive(Clone, Copy, PartialEq)]
pub enum Then {
    Keep,
    /// It ends with close_notify.
    Close,
    /// It ends without.
    Cut,
}

pub type Secure = StreamOwned<ServerConnection, TcpStream>;

/// A connection as the origin saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub name: Option<String>,
    pub is_resumed: bool,
    /// The line that preceded the handshake, if there was one.
    pub header: String,
}

pub struct TlsOrigin {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl TlsOrigin {
    /// Starts an origin whose handler writes the response to a path.
    pub fn start(
        config: Arc<ServerConfig>,
        respond: impl Fn(&str, &mut Secure) -> Then + Send + Sync + 'static,
    ) -> TlsOrigin {
        TlsOrigin::behind(false, config, respond)
    }

    /// Starts an origin like `start`. With `proxied`, a line precedes the handshake.
    pub fn behind(
        proxied: bool,
        config: Arc<ServerConfig>,
        respond: impl Fn(&str, &mut Secure) -> Then + Send + Sync + 'static,
    ) -> TlsOrigin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (seeing, respond) = (seen.clone(), Arc::new(respond));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, seen, respond) = (config.clone(), seeing.clone(), respond.clone());
                thread::spawn(move || serve(stream, proxied, config, &seen, &*respond));
            }
        });
        TlsOrigin { address, seen }
    }

    /// Returns the connections with a complete handshake.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }

    /// Returns a backend with this address and these attributes.
    pub fn backend(&self, name: &str, attributes: &str) -> String {
        backend(name, self.address, attributes)
    }
}

pub fn backend(name: &str, address: SocketAddr, attributes: &str) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!("backend {name} {{ .host = \"{ip}\"; .port = \"{port}\"; .ssl = 1; {attributes} }}\n")
}

fn serve(
    mut socket: TcpStream,
    proxied: bool,
    config: Arc<ServerConfig>,
    seen: &Mutex<Vec<Seen>>,
    respond: &dyn Fn(&str, &mut Secure) -> Then,
) -> Option<()> {
    let _ = socket.set_nodelay(true);
    let header = if proxied { header_line(&mut socket).ok()? } else { String::new() };
    let mut tls = ServerConnection::new(config).ok()?;
    while tls.is_handshaking() {
        if tls.complete_io(&mut socket).is_err() {
            // The alert was written. A reset would overtake it.
            let _ = socket.shutdown(Shutdown::Write);
            while io::Read::read(&mut socket, &mut [0; 1024]).is_ok_and(|n| n > 0) {}
            return None;
        }
    }
    seen.lock().expect("no panic").push(Seen {
        name: tls.server_name().map(str::to_owned),
        is_resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
        header,
    });
    let mut stream = BufReader::new(StreamOwned::new(tls, socket));
    loop {
        let mut path = String::new();
        if stream.read_line(&mut path).ok()? == 0 {
            return None;
        }
        let (mut line, mut is_last) = (String::new(), false);
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            is_last |= line.eq_ignore_ascii_case("connection: close\r\n");
        }
        let path = path.split(' ').nth(1).unwrap_or_default().to_owned();
        let then = match respond(&path, stream.get_mut()) {
            Then::Keep if is_last => Then::Close,
            then => then,
        };
        stream.get_mut().flush().ok()?;
        if then == Then::Close {
            let secure = stream.get_mut();
            secure.conn.send_close_notify();
            secure.conn.complete_io(&mut secure.sock).ok()?;
        }
        if then != Then::Keep {
            return None;
        }
    }
}

/// Reads up to the end of a line and no further.
fn header_line(socket: &mut TcpStream) -> io::Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        io::Read::read_exact(socket, &mut byte)?;
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Writes a response with a length.
pub fn sized(body: &str, stream: &mut Secure) -> Then {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
    Then::Keep
}
