//! Reads the body of a response that nobody needs, so that its connection can be kept. Closing the connection would also
//! leave the other responses that came over it without a proof that they were in order.

use std::time::Duration;

use lacquer_http::BodyStatus;
use lacquer_http::h1::ChunkedDecoder;

use super::Fetch;
use super::connection::{OriginConnection, has_proxy_header};

/// The longest body that is read, and the longest time for it.
const LONGEST: usize = 64 * 1024;
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The size of one read.
const READ: usize = 4 * 1024;

impl Fetch {
    /// Ends the use of the connection that was lent to VCL, after the body of its response if that is short.
    pub(super) async fn skip_body(&mut self) {
        let Some(mut connection) = self.exchange.lent.take() else { return };
        // The end of a stream leaves no doubt about others.
        if connection.stream().is_none() {
            connection.skip_buffered_body(self.task.ws());
            if !connection.reply().is_at_end() && is_worth_reading(&connection) {
                let rest = self.read_rest(&mut connection);
                // Boxed: this is rare, and the future is large.
                let _ = Box::pin(tokio::time::timeout(LONGEST_WAIT, rest)).await;
            }
        }
        self.close_origin(connection, None);
    }

    /// Reads the body to its end, and records the end. Returns early if that does not come soon.
    async fn read_rest(&mut self, connection: &mut OriginConnection) {
        let framing = connection.reply().framing();
        let ahead = connection.reply_mut().take_ahead();
        connection.rx_mut().unread(self.task.ws().get(ahead));
        let (mut left, mut decoder) = (framing.content_length, ChunkedDecoder::lenient());
        let (mut buffer, mut total) = (vec![0; READ], 0);
        while total < LONGEST {
            let most = match framing.status {
                BodyStatus::Length => READ.min(usize::try_from(left).unwrap_or(READ)),
                BodyStatus::Chunked => READ,
                _ => return,
            };
            let Ok(n @ 1..) = connection.rx_mut().read(&mut buffer[..most]).await else { return };
            total += n;
            self.exchange.account.beresp_body += n as u64;
            let is_done = if framing.status == BodyStatus::Length {
                left -= n as u64;
                left == 0
            } else {
                let mut rest = &mut buffer[..n];
                while !rest.is_empty() && !decoder.is_done() {
                    let Ok(run) = decoder.decode_run(rest) else { return };
                    rest = &mut rest[run.consumed..];
                }
                connection.rx_mut().unread(rest);
                decoder.is_done()
            };
            if is_done {
                return connection.reply_mut().end();
            }
        }
    }
}

/// Returns whether the end of the response keeps the connection, or confirms the responses before it.
fn is_worth_reading(connection: &OriginConnection) -> bool {
    connection.is_reused() || connection.close_reason().is_none() && !has_proxy_header(connection.origin())
}
