//! The stream of a request.

use std::rc::Rc;

use lacquer_engine::Services;
use lacquer_engine::h2::Stream;
use lacquer_h2::{Error, Reason};

use crate::stream_request::RequestStream;

impl RequestStream for Stream {
    fn services(&self) -> &Rc<Services> {
        self.conn().services()
    }

    fn reset_if_incomplete(&self) {
        if !self.is_answered() && self.error().is_none() {
            self.reset(Error::Stream(Reason::InternalError));
        }
    }

    fn close(&self) {
        self.close();
    }
}
