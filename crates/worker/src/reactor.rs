//! A reactor: a thread with an event loop, and its periodic work: deadlines, idle connections to origins,
//! housekeeping.

use std::io;
use std::pin::pin;
use std::rc::Rc;

use lacquer_cache::disk::Ring;
use lacquer_engine::activity::{Work, track_polls};
use lacquer_engine::{Services, origin_watch};
use lacquer_sources::clock;
use tokio::runtime::{LocalOptions, LocalRuntime};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::arrivals;
use crate::balancer::Arrival;

/// Creates an event loop for tasks that stay on their thread. It cannot be moved, so each reactor creates its own.
pub fn runtime() -> io::Result<LocalRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(61)
        .build_local(LocalOptions::default())
}

/// Runs a reactor on this thread, for as long as the worker runs.
pub fn run(runtime: &LocalRuntime, services: &Rc<Services>, arrivals: UnboundedReceiver<Arrival>) {
    lacquer_system::prepare_thread();
    services.watched().on_this_thread();
    runtime.block_on(async {
        spawn(services, Work::Accepting, arrivals::serve(services.clone(), arrivals));
        spawn(services, Work::Sweeping, keep_sweeping(services.clone()));
        if let Some(ring) = services.ring() {
            spawn(services, Work::Housekeeping, Ring::run(ring.clone()));
        }
        // A round checks all connections, however many there are, without being interrupted.
        let watching = tokio::task::unconstrained(origin_watch::watch(services.clone()));
        spawn(services, Work::Housekeeping, watching);
        track_polls(services.activity(), Work::Housekeeping, pin!(housekeeping(services.clone()))).await;
    });
}

/// Starts a task on this reactor, with its activity recorded for the watchdog.
pub fn spawn(services: &Rc<Services>, kind: Work, work: impl Future<Output = ()> + 'static) {
    let watched = services.watched().clone();
    let mut work = Box::pin(work);
    tokio::task::spawn_local(async move { track_polls(&watched.activity, kind, work.as_mut()).await });
}

/// Sweeps the deadlines for as long as the worker runs. Closes idle connections at once when descriptors are needed.
pub async fn keep_sweeping(services: Rc<Services>) {
    let descriptors = services.descriptors();
    let mut seen = descriptors.calls();
    loop {
        let mut sweep = pin!(services.deadlines().next_sweep());
        let mut is_over = false;
        while !is_over {
            is_over = tokio::select! {
                () = &mut sweep => true,
                () = descriptors.called() => false,
            };
            let calls = descriptors.calls();
            if let Some(need) = calls.since(std::mem::replace(&mut seen, calls)) {
                services.shed_idle(need);
            }
        }
        services.follow_drain();
    }
}

/// Runs the periodic work of the reactor.
pub async fn housekeeping(services: Rc<Services>) {
    loop {
        services.tidy();
        // A change of VCL is handled at once, because the old program may be about to be discarded.
        let _ = tokio::time::timeout(clock::seconds(0.5), services.vcls().changes.notified()).await;
    }
}
