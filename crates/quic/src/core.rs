//! The parts of an endpoint that its connections share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Waker};

use quinn_proto::{ConnectionEvent, ConnectionHandle, EndpointEvent, Transmit};

use crate::handshakes::Handshakes;
use crate::mailbox::Mailbox;
use crate::socket::Socket;

pub struct Core {
    pub socket: Socket,
    pub endpoint: RefCell<quinn_proto::Endpoint>,
    mailboxes: RefCell<HashMap<usize, Rc<Mailbox>>>,
    pub handshakes: Rc<Handshakes>,
    /// The buffer for packets to send.
    output: Cell<Vec<u8>>,
    /// The endpoint's own task.
    driver: RefCell<Option<Waker>>,
}

impl Core {
    pub fn new(socket: Socket, endpoint: quinn_proto::Endpoint) -> Core {
        Core {
            socket,
            endpoint: RefCell::new(endpoint),
            mailboxes: RefCell::default(),
            handshakes: Rc::default(),
            output: Cell::default(),
            driver: RefCell::default(),
        }
    }

    pub fn connections(&self) -> usize {
        self.mailboxes.borrow().len()
    }

    /// Adds a connection.
    pub fn add(&self, handle: ConnectionHandle) -> Rc<Mailbox> {
        let mailbox = Rc::<Mailbox>::default();
        self.mailboxes.borrow_mut().insert(handle.0, mailbox.clone());
        mailbox
    }

    /// Removes a connection. Must be called before its end is reported, because the library then gives its handle to the
    /// next one.
    pub fn remove(&self, handle: ConnectionHandle) {
        self.mailboxes.borrow_mut().remove(&handle.0);
    }

    /// Passes a packet to its connection.
    pub fn deliver(&self, handle: ConnectionHandle, event: ConnectionEvent) {
        let mailbox = self.mailboxes.borrow().get(&handle.0).cloned();
        if let Some(mailbox) = mailbox {
            mailbox.push(event);
        }
    }

    /// Handles what a connection tells its endpoint. Returns the reply.
    pub fn report(&self, handle: ConnectionHandle, event: EndpointEvent) -> Option<ConnectionEvent> {
        self.endpoint.borrow_mut().handle_event(handle, event)
    }

    /// Lends the buffer for packets to send.
    pub fn with_output<R>(&self, work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let mut output = self.output.take();
        output.clear();
        let result = work(&mut output);
        self.output.set(output);
        result
    }

    /// Sends a packet that belongs to no connection. It is lost if the socket is full.
    pub fn respond(&self, transmit: &Transmit, bytes: &[u8]) {
        self.socket.send(transmit, bytes);
    }

    /// Registers a connection's task to be woken when the socket accepts packets again.
    pub fn wait_writable(&self, cx: &Context<'_>) {
        self.socket.wait_writable(cx.waker());
        if let Some(driver) = self.driver.borrow_mut().take() {
            driver.wake();
        }
    }

    /// Registers the endpoint's own task.
    pub fn drive(&self, cx: &mut Context<'_>) {
        *self.driver.borrow_mut() = Some(cx.waker().clone());
        self.socket.poll_unblock(cx);
    }
}
