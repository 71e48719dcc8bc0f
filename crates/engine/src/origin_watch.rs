//! The task that watches a reactor's idle origin connections. It closes connections that the origin has closed or
//! that were idle for too long, and detects surplus bytes when they arrive.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lacquer_shm::{Tag, Vxid};
use tokio::time::{sleep, timeout};

use crate::services::Services;
use crate::surplus;

/// The longest time between two rounds.
const ROUND: Duration = Duration::from_millis(500);
/// The shortest time between two rounds, and the addition for each connection. They keep the rounds to a small share
/// of the reactor's time.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_EACH: Duration = Duration::from_micros(200);

pub async fn watch(services: Rc<Services>) {
    let mut counted = 0;
    loop {
        let mut kept = None;
        let woken = poll_fn(|cx| match kept {
            None => {
                kept = Some(round(&services, &mut counted, cx));
                Poll::Pending
            }
            // The task is also polled for its timer. An extra round costs little.
            Some(_) => Poll::Ready(()),
        });
        let _ = timeout(ROUND, woken).await;
        let kept = u32::try_from(kept.unwrap_or_default()).unwrap_or(u32::MAX);
        sleep(PAUSE + PAUSE_EACH * kept).await;
    }
}

/// Checks all idle connections. Returns the number of connections that stay. `counted` is the number that the counter
/// contains.
fn round(services: &Services, counted: &mut usize, cx: &mut Context<'_>) -> usize {
    let params = services.params();
    let (limit, quiet) = (params.backend_idle_timeout, surplus::quiet_time(&params));
    let swept = services.pools().sweep(services.id(), limit, quiet, cx);
    for found in &swept.surplus {
        surplus::handle_idle(services, found);
    }
    let event = format_args!("An origin closed a connection before it had read all requests");
    if let Some(text) = surplus::drop_unproven(services, &swept.unproven, event) {
        services.log().write_fmt(Tag::Error, Vxid::NONE, format_args!("{text}"));
    }
    let before = std::mem::replace(counted, swept.kept);
    let waiter = &services.pool_counters().waiter;
    waiter.conns.add(swept.kept.saturating_sub(before) as u64);
    waiter.conns.sub(before.saturating_sub(swept.kept) as u64);
    waiter.remclose.add(swept.gone);
    waiter.timeout.add(swept.old);
    if before != swept.kept || swept.gone + swept.old > 0 {
        services.flush_counters();
    }
    swept.kept
}
