//! The PROXY header that introduces a client to a backend.

use lacquer_http::proxy_protocol;

use crate::sess::Sess;

/// `version` 1 or 2. What the client said of itself goes on: TLS server name as the authority.
pub fn write(version: u32, sess: &Sess, out: &mut Vec<u8>) {
    let authority = proxy_protocol::find_tlv(&sess.proxy_tlvs, proxy_protocol::tlv::AUTHORITY);
    proxy_protocol::write_header(
        version as u8,
        sess.client.addr,
        sess.server.addr,
        authority.unwrap_or_default(),
        out,
    );
}
