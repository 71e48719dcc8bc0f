//! Purges that VCL asks for, in slices: what is purged may be a million objects.

use std::rc::Rc;

use lacquer_cache::Purging;
use lacquer_cache::invalidation::{Action, Arrival, Invalidation, Purge, Reason};
use lacquer_vcl_runtime::{LocalFuture, PurgeMode};

use crate::services::Services;
use crate::slices::{LongWorkLease, Slice};
use crate::task::Task;

/// Purges what is stored under the hash of a request, because VCL returned `purge`.
pub fn by_action(task: &Task, digest: &[u8; 32]) -> impl Future<Output = i64> + use<> {
    let action = Action::PurgeKey { digest: *digest, purge: Purge::Hard };
    begin(task, action, task.run.now, Reason::PurgeAction)
}

/// Purges what is stored under a hash (module purge).
pub fn of_hash(task: &Task, digest: &[u8; 32], mode: PurgeMode, now: f64) -> LocalFuture<'static, i64> {
    let action = Action::PurgeKey { digest: *digest, purge: purge_of(mode) };
    Box::pin(begin(task, action, now, Reason::PurgeModule))
}

/// Purges what has any of the tags (module xkey).
pub fn of_tags(task: &Task, tags: &[&[u8]], mode: PurgeMode) -> LocalFuture<'static, i64> {
    let tags = tags.iter().map(|&tag| tag.into()).collect();
    let action = Action::PurgeTags { tags, purge: purge_of(mode) };
    Box::pin(begin(task, action, task.run.now, Reason::XkeyModule))
}

fn begin(task: &Task, action: Action, when: f64, why: Reason) -> impl Future<Output = i64> + use<> {
    let services = task.services.clone();
    let event = Invalidation::new(action, when, why, task.source());
    let purging = services.cache().invalidate(event, Arrival::Local);
    finish(services, purging)
}

/// Carries out a purge and returns the number of objects. A purge that was begun is finished, even if the client
/// does not wait for its end.
async fn finish(services: Rc<Services>, mut purging: Purging) -> i64 {
    let on_shift = LongWorkLease::default();
    if let Some(total) = slice(&services, &mut purging, &on_shift) {
        return total;
    }
    // It fails where the rest panics, which was logged.
    tokio::task::spawn_local(rest(services, purging, on_shift)).await.unwrap_or_default()
}

fn slice(services: &Services, purging: &mut Purging, on_shift: &LongWorkLease) -> Option<i64> {
    let slice = Slice::default();
    let pause = || slice.is_over() || !on_shift.may_work(services.long_work());
    purging.step(services.cache(), &pause).map(|total| total as i64)
}

async fn rest(services: Rc<Services>, mut purging: Purging, mut on_shift: LongWorkLease) -> i64 {
    loop {
        on_shift.next(services.long_work()).await;
        if let Some(total) = slice(&services, &mut purging, &on_shift) {
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
