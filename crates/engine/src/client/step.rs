//! The steps of a client's request.

use std::sync::Arc;

use lacquer_cache::{Busy, ObjRef, Object};
use lacquer_deliver::Source;

/// A step of the request, with the values that the step needs.
pub enum Step {
    Recv,
    Lookup,
    Miss { busy: Busy, stale: Option<Arc<Object>> },
    Pass,
    Pipe,
    Purge,
    Synth,
    VclFail,
    Restart,
    Deliver(ObjRef),
    Transmit(Source),
    Done,
}

impl Step {
    /// Returns the name of the step in Varnish's log.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Recv => "recv",
            Step::Lookup => "lookup",
            Step::Miss { .. } => "miss",
            Step::Pass => "pass",
            Step::Pipe => "pipe",
            Step::Purge => "purge",
            Step::Synth => "synth",
            Step::VclFail => "vclfail",
            Step::Restart => "restart",
            Step::Deliver(_) => "deliver",
            Step::Transmit(_) => "transmit",
            Step::Done => "finish",
        }
    }
}
