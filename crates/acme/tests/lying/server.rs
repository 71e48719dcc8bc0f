//! An HTTPS server whose responses are chosen by a function of the request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub struct Request {
    pub path: String,
    /// The address of the server, as in URLs.
    pub base: String,
}

pub struct Server {
    address: SocketAddr,
    authority: String,
}

type Respond = fn(&Request) -> Vec<u8>;

/// Returns a response with a nonce.
pub fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nReplay-Nonce: nonce\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Responds like a server up to the creation of an account.
pub fn directory(request: &Request) -> Vec<u8> {
    let base = &request.base;
    match request.path.as_str() {
        "/account" => {
            let head = "HTTP/1.1 201 Created\r\nReplay-Nonce: nonce\r\nContent-Length: 2\r\n";
            format!("{head}Location: {base}/account/1\r\n\r\n{{}}").into_bytes()
        }
        "/nonce" => b"HTTP/1.1 200 OK\r\nReplay-Nonce: nonce\r\n\r\n".to_vec(),
        _ => {
            let urls = ["newNonce", "newAccount", "newOrder"].into_iter().zip(["nonce", "account", "order"]);
            let fields: Vec<_> = urls.map(|(name, path)| format!("\"{name}\": \"{base}/{path}\"")).collect();
            answer("200 OK", "application/json", &format!("{{{}}}", fields.join(", ")))
        }
    }
}

/// Responds to an order with one authorization for `name`, in the state `status`, with this token.
pub fn order(request: &Request, name: &str, status: &str, token: &str) -> Vec<u8> {
    let base = &request.base;
    match request.path.as_str() {
        "/order" => {
            let body = format!(
                r#"{{"status":"pending","authorizations":["{base}/authorization"],"finalize":"{base}/finalize"}}"#
            );
            let head = "HTTP/1.1 201 Created\r\nReplay-Nonce: nonce\r\n";
            format!("{head}Location: {base}/order/1\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                .into_bytes()
        }
        "/authorization" => {
            let challenge = format!(
                r#"{{"type":"http-01","url":"{base}/challenge","token":"{token}","status":"pending"}}"#
            );
            let identifier = format!(r#"{{"type":"dns","value":"{name}"}}"#);
            answer(
                "200 OK",
                "application/json",
                &format!(r#"{{"status":"{status}","identifier":{identifier},"challenges":[{challenge}]}}"#),
            )
        }
        _ => directory(request),
    }
}

impl Server {
    pub fn start(respond: Respond) -> Server {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let leaf_key = KeyPair::generate().unwrap();
        let leaf =
            CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivateKeyDer::Pkcs8(leaf_key.serialize_der().into());
        let config = Arc::new(config.with_single_cert(vec![leaf.der().clone()], key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let config = config.clone();
                std::thread::spawn(move || serve(socket, config, address, respond));
            }
        });
        Server { address, authority }
    }

    pub fn url(&self) -> String {
        format!("https://{}/directory", self.address)
    }

    /// Returns the certificate of the authority, in PEM.
    pub fn authority(&self) -> &[u8] {
        self.authority.as_bytes()
    }
}

/// Serves one request. The client may leave at any moment.
fn serve(socket: TcpStream, config: Arc<ServerConfig>, address: SocketAddr, respond: Respond) {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config).unwrap(), socket));
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).is_err() || line.trim().is_empty() {
            break;
        }
        if path.is_empty() {
            line.split(' ').nth(1).unwrap_or_default().clone_into(&mut path);
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    let _ = stream.read_exact(&mut body);
    let response = respond(&Request { path, base: format!("https://{address}") });
    let stream = stream.get_mut();
    if stream.write_all(&response).and_then(|()| stream.flush()).is_ok() {
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }
}
