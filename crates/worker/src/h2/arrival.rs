//! The transfer of a client's connection from HTTP/1 to HTTP/2.

use std::rc::Rc;

use crate::client_socket::ClientSocket;
use crate::deadlines::Deadline;
use crate::reactor::Reactor;
use crate::req_body::Rx;
use crate::session::Sess;

/// A connection whose client has chosen HTTP/2.
pub struct Arrival {
    pub reactor: Rc<Reactor>,
    pub sess: Rc<Sess>,
    pub tx: Rc<ClientSocket>,
    pub rx: Rx,
    pub idle: Rc<Deadline>,
}
