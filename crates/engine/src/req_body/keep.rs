//! Storage for a body that only its request reads.

use std::sync::Arc;

use lacquer_cache::{BodyWriter, ChunkSizes, Nuke, Object, ObjectSpec, Stevedore, Timers, flag};

use super::BodyError;
use crate::shared::Shared;

/// The storage of a body that only its request reads.
pub struct Keep<'k> {
    pub shared: &'k Shared,
    pub stevedore: &'k Stevedore,
    /// The number of objects that may be evicted for each piece.
    pub nuke_limit: u32,
    /// Called for each object that is evicted.
    pub evicted: fn(&Shared, &str),
}

impl Keep<'_> {
    pub fn begin(
        &self,
        expected: Option<u64>,
        sizes: ChunkSizes,
    ) -> Result<(Arc<Object>, BodyWriter), BodyError> {
        let spec = ObjectSpec {
            vxid: 0,
            t_origin: 0.0,
            timers: Timers::default(),
            flags: flag::PRIVATE,
            last_modified: 0.0,
            vary: &[],
            head: &[],
            extra: &[],
        };
        let mut note = |text: &str| (self.evicted)(self.shared, text);
        let mut nuke = Nuke::new(self.nuke_limit, &mut note);
        self.shared.cache().begin(self.stevedore, &spec, expected, sizes, &mut nuke).map_err(|_| {
            let place = self.stevedore.name();
            BodyError::NoStorage(format!("Object allocation failed: Ran out of space in {place}"))
        })
    }

    pub fn append(&self, writer: &mut BodyWriter, mut bytes: &[u8]) -> Result<(), BodyError> {
        while !bytes.is_empty() {
            let mut note = |text: &str| (self.evicted)(self.shared, text);
            let mut nuke = Nuke::new(self.nuke_limit, &mut note);
            if self.shared.cache().reserve(self.stevedore, writer, &mut nuke).is_err() {
                return Err(BodyError::StorageFull);
            }
            let n = writer.write(bytes).map_err(|_| BodyError::StorageFull)?;
            bytes = &bytes[n..];
        }
        Ok(())
    }
}
