//! A request's body that is kept, to be read more than once.

use std::sync::Arc;

use lacquer_cache::{BodyWriter, ChunkSizes, Nuke, Object, ObjectSpec, Stevedore, Timers, flag};
use lacquer_http::BodyStatus;
use lacquer_params::Params;

use super::{BodyError, ReqBody};
use crate::shared::Shared;

impl ReqBody {
    /// Reads the whole body and keeps it, up to `limit` bytes. The result is its length.
    pub async fn cache(&mut self, limit: u64, params: &Params, keep: Keep<'_>) -> Result<u64, BodyError> {
        if self.announced().is_some_and(|n| n > limit) {
            self.status = BodyStatus::Error;
            return Err(BodyError::TooBig);
        }
        let kept = self.read_into(limit, params, keep).await;
        match kept {
            Ok(object) => {
                let length = object.body_len();
                self.cached = Some(object);
                self.status = BodyStatus::Cached;
                Ok(length)
            }
            Err(e) => {
                self.status = BodyStatus::Error;
                Err(e)
            }
        }
    }

    async fn read_into(
        &mut self,
        limit: u64,
        params: &Params,
        keep: Keep<'_>,
    ) -> Result<Arc<Object>, BodyError> {
        let sizes =
            ChunkSizes { first: params.fetch_chunksize as usize, max: params.fetch_maxchunksize as usize };
        let (object, mut writer) = keep.begin(self.announced(), sizes)?;
        loop {
            let piece = self.next(params).await?;
            if piece.is_empty() {
                break;
            }
            keep.append(&mut writer, piece)?;
            if writer.len() > limit {
                return Err(BodyError::TooBig);
            }
        }
        writer.finish();
        Ok(object)
    }
}

/// Where a body is kept that only its request reads.
pub struct Keep<'k> {
    pub shared: &'k Shared,
    pub stevedore: &'k Stevedore,
    /// So many objects may go for each piece.
    pub nuke_limit: u32,
    /// Told of each that goes.
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
        self.shared.cache.begin(self.stevedore, &spec, expected, sizes, &mut nuke).map_err(|_| {
            let place = self.stevedore.name();
            BodyError::NoPlace(format!("Object allocation failed: Ran out of space in {place}"))
        })
    }

    pub fn append(&self, writer: &mut BodyWriter, mut bytes: &[u8]) -> Result<(), BodyError> {
        while !bytes.is_empty() {
            let mut note = |text: &str| (self.evicted)(self.shared, text);
            let mut nuke = Nuke::new(self.nuke_limit, &mut note);
            if self.shared.cache.reserve(self.stevedore, writer, &mut nuke).is_err() {
                return Err(BodyError::NoRoom);
            }
            let n = writer.write(bytes).map_err(|_| BodyError::NoRoom)?;
            bytes = &bytes[n..];
        }
        Ok(())
    }
}
