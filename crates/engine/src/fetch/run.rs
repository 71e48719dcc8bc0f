//! The steps of a fetch and the loop that joins them.

use std::pin::pin;

use lacquer_shm::Tag;

use super::parts::Step;
use super::{Fetch, body, error, start};
use crate::activity::Work;

/// Runs a fetch from its beginning to its end. A panic ends this fetch only.
pub async fn run(fetch: &mut Fetch) {
    let services = fetch.task.services.clone();
    let fault =
        crate::faults::caught(&services, (fetch.task.vxid(), Place::Fetch), pin!(fetch.steps())).await;
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
                Step::Refresh => body::refresh(self).await,
                Step::Error => error::error(self).await,
                Step::Fail => {
                    self.fail();
                    Step::Done
                }
                Step::Done => break,
            };
        }
    }
}
