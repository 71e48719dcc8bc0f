//! The limit on the connections of a client address.

use lacquer_engine::{Services, Sess};
use lacquer_http::SessClose;
use lacquer_shm::Tag;

/// The status for a request whose client address has too many active requests (RFC 6585 section 4).
pub const TOO_MANY_REQUESTS: u16 = 429;

/// Counts the connection, unless it is counted. Fails if its client address has reached `client_max_connections`.
pub fn admit(services: &Services, sess: &Sess) -> Result<(), SessClose> {
    let params = services.params();
    if sess.count_connection(services.addresses(), &params) {
        return Ok(());
    }
    let text = format_args!("Hit client_max_connections ({})", params.client_max_connections);
    services.log().write_fmt(Tag::SessError, sess.vxid(), text);
    services.counters().client_conn_limited.add(1);
    Err(SessClose::Overload)
}
