//! The end of a connection's use: it is kept for the next request, observed, or closed with a reason.

use lacquer_cache::Object;
use lacquer_flow::reuse::{self, Doubt, End, Used};
use lacquer_http::SessClose;
use lacquer_net::{SAMPLE, Unsolicited};
use lacquer_shm::Tag;
use lacquer_sources::clock::Instant;

use super::Fetch;
use super::connection::{OriginConnection, has_proxy_header, log_close};
use crate::services::Services;
use crate::surplus;

/// A connection whose use has ended. Its return to the pool waits for the object that was received over it.
#[must_use]
pub struct Ended {
    /// The response may belong to another request, so lookups must not find its object.
    pub is_foreign: bool,
    /// The connection, if it is kept or observed.
    leaving: Option<(OriginConnection, End)>,
}

impl Ended {
    /// Returns the connection to the pool, or observes it, if that was not done yet. `object` is the object that was
    /// received over it.
    #[inline]
    pub fn release(&mut self, services: &Services, object: Option<&Object>) {
        match self.leaving.take() {
            Some((connection, End::Kept)) => connection.recycle(services, object),
            Some((connection, _)) => connection.retire(services, object),
            None => {}
        }
    }
}

impl Fetch {
    /// Ends the use of the connection, if there is one, for a response that does not become an object.
    pub fn close_origin(
        &mut self,
        connection: impl Into<Option<OriginConnection>>,
        reason: Option<SessClose>,
    ) {
        if let Some(connection) = connection.into() {
            self.end_origin(connection, reason).release(self.task.services(), None);
        }
    }

    /// Takes the connection back from VCL. Returns `None`, with the reason in the log, after a rollback.
    pub fn reclaim(&mut self) -> Option<OriginConnection> {
        let lent = self.exchange.lent.take();
        if lent.is_none() {
            self.fetch_error("No backend connection (rollback?)");
        }
        lent
    }

    /// Ends the use of the connection that was lent to VCL.
    pub fn close_lent(&mut self, reason: Option<SessClose>) {
        let lent = self.exchange.lent.take();
        self.close_origin(lent, reason);
    }

    /// Ends the use of the connection: counts its bytes, checks it for signs that it is out of sync, and logs how it
    /// ends.
    #[inline]
    pub fn end_origin(&mut self, connection: OriginConnection, reason: Option<SessClose>) -> Ended {
        if self.exchange.overlap.is_some() {
            self.end_overlap();
        }
        let a = self.exchange.account;
        connection.origin().count(|c| {
            c.bereq_hdrbytes.add(a.bereq_header);
            c.bereq_bodybytes.add(a.bereq_body);
            c.beresp_hdrbytes.add(a.beresp_header);
            c.beresp_bodybytes.add(a.beresp_body);
        });
        let surplus = connection.surplus_bytes(self.task.ws());
        if !surplus.is_empty() {
            let sample = surplus[..surplus.len().min(SAMPLE)].to_vec();
            return self.end_faulty(connection, sample);
        }
        let (is_reused, is_read) = (connection.is_reused(), connection.reply().is_read());
        let doubt = reuse::doubt(is_reused, || connection.has_faulty_origin(), is_read);
        if let Some(text) = connection.drop_doubtful(self.task.services(), doubt) {
            self.task.log_mut().put(Tag::Error, text.as_bytes());
        }
        let limit = connection.limit(self.task.params(), self.task.last_event());
        let end = end_of(&connection, reason, limit);
        if limit.is_some_and(|why| end == End::Watched(why)) {
            self.task.services().counters().backend_expired.add(1);
        }
        log_close(self.task.log_mut(), &connection, end.reason());
        let leaving = match end {
            End::Closed(_) => {
                connection.close();
                None
            }
            End::Watched(_) | End::Kept => Some((connection, end)),
        };
        Ended { is_foreign: doubt == Doubt::Foreign, leaving }
    }

    fn end_faulty(&mut self, connection: OriginConnection, sample: Vec<u8>) -> Ended {
        log_close(self.task.log_mut(), &connection, Some(SessClose::RxJunk.name()));
        let (is_reused, is_bodyless) = (connection.is_reused(), connection.reply().is_bodyless());
        let judged = reuse::judge_surplus(is_reused, is_bodyless, surplus::may_be_response(&sample));
        let unsolicited = match connection.unsolicited() {
            Unsolicited::Refuted => Unsolicited::Refuted,
            _ if judged.may_be_unsolicited => Unsolicited::Maybe,
            _ => Unsolicited::No,
        };
        let text = connection.close_faulty(self.task.services(), sample, unsolicited);
        self.task.log_mut().put(Tag::Error, text.as_bytes());
        Ended { is_foreign: judged.is_foreign, leaving: None }
    }
}

fn end_of(connection: &OriginConnection, reason: Option<SessClose>, limit: Option<&'static str>) -> End {
    let origin = connection.origin();
    let used = Used {
        close: connection.close_reason().or(reason),
        has_proxy_header: has_proxy_header(origin),
        is_at_end: connection.reply().is_at_end(),
        is_reused: connection.is_reused(),
        limit,
    };
    // A connection that was in use before the suspicion is kept, to observe whether further bytes arrive. It is not
    // reused meanwhile.
    let is_suspected = || !connection.is_reused() && origin.endpoint.trust().is_suspected(Instant::now());
    reuse::end(used, || connection.has_faulty_origin() || is_suspected())
}
