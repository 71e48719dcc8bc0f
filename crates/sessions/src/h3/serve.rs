//! Serves a QUIC connection from its handshake to its end.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lacquer_engine::emulated::pool_counters;
use lacquer_engine::{Services, Sess, count_close};
use lacquer_h3::Reason;
use lacquer_http::SessClose;
use lacquer_net::tls::{Certificate, TlsFacts};
use lacquer_net::{Listener, Negotiated, Side};
use lacquer_quic::{CloseReason, Connection, Dir, Event};
use lacquer_shm::Tag;
use lacquer_sources::clock;
use lacquer_tls::client::ClientCertificate;

use super::session;
use crate::address_limit;

/// The name of the protocol with which a connection begins, for the log.
const PROTOCOL: &str = "QUIC";

/// Serves a connection. When it returns, the connection is closed, and the client has been told.
pub async fn run(services: Rc<Services>, quic: Rc<Connection>, listener: Arc<Listener>) {
    let opened = clock::real();
    services.counters().s_sess.add(1);
    pool_counters::taken(&services.pool_counters().sess);
    let ends = (Side::of(quic.remote()), Side::of(quic.local()));
    let mut sess = Sess::between(services.vxid(), listener, ends, quic.raw_fd(), opened);
    sess.log_open(services.log(), PROTOCOL);
    let mut events = Vec::new();
    // An address that the client has not proved may be that of another one.
    let begun = if quic.is_validated() { admit(&services, &sess, &quic) } else { Ok(()) };
    let shaken = match begun {
        Ok(()) => handshake(&services, &sess, &quic, &mut events).await,
        refused => refused,
    };
    sess.settle(negotiated(&quic, services.params().tls_ja3));
    if quic.is_handshaking() {
        sess.handshake().begin();
    }
    let sess = Rc::new(sess);
    let admitted =
        shaken.and_then(|()| trust(&services, &sess, &quic)).and_then(|()| admit(&services, &sess, &quic));
    let reason = match admitted {
        Ok(()) => session::serve(services.clone(), sess.clone(), quic.clone(), events).await,
        Err(reason) => reason,
    };
    poll_fn(|cx| {
        let _ = quic.send(cx);
        Poll::Ready(())
    })
    .await;
    pool_counters::given(&services.pool_counters().sess);
    services.counters().ws_session_overflow.add(u64::from(sess.workspace_overflowed()));
    count_close(services.counters(), reason);
    sess.log_close(services.log(), reason, clock::real());
    services.flush_counters();
}

/// Does the handshake within `tls_handshake_timeout`, or begins it, if the client has sent a request as early data. Adds
/// the events that arrive with it.
async fn handshake(
    services: &Services,
    sess: &Sess,
    quic: &Connection,
    events: &mut Vec<Event>,
) -> Result<(), SessClose> {
    let limit = clock::seconds(services.params().tls_handshake_timeout);
    let shaken = poll_fn(|cx| {
        quic.receive(cx, events);
        let _ = quic.send(cx);
        let done = events.iter().find_map(|event| match event {
            Event::Connected | Event::Opened(Dir::Bi) => Some(Ok(())),
            Event::Closed(reason) => Some(Err(reason.clone())),
            _ => None,
        });
        done.map_or(Poll::Pending, Poll::Ready)
    });
    let text = match tokio::time::timeout(limit, shaken).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(reason)) => {
            let closed = handshake_failure(&reason);
            if let (Some(text), _) = &closed {
                log(services, sess, text);
            }
            return Err(closed.1);
        }
        Err(_) => "Handshake timeout",
    };
    log(services, sess, text);
    quic.close(Reason::NoError.code(), "");
    Err(SessClose::RxTimeout)
}

fn log(services: &Services, sess: &Sess, text: &str) {
    services.log().write(Tag::TLS, sess.vxid(), text.as_bytes());
}

/// Returns the text for the log and the reason to close the session.
fn handshake_failure(reason: &CloseReason) -> (Option<String>, SessClose) {
    match reason {
        CloseReason::Handshake(text) | CloseReason::Fault(text) => {
            (Some(format!("Handshake failed: {text}")), SessClose::RxBad)
        }
        CloseReason::Transport(code) => {
            (Some(format!("Handshake failed: client closed with code 0x{code:x}")), SessClose::RemClose)
        }
        CloseReason::Idle => (Some("Handshake timeout".to_owned()), SessClose::RxTimeout),
        CloseReason::Application(_) | CloseReason::Reset | CloseReason::Local => (None, SessClose::RemClose),
    }
}

/// Returns the facts about the handshake, for VCL and the log.
fn negotiated(quic: &Connection, wants_ja3: bool) -> Negotiated {
    let Some(facts) = quic.handshake_facts() else { return Negotiated::default() };
    let certificate = facts.certificate.map_or_else(Certificate::default, |found| Certificate {
        signature: Some(found.signature.into()),
        key: Some(found.key.into()),
    });
    let tls = TlsFacts {
        version: "TLSv1.3",
        cipher: facts.cipher,
        server_name: facts.server_name,
        alpn: Some("h3".into()),
        certificate,
        client: facts.client.map(|der| ClientCertificate::new(&der)),
        ja3: facts.ja3.filter(|_| wants_ja3),
        ..TlsFacts::default()
    };
    Negotiated { protocol: None, tls: Some(Arc::new(tls)) }
}

/// Closes the connection if the client's certificate has expired since its session began.
fn trust(services: &Services, sess: &Sess, quic: &Connection) -> Result<(), SessClose> {
    let refusal = sess.tls().and_then(|facts| facts.refusal_at(clock::real()));
    let Some(failure) = refusal else { return Ok(()) };
    log(services, sess, &failure.log_text());
    quic.close(Reason::RequestRejected.code(), "the client's certificate has expired");
    Err(SessClose::RxBad)
}

/// Counts the connection, unless it is counted. Closes it if its client address has too many.
fn admit(services: &Services, sess: &Sess, quic: &Connection) -> Result<(), SessClose> {
    let admitted = address_limit::admit(services, sess);
    if admitted.is_err() {
        quic.close(Reason::ExcessiveLoad.code(), "too many connections");
    }
    admitted
}
