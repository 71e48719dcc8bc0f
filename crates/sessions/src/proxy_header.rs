//! The PROXY header that a load balancer sends before the first request. It contains the client's address.

use lacquer_engine::emulated::workspace_costs;
use lacquer_engine::{Services, Sess};
use lacquer_http::SessClose;
use lacquer_http::proxy_protocol::{self, Scan};
use lacquer_net::Side;
use lacquer_shm::Tag;

use crate::arrival::Arrival;

/// Reads the header. The bytes after it stay read ahead.
pub async fn receive(services: &Services, sess: &mut Sess, arrival: &mut Arrival) -> Result<(), SessClose> {
    loop {
        match proxy_protocol::scan(&arrival.ahead) {
            Scan::Complete => break,
            Scan::More => {}
            Scan::Junk => return Err(SessClose::RxJunk),
            Scan::Overflow => return Err(SessClose::RxOverflow),
        }
        if !arrival.read_more().await.unwrap_or(false) {
            return Err(SessClose::RemClose);
        }
    }
    let log = services.log();
    let vxid = sess.vxid();
    let write = |tag: Tag, text: &Option<String>| {
        if let Some(text) = text {
            log.write(tag, vxid, text.as_bytes());
        }
    };
    match proxy_protocol::parse(&arrival.ahead) {
        Ok(header) => {
            write(Tag::Proxy, &header.log);
            write(Tag::ProxyGarbage, &header.garbage);
            if let Some(ends) = &header.endpoints {
                sess.use_proxied_ends(Side::of(ends.client), Side::of(ends.server));
                if let Some(text) = workspace_costs::proxy_header(&services.params(), header.tlvs.len()) {
                    log.write(Tag::Error, vxid, text.as_bytes());
                    services.counters().ws_session_overflow.add(1);
                    return Err(SessClose::RxJunk);
                }
            }
            sess.use_proxy_tlvs(header.tlvs);
            let len = header.len;
            arrival.ahead.drain(..len);
            Ok(())
        }
        Err(refused) => {
            write(Tag::Proxy, &refused.log);
            write(Tag::ProxyGarbage, &refused.garbage);
            Err(SessClose::RxJunk)
        }
    }
}
