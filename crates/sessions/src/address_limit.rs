//! The limits of a client's address on connections and on requests at work.

use lacquer_engine::client::Req;
use lacquer_engine::{Services, Sess};
use lacquer_http::SessClose;
use lacquer_shm::{Tag, Vxid};

/// The status of a request beyond the limit (RFC 6585 section 4).
pub const TOO_MANY_REQUESTS: u16 = 429;

/// Counts the connection. Fails if its address has as many as it may.
pub fn admit(services: &Services, sess: &Sess) -> Result<(), SessClose> {
    let params = services.params();
    if sess.address.connect(services.addresses(), sess.client.addr.ip(), &params) {
        return Ok(());
    }
    let text = format_args!("Hit client_max_connections ({})", params.client_max_connections);
    services.log().write_fmt(Tag::SessError, Vxid::client(sess.vxid), text);
    services.counters().client_conn_limited.add(1);
    Err(SessClose::Overload)
}

/// Counts the request for as long as it exists. Returns false, with the reason in the log, if its address has as many
/// at work as it may.
#[inline]
pub fn begin_request(req: &mut Req) -> bool {
    req.task.params.client_max_requests == 0 || req.at_work.is_some() || count_request(req)
}

fn count_request(req: &mut Req) -> bool {
    let task = &mut req.task;
    let (table, ip) = (task.services.addresses(), task.sess.client.addr.ip());
    match task.sess.address.begin_request(table, ip, &task.params) {
        Ok(at_work) => {
            req.at_work = at_work;
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
