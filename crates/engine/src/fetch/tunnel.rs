//! A fetch whose connection is lent to the request, for a tunnel.

use std::rc::Rc;

use super::driver::FetchDriver;
use super::events::FetchEvents;
use super::upgraded::{Ended, Upgraded};
use crate::client::Req;

/// It must be given the end of the tunnel.
pub struct Tunnel {
    driver: FetchDriver,
    events: Rc<FetchEvents>,
    upgraded: Option<Box<Upgraded>>,
}

impl Tunnel {
    pub fn new(driver: FetchDriver, upgraded: Box<Upgraded>) -> Tunnel {
        Tunnel { events: driver.events(), driver, upgraded: Some(upgraded) }
    }

    pub fn take_upgraded(&mut self) -> Option<Upgraded> {
        self.upgraded.take().map(|upgraded| *upgraded)
    }

    /// Ends the fetch.
    pub async fn end(mut self, ended: Ended, req: &Req) {
        self.events.ended.set(Some(Box::new(ended)));
        self.driver.advance().await;
        self.driver.detach(req.services());
    }
}
