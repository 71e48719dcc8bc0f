//! A client's open connection: its two halves, and the progress of its session.

use std::rc::Rc;

use lacquer_engine::{Services, Sess};
use lacquer_net::deadlines::{Deadline, Idleness};
use lacquer_net::linger::linger;
use lacquer_net::{ClientSocket, Rx};

/// A client's connection, which is open as long as this lives. [`crate::serve`] decides on the reason for its end.
pub struct Connection {
    pub sess: Rc<Sess>,
    pub tx: Rc<ClientSocket>,
    /// Absent while a request has it.
    pub rx: Option<Rx>,
    pub idle: Rc<Deadline>,
    /// Bytes of a head that is not complete yet.
    pub received: usize,
    /// The connection ends before all of a request was read, so the client may still be sending.
    pub unread: bool,
    /// The client has sent a request.
    pub served: bool,
}

impl Connection {
    /// Returns the idleness of the connection while it waits for a request.
    pub fn idleness(&self) -> Idleness {
        if self.served { Idleness::Kept } else { Idleness::Silent }
    }

    /// Closes the connection so that a client that may still be sending gets the whole response.
    pub async fn close_lingering(mut self: Box<Connection>, services: &Services) {
        if let Some(rx) = &mut self.rx {
            let seconds = services.params().lingering_close;
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
