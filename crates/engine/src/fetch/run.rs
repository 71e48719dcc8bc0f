//! The steps of a fetch, and the loop that runs them.

use std::pin::pin;

use lacquer_cache::BodyState;
use lacquer_http::SessClose;
use lacquer_shm::Tag;

use super::parts::{Step, Target};
use super::{Fetch, body, error, refresh, start};
use crate::activity::Work;

/// Runs a fetch to its end. A panic ends only this fetch.
pub async fn run(fetch: &mut Fetch) {
    let services = fetch.task.services.clone();
    let fault = crate::faults::caught(&services, (fetch.task.vxid(), Work::Fetch), pin!(fetch.steps())).await;
    if let Err(text) = fault {
        fetch.task.log.put(Tag::Error, format!("Fault in this fetch: {text}").as_bytes());
        fetch.fail();
    }
    fetch.finish();
}

impl Fetch {
    async fn steps(&mut self) {
        let now = self.task.times.first;
        self.task.timestamp("Start", now);
        start::make_bereq(self);
        let mut step = Step::Start;
        loop {
            if self.is_abandoned() && !matches!(step, Step::Done) {
                step = Step::Fail;
            }
            step = match step {
                Step::Start => start::start(self).await,
                Step::Retry => start::retry(self),
                Step::Body => body::fetch(self).await,
                Step::Refresh => refresh::refresh(self).await,
                Step::Error => error::error(self).await,
                Step::Fail => {
                    self.fail();
                    Step::Done
                }
                Step::Done => break,
            };
        }
    }

    fn fail(&mut self) {
        self.close_origin(Some(SessClose::RxBody));
        self.product.writer = None;
        if let Some(object) = &self.product.object {
            self.task.services.cache().fail(object);
        }
        // Dropping the right to fetch wakes the requests that wait for it.
        self.product.target = Target::Delivered;
        let object = self.product.object.take();
        drop(object);
        self.announce(None);
    }

    fn finish(&mut self) {
        if let Some(object) = &self.product.object
            && object.state() == BodyState::Complete
        {
            let length = object.body_len();
            self.task.log.put_numbers(Tag::Length, [length]);
        }
        self.task.log.put_numbers(Tag::BereqAcct, self.exchange.account.numbers());
        self.task.log.end();
        if self.task.ws.overflowed() {
            self.task.services.counters().ws_backend_overflow.add(1);
        }
        self.announce(None);
    }
}
