//! The transfer of a client's connection from HTTP/1 to HTTP/2.

use std::rc::Rc;

use lacquer_engine::{Services, Sess};
use lacquer_net::deadlines::Deadline;
use lacquer_net::{ClientSocket, Rx};

/// The parts of a connection whose client has chosen HTTP/2.
pub struct Handover {
    pub services: Rc<Services>,
    pub sess: Rc<Sess>,
    pub tx: Rc<ClientSocket>,
    pub rx: Rx,
    pub idle: Rc<Deadline>,
}
