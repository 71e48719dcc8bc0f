//! A client's open connection: its two halves, and the state of its session.

use std::rc::Rc;

use lacquer_engine::{Services, Sess};
use lacquer_net::deadlines::{Deadline, Idleness};
use lacquer_net::linger::linger;
use lacquer_net::{ClientSocket, Rx, TxHalf};

/// A client's connection, which is open for as long as this value exists. [`crate::serve`] decides when and why it
/// ends.
pub struct Connection {
    sess: Rc<Sess>,
    tx: Rc<ClientSocket>,
    /// The receiving side; absent while a request has it.
    rx: Option<Rx>,
    idle: Rc<Deadline>,
    /// The number of bytes received of an incomplete head.
    received: usize,
    /// The connection ends before a request was read completely, so the client may still be sending.
    has_unread: bool,
    /// The client has sent a request.
    has_served: bool,
}

impl Connection {
    pub fn new(services: &Services, sess: Rc<Sess>, rx: Rx, tx: TxHalf) -> Connection {
        Connection {
            sess,
            tx: Rc::new(ClientSocket::new(tx)),
            rx: Some(rx),
            idle: services.deadlines().add_deadline(),
            received: 0,
            has_unread: false,
            has_served: false,
        }
    }

    #[inline]
    pub fn sess(&self) -> &Rc<Sess> {
        &self.sess
    }

    #[inline]
    pub fn tx(&self) -> &Rc<ClientSocket> {
        &self.tx
    }

    #[inline]
    pub fn idle(&self) -> &Rc<Deadline> {
        &self.idle
    }

    /// Returns the receiving side; `None` while a request has it.
    #[inline]
    pub fn rx(&self) -> Option<&Rx> {
        self.rx.as_ref()
    }

    /// Returns the receiving side with its deadline and the place of the number of bytes received of a head.
    #[inline]
    pub fn receiving(&mut self) -> Option<(&mut Rx, &Deadline, &mut usize)> {
        Some((self.rx.as_mut()?, &self.idle, &mut self.received))
    }

    /// Takes the receiving side for a request.
    #[inline]
    pub fn take_rx(&mut self) -> Option<Rx> {
        self.rx.take()
    }

    /// Takes back the receiving side from a request, if the request still has it. `is_settled` is true if no bytes of
    /// the request are left on the connection.
    #[inline]
    pub fn give_back(&mut self, rx: Option<Rx>, is_settled: bool) {
        self.has_unread = !is_settled || rx.as_ref().is_some_and(Rx::has_pending);
        self.rx = rx;
    }

    /// Takes back the receiving side before a request has begun.
    pub fn restore_rx(&mut self, rx: Rx) {
        self.rx = Some(rx);
    }

    /// Returns bytes to the receiving side, which were read after the end of a head.
    pub fn unread(&mut self, bytes: &[u8]) {
        if let Some(rx) = &mut self.rx {
            rx.unread(bytes);
        }
    }

    /// Returns the number of bytes received of an incomplete head.
    #[inline]
    pub fn received(&self) -> usize {
        self.received
    }

    /// Returns whether the connection ends before a request was read completely, so the client may still be sending.
    pub fn has_unread(&self) -> bool {
        self.has_unread
    }

    /// Records that the client has sent a request.
    #[inline]
    pub fn mark_served(&mut self) {
        self.has_served = true;
    }

    /// Returns whether the client has sent a request.
    pub fn has_served(&self) -> bool {
        self.has_served
    }

    /// Returns how the connection ranks among idle ones while it waits for a request.
    pub fn idleness(&self) -> Idleness {
        if self.has_served { Idleness::Kept } else { Idleness::Silent }
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
