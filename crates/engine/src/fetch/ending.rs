//! The end of a connection's use: it is kept for the next request, observed, or closed with a reason.

use std::time::Duration;

use lacquer_flow::reuse::{self, End, Used};
use lacquer_http::{BodyStatus, SessClose};
use lacquer_net::{SAMPLE, SpokeFirst};
use lacquer_shm::Tag;
use lacquer_sources::clock::Instant;

use super::Fetch;
use super::connection::{OriginConnection, has_proxy_header, log_close};
use crate::surplus;

impl Fetch {
    /// Ends the use of the connection, for a response that does not become an object.
    pub fn close_origin(&mut self, reason: Option<SessClose>) {
        self.end_origin(reason);
        self.recycle_origin();
    }

    /// Ends the use of the connection. If it is kept or observed, `recycle_origin` returns it later, when the object
    /// that was received over it is known.
    pub fn end_origin(&mut self, reason: Option<SessClose>) {
        let Some(connection) = self.exchange.connection.take() else { return };
        let a = self.exchange.account;
        connection.origin().count(|c| {
            c.bereq_hdrbytes.add(a.bereq_header);
            c.bereq_bodybytes.add(a.bereq_body);
            c.beresp_hdrbytes.add(a.beresp_header);
            c.beresp_bodybytes.add(a.beresp_body);
        });
        let surplus = connection.surplus_bytes(&self.task.ws);
        if !surplus.is_empty() {
            let sample = surplus[..surplus.len().min(SAMPLE)].to_vec();
            return self.end_faulty(connection, sample);
        }
        if connection.reused && connection.has_faulty_origin() {
            // This connection may be out of sync too.
            self.attempt.is_foreign = true;
            connection.drop_doubtful(&self.task.services, Duration::ZERO);
        } else if connection.reused
            && !connection.reply.is_at_end
            && connection.reply.framing.status != BodyStatus::Eof
        {
            // The rest of the response is not read, so whether it was in sync stays unknown.
            connection.drop_doubtful(&self.task.services, connection.silence());
        }
        let end = end_of(&connection, reason);
        log_close(&mut self.task.log, &connection, end.reason());
        match end {
            End::Closed(_) => connection.close(),
            End::Watched(_) | End::Kept => self.exchange.leaving = Some((connection, end)),
        }
    }

    fn end_faulty(&mut self, connection: OriginConnection, sample: Vec<u8>) {
        log_close(&mut self.task.log, &connection, Some(SessClose::RxJunk.name()));
        let (is_reused, is_bodyless) = (connection.reused, connection.reply.is_bodyless);
        let judged = reuse::judge_surplus(is_reused, is_bodyless, surplus::may_be_response(&sample));
        self.attempt.is_foreign = judged.is_foreign;
        let spoke_first = match connection.spoke_first() {
            SpokeFirst::Refuted => SpokeFirst::Refuted,
            _ if judged.may_have_spoken_first => SpokeFirst::Maybe,
            _ => SpokeFirst::No,
        };
        let text = connection.close_faulty(&self.task.services, sample, spoke_first);
        self.task.log.put(Tag::Error, text.as_bytes());
    }

    /// Returns the connection to the pool, if it is kept or observed.
    pub fn recycle_origin(&mut self) {
        let (services, object) = (&self.task.services, self.product.object.as_deref());
        match self.exchange.leaving.take() {
            Some((connection, End::Kept)) => connection.recycle(services, object),
            Some((connection, _)) => connection.retire(services, object),
            None => {}
        }
    }
}

fn end_of(connection: &OriginConnection, reason: Option<SessClose>) -> End {
    let origin = connection.origin();
    let used = Used {
        close: connection.close.or(reason),
        has_proxy_header: has_proxy_header(origin),
        is_at_end: connection.reply.is_at_end,
        is_reused: connection.reused,
    };
    // A connection that was in use before the suspicion is kept, to observe whether further bytes arrive. It is not
    // reused meanwhile.
    let is_suspected = || !connection.reused && origin.endpoint.trust.is_suspected(Instant::now());
    reuse::end(used, || connection.has_faulty_origin() || is_suspected())
}
