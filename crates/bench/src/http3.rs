//! The load generator for HTTP/3. Each connection sends its next request when the response to the last is complete. All
//! connections use one UDP socket. Bodies are counted, not kept.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lacquer_h3::qpack::{self, Begun, Decoder, Step};
use lacquer_h3::{Connection, frame, settings};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use tokio::task::{LocalSet, spawn_local};

use crate::client::Tally;
use crate::load::report;
use crate::options::Options;
use crate::secure::trusting;

/// The name in the certificates of the bench.
const NAME: &str = "bench";
/// The largest field section of a response.
const SECTION: usize = 16 * 1024;

type Failure = Box<dyn std::error::Error>;

pub fn run(options: &Options) -> Result<(), String> {
    let address = options.address("connect")?;
    let connections: usize = options.number("connections", 1)?;
    let seconds: f64 = options.number("seconds", 1.0)?;
    let config = client_config(options.text("trust", "")).map_err(|error| error.to_string())?;
    let request = request(options.text("path", "/"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let work = drive_all(address, connections, config, request, Duration::from_secs_f64(seconds));
    let tally = runtime.block_on(LocalSet::new().run_until(work));
    println!("{}", report(tally.map_err(|error| format!("{address}: {error}"))?));
    Ok(())
}

/// Returns the settings of a client that trusts the certificates of a file.
fn client_config(file: &str) -> Result<ClientConfig, Failure> {
    let mut tls = trusting(file)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    Ok(ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)))
}

/// Returns the bytes of a request for a path.
fn request(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_section(&mut bytes, |out| {
        qpack::begin(out);
        for (name, value) in [(":method", "GET"), (":scheme", "https"), (":authority", NAME), (":path", path)]
        {
            qpack::field(out, name.as_bytes(), value.as_bytes());
        }
    });
    bytes
}

async fn drive_all(
    address: SocketAddr,
    connections: usize,
    config: ClientConfig,
    request: Vec<u8>,
    time: Duration,
) -> Result<Tally, Failure> {
    let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(endpoint.connect_with(config.clone(), address, NAME)?.await?);
    }
    let (tally, started) = (Rc::new(RefCell::new(Tally::default())), Instant::now());
    let clients: Vec<_> = opened
        .into_iter()
        .map(|connection| {
            let (tally, request) = (tally.clone(), request.clone());
            spawn_local(async move {
                if drive(&connection, &request, started + time, &tally).await.is_err() {
                    tally.borrow_mut().errors += 1;
                }
                connection
            })
        })
        .collect();
    for client in clients {
        client.await?.close(0x100_u32.into(), b"");
    }
    let mut tally = tally.take();
    tally.took = started.elapsed();
    Ok(tally)
}

async fn drive(
    connection: &quinn::Connection,
    request: &[u8],
    until: Instant,
    tally: &RefCell<Tally>,
) -> Result<(), Failure> {
    let mut control = connection.open_uni().await?;
    let mut bytes = Vec::new();
    Connection::new(settings::Settings::DEFAULT).begin_control(&mut bytes);
    control.write_all(&bytes).await?;
    let mut fields = vec![0; SECTION];
    while Instant::now() < until {
        let begun = Instant::now();
        let body = exchange(connection, request, &mut fields).await?;
        let mut tally = tally.borrow_mut();
        tally.bytes += body;
        tally.micros.push(begun.elapsed().as_micros() as u32);
    }
    Ok(())
}

/// Sends a request. Returns the number of bytes of the body, which must be as announced.
async fn exchange(connection: &quinn::Connection, request: &[u8], fields: &mut [u8]) -> Result<u64, Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(request).await?;
    send.finish()?;
    let (mut reader, mut kind, mut head) = (frame::Reader::default(), frame::Kind::Unknown, Vec::new());
    let mut body = 0;
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
        let mut input = &chunk.bytes[..];
        while let Some(piece) = reader.next(&mut input) {
            match piece {
                frame::Piece::Begin(header) => kind = header.kind(),
                frame::Piece::Payload(bytes) if kind == frame::Kind::Headers => head.extend_from_slice(bytes),
                frame::Piece::Payload(bytes) => body += bytes.len() as u64,
            }
        }
    }
    let announced = parse_head(&head, fields)?;
    if announced == Some(body) { Ok(body) } else { Err(format!("{body} bytes of {announced:?}").into()) }
}

/// Returns the length that a response announces. Fails if its status is not 200.
fn parse_head(section: &[u8], out: &mut [u8]) -> Result<Option<u64>, Failure> {
    let mut decoder = Decoder::new(0, 0);
    let Ok(Begun::Section(mut section)) = decoder.begin(0, section) else { return Err("no fields".into()) };
    let (mut is_ok, mut length) = (false, None);
    loop {
        match decoder.next(&mut section, out) {
            Ok(Step::Field(line)) => {
                let line = &out[..line.len];
                is_ok |= line == b":status: 200";
                if let Some(value) = line.strip_prefix(b"content-length: ") {
                    length = std::str::from_utf8(value)?.parse().ok();
                }
            }
            Ok(Step::End) if is_ok => return Ok(length),
            _ => return Err("no valid response with status 200".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_must_have_status_200() {
        let section = |status: &str| {
            let mut bytes = Vec::new();
            qpack::begin(&mut bytes);
            qpack::field(&mut bytes, b":status", status.as_bytes());
            qpack::field(&mut bytes, b"content-length", b"1400");
            bytes
        };
        let mut out = vec![0; SECTION];
        assert_eq!(parse_head(&section("200"), &mut out).unwrap(), Some(1400));
        parse_head(&section("503"), &mut out).unwrap_err();
        parse_head(&[], &mut out).unwrap_err();
    }
}
