//! The head of a request: its field section becomes a `Req`, which is started.

use std::rc::Rc;
use std::task::Context;

use lacquer_engine::client::{Req, Start};
use lacquer_engine::h3::{Conn, Head, Stream};
use lacquer_engine::{BodyInput, ClientTransport, Logged, ReqBody, TaskContext, TransactionSlot};
use lacquer_h3::qpack::Begun;
use lacquer_h3::request::{Decoded, RequestHead, decode};
use lacquer_h3::{Error, Note, Reason};
use lacquer_shm::Tag;
use lacquer_sources::clock;

use crate::stream_request;

/// The result of [`begin`].
pub enum Opened {
    /// The request was started, and is complete or waits for something.
    Started { is_served: bool },
    /// The field section refers to others that have not arrived. It is to be tried again after they have.
    Blocked(Head),
}

/// Logs a record of the protocol's rules in the transaction that it belongs to.
fn log_note(conn: &Conn, req: &mut Req, note: &Note) {
    match note.tag {
        lacquer_h3::Tag::BogoHeader => req.log(Tag::BogoHeader, note.text.as_bytes()),
        lacquer_h3::Tag::LostHeader => req.log(Tag::LostHeader, note.text.as_bytes()),
        _ => conn.note(note),
    }
}

/// Begins the request of a field section. An error ends the stream or the connection.
pub fn begin(stream: &Rc<Stream>, head: Head, cx: &mut Context<'_>) -> Result<Opened, Error> {
    let conn = &stream.conn;
    let begun =
        conn.protocol.borrow_mut().qpack.begin(stream.id.into(), &head.section).map(|begun| match begun {
            Begun::Blocked => true,
            Begun::Section(_) => false,
        });
    if matches!(begun, Ok(true)) {
        return Ok(Opened::Blocked(head));
    }
    let mut slot = new_slot(stream)?;
    let Some(req) = slot.transaction() else { return Err(Error::Stream(Reason::RequestRejected)) };
    match decode_head(stream, req, &head).and_then(|decoded| accept(req, stream, &decoded)) {
        Ok(()) => {
            let is_served = stream_request::start(stream.clone(), slot, cx);
            Ok(Opened::Started { is_served })
        }
        Err(error) => {
            conn.log(Tag::Debug, format_args!("H3: stream {}: {}", u64::from(stream.id), error.name()));
            stream_request::refuse(&conn.services, slot);
            Err(error)
        }
    }
}

/// Creates the request of a stream, without its fields. Fails if there is no VCL to run.
fn new_slot(stream: &Rc<Stream>) -> Result<TransactionSlot<Req>, Error> {
    let rejected = Error::Stream(Reason::RequestRejected);
    let services = &stream.conn.services;
    let params = services.params();
    let vcl = services.vcl().ok_or(rejected)?;
    let mut slot = TransactionSlot::take(services);
    slot.prepare(services.log(), &params);
    let start = Start {
        context: TaskContext { services: services.clone(), params, sess: stream.conn.sess.clone(), vcl },
        tx: ClientTransport::Http3(stream.clone()),
        t_first: stream.t_first,
        t_req: stream.t_first,
    };
    let req = slot.occupy(|memory| Req::new(start, memory)).ok_or(rejected)?;
    req.begin(stream.t_first);
    req.log(Tag::ReqProtocol, b"HTTP/3.0");
    Ok(slot)
}

fn decode_head(stream: &Rc<Stream>, req: &mut Req, head: &Head) -> Result<RequestHead, Error> {
    let conn = &stream.conn;
    req.charge_head(head.section.len() as u64);
    let mut notes = Vec::new();
    let Logged { message, ws, .. } = req.req_headers();
    let decoded = decode(
        &mut conn.protocol.borrow_mut().qpack,
        stream.id.into(),
        &head.section,
        (ws, message),
        &conn.limits(),
        head.ends,
        &mut |note| notes.push(note),
    );
    for note in &notes {
        log_note(conn, req, note);
    }
    match decoded? {
        Decoded::Done(decoded) => Ok(decoded),
        Decoded::Blocked => Err(Error::Connection(Reason::DecompressionFailed)),
    }
}

fn accept(req: &mut Req, stream: &Rc<Stream>, head: &RequestHead) -> Result<(), Error> {
    req.head_complete(clock::real());
    stream.expect(head.body)?;
    req.accept(ReqBody::new(BodyInput::of_http3_stream(stream.clone()), head.framing()));
    if head.is_extended {
        req.mark_extended_connect();
    }
    Ok(())
}
