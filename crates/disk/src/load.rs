//! Reads of objects that do not block the thread: in its ring, or on another thread.

use std::io;
use std::sync::Arc;

use lacquer_rings::{Read, Ring};

use crate::blocks::span_around;
use crate::buffers::Buffer;
use crate::health::Operation;
use crate::read::{Loaded, first_read};
use crate::readers::Readers;
use crate::record::Key;
use crate::store::{Candidate, Store};

/// Receives an object that is read from a store.
pub trait Receiver: Send + 'static {
    /// Returns whether somebody waits for the object.
    fn is_awaited(&self) -> bool;

    /// Receives the object: `None` if it has another key, is damaged, or cannot be read.
    fn receive(self, loaded: Option<Loaded>);
}

/// An object that is being read.
pub(crate) struct Load<R> {
    pub(crate) store: Arc<Store>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) candidate: Candidate,
    pub(crate) key: Key,
    pub(crate) receiver: R,
}

impl<R: Receiver> Load<R> {
    pub(crate) fn on_thread(self) {
        let readers = Arc::clone(&self.readers);
        readers.add(move || {
            // The request has given up: the disk was slow.
            if self.receiver.is_awaited() {
                self.receiver.receive(self.store.load(&self.candidate, &self.key));
            }
        });
    }

    /// Starts the read in the ring, which must have room.
    pub(crate) fn in_ring(self, ring: &Ring, file: u32) {
        let (store, place) = (Arc::clone(&self.store), self.candidate.entry.place());
        let len = first_read(&self.candidate);
        let Ok((at, blocks)) = span_around(&*store.blocks, place, len) else { return self.on_thread() };
        let lent = store.buffers.take(blocks).ok().and_then(Buffer::lend);
        let Some((memory, range, take_back)) = lent else { return self.on_thread() };
        store.count_read(len);
        let id = store.health.begin(Operation::Read, at);
        let done = move |result: io::Result<()>, memory| {
            let buffer = take_back(memory);
            self.store.health.end(id, Operation::Read, at, &result);
            match result {
                Ok(()) => self.examine(buffer, (place - at) as usize),
                Err(_) => self.fail(),
            }
        };
        if let Err(read) = ring.read(Read { file, at, memory, range, done: Box::new(done) }) {
            (read.done)(Err(io::ErrorKind::ResourceBusy.into()), read.memory);
        }
    }

    fn examine(self, buffer: Buffer, from: usize) {
        let header = self.store.header(&self.candidate, &buffer.bytes()[from..]);
        if header.is_some_and(|header| buffer.bytes().len() - from < header.body_at() as usize) {
            return self.on_thread();
        }
        let found =
            header.and_then(|header| self.store.accept(&self.candidate, &self.key, header, (buffer, from)));
        self.receiver.receive(found);
    }

    /// Another thread handles the failure of a read, because that may block.
    fn fail(self) {
        let readers = Arc::clone(&self.readers);
        readers.add(move || {
            self.store.read_failed(&self.candidate);
            self.receiver.receive(None);
        });
    }
}
