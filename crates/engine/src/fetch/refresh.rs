//! Handles a 304: creates an object with the new head and the body of the stale object.

use std::pin::pin;
use std::sync::Arc;

use lacquer_cache::{BodyState, Chunk, Object, Read, flag};
use lacquer_flow::validation::{self, Remedy, Unrefreshed};
use lacquer_http::SessClose;
use lacquer_shm::Tag;
use lacquer_sources::clock;

use super::body::PIECE;
use super::connection::OriginConnection;
use super::draft::Draft;
use super::object::Stored;
use super::parts::Step;
use super::{Fetch, gone};

pub async fn refresh(f: &mut Fetch, stale: Arc<Object>) -> Step {
    let Some(connection) = f.reclaim() else { return Step::Error };
    if stale.state() == BodyState::Fetching {
        f.task.log_mut().put(Tag::Notice, b"vsl: Conditional fetch wait for streaming object");
        match f.abandonment(None).unless(pin!(stale.end())).await {
            Some(BodyState::Failed) => return template_failed(f, connection, FAILED),
            Some(BodyState::Fetching | BodyState::Complete) => {}
            None => return broken(f, connection, &stale, Unrefreshed::Abandoned, false),
        }
    }
    // Its fetch has failed since the lookup, and it may have stayed in the cache as a part.
    if stale.state() == BodyState::Failed {
        return broken(f, connection, &stale, Unrefreshed::Unreadable, false);
    }
    // Detects a body that cannot be read before a client receives the new head.
    if let Err(why) = piece(f, &connection, None, &stale, 0).await.map(drop) {
        return broken(f, connection, &stale, why, false);
    }
    // A purge or ban during these waits has found the stale object alone, and later ones find the new object only once it
    // is published.
    if gone::is_gone(f, &stale).await {
        return gone::ask_again(f, connection, gone::GONE);
    }
    f.attempt.gzipped = stale.is(flag::GZIPED);
    f.attempt.encoding_changed = stale.is(flag::CHGCE);
    f.attempt.has_esi = stale.is(flag::ESIPROC);
    let Some(mut stored) = f.share(&stale) else { return template_failed(f, connection, "") };
    if let Stored::Begun(draft) = &mut stored {
        if !f.publish_early(draft) {
            return gone::ask_again(f, connection, gone::GONE);
        }
        if let Err(why) = copy(f, &connection, draft, &stale).await {
            return broken(f, connection, &stale, why, draft.is_published);
        }
        if !draft.is_published && gone::is_gone(f, &stale).await {
            return gone::ask_again(f, connection, gone::GONE);
        }
    }
    match f.complete(stored, connection) {
        Some(object) => Step::Done(Some(object)),
        None => gone::ask_again(f, None, gone::GONE),
    }
}

/// Copies the stale body. Yields to other tasks periodically.
async fn copy(
    f: &mut Fetch,
    connection: &OriginConnection,
    draft: &mut Draft,
    stale: &Object,
) -> Result<(), Unrefreshed> {
    let mut at = 0;
    while at < stale.body_len() {
        if f.is_cancelled(&draft.object) {
            return Err(Unrefreshed::Abandoned);
        }
        let next = piece(f, connection, Some(&draft.object), stale, at).await?;
        let Some(chunk) = next else { return Err(Unrefreshed::Unreadable) };
        if !f.append(draft, chunk.bytes()).await {
            return Err(Unrefreshed::NoRoom);
        }
        let n = chunk.len();
        drop(chunk);
        at += n as u64;
        f.yield_if_due(n).await;
    }
    Ok(())
}

/// Waits until the next bytes of the stale body are in memory, and returns them; `None` at the end of the body. Each
/// wait is limited by `between_bytes_timeout`, because a fetch holds memory for the copy and must not wait for more
/// memory without a limit.
async fn piece<'s>(
    f: &Fetch,
    connection: &OriginConnection,
    stored: Option<&Arc<Object>>,
    stale: &'s Object,
    at: u64,
) -> Result<Option<Chunk<'s>>, Unrefreshed> {
    let limit = clock::limit(connection.waits().between_bytes);
    let deadline = &f.exchange.deadline;
    let abandonment = f.abandonment(stored);
    loop {
        match stale.read(at, at + PIECE as u64) {
            Read::Mapped(chunk) => return Ok(Some(chunk)),
            Read::Missing if at == stale.body_len() && stale.state() == BodyState::Complete => {
                return Ok(None);
            }
            Read::Missing => return Err(Unrefreshed::Unreadable),
            Read::Pending => {}
        }
        let more = deadline.limit(deadline.now(), limit, stale.more(at));
        let Some(in_time) = abandonment.unless(pin!(more)).await else { return Err(Unrefreshed::Abandoned) };
        in_time.ok_or(Unrefreshed::Late)?;
    }
}

/// Ends a refresh that cannot be completed. A body that cannot be read once is not read again.
fn broken(
    f: &mut Fetch,
    connection: OriginConnection,
    stale: &Object,
    why: Unrefreshed,
    is_published: bool,
) -> Step {
    if why == Unrefreshed::Unreadable {
        f.task.services().cache().fail(stale);
    }
    match validation::remedy(why, is_published) {
        Remedy::Repeat => gone::ask_again(f, connection, FAILED),
        Remedy::Fail => {
            // The reason for a lack of room is in the log.
            let text = if why == Unrefreshed::NoRoom { "" } else { FAILED };
            template_failed(f, connection, text)
        }
        Remedy::Abandon => {
            f.log_abandoned();
            f.close_origin(connection, Some(SessClose::RxBody));
            Step::Fail
        }
    }
}

const FAILED: &str = "Template object failed";

fn template_failed(f: &mut Fetch, connection: OriginConnection, why: &str) -> Step {
    if !why.is_empty() {
        f.fetch_error(why);
    }
    f.close_origin(connection, Some(SessClose::RxBody));
    f.task.services().counters().fetch_failed.add(1);
    Step::Fail
}
