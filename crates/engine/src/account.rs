//! Byte counts of what a client sent and received.

use lacquer_shm::vsc::LocalMain;
use lacquer_shm::{Log, Tag, Vxid};

/// The byte counts of one request, for `ReqAcct`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    pub req_header: u64,
    pub req_body: u64,
    pub resp_header: u64,
    pub resp_body: u64,
}

impl Account {
    /// Returns the numbers in the order of `ReqAcct`.
    pub fn numbers(&self) -> [u64; 6] {
        let (request, response) = (self.req_header + self.req_body, self.resp_header + self.resp_body);
        [self.req_header, self.req_body, request, self.resp_header, self.resp_body, response]
    }

    /// Logs the account of a session whose requests have their own, and counts its bytes.
    pub fn close(&self, log: &Log, session: Vxid, counters: &LocalMain) {
        let [header, body, request, sent_header, sent_body, response] = self.numbers();
        let text = format_args!("{header} {body} {request} {sent_header} {sent_body} {response}");
        log.write_fmt(Tag::ReqAcct, session, text);
        self.count(counters);
    }

    pub fn count(&self, counters: &LocalMain) {
        counters.s_req_hdrbytes.add(self.req_header);
        counters.s_req_bodybytes.add(self.req_body);
        counters.s_resp_hdrbytes.add(self.resp_header);
        counters.s_resp_bodybytes.add(self.resp_body);
    }
}
