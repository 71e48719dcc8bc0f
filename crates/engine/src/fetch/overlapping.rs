//! Uploads that go on while the response arrives: bidirectional streams of gRPC. They need a client and an origin whose
//! connections have streams, and a response that is passed on.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_net::TxHalf;
use lacquer_net::multiplex::Stream;
use lacquer_params::Params;

use super::Fetch;
use super::connection::{OriginConnection, Outgoing};
use super::early::{Sent, Until, send_unless_answered};
use super::overlap::{Counts, Overlap};
use super::upload::{Upload, forward_body};
use crate::req_body::{BodyError, EarlyResponse, ReqBody};

/// The end of an upload.
struct Ended {
    body: ReqBody,
    upload: Upload,
    /// The client's fault.
    fault: Option<BodyError>,
}

async fn forward(
    mut body: ReqBody,
    mut upload: Upload,
    (stream, limit): (Arc<Stream>, f64),
    params: Rc<Params>,
    counts: Rc<Counts>,
) -> (Ended, io::Result<()>) {
    let tx = TxHalf::Stream(stream);
    let mut fault = None;
    let progress = |upload: &Upload| {
        let (bytes, pieces) = upload.sent();
        counts.bytes.set(bytes);
        counts.pieces.set(pieces);
    };
    let to = Outgoing::new(&tx, limit);
    let sent = forward_body(&params, (&mut body, &mut fault), to, &mut upload, progress).await;
    (Ended { body, upload, fault }, sent)
}

/// Returns the seconds for which the client may be silent until the response begins. A client that has not announced a
/// length may send the rest only after it: as long as the origin may be silent.
fn patience(body: &ReqBody, connection: &OriginConnection) -> f64 {
    if body.announced().is_none() { connection.send_limit() } else { 0.0 }
}

impl Fetch {
    /// Sends the client's body until its end, or until the response begins. The upload then goes on in a task of its own.
    pub(super) async fn send_overlapping(
        &mut self,
        connection: &mut OriginConnection,
        stream: Arc<Stream>,
        upload: Upload,
    ) -> io::Result<Sent> {
        let Some(mut body) = self.request.body.take() else { return Ok(Sent::Whole) };
        let mut reader = body.take();
        self.request.body = Some(body);
        let response = EarlyResponse::awaited(patience(&reader, connection));
        reader.set_response(Some(response.clone()));
        self.begin_forwarding();
        let counts = Rc::<Counts>::default();
        let to = (stream.clone(), connection.send_limit());
        let params = self.task.params().clone();
        let mut work: Pin<Box<dyn Future<Output = (Ended, io::Result<()>)>>> =
            Box::pin(forward(reader, upload, to, params, counts.clone()));
        let sent_trailers = counts.clone();
        let mut ended = None;
        let upload = poll_fn(|cx| {
            work.as_mut().poll(cx).map(|(end, sent)| {
                ended = Some(end);
                sent
            })
        });
        let sent = send_unless_answered(connection.rx_mut(), Until::Response, upload).await;
        let Some(Ended { mut body, mut upload, fault }) = ended else {
            response.begin();
            let task = tokio::task::spawn_local(async move {
                let (ended, sent) = work.await;
                sent_trailers.trailers.set(ended.upload.into_trailers());
                // The response would wait for the rest of the request.
                if sent.is_err() {
                    stream.cancel();
                }
            });
            self.exchange.overlap = Some(Box::new(Overlap::new(task, counts)));
            return Ok(Sent::Overlapping);
        };
        body.set_response(None);
        self.request.body = Some(body);
        self.count_upload(&mut upload);
        match fault {
            Some(fault) => Err(self.body_fault(fault)),
            None => sent,
        }
    }

    /// Ends an upload that has gone on during the response.
    #[cold]
    pub(super) fn end_overlap(&mut self) {
        if let Some(overlap) = self.exchange.overlap.take() {
            let (bytes, pieces) = (overlap.counts().bytes.get(), overlap.counts().pieces.get());
            self.exchange.account.bereq_body += bytes;
            self.task.log_sent("H2B", pieces, bytes);
            self.log_trailers(overlap.counts().trailers.take());
        }
    }
}
