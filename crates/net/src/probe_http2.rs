//! The exchange of a probe over HTTP/2: one request on a connection of its own.

use std::io;

use lacquer_h2::client::{Connection, Limits, Received, Request};
use lacquer_http::{Message, Workspace, h1};
use lacquer_sources::clock::Instant;
use tokio::time::timeout_at;

use crate::rx_half::RxHalf;
use crate::time_limit::timed_out;
use crate::tx_half::TxHalf;

/// The maximum number of fields of the request, and of bytes of the response's fields.
const FIELDS: usize = 128;
const LIST: u32 = 1 << 16;
/// The number of bytes to read at a time.
const READ: usize = 8192;

type Failed = (&'static str, io::Error);

fn refused(why: &'static str) -> Failed {
    ("Write", io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Opens the stream of a request, which has the form of HTTP/1.
fn open(protocol: &mut Connection, request: &[u8], is_secure: bool) -> Result<u32, Failed> {
    let mut ws = Workspace::new(2 * request.len() + READ);
    let mut message = Message::new(FIELDS);
    let text = ws.copy(request).map_err(|_| refused("the request is too long"))?;
    h1::parse_request(&mut ws, text, &mut message, request.len())
        .map_err(|_| refused("the request is malformed"))?;
    let request = Request { message: &message, ws: &ws, is_secure, ends: true, wants_trailers: false };
    protocol.open(request).map_err(|why| refused(why.0))
}

async fn send(tx: &TxHalf, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    timeout_at(deadline, tx.write_all(bytes)).await.unwrap_or_else(|_| Err(timed_out()))
}

/// Sends the request, and returns the first `most` bytes of the response, as text of HTTP/1.1, after its end. Fails with
/// the step that has failed.
pub async fn exchange(
    (rx, tx): (&mut RxHalf, &TxHalf),
    request: &[u8],
    is_secure: bool,
    (deadline, most): (Instant, usize),
) -> Result<Vec<u8>, Failed> {
    let mut protocol = Connection::new(Limits { list: LIST });
    let id = open(&mut protocol, request, is_secure)?;
    let (mut response, mut received, mut buffer) = (Vec::new(), Vec::new(), [0; READ]);
    loop {
        let output = protocol.output().len();
        if output > 0 {
            send(tx, protocol.output(), deadline).await.map_err(|e| ("Write", e))?;
            protocol.sent(output);
        }
        match protocol.read(id, &mut buffer) {
            Received::Bytes(n) => {
                let left = most.saturating_sub(response.len());
                response.extend_from_slice(&buffer[..n.min(left)]);
                continue;
            }
            Received::End => break,
            Received::Failed(failure) => return Err(("Read", io::Error::other(failure))),
            Received::Nothing => {}
        }
        match timeout_at(deadline, rx.read(&mut buffer)).await {
            Ok(Ok(0)) => protocol.closed(),
            Ok(Ok(n)) => {
                received.extend_from_slice(&buffer[..n]);
                let used = protocol.receive(&received);
                received.drain(..used);
            }
            Ok(Err(e)) => return Err(("Read", e)),
            Err(_) => return Err(("Poll", timed_out())),
        }
    }
    protocol.finish();
    // The origin may have closed the connection.
    let _ = send(tx, protocol.output(), deadline).await;
    Ok(response)
}
