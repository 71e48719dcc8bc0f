//! A client's open connection: its two halves, and what its session has come to.

use std::rc::Rc;

use super::Sess;
use crate::client_socket::ClientSocket;
use crate::deadlines::{Deadline, Idleness};
use crate::linger::linger;
use crate::reactor::Reactor;
use crate::req_body::Rx;

/// The connection is open as long as this lives; the reason for its end is decided by [`super::serve`].
pub struct Connection {
    pub sess: Rc<Sess>,
    pub tx: Rc<ClientSocket>,
    /// Absent while a request has it.
    pub rx: Option<Rx>,
    pub idle: Rc<Deadline>,
    /// Bytes of a head that is not complete yet.
    pub received: usize,
    /// The client may not have sent all of it yet when the connection ends.
    pub unread: bool,
    /// It has asked for something.
    pub served: bool,
}

impl Connection {
    /// Returns how idle the connection is while it waits for a request.
    pub fn idleness(&self) -> Idleness {
        if self.served { Idleness::Kept } else { Idleness::Silent }
    }

    /// Closes it such that a client that may still be sending gets what it was sent.
    pub async fn close_lingering(mut self: Box<Connection>, reactor: &Reactor) {
        if let Some(rx) = &mut self.rx {
            let seconds = reactor.params().lingering_close;
            linger(&self.tx, rx, &self.idle, seconds).await;
        }
        self.close();
    }

    pub fn close(self) {
        let Connection { tx, rx, .. } = self;
        if let Ok(tx) = Rc::try_unwrap(tx) {
            tx.forget();
        }
        drop(rx);
    }
}
