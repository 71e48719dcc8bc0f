//! The sending side of a connection. Frames are gathered and sent together; see [`super::sending`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lacquer_net::ClientSocket;
use tokio::sync::Mutex;

use super::buffers::Buffers;

/// The largest buffer that is kept for the next connection.
const KEPT: usize = 32 * 1024;
/// Frames that wait to be sent. The first `sent` bytes are sent already.
#[derive(Default)]
pub(super) struct Gathered {
    pub bytes: Vec<u8>,
    pub sent: usize,
}

impl Gathered {
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Puts the rest of other frames before these.
    pub fn follow(&mut self, mut first: Gathered) {
        first.bytes.extend_from_slice(self.rest());
        *self = first;
    }

    /// Recycles the buffer after all of it was sent.
    pub fn clear(&mut self, buffers: &Buffers) {
        self.sent = 0;
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() <= KEPT {
            bytes.clear();
            buffers.output().set(bytes);
        }
    }
}

/// The result of sending the waiting frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// All frames were sent.
    Done,
    /// The socket is full. The task is woken when the socket has room.
    Blocked,
    /// Another task is sending, and wakes this one afterwards.
    Busy,
}

/// The sending side of a connection.
pub struct Output {
    pub(super) tx: Rc<ClientSocket>,
    /// Held by the task that writes to the socket.
    pub(super) write_lock: Mutex<()>,
    pub(super) gathered: RefCell<Gathered>,
    /// Nothing more can be sent: the socket failed, or a frame may have been sent in part.
    pub(super) broken: Cell<bool>,
    /// The number of bytes that the socket has accepted.
    pub(super) taken: Cell<u64>,
    /// The number of DATA frames that were sent.
    pub(super) progress: Cell<u32>,
}

impl Output {
    pub fn new(tx: Rc<ClientSocket>) -> Output {
        Output {
            tx,
            write_lock: Mutex::new(()),
            gathered: RefCell::default(),
            broken: Cell::new(false),
            taken: Cell::new(0),
            progress: Cell::new(0),
        }
    }
}
