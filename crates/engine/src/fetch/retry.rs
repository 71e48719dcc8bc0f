//! The retry step: another attempt with the same request, in a transaction of its own.

use lacquer_http::Text;
use lacquer_shm::{Tag, Vxid};

use super::Fetch;
use super::parts::{Attempt, Step};

/// Starts a new transaction for another attempt with the same request.
pub fn retry(f: &mut Fetch) -> Step {
    if let Some(why) = f.retries.forbidden {
        f.task.log.put_fmt(Tag::Error, format_args!("Retry not possible, {why}"));
        return Step::Fail;
    }
    f.task.stamp("Retry");
    f.attempt = Attempt::new();
    f.response.status = 0;
    f.response.reason = Text::NONE;
    let next = Vxid::backend(f.task.services.vxid());
    f.task.log.continue_as("bereq", "retry", next);
    let previous = f.task.times.last;
    f.task.timestamp("Start", previous);
    f.bereq_headers().log_all();
    Step::Start
}
