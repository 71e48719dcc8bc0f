//! The steps of a fetch, and the loop that runs them.

use std::mem;
use std::pin::pin;
use std::sync::Arc;

use lacquer_cache::{BodyState, Object};
use lacquer_http::SessClose;
use lacquer_shm::Tag;

use super::parts::{Step, Target};
use super::{Fetch, body, error, refresh, retry, start};
use crate::activity::Work;

/// Runs a fetch to its end. A panic ends only this fetch.
pub async fn run(fetch: &mut Fetch) {
    let services = fetch.task.services().clone();
    let outcome =
        crate::faults::caught(&services, (fetch.task.vxid(), Work::Fetch), pin!(fetch.steps())).await;
    let object = outcome.unwrap_or_else(|text| {
        fetch.task.log_mut().put(Tag::Error, format!("Fault in this fetch: {text}").as_bytes());
        fetch.fail();
        None
    });
    fetch.finish(object.as_deref());
}

impl Fetch {
    /// Runs the steps. Returns the object that the fetch has completed, if any.
    async fn steps(&mut self) -> Option<Arc<Object>> {
        let now = self.task.first_event();
        self.task.timestamp("Start", now);
        start::make_bereq(self);
        let mut step = Step::Start;
        loop {
            if self.is_abandoned(None) && !matches!(step, Step::Done(_)) {
                step = Step::Fail;
            }
            step = match step {
                Step::Start => start::start(self).await,
                Step::Retry => retry::retry(self),
                Step::Body => body::fetch(self).await,
                Step::Refresh(stale) => refresh::refresh(self, stale).await,
                Step::Error => error::error(self).await,
                Step::Fail => {
                    self.fail();
                    Step::Done(None)
                }
                Step::Done(object) => break object,
            };
        }
    }

    fn fail(&mut self) {
        // Present if no step has taken it from VCL.
        self.close_lent(Some(SessClose::RxBody));
        // Dropping the right to fetch wakes the requests that wait for it.
        if let Target::Streaming(object) = mem::replace(&mut self.product.target, Target::Delivered) {
            self.task.services().cache().fail(&object);
        }
        self.announce(None);
    }

    fn finish(&mut self, object: Option<&Object>) {
        if let Some(object) = object
            && object.state() == BodyState::Complete
        {
            let length = object.body_len();
            self.task.log_mut().put_numbers(Tag::Length, [length]);
            if self.response.is_uncacheable {
                self.count_transit(length);
            }
        }
        self.task.log_mut().put_numbers(Tag::BereqAcct, self.exchange.account.numbers());
        self.task.log_mut().end();
        if self.task.ws().overflowed() {
            self.task.services().counters().ws_backend_overflow.add(1);
        }
        self.announce(None);
    }
}
