//! Stores a range that VCL has requested from the origin as a part of the response, and joins it with other parts.

use std::sync::Arc;

use lacquer_cache::{Joint, Nuke, Object, flag};
use lacquer_flow::rfc9111::parts::Whole;
use lacquer_flow::storing::Storing;
use lacquer_shm::Tag;

use super::connection::OriginConnection;
use super::object::{Draft, Stored};
use super::parts::{Proof, Step};
use super::{Fetch, gone, transit};
use crate::task::TaskParts;

/// The most parts that a variant has.
const MOST: usize = 8;
/// The most bytes that are copied to join two parts. It takes about a millisecond.
const LONGEST_JOINT: u64 = 4 << 20;

impl Draft {
    /// Marks an object that is not published yet as a part, if it is cacheable.
    #[inline]
    pub fn make_part(&self, described: Option<&[u8]>) {
        if let Some(described) = described
            && !self.object.has_one_reader()
        {
            self.object.make_part(described);
        }
    }
}

impl Fetch {
    /// Returns the description of the part as which a range is stored, if VCL leaves that to the cache. A range that
    /// cannot be a part, because filters change it, becomes uncacheable.
    #[inline]
    pub(super) fn part_to_store(
        &mut self,
        connection: &OriginConnection,
        is_filtered: bool,
    ) -> Option<Vec<u8>> {
        self.completion.sent()?;
        self.described(connection, is_filtered)
    }

    fn described(&mut self, connection: &OriginConnection, is_filtered: bool) -> Option<Vec<u8>> {
        let is_part = self.response.http.status() == 206
            && !self.product.is_ttl_set
            && self.storing() == Storing::Cached;
        let &Proof { sent, marks, host, url } = &**self.completion.proof.as_ref()?;
        let sent = sent?;
        if !is_part {
            return None;
        }
        let ws = self.task.ws();
        let whole = Whole {
            first: sent.first,
            is_own: connection.is_own(),
            length: sent.length,
            tag: ws.get(marks.tag),
            coding: ws.get_opt(marks.coding).unwrap_or_default(),
            host: ws.get(host),
            url: ws.get(url),
        };
        let described = whole.encode().filter(|_| !is_filtered);
        if described.is_none() {
            self.response.is_uncacheable = true;
        }
        described
    }

    /// Completes an object that is a part. It does not replace a stale object, which has the whole body.
    pub(super) async fn complete_part(&mut self, stored: Stored, connection: OriginConnection) -> Step {
        self.product.stale.take_if(|stale| !stale.is(flag::HFM));
        let step = self.complete(stored, connection);
        if let Step::Done(Some(object)) = &step {
            self.tidy(object);
            self.join(object.clone()).await;
        }
        step
    }

    /// Removes the parts of the same variant that are of no use beside a new one, and the oldest of too many.
    pub(super) fn tidy(&self, object: &Arc<Object>) {
        let Some(whole) = Whole::decode(object.extra()) else { return };
        let cache = self.task.services().cache();
        for (number, other) in cache.other_parts(object).iter().enumerate() {
            let is_useless = Whole::decode(other.extra())
                .is_none_or(|old| whole.replaces(object.body_len(), (&old, other.body_len())));
            if is_useless || number + 1 >= MOST {
                cache.supersede(other);
            }
        }
    }

    /// Joins a part with those before and after it.
    async fn join(&mut self, mut object: Arc<Object>) {
        for _ in 0..MOST {
            let others = self.task.services().cache().other_parts(&object);
            let Some((before, after, described)) = next_joint(&others, &object) else { return };
            match self.join_two((before, after), &described).await {
                Some(joined) => object = joined,
                None => return,
            }
        }
    }

    async fn join_two(
        &mut self,
        (before, after): (Arc<Object>, Arc<Object>),
        described: &Described,
    ) -> Option<Arc<Object>> {
        if gone::is_gone(self, &before).await || gone::is_gone(self, &after).await {
            return None;
        }
        let services = self.task.services().clone();
        let TaskParts { params, log, .. } = self.task.parts();
        let sizes = transit::chunk_sizes(params.fetch_chunksize, params.fetch_maxchunksize, None);
        let mut note = |text: &str| log.put(Tag::ExpKill, text.as_bytes());
        let mut nuke = Nuke::new(params.nuke_limit, &mut note);
        let joint = Joint { from_before: described.0, extra: &described.1, sizes };
        let joined = services.cache().join_parts((&before, &after), joint, &mut nuke)?;
        // A ban may have hit the one while both were joined. It does not find the bytes in the other.
        if gone::is_gone(self, &before).await {
            services.cache().kill(&joined);
            return None;
        }
        services.cache().supersede(&before);
        Some(joined)
    }
}

/// The number of bytes that the first of two parts contributes, and the description of the result.
type Described = (u64, Vec<u8>);

/// Returns two parts that can become one, of which one is `object`.
fn next_joint(others: &[Arc<Object>], object: &Arc<Object>) -> Option<(Arc<Object>, Arc<Object>, Described)> {
    let mut pairs = others.iter().flat_map(|other| [(other, object), (object, other)]);
    pairs.find_map(|(before, after)| Some((before.clone(), after.clone(), joint(before, after)?)))
}

/// Returns how two parts become one, if they can.
fn joint(before: &Object, after: &Object) -> Option<Described> {
    let (first, second) = (Whole::decode(before.extra())?, Whole::decode(after.extra())?);
    let can_join = second.continues(after.body_len(), (&first, before.body_len()))
        && after.stevedore() == before.stevedore()
        && after.body_len() + before.body_len() <= LONGEST_JOINT;
    if !can_join {
        return None;
    }
    let from_before = second.first - first.first;
    Some((from_before, Whole { first: first.first, ..second }.encode()?))
}
