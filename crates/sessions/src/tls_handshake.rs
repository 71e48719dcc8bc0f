//! The handshake of TLS with a client, its limits, and the log records of the failures of TLS.

use lacquer_engine::{Services, Sess};
use lacquer_http::SessClose;
use lacquer_net::tls::{self, Acceptance};
use lacquer_net::{Culprit, Failure};
use lacquer_shm::Tag;
use lacquer_sources::clock;
use lacquer_tls::Frontend;

use crate::arrival::Arrival;
use crate::connection::Connection;

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
        Ok(Ok(stream)) => Ok(Arrival { stream, ahead: Vec::new() }),
        Ok(Err(failure)) => {
            services.log().write(Tag::TLS, vxid, failure.log_text().as_bytes());
            Err(reason(&failure))
        }
        Err(_) => {
            services.log().write(Tag::TLS, vxid, b"Handshake timeout");
            Err(SessClose::RxTimeout)
        }
    }
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
