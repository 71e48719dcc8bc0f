//! Confirms the upgrade that the origin has granted, then copies bytes between the client and the origin without
//! interpreting them. The client has a connection, or a stream that began with extended CONNECT.

use std::cell::Cell;
use std::rc::Rc;

use lacquer_deliver::{Head, MessageHead, ResponseSink, SendError, Sink};
use lacquer_flow::delivery::End;
use lacquer_flow::persistence::Carrier;
use lacquer_http::{SessClose, header_table as h, pack, websocket};
use lacquer_net::disconnect::DisconnectPolicy;
use lacquer_net::{ClientSocket, Rx};
use lacquer_sources::clock::Instant;

use super::pipe::{Limits, PipeSlot, Receiver, down, unless_gone};
use super::{Req, Step, respond};
use crate::client_sink::ClientSink;
use crate::client_transport::ClientTransport;
use crate::fetch::{Ended, OriginConnection, Tunnel, Upgraded};
use crate::send_limits::SendLimits;

/// The most bytes that a stream gets at once. Only complete pieces count as progress.
const STREAM_PIECE: usize = 4 * 1024;

/// The number of bytes in each direction.
#[derive(Default)]
struct Account {
    from_client: u64,
    from_origin: u64,
}

/// The client's side of the tunnel.
enum Client {
    Connection { rx: Rx, tx: Rc<ClientSocket> },
    Stream { transport: ClientTransport, sink: ClientSink },
}

/// Runs the tunnel to its end.
pub async fn run(req: &mut Req, mut tunnel: Tunnel) -> Step {
    let Some(Upgraded { mut connection, early, head }) = tunnel.take_upgraded() else { return Step::VclFail };
    let mut account = Account::default();
    let (step, reason) = match begin(req, &head).await {
        Ok((client, _slot)) => {
            let reason = carry(req, client, &mut connection, &early, &mut account).await;
            req.client.account.resp_body += account.from_origin;
            req.client.account.req_body += account.from_client;
            req.client.close = Some(reason);
            req.task.stamp("Resp");
            (Step::Done, reason)
        }
        Err(step) => {
            connection.set_unsent(true);
            (step, SessClose::Overload)
        }
    };
    let ended =
        Ended { connection, reason, from_client: account.from_client, from_origin: account.from_origin };
    tunnel.end(ended, req).await;
    step
}

/// Sends the head that confirms the upgrade. Fails with the step that answers the request otherwise.
async fn begin(req: &mut Req, head: &[u8]) -> Result<(Client, PipeSlot), Step> {
    let Some(slot) = PipeSlot::take(req) else {
        req.task.services().counters().pipe_limited.add(1);
        req.log_error("Hit pipe_sess_max");
        req.response.status = 503;
        return Err(Step::Synth);
    };
    if !set_up(req, head) {
        req.response.status = 503;
        return Err(Step::Synth);
    }
    req.task.stamp("Process");
    let mut sink = respond::open(req);
    let message =
        MessageHead { message: &req.response.http, ws: req.task.ws(), end: End::Stream, notes: None };
    sink.head(Head::Message(message));
    let sent = sink.flush().await;
    req.client.account.resp_header += sink.sent().head;
    let client = if sent.is_ok() { client_side(req, sink) } else { None };
    let Some(client) = client else {
        req.client.tx.cut();
        req.client.close = Some(SessClose::RemClose);
        return Err(Step::Done);
    };
    req.task.services().counters().s_upgrade.add(1);
    req.task.stamp("Upgrade");
    Ok((client, slot))
}

/// Builds the head from the origin's. Returns false if the workspace is too small.
fn set_up(req: &mut Req, head: &[u8]) -> bool {
    let protocol = req.wanted_protocol().map(<[u8]>::to_vec);
    req.response.http.clear();
    if pack::unpack(head, req.task.ws_mut(), &mut req.response.http).is_err() {
        req.log_error("No room for the head of the 101 response");
        return false;
    }
    let carrier = req.client.tx.carrier();
    let mut headers = req.resp_headers();
    match carrier {
        Carrier::Connection => {
            headers.log_all();
            headers.add(h::CONNECTION, b"Upgrade");
            headers.add(h::UPGRADE, &protocol.unwrap_or_default());
        }
        Carrier::Stream => {
            headers.message.unset(headers.ws, websocket::ACCEPT, |_| ());
            headers.respond(200, None);
        }
    }
    !req.task.ws().overflowed()
}

/// Takes the client's side from the request.
fn client_side(req: &mut Req, sink: ClientSink) -> Option<Client> {
    match req.client.tx.whole_connection() {
        Some(tx) => {
            req.task.return_output(sink.into_buffer());
            Some(Client::Connection { rx: req.request.body.take_rx()?, tx })
        }
        None => {
            req.task.return_output(sink.into_buffer());
            // The tunnel's own limits apply, not those of a response.
            let limits = SendLimits {
                total: 0.0,
                since: req.task.last_event(),
                idle: 0.0,
                disconnect: DisconnectPolicy::of(req.task.params()),
            };
            let transport = req.client.tx.clone();
            transport.begin_tunnel();
            let sink = transport.open(Vec::new(), limits);
            Some(Client::Stream { transport, sink })
        }
    }
}

/// Copies bytes both ways until both directions have ended or a limit has expired.
async fn carry(
    req: &mut Req,
    client: Client,
    connection: &mut OriginConnection,
    early: &[u8],
    account: &mut Account,
) -> SessClose {
    let limits = Limits::of(req, None);
    let moved = Cell::new(Instant::now());
    match client {
        Client::Connection { mut rx, tx } => {
            // The client's direction ends in order only by the origin's end.
            tx.cut();
            let both = between_connections((&mut rx, &tx), connection, early, &moved, account);
            let reason = limits.run(&moved, both).await;
            req.request.body.set_rx(Some(rx));
            reason
        }
        Client::Stream { transport, mut sink } => {
            let both = with_stream((&transport, &mut sink), connection, early, &moved, account);
            let reason = limits.run(&moved, both).await;
            if reason != SessClose::TxPipe {
                transport.cancel();
                connection.set_unsent(true);
            }
            reason
        }
    }
}

async fn between_connections(
    (rx, tx): (&mut Rx, &ClientSocket),
    connection: &mut OriginConnection,
    early: &[u8],
    moved: &Cell<Instant>,
    account: &mut Account,
) -> Result<(), SessClose> {
    // Bytes that the client has sent before the 101 belong to the new protocol, because the origin has agreed to it.
    let pending = rx.take_read_ahead();
    let (from_origin, origin_tx) = connection.halves();
    let to_origin = Receiver::new(origin_tx, moved);
    let up = async {
        to_origin.send(&pending).await.map_err(|_| SessClose::TxError)?;
        account.from_client += pending.len() as u64;
        to_origin.copy(rx, &mut account.from_client).await;
        Ok(())
    };
    let down = down((tx, moved), early, from_origin, &mut account.from_origin);
    let done = tokio::try_join!(unless_gone(up, tx), down);
    let has_unsent = to_origin.has_unsent.get();
    connection.set_unsent(has_unsent);
    done.map(|_| ())
}

/// Copies bytes between a stream and the origin. A reset of either side resets the other.
async fn with_stream(
    (transport, sink): (&ClientTransport, &mut ClientSink),
    connection: &mut OriginConnection,
    early: &[u8],
    moved: &Cell<Instant>,
    account: &mut Account,
) -> Result<((), ()), SessClose> {
    let (from_origin, origin_tx) = connection.halves();
    let to_origin = Receiver::new(origin_tx, moved);
    let up = async {
        let mut buffer = vec![0u8; 16 * 1024];
        loop {
            let n = transport.read_stream(&mut buffer).await.map_err(|_| SessClose::RemClose)?;
            if n == 0 {
                return origin_tx.end().await.map_err(|_| SessClose::TxError);
            }
            to_origin.send(&buffer[..n]).await.map_err(|_| SessClose::TxError)?;
            account.from_client += n as u64;
        }
    };
    let down = async {
        let mut buffer = vec![0u8; 16 * 1024];
        send_to_stream(sink, early, moved, &mut account.from_origin).await?;
        loop {
            let n = from_origin.read(&mut buffer).await.map_err(|_| SessClose::RxBody)?;
            if n == 0 {
                return sink.end().await.map_err(|_| SessClose::RemClose);
            }
            send_to_stream(sink, &buffer[..n], moved, &mut account.from_origin).await?;
        }
    };
    tokio::try_join!(up, down)
}

async fn send_to_stream(
    sink: &mut ClientSink,
    bytes: &[u8],
    moved: &Cell<Instant>,
    count: &mut u64,
) -> Result<(), SessClose> {
    for piece in bytes.chunks(STREAM_PIECE) {
        let sent = async {
            sink.write(piece).await?;
            sink.flush().await
        };
        sent.await.map_err(|_: SendError| SessClose::RemClose)?;
        moved.set(Instant::now());
        *count += piece.len() as u64;
    }
    Ok(())
}
