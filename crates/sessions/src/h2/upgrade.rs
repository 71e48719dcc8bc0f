//! The upgrade of an HTTP/1.1 connection to HTTP/2. Its request becomes the request of stream 1.

use std::rc::Rc;

use lacquer_engine::client::Req;
use lacquer_engine::h2::Conn;
use lacquer_engine::{TransactionSlot, write_message};
use lacquer_h2::{Reason, frame, settings};
use lacquer_http::{HeaderName, SessClose, Slot, fixed, h1};
use lacquer_net::linger::linger;
use lacquer_shm::Tag;
use lacquer_sources::clock;

use super::handover::Handover;
use super::receive::apply_settings;

const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
const UPGRADE: HeaderName<'static> = HeaderName::new(b"Upgrade");
const HTTP2_SETTINGS: HeaderName<'static> = HeaderName::new(b"HTTP2-Settings");

/// An upgraded connection, and its first request.
pub struct Upgrade {
    pub conn: Rc<Conn>,
    pub slot: TransactionSlot<Req>,
}

/// Returns whether the request asks for an upgrade to HTTP/2.
#[inline]
pub fn is_wanted(req: &Req) -> bool {
    req.header(UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case(b"h2c"))
}

/// Sends 101 (Switching Protocols), and waits for the client's preface. Returns the request's slot on failure.
pub async fn upgrade(
    handover: &mut Handover,
    mut slot: TransactionSlot<Req>,
) -> Result<Upgrade, TransactionSlot<Req>> {
    let Some(req) = slot.transaction() else { return Err(slot) };
    let params = req.params().clone();
    let conn = Conn::new(handover.services.clone(), handover.sess.clone(), handover.tx.clone(), &params);
    if !take_settings(&conn, req) {
        conn.log(Tag::Debug, format_args!("H2: Bad HTTP-Settings"));
        return Err(slot);
    }
    if write_message(&handover.tx, SWITCHING, handover.sess.send_idle_limit(&params)).await.is_err() {
        conn.log(Tag::Debug, format_args!("H2: Upgrade: Error writing 101 response"));
        return Err(slot);
    }
    let mut headers = req.req_headers();
    headers.unset(UPGRADE);
    headers.unset(HTTP2_SETTINGS);
    headers.force_slot(Slot::Proto, fixed::HTTP_20);
    if receive_preface(handover).await.is_err() {
        conn.log(Tag::Debug, format_args!("H2: No/Bad OU PRISM"));
        return Err(slot);
    }
    if lacquer_engine::knobs::take_refusal() {
        conn.log(Tag::Debug, format_args!("H2: No Worker-threads"));
        refuse(handover, &conn).await;
        return Err(slot);
    }
    Ok(Upgrade { conn: Rc::new(conn), slot })
}

/// Refuses the first request, and ends the connection.
async fn refuse(handover: &mut Handover, conn: &Conn) {
    let params = handover.services.params();
    let mut out = Vec::new();
    frame::write_settings(&mut out, conn.settings());
    frame::rst_stream(&mut out, 1, Reason::RefusedStream.code());
    frame::goaway(&mut out, 1, Reason::EnhanceYourCalm.code());
    if write_message(&handover.tx, &out, handover.sess.send_idle_limit(&params)).await.is_ok() {
        linger(&handover.tx, &mut handover.rx, &handover.idle, params.lingering_close).await;
    }
}

fn take_settings(conn: &Conn, req: &mut Req) -> bool {
    let Some(value) = req.header(HTTP2_SETTINGS).map(<[u8]>::to_vec) else { return false };
    req.log(Tag::Debug, format!("H2CS {}", String::from_utf8_lossy(&value)).as_bytes());
    settings::from_base64url(&value).is_some_and(|entries| apply_settings(conn, &entries).is_ok())
}

/// Reads the client's preface, within the session's idle limit. Returns the reason to close the connection on failure.
pub async fn receive_preface(handover: &mut Handover) -> Result<(), SessClose> {
    let limit = clock::seconds(handover.sess.idle_limit(&handover.services.params()));
    let rx = &mut handover.rx;
    let receive = async {
        let mut have = [0u8; h1::H2_PREFACE.len()];
        let mut n = 0;
        while n < have.len() {
            match rx.read(&mut have[n..]).await {
                Ok(more) if more > 0 => n += more,
                _ => return Err(SessClose::RemClose),
            }
            if !h1::H2_PREFACE.starts_with(&have[..n]) {
                return Err(SessClose::RxJunk);
            }
        }
        Ok(())
    };
    tokio::time::timeout(limit, receive).await.unwrap_or_else(|_| {
        handover.sess.log_late(handover.services.log(), "preface");
        Err(SessClose::RxTimeout)
    })
}
