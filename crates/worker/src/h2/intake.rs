//! The part of a request's body that came in and was not read yet. It lies in the storage that
//! `h2_rxbuf_storage` names and is no larger than the stream's window.

use std::sync::Arc;

use lacquer_cache::{BodyWriter, ChunkSizes, Nuke, Object, ObjectSpec, Stevedore, Timers, flag};
use lacquer_shm::{Tag, Vxid};

use crate::reactor::Reactor;

/// Memory is taken, and given back when it was read, in pieces of this size.
pub const PIECE: usize = 16 * 1024;

pub struct Intake {
    kept: Arc<Object>,
    writer: Option<BodyWriter>,
    taken: u64,
}

fn place(reactor: &Reactor) -> Option<&Stevedore> {
    let stevedores = &reactor.shared.stevedores;
    let named = stevedores.by_name(&reactor.params().h2_rxbuf_storage);
    stevedores.get(named.unwrap_or_else(|| stevedores.transient()))
}

impl Intake {
    /// `first` is the length of the first piece.
    pub fn begin(reactor: &Reactor, first: usize) -> Option<Intake> {
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
        let sizes = ChunkSizes { first, max: PIECE.max(first) };
        let shared = &reactor.shared;
        let mut note = |text: &str| shared.log.write(Tag::ExpKill, Vxid::NONE, text.as_bytes());
        let mut nuke = Nuke { left: reactor.params().nuke_limit, log: &mut note };
        let begun = shared.cache.begin(place(reactor)?, &spec, None, sizes, &mut nuke);
        let (kept, writer) = begun.ok()?;
        Some(Intake { kept, writer: Some(writer), taken: 0 })
    }

    /// False if there is no room.
    pub fn append(&mut self, reactor: &Reactor, mut data: &[u8]) -> bool {
        let (Some(writer), Some(place)) = (self.writer.as_mut(), place(reactor)) else { return false };
        let shared = &reactor.shared;
        while !data.is_empty() {
            let mut note = |text: &str| shared.log.write(Tag::ExpKill, Vxid::NONE, text.as_bytes());
            let mut nuke = Nuke { left: reactor.params().nuke_limit, log: &mut note };
            if shared.cache.reserve(place, writer, &mut nuke).is_err() {
                return false;
            }
            let Ok(n) = writer.write(data) else { return false };
            data = &data[n..];
        }
        true
    }

    /// Nothing more comes.
    pub fn end(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.finish();
        }
    }

    pub fn held(&self) -> u64 {
        self.kept.body_len() - self.taken
    }

    /// Takes out as much as fits.
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
