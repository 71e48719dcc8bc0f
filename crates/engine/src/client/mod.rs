//! A client's request: the steps of VCL's flow chart, and the loop that runs them.
//!
//! Each step is a function that takes the request and the values that only this step may have, and returns the next
//! step. A `Step` carries the result of the step before it: a hit cannot be delivered without an object, and a miss
//! cannot continue without the right to fetch.

mod admit;
mod body;
mod challenge;
mod deliver;
mod disk;
mod early;
mod esi;
mod for_fetch;
mod for_session;
mod handshake;
mod host;
mod invalidate;
mod lookup;
mod miss;
mod partial;
mod parts;
mod pipe;
mod pipe_request;
mod pipeline;
mod plan;
mod presence;
mod recv;
mod req;
mod respond;
mod rfc9111;
mod step;
mod stored_part;
mod synth;
mod top;
mod transmit;
mod tunnel;
mod variables;
mod why;

use lacquer_flow::retry;
use lacquer_shm::{Tag, Vxid};
pub use pipe_request::PipeRequest;
pub use presence::{while_fetching, while_waiting};
pub use recv::log_start;
pub use req::{Req, Start};
use step::Step;

impl Req {
    /// Runs the flow chart until the response has been sent. Steps that a hit does not take are boxed, because their
    /// size would otherwise be part of every connection's task.
    pub async fn run(&mut self) {
        let mut step = recv::transport(self).await;
        loop {
            if self.task.observation().is_any() {
                self.observe(&step);
            }
            step = match step {
                Step::Recv => recv::recv(self).await,
                Step::Lookup => lookup::lookup(self).await,
                Step::Miss { busy, stale } => Box::pin(miss::miss(self, busy, stale)).await,
                Step::Pass => Box::pin(miss::pass(self)).await,
                Step::Pipe => Box::pin(pipe::pipe(self)).await,
                Step::Purge => Box::pin(lookup::purge(self)).await,
                Step::Synth => Box::pin(synth::synth(self)).await,
                Step::VclFail => synth::vcl_fail(self),
                Step::Restart => self.restart(),
                Step::Deliver(object) => deliver::deliver(self, object).await,
                Step::Transmit(source) => transmit::transmit(self, source).await,
                Step::Done => break,
            }
        }
        self.found.object = None;
        self.task.privates().clear();
        if self.inclusion.level == 0 {
            self.inclusion.top_privates.clear();
        }
    }

    fn restart(&mut self) -> Step {
        self.request.restarts += 1;
        if !retry::is_within(self.request.restarts, self.task.params().max_restarts) {
            self.task.log_mut().put(Tag::VCL_Error, b"Too many restarts");
            self.response.status = 503;
            return Step::Synth;
        }
        self.task.stamp("Restart");
        let next = Vxid::client(self.task.services().vxid());
        self.task.continue_as("req", "restart", next);
        self.request.body.fail_if_cut();
        self.response.status = 0;
        Step::Recv
    }
}
