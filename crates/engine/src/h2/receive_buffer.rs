//! The part of a request's body that was received and not read yet. It is in the storage that
//! `h2_rxbuf_storage` names, and is no larger than the stream's window.

use std::sync::Arc;

use lacquer_cache::{BodyWriter, ChunkSizes, Object};
use lacquer_shm::{Tag, Vxid};

use crate::req_body::Keep;
use crate::services::Services;

/// The size of the pieces in which memory is taken, and freed once it was read.
pub const PIECE: usize = 16 * 1024;

pub struct ReceiveBuffer {
    kept: Arc<Object>,
    writer: Option<BodyWriter>,
    taken: u64,
}

fn place(services: &Services) -> Option<Keep<'_>> {
    let (shared, params) = (services.shared(), services.params());
    let named = shared.stevedores().by_name(&params.h2_rxbuf_storage);
    Some(Keep {
        shared,
        stevedore: shared.stevedores().get(named.unwrap_or_else(|| shared.stevedores().transient()))?,
        nuke_limit: params.nuke_limit,
        evicted: |shared, text| shared.log().write(Tag::ExpKill, Vxid::NONE, text.as_bytes()),
    })
}

impl ReceiveBuffer {
    /// Starts an intake. `first` is the length of the first piece. Returns `None` if there is no room.
    pub fn begin(services: &Services, first: usize) -> Option<ReceiveBuffer> {
        let sizes = ChunkSizes { first, max: PIECE.max(first) };
        let (kept, writer) = place(services)?.begin(None, sizes).ok()?;
        Some(ReceiveBuffer { kept, writer: Some(writer), taken: 0 })
    }

    /// Appends bytes. Returns false if there is no room.
    pub fn append(&mut self, services: &Services, data: &[u8]) -> bool {
        let (Some(writer), Some(place)) = (self.writer.as_mut(), place(services)) else { return false };
        place.append(writer, data).is_ok()
    }

    /// Marks the end of the body.
    pub fn end(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.finish();
        }
    }

    pub fn held(&self) -> u64 {
        self.kept.body_len() - self.taken
    }

    /// Moves as many bytes into `buffer` as fit, and returns their number.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < buffer.len() {
            let Some(chunk) = self.kept.chunk_at(self.taken).filter(|c| !c.is_empty()) else { break };
            let n = chunk.len().min(buffer.len() - filled);
            buffer[filled..filled + n].copy_from_slice(&chunk.bytes()[..n]);
            drop(chunk);
            filled += n;
            self.taken += n as u64;
        }
        if filled > 0 {
            self.kept.stored().delivered(self.taken, true);
        }
        filled
    }
}
