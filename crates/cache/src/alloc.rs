//! Making objects: memory from a storage, and eviction when it is full.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_storage::{BodyWriter, ChunkSizes, Full, Parts, Stevedore, Stored};

use crate::cache::Cache;
use crate::object::{Object, ObjectSpec};
use crate::stats::bump;

/// How far eviction may go for one allocation (`nuke_limit`), and where what it does is logged
/// (Varnish's texts under ExpKill).
pub struct Nuke<'a> {
    pub limit: u32,
    pub log: &'a mut dyn FnMut(&str),
}

impl Cache {
    /// Makes an object whose body is at hand: the most compact form.
    pub fn create(
        &self,
        stevedore: &Stevedore,
        spec: &ObjectSpec<'_>,
        body: &[u8],
        nuke: &mut Nuke<'_>,
    ) -> Result<Arc<Object>, Full> {
        let fixed = spec.fixed();
        let parts = Parts { head: &[&fixed, spec.vary, spec.head], extra: spec.extra };
        let large = body.len() > stevedore.arena().max_small();
        let make = || Stored::complete(stevedore.arena(), parts, body);
        let stored = self.with_room(stevedore, large, nuke, make)?;
        Ok(Object::new(stored, spec, stevedore.index()))
    }

    /// Makes an object whose body, of length `expected` if known, will come through the writer.
    pub fn begin(
        &self,
        stevedore: &Stevedore,
        spec: &ObjectSpec<'_>,
        expected: Option<u64>,
        sizes: ChunkSizes,
        nuke: &mut Nuke<'_>,
    ) -> Result<(Arc<Object>, BodyWriter), Full> {
        let fixed = spec.fixed();
        let parts = Parts { head: &[&fixed, spec.vary, spec.head], extra: spec.extra };
        let make = || Stored::begin(stevedore.arena(), parts, expected, sizes);
        let (stored, writer) = self.with_room(stevedore, false, nuke, make)?;
        Ok((Object::new(stored, spec, stevedore.index()), writer))
    }

    /// Makes sure that the writer has room for at least one more byte.
    pub fn reserve(
        &self,
        stevedore: &Stevedore,
        writer: &mut BodyWriter,
        nuke: &mut Nuke<'_>,
    ) -> Result<(), Full> {
        self.with_room(stevedore, true, nuke, || writer.reserve())
    }

    /// Tries, and evicts, until it works or nothing more may be evicted.
    fn with_room<T>(
        &self,
        stevedore: &Stevedore,
        large: bool,
        nuke: &mut Nuke<'_>,
        mut make: impl FnMut() -> Result<T, Full>,
    ) -> Result<T, Full> {
        let mut left = nuke.limit;
        loop {
            if let Ok(made) = make() {
                return Ok(made);
            }
            if left == 0 {
                (nuke.log)("LRU reached nuke_limit");
                bump(&self.counters.n_lru_limited);
                return Err(Full);
            }
            left -= 1;
            if !self.nuke_one(stevedore.index(), large, nuke.log) {
                self.pressure.fetch_add(1, Ordering::Relaxed);
                (nuke.log)("LRU_Fail");
                return Err(Full);
            }
        }
    }
}
