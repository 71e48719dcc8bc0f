//! Probing of origins: the tasks that send probes, each on one of the reactors, and the handling of their results.
//!
//! An origin is probed while its VCL is warm. Each warming and cooling resets the history.

use std::sync::Arc;

use lacquer_engine::backends::Origin;
use lacquer_net::endpoint::Holddown;
use lacquer_net::probe_attempt::{ProbeRequest, probe_attempt};
use lacquer_shm::{Log, Tag, Vxid};
use lacquer_sources::clock;

use crate::process::Process;

/// Starts probing, because the origin's VCL becomes warm.
pub fn warm_up(origin: &Arc<Origin>, process: &Arc<Process>) {
    origin.show(true);
    start(origin, process);
}

pub fn start(origin: &Arc<Origin>, process: &Arc<Process>) {
    if let Some(prober) = &origin.prober {
        prober.reset();
        report(origin, process.shared().log());
        prober.set_task(process.runtimes().spawn(run(origin.clone(), process.clone())));
    }
}

/// Stops probing, because the origin's VCL becomes cold.
pub fn cool_down(origin: &Origin, log: &Log) {
    stop(origin, log);
    origin.show(false);
}

pub fn stop(origin: &Origin, log: &Log) {
    if let Some(prober) = &origin.prober {
        prober.set_task(None);
        prober.reset();
        report(origin, log);
    }
}

/// Publishes the origin's health to waiting requests, counters and the log.
pub fn report(origin: &Origin, log: &Log) {
    let Some(prober) = &origin.prober else { return };
    let conclusion = prober.conclude(clock::real());
    if conclusion.has_changed && conclusion.is_sick {
        origin.wake_all();
    }
    let name = &origin.spec.name;
    let how = if conclusion.has_changed { "Went" } else { "Still" };
    let state = if conclusion.is_sick { "sick" } else { "healthy" };
    log.write_fmt(Tag::Backend_health, Vxid::NONE, format_args!("{name} {how} {state} {}", conclusion.text));
    origin.count(|c| c.happy.set(conclusion.happy));
}

async fn run(origin: Arc<Origin>, process: Arc<Process>) {
    let Some(prober) = &origin.prober else { return };
    loop {
        let params = process.shared().params();
        let request = ProbeRequest {
            endpoint: &origin.endpoint,
            bytes: prober.request(),
            http2: origin.spec.http2,
            proxy: origin.spec.proxy_header.unwrap_or(0),
            prefer_ipv6: params.prefer_ipv6,
            holddown: Holddown::of(&params),
            error_text: lacquer_system::error_text,
        };
        let (attempt, refused) = probe_attempt(&request, prober.settings()).await;
        if let Some(error) = refused {
            origin.count_failure(&error);
            process.shared().counters().backend_breaker.add(error.opens_breaker().into());
        }
        prober.add(&attempt);
        report(&origin, process.shared().log());
        tokio::time::sleep(clock::seconds(prober.settings().interval)).await;
    }
}
