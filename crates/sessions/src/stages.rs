//! The stages between the acceptance of a connection and its first request. A stage works on the whole stream, because a
//! handshake replaces it; the stream is split after the last one.

use lacquer_engine::{Services, Sess};
use lacquer_http::SessClose;
use lacquer_net::{Stage, Stream};
use lacquer_sources::clock::{self, Instant};

use crate::arrival::Arrival;
use crate::proxy_header;

/// Takes a connection through the stages of its listener, all within the session's idle limit.
pub async fn pass_stages(services: &Services, sess: &mut Sess, stream: Stream) -> Result<Arrival, SessClose> {
    let mut arrival = Arrival { stream, ahead: Vec::new() };
    let listener = sess.listener.clone();
    let deadline = Instant::now() + clock::seconds(sess.idle_limit(&services.params()));
    for &stage in listener.stages() {
        let passed = tokio::time::timeout_at(deadline, pass(stage, services, sess, &mut arrival)).await;
        passed.unwrap_or_else(|_| {
            sess.log_late(services.log(), stage.name());
            Err(SessClose::RxTimeout)
        })?;
    }
    Ok(arrival)
}

async fn pass(
    stage: Stage,
    services: &Services,
    sess: &mut Sess,
    arrival: &mut Arrival,
) -> Result<(), SessClose> {
    match stage {
        Stage::ProxyHeader => proxy_header::receive(services, sess, arrival).await,
    }
}
