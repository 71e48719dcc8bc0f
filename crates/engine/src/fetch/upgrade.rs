//! Asks an origin for another protocol on the connection (RFC 9110 section 7.8). If the origin agrees with a 101, the
//! request gets the connection for its tunnel, and the fetch waits for it to come back, so that its transaction has
//! all byte counts.

use std::future::poll_fn;
use std::task::Poll;

use lacquer_flow::upgrade::{self, Switch};
use lacquer_http::{Filter, SessClose, header_table as h, pack, websocket};
use lacquer_sources::random;

use super::Fetch;
use super::connection::{OriginConnection, log_close};
use super::parts::Step;
use super::upgraded::{Ended, Upgraded, Wanted};
use crate::client::Req;

/// Returns the protocol that a pass of this request asks its origin for.
pub fn wanted(req: &Req) -> Option<Box<Wanted>> {
    let protocol: Box<[u8]> = req.wanted_protocol()?.into();
    let needs_key = req.is_extended_connect() && protocol.eq_ignore_ascii_case(upgrade::WEBSOCKET);
    let mut nonce = [0; 16];
    let key = (needs_key && random::secret(&mut nonce).is_ok()).then(|| websocket::key(nonce));
    Some(Box::new(Wanted { protocol, key }))
}

/// Adds the fields that ask for the protocol, before VCL sees the request.
#[cold]
pub fn ask(f: &mut Fetch) {
    let Some(wanted) = f.purpose.upgrade.take() else { return };
    let mut headers = f.bereq_headers();
    headers.add(h::CONNECTION, b"Upgrade");
    headers.add(h::UPGRADE, &wanted.protocol);
    if let Some(key) = &wanted.key {
        headers.unset(websocket::KEY);
        headers.add(websocket::KEY, key.as_bytes());
    }
    f.purpose.upgrade = Some(wanted);
}

/// Decides after VCL whether this attempt asks for the protocol.
#[cold]
pub fn settle(f: &mut Fetch) {
    let Some(wanted) = &f.purpose.upgrade else { return };
    let (request, ws) = (&f.request.http, f.task.ws());
    let is_asked =
        upgrade::is_asked(&wanted.protocol, request.get(ws, h::CONNECTION), request.get(ws, h::UPGRADE));
    f.attempt.asks_upgrade = is_asked;
    if !is_asked {
        let mut headers = f.bereq_headers();
        headers.unset(h::CONNECTION);
        headers.unset(h::UPGRADE);
    }
}

/// Checks the origin's 101, lends the connection to the request for its tunnel, and waits for its end.
pub async fn accept(f: &mut Fetch, mut connection: OriginConnection) -> Step {
    if let Err(why) = check(f) {
        f.fetch_error(why);
        f.close_origin(connection, Some(SessClose::RxBad));
        return Step::Error;
    }
    connection.mark_answered();
    let ahead = connection.reply_mut().take_ahead();
    let mut early = f.task.ws().get(ahead).to_vec();
    early.extend_from_slice(&connection.rx_mut().take_read_ahead());
    let mut head = Vec::new();
    pack::pack(&f.response.http, f.task.ws(), Filter::PASS_OBJECT, &mut head);
    // A tunnel may last for hours, and does not count as waiting.
    f.waiter.permit = None;
    f.waiter.events.upgraded.set(Some(Box::new(Upgraded { connection, early, head })));
    f.announce(None);
    let events = f.waiter.events.clone();
    let ended = poll_fn(|_| match events.ended.take() {
        None if events.client_gone.get() => Poll::Ready(None),
        ended => ended.map_or(Poll::Pending, |ended| Poll::Ready(Some(ended))),
    });
    match ended.await {
        Some(ended) => end(f, *ended),
        // The client left before its tunnel began.
        None => {
            f.log_abandoned();
            let connection = events.upgraded.take().map(|upgraded| upgraded.connection);
            f.close_origin(connection, Some(SessClose::RemClose));
        }
    }
    Step::Done(None)
}

fn check(f: &Fetch) -> Result<(), &'static str> {
    let Some(wanted) = &f.purpose.upgrade else { return Err("101 response without a request for it") };
    let (request, response, ws) = (&f.request.http, &f.response.http, f.task.ws());
    let accept = request.get(ws, websocket::KEY).map(websocket::accept);
    let switch = Switch {
        version: response.version(),
        connection: response.get(ws, h::CONNECTION),
        upgrade: response.get(ws, h::UPGRADE),
        has_framing: response.has(ws, h::CONTENT_LENGTH) || response.has(ws, h::TRANSFER_ENCODING),
        accept: response.get(ws, websocket::ACCEPT),
    };
    upgrade::check(&wanted.protocol, &switch, accept.as_deref().map(str::as_bytes))
}

/// Ends the use of a connection that was a tunnel.
fn end(f: &mut Fetch, ended: Ended) {
    let Ended { connection, reason, from_client, from_origin } = ended;
    f.exchange.account.bereq_body += from_client;
    f.exchange.account.beresp_body += from_origin;
    let account = f.exchange.account;
    connection.origin().count(|c| {
        c.bereq_hdrbytes.add(account.bereq_header);
        c.beresp_hdrbytes.add(account.beresp_header);
        c.pipe_out.add(from_client);
        c.pipe_in.add(from_origin);
    });
    f.task.stamp("BerespBody");
    log_close(f.task.log_mut(), &connection, Some(reason.name()));
    connection.close();
}
