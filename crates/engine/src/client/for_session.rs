//! The part of a request's interface that sessions use before and after the steps: receiving the head, handing over the
//! receiving side of the connection and taking it back, and ending the transaction.

use std::rc::Rc;

use lacquer_http::{BodyStatus, HeaderName, SessClose};
use lacquer_net::Rx;
use lacquer_params::Params;
use lacquer_shm::{Tag, Vxid};

use super::Req;
use crate::client_transport::ClientTransport;
use crate::req_body::ReqBody;
use crate::services::Services;

impl Req {
    /// Begins the request's log records. `first` is the time of its first byte.
    #[inline]
    pub fn begin(&mut self, first: f64) {
        let (vxid, session) = (self.task.services().vxid(), self.task.sess().vxid());
        let log = self.task.log_mut();
        log.begin(Vxid::client(vxid));
        log.link_from(session, "req", "rxreq");
        log.put_relation(Tag::Begin, "req", session, "rxreq");
        log.put_timestamp("Start", first, first, first);
    }

    /// Records the time when the head was complete.
    #[inline]
    pub fn head_complete(&mut self, now: f64) {
        self.request.received = now;
        self.task.set_now(now);
        self.task.timestamp("Req", now);
    }

    /// Sets the request's body, and logs the VCL that will run.
    #[inline]
    pub fn accept(&mut self, body: ReqBody) {
        self.request.body = body;
        self.task.log_vcl();
    }

    /// Records that the request was an extended CONNECT, which has the form of a request to upgrade.
    pub fn mark_extended_connect(&mut self) {
        self.client.is_extended = true;
    }

    /// Counts the request against its client address for as long as it exists. Returns false, with the reason in the
    /// log, if `client_max_requests` is reached.
    #[inline]
    pub fn is_within_address_limit(&mut self) -> bool {
        self.task.params().client_max_requests == 0
            || self.client.active_request.is_some()
            || self.count_for_address()
    }

    fn count_for_address(&mut self) -> bool {
        let task = &mut self.task;
        match task.sess().begin_request(task.services().addresses(), task.params()) {
            Ok(active_request) => {
                self.client.active_request = active_request;
                true
            }
            Err(()) => {
                let limit = task.params().client_max_requests;
                task.log_mut().put_fmt(Tag::Error, format_args!("Hit client_max_requests ({limit})"));
                task.services().counters().client_req_limited.add(1);
                false
            }
        }
    }

    /// Moves the request to another transport (upgrade by h2c), which receives the response. The request has no body.
    pub fn move_to(&mut self, transport: ClientTransport) {
        self.client.tx = transport;
        self.request.body = ReqBody::none();
    }

    #[inline]
    pub fn params(&self) -> &Rc<Params> {
        self.task.params()
    }

    #[inline]
    pub fn services(&self) -> &Rc<Services> {
        self.task.services()
    }

    #[inline]
    pub fn vxid(&self) -> Vxid {
        self.task.vxid()
    }

    /// Returns the time of the first byte.
    #[inline]
    pub fn first_byte(&self) -> f64 {
        self.task.first_event()
    }

    /// Returns the value of a header.
    #[inline]
    pub fn header(&self, name: HeaderName<'_>) -> Option<&[u8]> {
        self.request.http.get(self.task.ws(), name)
    }

    #[inline]
    pub fn log(&mut self, tag: Tag, text: &[u8]) {
        self.task.log_mut().put(tag, text);
    }

    /// Adds bytes of the head to the request's account.
    #[inline]
    pub fn charge_head(&mut self, bytes: u64) {
        self.client.account.req_header += bytes;
    }

    /// Sets the receiving side of the connection, from which the request may read a body.
    #[inline]
    pub fn set_rx(&mut self, rx: Option<Rx>) {
        self.request.body.set_rx(rx);
    }

    /// Takes back the receiving side. Returns `None` while a fetch still reads the body from it.
    #[inline]
    pub fn take_rx(&mut self) -> Option<Rx> {
        self.request.body.take_rx()
    }

    #[inline]
    pub fn has_body(&self) -> bool {
        self.request.body.status() != BodyStatus::None
    }

    /// Returns whether no bytes of the body are left on the connection.
    #[inline]
    pub fn is_body_settled(&self) -> bool {
        self.request.body.is_settled()
    }

    /// Returns the reason why the connection closes after this request, if it does.
    #[inline]
    pub fn close_reason(&self) -> Option<SessClose> {
        self.client.close
    }

    /// Ends the transaction: logs its account and writes its log records.
    #[inline]
    pub fn end(&mut self) {
        self.client.account.req_body += self.request.body.take_counted().1;
        self.charge();
        self.task.log_mut().end();
        if self.task.ws().overflowed() {
            self.task.services().counters().ws_client_overflow.add(1);
        }
    }

    /// Returns the time of the last timestamp.
    #[inline]
    pub fn last_event(&self) -> f64 {
        self.task.last_event()
    }
}
