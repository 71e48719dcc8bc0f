//! The response 425 (Too Early) to a request that was sent on before the client had completed its handshake (RFC 8470
//! section 5.2). The origin is not willing to process early data, so the request is sent again after the handshake.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lacquer_http::{SessClose, fixed_text_table};
use lacquer_shm::Tag;

use super::Fetch;
use super::connection::OriginConnection;
use super::events::Handshake;
use crate::logged::names::EARLY_DATA;

const TOO_EARLY: u16 = 425;
/// The time for which other requests wait for the handshake of the client whose fetch they share.
const SHARED_WAIT: Duration = Duration::from_secs(2);

impl Fetch {
    /// Returns whether the origin has refused the request because it was early data, and the request can be sent again.
    #[inline]
    pub(super) fn is_too_early(&self) -> bool {
        self.purpose.is_early && self.response.http.status() == TOO_EARLY && self.retries.forbidden.is_none()
    }

    /// Waits until the client has completed its handshake, and prepares to send the request again. Returns `None`, with
    /// 425 as the status of the error, if the handshake does not end in time. A fetch in the background does not wait for
    /// it: the stale object stays, and a later request refreshes it.
    pub(super) async fn leave_early_data(&mut self, connection: OriginConnection) -> Option<()> {
        // The connection does not wait for the client.
        self.close_origin(connection, Some(SessClose::RespClose));
        if self.purpose.is_background && self.task.sess().handshake().is_pending() {
            self.refuse_early("425 (Too Early), which a background fetch does not wait for");
            return None;
        }
        self.purpose.is_early = false;
        if !self.purpose.is_background && !self.await_handshake().await {
            self.refuse_early("425 (Too Early), and the client has not completed its handshake");
            return None;
        }
        self.bereq_headers().unset(EARLY_DATA);
        self.response.http.clear();
        self.task.services().counters().backend_retry.add(1);
        self.task.log_mut().put(Tag::Notice, b"425 (Too Early): sent again after the handshake");
        Some(())
    }

    /// Lets the waiting request complete the handshake. Returns whether it did. Others that wait for the response need not
    /// wait for its client for long.
    async fn await_handshake(&mut self) -> bool {
        let events = self.waiter.events.clone();
        events.handshake.set(Handshake::Awaited);
        let mut end = pin!(poll_fn(|_| match events.handshake.get() {
            Handshake::Complete => Poll::Ready(true),
            Handshake::Failed => Poll::Ready(false),
            _ if events.client_gone.get() => Poll::Ready(false),
            Handshake::NotAwaited | Handshake::Awaited => Poll::Pending,
        }));
        loop {
            if let Ok(is_complete) = tokio::time::timeout(SHARED_WAIT, end.as_mut()).await {
                return is_complete;
            }
            if self.is_awaited_by_others() {
                events.handshake.set(Handshake::NotAwaited);
                return false;
            }
        }
    }

    /// Makes 425 the status of the error.
    fn refuse_early(&mut self, why: &str) {
        self.fetch_error(why);
        self.exchange.is_fault_of_client = true;
        self.response.status = TOO_EARLY;
        self.response.reason = fixed_text_table::reason_text(TOO_EARLY);
    }
}
