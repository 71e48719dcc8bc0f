//! Purges. Those that VCL requests run in slices, because a purge may affect a million objects.

use std::rc::Rc;

use lacquer_cache::Purging;
use lacquer_cache::invalidation::{Action, Arrival, Invalidation, Purge, Reason, Source, Ticket};
use lacquer_sources::clock;
use lacquer_vcl_runtime::{LocalFuture, PurgeMode};

use crate::services::Services;
use crate::shared::Shared;
use crate::slices::{LongWorkLease, Slice};
use crate::task::Task;

/// Purges the objects with the request's hash, because VCL returned `purge`.
pub fn by_action(task: &Task, digest: &[u8; 32]) -> impl Future<Output = i64> + use<> {
    let action = Action::PurgeKey { digest: *digest, purge: Purge::Hard };
    begin(task, action, task.now(), Reason::PurgeAction)
}

/// Purges the objects with this hash (VMOD purge).
pub fn of_hash(task: &Task, digest: &[u8; 32], mode: PurgeMode, now: f64) -> LocalFuture<'static, i64> {
    let action = Action::PurgeKey { digest: *digest, purge: purge_of(mode) };
    Box::pin(begin(task, action, now, Reason::PurgeModule))
}

/// Purges the objects with any of the tags (VMOD xkey).
pub fn of_tags(task: &Task, tags: &[&[u8]], mode: PurgeMode) -> LocalFuture<'static, i64> {
    let tags = tags.iter().map(|&tag| tag.into()).collect();
    let action = Action::PurgeTags { tags, purge: purge_of(mode) };
    Box::pin(begin(task, action, task.now(), Reason::Tags))
}

fn begin(task: &Task, action: Action, when: f64, why: Reason) -> impl Future<Output = i64> + use<> {
    let services = task.services().clone();
    let event = Invalidation::new(action, when, why, task.source());
    let purging = services.cache().invalidate(event, Arrival::Local);
    finish(services, purging)
}

/// Carries out an invalidation without a pause. Returns the number of objects, and a ticket that is ready once all
/// listeners have recorded it. A thread that serves requests must not call this for many objects; a ban has none.
pub fn at_once(shared: &Shared, action: Action, why: Reason, source: Source) -> (usize, Ticket) {
    let event = Invalidation::new(action, clock::real(), why, source);
    let mut purging = shared.cache().invalidate(event, Arrival::Local);
    let ticket = purging.ticket();
    (purging.finish(shared.cache()), ticket)
}

/// Carries out a purge. Returns the number of objects once all listeners have recorded the purge.
async fn finish(services: Rc<Services>, mut purging: Purging) -> i64 {
    let ticket = purging.ticket();
    let total = carry_out(services, purging).await;
    ticket.await;
    total
}

/// Carries out a purge. Returns the number of objects. A purge that has started is completed even if the client
/// leaves.
async fn carry_out(services: Rc<Services>, mut purging: Purging) -> i64 {
    let lease = LongWorkLease::default();
    if let Some(total) = slice(&services, &mut purging, &lease) {
        return total;
    }
    // This fails only if `rest` panics, which is logged elsewhere.
    tokio::task::spawn_local(rest(services, purging, lease)).await.unwrap_or_default()
}

fn slice(services: &Services, purging: &mut Purging, lease: &LongWorkLease) -> Option<i64> {
    let slice = Slice::default();
    let pause = || slice.is_over() || !lease.may_work(services.long_work());
    purging.step(services.cache(), &pause).map(|total| total as i64)
}

async fn rest(services: Rc<Services>, mut purging: Purging, mut lease: LongWorkLease) -> i64 {
    loop {
        lease.next(services.long_work()).await;
        if let Some(total) = slice(&services, &mut purging, &lease) {
            return total;
        }
    }
}

fn purge_of(mode: PurgeMode) -> Purge {
    match mode {
        PurgeMode::Hard => Purge::Hard,
        PurgeMode::Soft { ttl, grace: Some(grace), keep: Some(keep) }
            if ttl <= 0.0 && grace <= 0.0 && keep <= 0.0 =>
        {
            Purge::Hard
        }
        PurgeMode::Soft { ttl, grace, keep } => Purge::Soft { ttl, grace, keep },
    }
}
