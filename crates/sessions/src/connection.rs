//! A client's open connection: its two halves, and the state of its session.

use std::rc::Rc;

use lacquer_engine::{Services, Sess};
use lacquer_net::deadlines::{Deadline, Idleness};
use lacquer_net::linger::linger;
use lacquer_net::{ClientSocket, Rx};

/// A client's connection, which is open for as long as this value exists. [`crate::serve`] decides when and why it
/// ends.
pub struct Connection {
    pub sess: Rc<Sess>,
    pub tx: Rc<ClientSocket>,
    /// The receiving side; absent while a request has it.
    pub rx: Option<Rx>,
    pub idle: Rc<Deadline>,
    /// The number of bytes received of an incomplete head.
    pub received: usize,
    /// The connection ends before a request was read completely, so the client may still be sending.
    pub unread: bool,
    /// The client has sent a request.
    pub served: bool,
}

impl Connection {
    /// Returns how the connection ranks among idle ones while it waits for a request.
    pub fn idleness(&self) -> Idleness {
        if self.served { Idleness::Kept } else { Idleness::Silent }
    }

    /// Closes the connection after reading on for `lingering_close`, so that a client that is still sending receives
    /// the whole response.
    pub async fn close_lingering(mut self: Box<Connection>, services: &Services) {
        let Some(rx) = &mut self.rx else { return self.close(services).await };
        let seconds = services.params().lingering_close;
        linger(&self.tx, rx, &self.idle, seconds).await;
        self.drop_halves();
    }

    /// Closes the connection in order. A client that takes no bytes delays this for `lingering_close`.
    pub async fn close(self, services: &Services) {
        let seconds = services.params().lingering_close;
        self.idle.limit(self.idle.now(), seconds, self.tx.finish()).await;
        self.drop_halves();
    }

    fn drop_halves(self) {
        let Connection { tx, rx, .. } = self;
        if let Ok(tx) = Rc::try_unwrap(tx) {
            tx.forget();
        }
        drop(rx);
    }
}
