//! Caching of a request body, so that it can be read more than once (`std.cache_req_body()`).

use std::sync::Arc;

use lacquer_cache::{ChunkSizes, Object};
use lacquer_http::BodyStatus;
use lacquer_params::Params;

use super::{BodyError, Keep, ReqBody};

impl ReqBody {
    /// Reads the whole body into storage, up to `limit` bytes. Returns its length.
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
