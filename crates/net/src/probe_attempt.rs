//! One attempt of a health probe: connects, sends the request, and reads the response to its end.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lacquer_sources::clock::Instant;
use tokio::time::timeout_at;

use crate::connect_error::{Cause, ConnectError, ConnectStage};
use crate::endpoint::{Endpoint, Holddown};
use crate::opening::tls_reason_of;
use crate::probe::{Attempt, Fact, Settings};
use crate::probe_http2;
use crate::rx_half::RxHalf;
use crate::time_limit::timed_out;
use crate::tx_half::TxHalf;

/// A probe's request, and the settings of its connection.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRequest<'c> {
    pub endpoint: &'c Endpoint,
    pub bytes: &'c [u8],
    /// The origin is asked over HTTP/2, if it does not choose HTTP/1.1.
    pub http2: bool,
    /// Version of the PROXY header that is sent first; 0 for none.
    pub proxy: u32,
    pub prefer_ipv6: bool,
    pub holddown: Holddown,
    /// Formats an error number.
    pub error_text: fn(i32) -> String,
}

/// The maximum number of bytes of a response that are examined.
const MAX_EXAMINED: usize = 127;

/// A PROXY header of version 2 with the command LOCAL: the connection is Lacquer's own, not a client's.
const PROXY_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Runs one attempt. Also returns the error if the connection could not be opened.
pub async fn probe_attempt(
    request: &ProbeRequest<'_>,
    settings: &Settings,
) -> (Attempt, Option<ConnectError>) {
    let started = Instant::now();
    let deadline = started + Duration::from_secs_f64(settings.timeout.clamp(0.0, 1e9));
    let mut attempt = Attempt::default();
    let opening = request.endpoint.connect(settings.timeout, request.prefer_ipv6, request.holddown).await;
    let opening = match opening {
        Ok(opening) => opening,
        Err(e) => return refused(attempt, request, e),
    };
    attempt.note(match opening.peer_addr() {
        None => Fact::GoodUnix,
        Some(peer) if peer.is_ipv4() => Fact::GoodIpv4,
        Some(_) => Fact::GoodIpv6,
    });
    let hello = match request.proxy {
        0 => Vec::new(),
        1 => proxy_v1_header(opening.local_addr()).into_bytes(),
        _ => PROXY_LOCAL.to_vec(),
    };
    let stream = match opening.introduce(&hello).await {
        Ok(opening) if request.http2 => opening.complete_http2().await,
        Ok(opening) => opening.complete().await.map(|stream| (stream, false)),
        Err(e) => Err(e),
    };
    let (stream, is_http2) = match stream {
        Ok(stream) => stream,
        Err(e) => return refused(attempt, request, e),
    };
    let is_secure = stream.negotiated().tls.is_some();
    let (mut rx, tx) = stream.split();
    if is_http2 {
        let limits = (deadline, MAX_EXAMINED);
        let received = probe_http2::exchange((&mut rx, &tx), request.bytes, is_secure, limits).await;
        let is_sent = !matches!(received, Err(("Write", _)));
        attempt.note(if is_sent { Fact::GoodSent } else { Fact::ErrorSent });
        conclude(&mut attempt, request, settings, (received, started));
        return (attempt, None);
    }
    if let Err(e) = send(&tx, request.bytes, deadline).await {
        attempt.note(Fact::ErrorSent);
        attempt.text = failure("Write", request, &e);
        return (attempt, None);
    }
    attempt.note(Fact::GoodSent);
    let received = receive(&mut rx, deadline, settings.expect_close).await;
    conclude(&mut attempt, request, settings, (received, started));
    (attempt, None)
}

/// Records what was received, or the step that has failed.
fn conclude(
    attempt: &mut Attempt,
    request: &ProbeRequest<'_>,
    settings: &Settings,
    (received, started): (Result<Vec<u8>, (&'static str, io::Error)>, Instant),
) {
    match received {
        Err((what, e)) => {
            if what != "Write" {
                attempt.note(Fact::ErrorReceived);
            }
            attempt.text = failure(what, request, &e);
        }
        Ok(response) if response.is_empty() => "Empty response".clone_into(&mut attempt.text),
        Ok(response) => {
            attempt.took = started.elapsed().as_secs_f64();
            attempt.note(Fact::GoodReceived);
            attempt.evaluate(&response, settings.status);
        }
    }
}

/// Records that the connection could not be opened, and why.
fn refused(
    mut attempt: Attempt,
    request: &ProbeRequest<'_>,
    e: ConnectError,
) -> (Attempt, Option<ConnectError>) {
    let is_header = e.stage == ConnectStage::ProxyHeader;
    if is_header {
        attempt.note(Fact::ErrorSent);
    }
    let step = if is_header { "Write" } else { "Open" };
    attempt.text = match e.shown() {
        Cause::Errno(errno) => format!("{step} error {errno} ({})", (request.error_text)(*errno)),
        Cause::Text(text) => format!("{step} error ({text})"),
    };
    (attempt, Some(e).filter(|_| !is_header))
}

fn failure(what: &str, request: &ProbeRequest<'_>, e: &io::Error) -> String {
    if let Some(reason) = tls_reason_of(e) {
        return format!("{what} error ({reason})");
    }
    if let Some(reason) = e.get_ref() {
        return format!("{what} error ({reason})");
    }
    let errno = e.raw_os_error().unwrap_or(0);
    format!("{what} error {errno} ({})", (request.error_text)(errno))
}

async fn send(tx: &TxHalf, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    timeout_at(deadline, tx.write_all(bytes)).await.unwrap_or_else(|_| Err(timed_out()))
}

/// Returns a PROXY header of version 1 with the local address as both source and destination.
fn proxy_v1_header(local: Option<SocketAddr>) -> String {
    match local {
        None => "PROXY UNKNOWN\r\n".to_owned(),
        Some(own) => {
            let (ip, port) = (own.ip(), own.port());
            let family = if own.is_ipv4() { "TCP4" } else { "TCP6" };
            format!("PROXY {family} {ip} {ip} {port} {port}\r\n")
        }
    }
}

/// Returns the beginning of the response. The response ends when the origin closes the connection. At the deadline it
/// also ends if `expect_close` is false; otherwise this fails.
async fn receive(
    rx: &mut RxHalf,
    deadline: Instant,
    expect_close: bool,
) -> Result<Vec<u8>, (&'static str, io::Error)> {
    let mut response = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        match timeout_at(deadline, rx.read(&mut buffer)).await {
            Ok(Ok(0)) => return Ok(response),
            Ok(Ok(n)) => {
                let left = MAX_EXAMINED - response.len();
                response.extend_from_slice(&buffer[..n.min(left)]);
            }
            // Many servers close a TLS connection without close_notify. The status line is all that matters here.
            Ok(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(response),
            Ok(Err(e)) => return Err(("Read", e)),
            Err(_) if !expect_close => return Ok(response),
            Err(_) => return Err(("Poll", timed_out())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::SocketAddr;

    use super::*;
    use crate::endpoint::Addresses;
    use crate::memory::{Dialed, Ends, Limits, connection, serve_at};
    use crate::probe::Wanted;

    /// The time limit of a probe includes sending its request.
    #[tokio::test(start_paused = true)]
    async fn an_origin_that_does_not_read_fails_the_probe() {
        let mut peers = Vec::new();
        serve_at("/deaf", move || {
            let address = SocketAddr::from(([127, 0, 0, 1], 80));
            let ends = Ends { engine: address, peer: address };
            let limits = Limits { window: 10, step: 10, buffer: 0, sends_files: false };
            let (near, peer) = connection(limits, ends);
            peers.push(peer);
            Dialed { after: Duration::ZERO, outcome: Ok(near) }
        });
        let endpoint =
            Endpoint::new(Addresses { path: Some("/deaf".to_owned()), ..Addresses::default() }, None);
        for proxy in 0..3 {
            let request = ProbeRequest {
                endpoint: &endpoint,
                bytes: b"GET / HTTP/1.1\r\n\r\n",
                http2: false,
                proxy,
                prefer_ipv6: false,
                holddown: Holddown::default(),
                error_text: |errno| format!("{:?}", std::io::Error::from_raw_os_error(errno).kind()),
            };
            let begun = Instant::now();
            let (attempt, refused) = probe_attempt(&request, &Settings::new(Wanted::default())).await;
            assert_eq!((refused, begun.elapsed().as_secs()), (None, 2));
            assert!(attempt.has(Fact::ErrorSent) && !attempt.has(Fact::GoodSent));
            assert!(attempt.text.starts_with("Write error "), "{}", attempt.text);
            assert!(attempt.text.ends_with(&format!("({:?})", ErrorKind::TimedOut)), "{}", attempt.text);
        }
    }
}
