//! The arrival of a connection: the stages between its acceptance and its first request. A stage works on the whole
//! stream, because a handshake replaces it; the stream is split after the last one.

use std::io;

use lacquer_engine::{Services, Sess};
use lacquer_http::SessClose;
use lacquer_net::{Rx, Stage, Stream, TxHalf};
use lacquer_sources::clock::{self, Instant};

use crate::proxy_header;

/// The number of bytes to read at a time.
const READ: usize = 1024;

/// A connection that has not begun its first request.
pub struct Arrival {
    pub stream: Stream,
    /// The bytes that were read and that no stage has used.
    pub ahead: Vec<u8>,
}

impl Arrival {
    /// Waits for bytes, and appends them to those read ahead. Returns false at the end of the stream.
    pub async fn read_more(&mut self) -> io::Result<bool> {
        let mut piece = [0; READ];
        let n = self.stream.read(&mut piece).await?;
        self.ahead.extend_from_slice(&piece[..n]);
        Ok(n > 0)
    }

    /// Splits the stream into halves. The bytes that were read ahead are the first that the receiving half reads.
    pub fn split(self) -> (Rx, TxHalf) {
        let (half, tx) = self.stream.split();
        let mut rx = Rx::new(half);
        if !self.ahead.is_empty() {
            rx.unread(&self.ahead);
        }
        (rx, tx)
    }
}

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
