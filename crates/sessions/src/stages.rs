//! The stages between the acceptance of a connection and its first request. A stage works on the whole stream, because a
//! handshake replaces it; the stream is split after the last one.

use lacquer_engine::{Services, Sess};
use lacquer_http::SessClose;
use lacquer_net::{Stage, Stream};
use lacquer_sources::clock::{self, Instant};

use crate::arrival::Arrival;
use crate::{address_limit, proxy_header, tls_handshake};

/// Takes a connection through the stages of its listener. A handshake has a limit of its own; all other stages together
/// have the session's idle limit. The connection is counted before its handshake, which costs time.
pub async fn pass_stages(services: &Services, sess: &mut Sess, stream: Stream) -> Result<Arrival, SessClose> {
    let mut arrival = Arrival { stream, ahead: Vec::new() };
    let listener = sess.listener().clone();
    let deadline = Instant::now() + clock::seconds(sess.idle_limit(&services.params()));
    for stage in listener.stages() {
        arrival = match stage {
            Stage::ProxyHeader => {
                let header = proxy_header::receive(services, sess, &mut arrival);
                let received = tokio::time::timeout_at(deadline, header).await;
                received.unwrap_or_else(|_| {
                    sess.log_late(services.log(), stage.name());
                    Err(SessClose::RxTimeout)
                })?;
                arrival
            }
            Stage::Tls(frontend) => {
                address_limit::admit(services, sess)?;
                tls_handshake::accept(services, sess, arrival, frontend).await?
            }
        };
    }
    Ok(arrival)
}
