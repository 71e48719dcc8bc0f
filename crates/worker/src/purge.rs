//! Purges that VCL asks for, in slices: what is purged may be a million objects.

use std::rc::Rc;

use lacquer_cache::Purging;
use lacquer_cache::invalidation::{Action, Arrival, Invalidation, Purge, Reason};
use lacquer_vcl_runtime::{LocalFuture, PurgeMode};

use crate::reactor::Reactor;
use crate::slices::{OnShift, Slice};
use crate::task::Task;

/// Purges what is stored under the hash of a request, because VCL returned `purge`.
pub fn by_action(task: &Task, digest: &[u8; 32]) -> impl Future<Output = i64> + use<> {
    let action = Action::PurgeKey { digest: *digest, purge: Purge::Hard };
    begin(task, action, task.now, Reason::PurgeAction)
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
    Box::pin(begin(task, action, task.now, Reason::XkeyModule))
}

fn begin(task: &Task, action: Action, when: f64, why: Reason) -> impl Future<Output = i64> + use<> {
    let reactor = task.reactor.clone();
    let event = Invalidation::new(action, when, why, task.source());
    let purging = reactor.shared.cache.invalidate(event, Arrival::Local);
    finish(reactor, purging)
}

/// Carries out a purge and returns the number of objects. A purge that was begun is finished, even if the client
/// does not wait for its end.
async fn finish(reactor: Rc<Reactor>, mut purging: Purging) -> i64 {
    let on_shift = OnShift::default();
    if let Some(total) = slice(&reactor, &mut purging, &on_shift) {
        return total;
    }
    // It fails where the rest panics, which was logged.
    tokio::task::spawn_local(rest(reactor, purging, on_shift)).await.unwrap_or_default()
}

fn slice(reactor: &Reactor, purging: &mut Purging, on_shift: &OnShift) -> Option<i64> {
    let slice = Slice::default();
    let pause = || slice.is_over() || !on_shift.may_work(&reactor.long_work);
    purging.step(&reactor.shared.cache, &pause).map(|total| total as i64)
}

async fn rest(reactor: Rc<Reactor>, mut purging: Purging, mut on_shift: OnShift) -> i64 {
    loop {
        on_shift.next(&reactor.long_work).await;
        if let Some(total) = slice(&reactor, &mut purging, &on_shift) {
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
