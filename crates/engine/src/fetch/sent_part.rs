//! Stores a range that VCL has requested from the origin as a part of the response.

use std::sync::Arc;

use lacquer_cache::{Object, flag};
use lacquer_flow::rfc9111::parts::Whole;
use lacquer_flow::storing::Storing;

use super::Fetch;
use super::connection::OriginConnection;
use super::draft::Draft;
use super::object::Stored;
use super::parts::Proof;

/// The most parts that a variant has.
const MOST: usize = 8;

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
    pub(super) fn complete_part(
        &mut self,
        stored: Stored,
        connection: OriginConnection,
    ) -> Option<Arc<Object>> {
        self.product.stale.take_if(|stale| !stale.is(flag::HFM));
        self.complete(stored, connection).inspect(|object| self.tidy(object))
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

    /// Removes the parts of the same variant, if the object is a whole response that lookups find.
    pub(super) fn drop_parts_beside(&self, object: &Arc<Object>) {
        if object.extra().is_empty() && !object.is(flag::HFM) {
            let cache = self.task.services().cache();
            cache.other_parts(object).iter().for_each(|part| cache.supersede(part));
        }
    }
}
