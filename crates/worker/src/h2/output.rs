//! The sending side of a connection. Frames are gathered and leave together, see [`super::sending`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::buffers::Buffers;
use crate::client_socket::ClientSocket;

/// A longer buffer is not kept for the next connection.
const KEPT: usize = 32 * 1024;
/// Frames that wait to be sent; the first bytes may be on their way already.
#[derive(Default)]
pub(super) struct Gathered {
    pub bytes: Vec<u8>,
    pub sent: usize,
}

impl Gathered {
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// All of it was sent; the buffer serves whoever needs one next.
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
    /// Nothing waits any more.
    Done,
    /// The socket is full; it wakes us when it has room.
    Blocked,
    /// Another task is sending; it wakes us afterwards.
    Others,
}

/// How long a client may take over what it is sent.
#[derive(Clone, Copy)]
pub struct SendLimits {
    /// Seconds without taking a byte.
    pub idle: f64,
    /// When all of the response must have gone out.
    pub by: Option<Instant>,
}

/// The sending side of a connection.
pub struct Output {
    pub(super) tx: Rc<ClientSocket>,
    /// The task that holds it writes to the socket.
    pub(super) turn: Mutex<()>,
    pub(super) gathered: RefCell<Gathered>,
    /// Nothing more can be sent: the socket failed, or half a frame may have gone out.
    pub(super) broken: Cell<bool>,
    /// Bytes that the socket took.
    pub(super) taken: Cell<u64>,
    /// Frames of body that went out.
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
