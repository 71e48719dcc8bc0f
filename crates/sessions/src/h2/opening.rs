//! A stream that is being opened: its header block is incomplete.

use std::rc::Rc;

use lacquer_engine::client::{Req, Start};
use lacquer_engine::h2::{Conn, Stream};
use lacquer_engine::{BodyInput, ClientTransport, Logged, ReqBody, TaskContext, TransactionSlot};
use lacquer_h2::hpack::Decoder;
use lacquer_h2::request::{Body, Limits, RequestDecoder, RequestHead};
use lacquer_h2::{Error, Note};
use lacquer_shm::Tag;
use lacquer_sources::clock;

use crate::stream_request;

pub struct Opening {
    stream: Rc<Stream>,
    slot: TransactionSlot<Req>,
    decoder: RequestDecoder,
    end_stream: bool,
}

/// Logs a record of the protocol's rules in the transaction that it belongs to.
fn log_note(conn: &Conn, req: &mut Req, note: &Note) {
    match note.tag {
        lacquer_h2::Tag::BogoHeader => req.log(Tag::BogoHeader, note.text.as_bytes()),
        lacquer_h2::Tag::LostHeader => req.log(Tag::LostHeader, note.text.as_bytes()),
        _ => conn.note(note),
    }
}

pub fn limits(conn: &Conn) -> Limits {
    let params = conn.services().params();
    Limits::new(
        params.http_req_size as usize,
        params.http_req_hdr_len as usize,
        params.h2_max_header_list_size as usize,
    )
    // Varnish's tester, which has no TLS, sends `:path` after other fields.
    .with_order(conn.sess().negotiated_protocol().is_some())
    .with_extended_connect(conn.settings().enable_connect_protocol == 1)
}

impl Opening {
    /// Opens a stream. Returns `None` if there is no VCL to run.
    pub fn begin(
        conn: &Rc<Conn>,
        id: u32,
        t_first: f64,
        end_stream: bool,
        hpack: &mut Decoder,
    ) -> Option<Opening> {
        let services = conn.services();
        let params = services.params();
        let vcl = services.vcl()?;
        let stream = Stream::open(conn, id, t_first);
        let mut slot = TransactionSlot::take(services);
        slot.prepare(services.log(), &params);
        let start = Start {
            context: TaskContext { services: services.clone(), params, sess: conn.sess().clone(), vcl },
            tx: ClientTransport::Http2(stream.clone()),
            t_first,
            t_req: t_first,
        };
        let req = slot.occupy(|memory| Req::new(start, memory))?;
        req.begin(t_first);
        req.log(Tag::ReqProtocol, b"HTTP/2.0");
        let Logged { message, ws, .. } = req.req_headers();
        let decoder = RequestDecoder::begin(hpack, ws, message, &limits(conn));
        Some(Opening { stream, slot, decoder, end_stream })
    }

    /// Opens the stream of the request that was received with the upgrade. That request is complete.
    pub fn first(conn: &Rc<Conn>, req: &mut Req) -> Rc<Stream> {
        conn.conduct().open_upgraded();
        let stream = Stream::open(conn, 1, req.first_byte());
        stream.expect(Body::None);
        req.move_to(ClientTransport::Http2(stream.clone()));
        stream
    }

    /// Decodes a fragment of the header block.
    pub fn feed(&mut self, hpack: &mut Decoder, fragment: &[u8], len: u32) -> Result<(), Error> {
        let conn = self.stream.conn();
        let Some(req) = self.slot.transaction() else { return Ok(()) };
        req.charge_head(u64::from(len));
        let mut notes = Vec::new();
        let Logged { message, ws, .. } = req.req_headers();
        let fed = self.decoder.feed(hpack, fragment, ws, message, &mut |n| notes.push(n));
        for n in &notes {
            log_note(conn, req, n);
        }
        fed
    }

    /// Completes the header block. Returns the request, which can be started.
    pub fn finish(mut self) -> Result<(Rc<Stream>, TransactionSlot<Req>), Error> {
        let conn = self.stream.conn().clone();
        let Some(req) = self.slot.transaction() else { return Ok((self.stream, self.slot)) };
        let mut notes = Vec::new();
        let Logged { message, ws, .. } = req.req_headers();
        let head = self.decoder.finish(ws, message, self.end_stream, &mut |n| notes.push(n));
        for n in &notes {
            log_note(&conn, req, n);
        }
        let head = match head {
            Ok(head) => head,
            Err(error) => {
                conn.log(Tag::Debug, format_args!("HPACK/FINI {}", error.name()));
                stream_request::refuse(conn.services(), self.slot);
                self.stream.close();
                return Err(error);
            }
        };
        accept(req, &self.stream, &head);
        Ok((self.stream, self.slot))
    }

    /// Ends the request, because the connection ends before the header block is complete.
    pub fn abandon(self) {
        stream_request::refuse(self.stream.conn().services(), self.slot);
        self.stream.close();
    }
}

fn accept(req: &mut Req, stream: &Rc<Stream>, head: &RequestHead) {
    req.head_complete(clock::real());
    stream.expect(head.body);
    req.accept(ReqBody::new(BodyInput::of_stream(stream.clone()), head.framing()));
    if head.is_extended {
        req.mark_extended_connect();
    }
}
