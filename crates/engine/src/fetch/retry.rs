//! The retry step: another attempt with the same request, in a transaction of its own.

use lacquer_flow::retry::{self, Retry};
use lacquer_http::Text;
use lacquer_shm::{Tag, Vxid};

use super::Fetch;
use super::parts::{Attempt, Step};
use crate::notes::Observation;

/// Counts the attempt that VCL has requested, and returns the next step. `is_error_page` means that
/// `vcl_backend_error` has requested it.
pub fn after_vcl(f: &mut Fetch, is_error_page: bool) -> Step {
    f.retries.count += 1;
    match retry::of_fetch(f.retries.count, f.task.params().max_retries, is_error_page) {
        Retry::Again => Step::Retry,
        Retry::ErrorPage => {
            f.task.log_mut().put(Tag::VCL_Error, b"Too many retries, delivering 503");
            Step::Error
        }
        Retry::Fail => {
            f.task.log_mut().put(Tag::VCL_Error, b"Too many retries, failing");
            Step::Fail
        }
    }
}

/// Starts a new transaction for another attempt with the same request.
pub fn retry(f: &mut Fetch) -> Step {
    if let Some(why) = f.retries.forbidden {
        f.task.log_mut().put_fmt(Tag::Error, format_args!("Retry not possible, {why}"));
        return Step::Fail;
    }
    f.task.stamp("Retry");
    f.attempt = Attempt::new();
    f.response.status = 0;
    f.response.reason = Text::NONE;
    let next = Vxid::backend(f.task.services().vxid());
    f.task.continue_as("bereq", "retry", next);
    if f.task.observation().has(Observation::SPANS) {
        let next = f.task.span().beside();
        f.task.set_span(next);
    }
    f.bereq_headers().log_all();
    Step::Start
}
