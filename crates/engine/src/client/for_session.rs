//! What the session does with a request before and after the steps: it reads the head, hands the receiving side of the
//! connection over and takes it back, and ends the transaction.

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
    /// Begins the request's records in the log. Its first byte came at this time.
    #[inline]
    pub fn begin(&mut self, first: f64) {
        let (vxid, session) = (self.task.services.vxid(), Vxid::client(self.task.sess.vxid));
        let log = &mut self.task.log;
        log.begin(Vxid::client(vxid));
        log.link_from(session, "req", "rxreq");
        log.put_relation(Tag::Begin, "req", session, "rxreq");
        log.put_timestamp("Start", first, first, first);
    }

    /// Logs that the head is complete at this time.
    #[inline]
    pub fn head_complete(&mut self, now: f64) {
        self.request.received = now;
        self.task.run.now = now;
        self.task.timestamp("Req", now);
    }

    /// Sets the request's body, and logs the VCL that is going to run.
    #[inline]
    pub fn accept(&mut self, body: ReqBody) {
        self.request.body = body;
        self.task.log.put(Tag::VCL_use, self.task.vcl.name.as_bytes());
    }

    /// Counts the request for as long as it exists. Returns false, with the reason in the log, if its address has as many
    /// at work as it may.
    #[inline]
    pub fn is_within_address_limit(&mut self) -> bool {
        self.task.params.client_max_requests == 0 || self.client.active_request.is_some() || self.count_for_address()
    }

    fn count_for_address(&mut self) -> bool {
        let task = &mut self.task;
        let (table, ip) = (task.services.addresses(), task.sess.ends.client.addr.ip());
        match task.sess.address.begin_request(table, ip, &task.params) {
            Ok(active_request) => {
                self.client.active_request = active_request;
                true
            }
            Err(()) => {
                let limit = task.params.client_max_requests;
                task.log.put_fmt(Tag::Error, format_args!("Hit client_max_requests ({limit})"));
                task.services.counters().client_req_limited.add(1);
                false
            }
        }
    }

    /// Lets the response leave by another protocol, to which the connection was upgraded. The request has no body.
    pub fn move_to(&mut self, transport: ClientTransport) {
        self.client.tx = transport;
        self.request.body = ReqBody::none();
    }

    #[inline]
    pub fn params(&self) -> &Rc<Params> {
        &self.task.params
    }

    #[inline]
    pub fn services(&self) -> &Rc<Services> {
        &self.task.services
    }

    #[inline]
    pub fn vxid(&self) -> Vxid {
        self.task.vxid()
    }

    /// Returns the time of its first byte.
    #[inline]
    pub fn first_byte(&self) -> f64 {
        self.task.times.first
    }

    /// Returns the value of a header.
    #[inline]
    pub fn header(&self, name: HeaderName<'_>) -> Option<&[u8]> {
        self.request.http.get(&self.task.ws, name)
    }

    #[inline]
    pub fn log(&mut self, tag: Tag, text: &[u8]) {
        self.task.log.put(tag, text);
    }

    /// Accounts for bytes of the head.
    #[inline]
    pub fn charge_head(&mut self, bytes: u64) {
        self.client.account.req_header += bytes;
    }

    /// Gives the request the receiving side of the connection, which it may have to read from.
    #[inline]
    pub fn lend_rx(&mut self, rx: Option<Rx>) {
        self.request.body.lend_rx(rx);
    }

    /// Takes the receiving side back. A fetch that still reads the body keeps it.
    #[inline]
    pub fn take_rx(&mut self) -> Option<Rx> {
        self.request.body.take_rx()
    }

    #[inline]
    pub fn has_body(&self) -> bool {
        self.request.body.status() != BodyStatus::None
    }

    /// Returns whether no bytes of the body remain to be read.
    #[inline]
    pub fn is_body_settled(&self) -> bool {
        self.request.body.is_settled()
    }

    /// Returns the reason for which the connection ends with this request, if it does.
    #[inline]
    pub fn close_reason(&self) -> Option<SessClose> {
        self.client.close
    }

    /// Ends the transaction, whatever its result.
    #[inline]
    pub fn end(&mut self) {
        self.client.account.req_body += self.request.body.take_counted().1;
        self.charge();
        self.task.log.end();
        if self.task.ws.overflowed() {
            self.task.services.counters().ws_client_overflow.add(1);
        }
    }

    /// Returns the time of its last timestamp.
    #[inline]
    pub fn last_event(&self) -> f64 {
        self.task.times.last
    }
}
