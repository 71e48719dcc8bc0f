//! The handshake of TLS with a client, its limits, and the log records of the failures of TLS.

use lacquer_engine::{Services, Sess};
use lacquer_http::SessClose;
use lacquer_net::tls::{self, Acceptance};
use lacquer_net::{ClientSocket, Culprit, Failure, Stream, linger};
use lacquer_shm::Tag;
use lacquer_sources::clock;
use lacquer_tls::{CHALLENGE_PROTOCOL, Frontend};

use crate::arrival::Arrival;
use crate::connection::Connection;

/// The longest lingering close after a failed handshake, in seconds.
const MAX_LINGER: f64 = 1.0;

/// Does the handshake within `tls_handshake_timeout`.
pub async fn accept(
    services: &Services,
    sess: &Sess,
    arrival: Arrival,
    frontend: &Frontend,
) -> Result<Arrival, SessClose> {
    let params = services.params();
    let how = Acceptance { frontend, turns: services.handshakes(), wants_ja3: params.tls_ja3 };
    let handshake = tls::accept(arrival.stream, arrival.ahead, &how);
    let limit = clock::seconds(params.tls_handshake_timeout);
    let vxid = sess.vxid();
    match tokio::time::timeout(limit, handshake).await {
        Ok(Ok(stream)) if is_challenge(&stream) => {
            services.log().write(Tag::TLS, vxid, b"An ACME server has verified a name");
            Err(SessClose::RespClose)
        }
        Ok(Ok(stream)) => Ok(Arrival { stream, ahead: Vec::new() }),
        Ok(Err(failed)) => {
            services.log().write(Tag::TLS, vxid, failed.failure.log_text().as_bytes());
            let reason = reason(&failed.failure);
            if let Some(stream) = failed.stream.filter(|_| linger::is_due(reason, true)) {
                end_refused(services, stream).await;
            }
            Err(reason)
        }
        Err(_) => {
            services.log().write(Tag::TLS, vxid, b"Handshake timeout");
            Err(SessClose::RxTimeout)
        }
    }
}

/// Closes a connection whose client may be sending still. With TLS 1.3, a client sends its first requests directly after
/// its certificate; if they were left unread, the kernel's reset could overtake the alert about that certificate.
#[cold]
async fn end_refused(services: &Services, stream: Stream) {
    let seconds = services.params().lingering_close.min(MAX_LINGER);
    let (mut rx, tx) = Arrival { stream, ahead: Vec::new() }.split();
    let deadline = services.deadlines().add_deadline();
    linger::linger(&ClientSocket::new(tx), &mut rx, &deadline, seconds).await;
}

/// Returns whether the handshake was that of an ACME server. Its connection carries no data (RFC 8737, section 3).
fn is_challenge(stream: &Stream) -> bool {
    let facts = stream.negotiated().tls;
    facts.is_some_and(|facts| facts.alpn.as_deref() == Some(CHALLENGE_PROTOCOL))
}

/// Logs why TLS has ended a connection after its handshake. Clients that close without an alert are common, and no
/// failure.
pub fn log_failure(services: &Services, connection: &Connection) {
    if let Some(failure) = connection.tx().tls_failure().filter(|failure| *failure != Failure::Truncated) {
        services.log().write(Tag::TLS, connection.sess().vxid(), failure.log_text().as_bytes());
    }
}

/// Returns the reason to close a connection whose handshake has failed.
fn reason(failure: &Failure) -> SessClose {
    match failure {
        Failure::HttpRequest | Failure::NotTls => SessClose::RxJunk,
        Failure::RecordOverflow | Failure::TooMuch(_) => SessClose::RxOverflow,
        Failure::Refused(_) => SessClose::RxBad,
        _ => match failure.culprit() {
            Culprit::Network => SessClose::RemClose,
            Culprit::Local => SessClose::Overload,
            Culprit::Peer | Culprit::Mismatch => SessClose::RxBad,
        },
    }
}
