//! The pipeline of a body: through filters to the client, or into the response that includes it. An included response
//! uses its parent's pipeline while it is delivered, with an [`EsiInclude`] in between. The include passes bytes
//! through unchanged, or makes them part of the including response's gzip stream.

use lacquer_cache::{BodyState, Object, Read};
use lacquer_filters::splice::{self, Checksum, Landmarks, Scanner, Strip};
use lacquer_filters::{Chain, Filter, Report, STEP_MAX};

use crate::pace::Pace;
use crate::reader::StoredReader;
use crate::sink::{Behind, SendError, Sink};

pub struct BodyPipeline<S> {
    chain: Chain,
    pace: Pace,
    sink: BodySink<S>,
}

/// The step after the filters.
pub enum BodySink<S> {
    Client(S),
    Include(Box<EsiInclude<S>>),
    /// A placeholder while the sink is lent to an included response.
    Lent,
}

impl<S: Sink> BodyPipeline<S> {
    /// `step` is the parameter `gzip_buffer`: the largest number of bytes that a filter buffers.
    pub fn new(filters: Vec<Box<dyn Filter>>, step: u64, sink: BodySink<S>) -> BodyPipeline<S> {
        BodyPipeline { chain: Chain::new(filters, step), pace: Pace::default(), sink }
    }

    /// Returns the placeholder for a pipeline that an included response uses.
    pub fn lent() -> BodyPipeline<S> {
        BodyPipeline::new(Vec::new(), 0, BodySink::Lent)
    }

    /// Returns the step after the filters, when the body has ended.
    pub fn into_sink(self) -> BodySink<S> {
        self.sink
    }

    /// Returns the include, if written bytes become part of a gzip stream unchanged.
    pub fn enclosing_gzip(&mut self) -> Option<&mut EsiInclude<S>> {
        match &mut self.sink {
            BodySink::Include(include) if include.takes_gzip() => Some(include),
            _ => None,
        }
    }

    /// Passes a piece through the filters and sends their output, one step at a time. Each step is produced after the
    /// previous one was sent.
    async fn filter(&mut self, mut piece: &[u8], end: bool) -> Result<(), SendError> {
        while let Some(out) = self.chain.next(&mut piece, end).map_err(|_| SendError::Filter)? {
            let made = out.len();
            self.sink.write(out).await?;
            if self.chain.is_done() {
                break;
            }
            self.pace.made(made).await;
        }
        Ok(())
    }

    /// Passes bytes of a stored body through the filters, or the include. Sends one step of their output, which they
    /// own: no chunk is held while the client does not read. Returns the position after the consumed bytes.
    async fn process_stored(&mut self, object: &Object, from: u64, to: u64) -> Result<u64, SendError> {
        let (at, end, has_output) = {
            let chunk = match object.read(from, to) {
                Read::Mapped(chunk) => chunk,
                Read::Pending => return Ok(from),
                Read::Missing => return Err(SendError::Source),
            };
            let mut piece = chunk.bytes();
            let has_output = match &mut self.sink {
                BodySink::Include(include) if self.chain.is_empty() => {
                    include.convert(std::mem::take(&mut piece));
                    true
                }
                _ => self.chain.produce(&mut piece, false).map_err(|_| SendError::Filter)?,
            };
            let end = from + chunk.len() as u64;
            (end - piece.len() as u64, end, has_output)
        };
        if self.chain.is_empty() {
            let BodySink::Include(include) = &mut self.sink else { return Err(SendError::Source) };
            Box::pin(include.send_converted()).await?;
            return Ok(at);
        }
        if has_output {
            let out = self.chain.take_output();
            let made = out.len();
            self.sink.write(out).await?;
            self.pace.made(made).await;
        }
        if at == end && !self.chain.is_done() {
            // The caller may wait for more before it comes back.
            self.filter(&[], false).await?;
        }
        if self.chain.is_done() { Err(SendError::Enough) } else { Ok(at) }
    }

    /// Finishes the filters after a body that was sent with this result. Also ends the response, unless this body is
    /// an include.
    pub async fn finish(&mut self, sent: Result<(), SendError>) -> Result<(), SendError> {
        let sent = match sent {
            Ok(()) if !self.chain.is_empty() => self.filter(&[], true).await,
            other => other,
        };
        self.sink.end_body(sent).await
    }

    pub fn report(&mut self) -> Report {
        self.chain.report()
    }
}

impl<S: Sink> Sink for BodyPipeline<S> {
    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        if self.chain.is_empty() {
            return self.sink.write(piece).await;
        }
        self.filter(piece, false).await?;
        if self.chain.is_done() { Err(SendError::Enough) } else { Ok(()) }
    }

    /// Sends bytes that no filter or include changes directly from storage.
    async fn write_stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        _behind: Behind,
    ) -> Result<u64, SendError> {
        match &mut self.sink {
            BodySink::Client(sink) if self.chain.is_empty() => {
                sink.write_stored(object, from, to, Behind::More).await
            }
            BodySink::Include(include) if self.chain.is_empty() && include.is_unchanged() => {
                Box::pin(include.write_stored(object, from, to)).await
            }
            BodySink::Lent if self.chain.is_empty() => Err(SendError::Source),
            _ => self.process_stored(object, from, to.min(from.saturating_add(STEP_MAX as u64))).await,
        }
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        match &mut self.sink {
            BodySink::Client(sink) => sink.flush().await,
            BodySink::Include(include) => Box::pin(include.flush()).await,
            BodySink::Lent => Err(SendError::Source),
        }
    }

    async fn wait_for(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        match &mut self.sink {
            BodySink::Client(sink) => sink.wait_for(object, at).await,
            BodySink::Include(include) => Box::pin(include.wait_for(object, at)).await,
            BodySink::Lent => Err(SendError::Source),
        }
    }

    fn check(&mut self) -> Result<(), SendError> {
        match &mut self.sink {
            BodySink::Client(sink) => sink.check(),
            BodySink::Include(include) => include.check(),
            BodySink::Lent => Err(SendError::Source),
        }
    }

    async fn end(&mut self) -> Result<(), SendError> {
        self.finish(Ok(())).await
    }
}

impl<S: Sink> BodySink<S> {
    /// Ends the response to the client after a body that was sent with this result.
    pub(crate) async fn end_body(&mut self, sent: Result<(), SendError>) -> Result<(), SendError> {
        let BodySink::Client(sink) = self else { return sent };
        match sent {
            Ok(()) | Err(SendError::Enough) => sink.end().await,
            Err(SendError::Io(_)) => sent,
            // Send the bytes before the failure, without ending the response.
            Err(_) => sink.flush().await.and(sent),
        }
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        match self {
            BodySink::Client(sink) => sink.write(piece).await,
            BodySink::Include(include) => Box::pin(include.write(piece)).await,
            BodySink::Lent => Err(SendError::Source),
        }
    }
}

/// How a body is written into the including response.
enum Mode {
    /// Unchanged.
    Through,
    /// A plain body becomes part of a gzip stream.
    Wrap,
    /// A gzipped body becomes part of a gzip stream.
    Strip(Strip),
}

/// The connection of an included response to the response that includes it.
pub struct EsiInclude<S> {
    pipeline: BodyPipeline<S>,
    /// The including response is a gzip stream; `sum` is its checksum so far.
    is_gzip: bool,
    sum: Checksum,
    /// If this response fails, the including response fails too.
    or_fail: bool,
    failure: Option<SendError>,
    mode: Mode,
    packed: Vec<u8>,
    count: u64,
}

impl<S: Sink> EsiInclude<S> {
    pub fn new(pipeline: BodyPipeline<S>, is_gzip: bool, sum: Checksum, or_fail: bool) -> EsiInclude<S> {
        EsiInclude {
            pipeline,
            is_gzip,
            sum,
            or_fail,
            failure: None,
            mode: Mode::Through,
            packed: Vec::new(),
            count: 0,
        }
    }

    /// Returns the including response's pipeline, its checksum so far, and an error if it must not continue.
    pub fn into_parts(self) -> (BodyPipeline<S>, Checksum, Result<(), SendError>) {
        (self.pipeline, self.sum, self.failure.map_or(Ok(()), Err))
    }

    pub fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    /// Returns whether written bytes become part of a gzip stream unchanged.
    pub fn takes_gzip(&self) -> bool {
        self.is_gzip && matches!(self.mode, Mode::Through)
    }

    /// Returns whether written bytes become part of the including response unchanged.
    fn is_unchanged(&self) -> bool {
        matches!(self.mode, Mode::Through)
    }

    /// Adds the checksum of bytes that were appended to the including gzip stream.
    pub fn append(&mut self, sum: Checksum) {
        self.sum.append(sum);
    }

    /// Sends all gathered bytes to the client.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        self.pipeline.flush().await
    }

    pub(crate) async fn wait_for(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        self.pipeline.wait_for(object, at).await
    }

    pub(crate) fn check(&mut self) -> Result<(), SendError> {
        self.pipeline.check()
    }

    /// Prepares the include for its body. Returns false, with the failure recorded, if the body cannot be included or
    /// the client is gone.
    pub async fn prepare(&mut self, object: Option<&Object>, gzipped: bool, has_esi: bool) -> bool {
        self.mode = match object {
            Some(object) if self.is_gzip && gzipped && !has_esi => {
                // An incomplete body would corrupt the gzip stream, so wait for the whole body. The fetch must not
                // wait for this reader.
                object.stored().delivered(u64::MAX, false);
                if let Err(gone) = self.pipeline.wait_for(object, u64::MAX).await {
                    self.failure = Some(gone);
                    return false;
                }
                let is_whole = object.state() != BodyState::Failed;
                let marks = if is_whole { Box::pin(self.scan(object)).await } else { None };
                let Some(marks) = marks else {
                    if self.failure.is_none() {
                        self.fail();
                    }
                    return false;
                };
                Mode::Strip(Strip::new(marks))
            }
            _ if self.is_gzip && !gzipped => Mode::Wrap,
            _ => Mode::Through,
        };
        true
    }

    /// Finds the landmarks of a gzipped body, and yields to other tasks in between. Returns `None` if the body is
    /// malformed, or the client is gone.
    async fn scan(&mut self, object: &Object) -> Option<Landmarks> {
        let mut scanner = Scanner::new(StoredReader::new(object));
        loop {
            if let Err(failed) = scanner.source_mut().prepare(splice::STEP_READS, &mut self.pipeline).await {
                self.failure = Some(failed);
                return None;
            }
            match scanner.step() {
                Ok(None) => tokio::task::yield_now().await,
                done => return done.ok().flatten(),
            }
            if let Err(failed) = self.pipeline.check() {
                self.failure = Some(failed);
                return None;
            }
        }
    }

    /// Writes a piece. Splits long pieces, because their output is copied.
    pub(crate) async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        for part in piece.chunks(STEP_MAX) {
            self.write_part(part).await?;
        }
        Ok(())
    }

    /// Sends bytes of a stored body unchanged, like [`Sink::write_stored`].
    async fn write_stored(&mut self, object: &Object, from: u64, to: u64) -> Result<u64, SendError> {
        let at = self.pipeline.write_stored(object, from, to, Behind::More).await?;
        self.count += at - from;
        Ok(at)
    }

    async fn write_part(&mut self, piece: &[u8]) -> Result<(), SendError> {
        if self.is_unchanged() {
            self.count += piece.len() as u64;
            return if piece.is_empty() { Ok(()) } else { self.pipeline.write(piece).await };
        }
        self.convert(piece);
        self.send_converted().await
    }

    /// Converts a piece to bytes of the including gzip stream, for [`send_converted`](Self::send_converted).
    fn convert(&mut self, piece: &[u8]) {
        self.count += piece.len() as u64;
        self.packed.clear();
        match &mut self.mode {
            Mode::Through => self.packed.extend_from_slice(piece),
            Mode::Wrap => {
                self.sum.append(Checksum::of(piece));
                splice::wrap(piece, &mut self.packed);
            }
            Mode::Strip(strip) => strip.push(piece, &mut self.packed),
        }
    }

    async fn send_converted(&mut self) -> Result<(), SendError> {
        if self.packed.is_empty() { Ok(()) } else { self.pipeline.write(&self.packed).await }
    }

    /// Records that the included response has failed.
    pub fn fail(&mut self) {
        if self.or_fail {
            self.failure = Some(SendError::Include);
        }
    }

    /// Records that delivery of the included body has stopped before its end.
    pub fn stop(&mut self, why: SendError) {
        match why {
            SendError::Enough => {}
            SendError::Io(_) | SendError::Include => self.failure = Some(why),
            // The including stream cannot continue behind half of a compressed block.
            SendError::Source | SendError::Filter if self.is_in_gzip() && self.count > 0 => {
                self.failure = Some(why);
            }
            SendError::Source | SendError::Filter => self.fail(),
        }
    }

    /// Returns whether the included body is already compressed and becomes part of a gzip stream.
    fn is_in_gzip(&self) -> bool {
        self.is_gzip && !matches!(self.mode, Mode::Wrap)
    }

    /// Records the end of the included body.
    pub fn close(&mut self) {
        if let Mode::Strip(strip) = &self.mode {
            self.sum.append(strip.checksum());
        }
        self.mode = Mode::Through;
    }

    /// Returns the number of bytes of the included response since the last call.
    pub fn take_count(&mut self) -> u64 {
        std::mem::take(&mut self.count)
    }
}
