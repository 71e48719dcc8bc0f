//! The steps for misses and passes: `vcl_miss`, `vcl_pass`, and the fetch from the origin.

use std::sync::Arc;

use lacquer_cache::{Busy, Object};
use lacquer_vcl::types::{Action, Method};

use super::lookup::fetch_and_deliver;
use super::{Req, Step, rfc9111};
use crate::fetch::Mode;

pub async fn miss(req: &mut Req, busy: Busy, stale: Option<Arc<Object>>) -> Step {
    match req.vcl(Method::Miss).await {
        Action::Fetch => {
            req.task.services().counters().cache_miss.add(1);
            fetch_and_deliver(req, Mode::Fetch { busy, stale }).await
        }
        // A request that waits for this object may fetch it now.
        other => {
            busy.release();
            match other {
                Action::Synth => Step::Synth,
                Action::Restart => Step::Restart,
                Action::Pass => Step::Pass,
                _ => Step::VclFail,
            }
        }
    }
}

pub async fn pass(req: &mut Req) -> Step {
    match req.vcl(Method::Pass).await {
        Action::Fetch => {
            req.task.services().counters().s_pass.add(1);
            if req.follows_rfc9111() {
                rfc9111::note_pass(req);
            }
            fetch_and_deliver(req, Mode::Pass).await
        }
        Action::Synth => Step::Synth,
        Action::Restart => Step::Restart,
        _ => Step::VclFail,
    }
}
