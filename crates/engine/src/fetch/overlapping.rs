//! Uploads that go on while the response arrives: bidirectional streams of gRPC. They need a client and an origin whose
//! connections have streams, and a response that is passed on.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lacquer_net::TxHalf;
use lacquer_net::multiplex::Stream;
use lacquer_params::Params;

use super::Fetch;
use super::connection::{OriginConnection, Outgoing};
use super::early::{Early, Sent};
use super::overlap::{Counts, Overlap};
use super::upload::Upload;
use crate::req_body::{BodyError, ReqBody};

/// The end of an upload.
struct Ended {
    body: ReqBody,
    upload: Upload,
    result: Result<(), Trouble>,
}

enum Trouble {
    Client(BodyError),
    Origin(io::Error),
}

/// Forwards the client's body as it arrives.
async fn forward(
    mut body: ReqBody,
    mut upload: Upload,
    (stream, limit): (Arc<Stream>, f64),
    params: Rc<Params>,
    counts: Rc<Counts>,
) -> Ended {
    let tx = TxHalf::Stream(stream);
    let to = Outgoing::new(&tx, limit);
    let result = loop {
        let piece = match body.next(&params).await {
            Ok(piece) => piece,
            Err(fault) => break Err(Trouble::Client(fault)),
        };
        let is_end = piece.is_empty();
        let sent = if is_end { upload.end(to).await } else { upload.push(to, piece).await };
        let (bytes, pieces) = upload.sent();
        counts.bytes.set(bytes);
        counts.pieces.set(pieces);
        match sent {
            Err(e) => break Err(Trouble::Origin(e)),
            Ok(()) if is_end => break Ok(()),
            Ok(()) => {}
        }
    };
    Ended { body, upload, result }
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
        let reader = body.take();
        self.request.body = Some(body);
        self.retries.forbidden = Some("req.body not cached");
        self.waiter.events.reads_body.set(true);
        let counts = Rc::<Counts>::default();
        let to = (stream.clone(), connection.send_limit());
        let params = self.task.params().clone();
        let mut work: Pin<Box<dyn Future<Output = Ended>>> =
            Box::pin(forward(reader, upload, to, params, counts.clone()));
        let (rx, mut early) = (connection.rx_mut(), Early::default());
        let ended = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => early.poll_final(cx, rx).map(|()| None),
        })
        .await;
        early.put_back(rx);
        let Some(Ended { body, mut upload, result }) = ended else {
            let task = tokio::task::spawn_local(async move {
                let ended = work.await;
                // The response would wait for the rest of the request.
                if ended.result.is_err() {
                    stream.cancel();
                }
            });
            self.exchange.overlap = Some(Box::new(Overlap::new(task, counts)));
            return Ok(Sent::Overlapping);
        };
        self.request.body = Some(body);
        self.count_upload(&mut upload);
        match result {
            Ok(()) => Ok(Sent::Whole),
            Err(Trouble::Origin(e)) => Err(e),
            Err(Trouble::Client(fault)) => Err(self.body_fault(fault)),
        }
    }

    /// Ends an upload that has gone on during the response.
    #[cold]
    pub(super) fn end_overlap(&mut self) {
        if let Some(overlap) = self.exchange.overlap.take() {
            let (bytes, pieces) = (overlap.counts().bytes.get(), overlap.counts().pieces.get());
            self.exchange.account.bereq_body += bytes;
            self.task.log_sent("H2B", pieces, bytes);
        }
    }
}
