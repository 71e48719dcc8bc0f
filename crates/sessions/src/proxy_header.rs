//! The PROXY header that a load balancer sends before the first request. It contains the client's address.

use lacquer_engine::emulated::workspace_costs;
use lacquer_engine::{Services, Sess};
use lacquer_http::SessClose;
use lacquer_http::proxy_protocol::{self, Scan};
use lacquer_net::{Rx, Side};
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock::{self, Instant};
use tokio::time::timeout_at;

/// Reads the header. The bytes after it stay in `rx`.
pub async fn receive(services: &Services, sess: &mut Sess, rx: &mut Rx) -> Result<(), SessClose> {
    let deadline = Instant::now() + clock::seconds(sess.idle_limit(&services.params()));
    let mut buf = Vec::new();
    loop {
        match proxy_protocol::scan(&buf) {
            Scan::Complete => break,
            Scan::More => {}
            Scan::Junk => return Err(SessClose::RxJunk),
            Scan::Overflow => return Err(SessClose::RxOverflow),
        }
        let mut piece = [0u8; 1024];
        match timeout_at(deadline, rx.read(&mut piece)).await {
            Ok(Ok(n)) if n > 0 => buf.extend_from_slice(&piece[..n]),
            Ok(_) => return Err(SessClose::RemClose),
            Err(_) => {
                sess.log_late(services.log(), "PROXY header");
                return Err(SessClose::RxTimeout);
            }
        }
    }
    let log = services.log();
    let vxid = Vxid::client(sess.vxid);
    let write = |tag: Tag, text: &Option<String>| {
        if let Some(text) = text {
            log.write(tag, vxid, text.as_bytes());
        }
    };
    match proxy_protocol::parse(&buf) {
        Ok(header) => {
            write(Tag::Proxy, &header.log);
            write(Tag::ProxyGarbage, &header.garbage);
            if let Some(ends) = &header.endpoints {
                sess.ends.client = Side::of(ends.client);
                sess.ends.server = Side::of(ends.server);
                if let Some(text) = workspace_costs::proxy_header(&services.params(), header.tlvs.len()) {
                    log.write(Tag::Error, vxid, text.as_bytes());
                    services.counters().ws_session_overflow.add(1);
                    return Err(SessClose::RxJunk);
                }
            }
            sess.proxy_tlvs = header.tlvs.to_vec();
            rx.unread(&buf[header.len..]);
            Ok(())
        }
        Err(refused) => {
            write(Tag::Proxy, &refused.log);
            write(Tag::ProxyGarbage, &refused.garbage);
            Err(SessClose::RxJunk)
        }
    }
}
