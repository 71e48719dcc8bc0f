//! The sending side of a connection. Frames are gathered and leave together, see [`super::sending`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lacquer_net::ClientSocket;
use lacquer_sources::clock::Instant;
use tokio::sync::Mutex;

use super::buffers::Buffers;

/// The longest buffer that is kept for the next connection.
const KEPT: usize = 32 * 1024;
/// Frames that wait to be sent. The first bytes may be sent already.
#[derive(Default)]
pub(super) struct Gathered {
    pub bytes: Vec<u8>,
    pub sent: usize,
}

impl Gathered {
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Gives the buffer back, because all of it was sent.
    pub fn clear(&mut self, buffers: &Buffers) {
        self.sent = 0;
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() <= KEPT {
            bytes.clear();
            buffers.output.set(bytes);
        }
    }
}

/// The result of sending the frames that wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// All frames were sent.
    Done,
    /// The socket is full. It wakes the task when it has room.
    Blocked,
    /// Another task is sending. It wakes the task afterwards.
    Others,
}

/// The time limits for a client to take a response.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Seconds without taking a byte.
    pub idle: f64,
    /// The time by which the whole response must be sent.
    pub by: Option<Instant>,
}

/// The sending side of a connection.
pub struct Output {
    pub(super) tx: Rc<ClientSocket>,
    /// The task that holds it writes to the socket.
    pub(super) turn: Mutex<()>,
    pub(super) gathered: RefCell<Gathered>,
    /// Nothing more can be sent: the socket failed, or a frame may have been sent in part.
    pub(super) broken: Cell<bool>,
    /// The number of bytes that the socket took.
    pub(super) taken: Cell<u64>,
    /// The number of DATA frames that were sent.
    pub(super) progress: Cell<u32>,
}

impl Output {
    pub fn new(tx: Rc<ClientSocket>) -> Output {
        Output {
            tx,
            turn: Mutex::new(()),
            gathered: RefCell::default(),
            broken: Cell::new(false),
            taken: Cell::new(0),
            progress: Cell::new(0),
        }
    }
}
