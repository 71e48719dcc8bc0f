//! Connections of TLS, each with a full handshake and one response. The state of the client is then forgotten, so that
//! many of them take little memory here. They come from several addresses of the machine.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::options::Options;

/// The name in the certificates of the bench.
const NAME: &str = "bench";
/// The number of connections from each address.
const PER_ADDRESS: usize = 4000;

/// Opens as many connections as the option `tls` says.
pub fn open(address: SocketAddr, options: &Options) -> Result<Vec<TcpStream>, String> {
    let count: usize = options.number("tls", 0)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let trust = options.text("trust", "");
    let mut config = trusting(trust).map_err(|error| format!("{trust}: {error}"))?;
    config.resumption = rustls::client::Resumption::disabled();
    let config = Arc::new(config);
    let request = format!("GET {} HTTP/1.1\r\nHost: {NAME}\r\n\r\n", options.text("path", "/"));
    let one = |n| {
        let source = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2 + (n / PER_ADDRESS) as u8));
        connect(source, address, config.clone(), request.as_bytes())
    };
    (0..count).map(one).collect::<io::Result<_>>().map_err(|error| format!("{address}: {error}"))
}

/// Returns the settings of a client that trusts the certificates of a file.
pub fn trusting(file: &str) -> Result<ClientConfig, Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file)? {
        roots.add(certificate?)?;
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Connects from this address, and receives one response to its end.
fn connect(
    source: IpAddr,
    address: SocketAddr,
    config: Arc<ClientConfig>,
    request: &[u8],
) -> io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(source, 0))?;
    rustix::net::connect(&socket, &address)?;
    let mut socket = TcpStream::from(socket);
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = Stream::new(&mut tls, &mut socket);
    stream.write_all(request)?;
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    while !is_whole(&text)? {
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => text.extend_from_slice(&piece[..n]),
        }
    }
    Ok(socket)
}

/// Returns whether a response with a length is complete.
fn is_whole(text: &[u8]) -> io::Result<bool> {
    let Some(end) = text.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(false) };
    let head = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    let length = length.ok_or_else(|| io::Error::other("a response without a length"))?;
    Ok(text.len() >= end + 4 + length)
}
