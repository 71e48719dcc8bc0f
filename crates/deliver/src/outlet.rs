//! The way of a body through filters to the client, or into the response that includes it. An included response has its
//! parent's outlet for as long as it is delivered.

use lacquer_cache::Object;
use lacquer_filters::{Chain, Filter, Report, STEP_MAX};

use crate::pace::Pace;
use crate::seam::Seam;
use crate::sink::{SendError, Sink};

pub struct Outlet<S> {
    chain: Chain,
    pace: Pace,
    below: Below<S>,
}

/// The step after the filters.
pub enum Below<S> {
    Client(S),
    Include(Box<Seam<S>>),
    /// Its place while it is lent to an included response.
    Lent,
}

impl<S: Sink> Outlet<S> {
    /// `step` is the parameter `gzip_buffer`: the most that a filter holds.
    pub fn new(filters: Vec<Box<dyn Filter>>, step: u64, below: Below<S>) -> Outlet<S> {
        Outlet { chain: Chain::new(filters, step), pace: Pace::default(), below }
    }

    pub fn lent() -> Outlet<S> {
        Outlet::new(Vec::new(), 0, Below::Lent)
    }

    /// The step after the filters, when the body is through.
    pub fn into_below(self) -> Below<S> {
        self.below
    }

    /// The seam, if what is written becomes part of a gzip stream as it is.
    pub fn enclosing_gzip(&mut self) -> Option<&mut Seam<S>> {
        match &mut self.below {
            Below::Include(seam) if seam.takes_gzip() => Some(seam),
            _ => None,
        }
    }

    /// Sends what the filters make of a piece, a step at a time: the next one is made when the last was taken.
    async fn filter(&mut self, mut piece: &[u8], end: bool) -> Result<(), SendError> {
        while let Some(out) = self.chain.next(&mut piece, end).map_err(|_| SendError::Filter)? {
            let made = out.len();
            self.below.write(out).await?;
            if self.chain.is_done() {
                break;
            }
            self.pace.made(made).await;
        }
        Ok(())
    }

    /// The end of the body, for the filters.
    pub async fn end_filters(&mut self) -> Result<(), SendError> {
        if self.chain.is_empty() { Ok(()) } else { self.filter(&[], true).await }
    }

    pub fn report(&mut self) -> Report {
        self.chain.report()
    }
}

impl<S: Sink> Sink for Outlet<S> {
    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        if self.chain.is_empty() {
            return self.below.write(piece).await;
        }
        self.filter(piece, false).await?;
        if self.chain.is_done() { Err(SendError::Enough) } else { Ok(()) }
    }

    async fn stored(&mut self, object: &Object, from: u64, to: u64) -> Result<u64, SendError> {
        let most = to.min(from.saturating_add(STEP_MAX as u64));
        let chunk = object.chunk_before(from, most).ok_or(SendError::Source)?;
        self.write(chunk.bytes()).await?;
        Ok(from + chunk.len() as u64)
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        match &mut self.below {
            Below::Client(sink) => sink.flush().await,
            Below::Include(seam) => Box::pin(seam.flush()).await,
            Below::Lent => Err(SendError::Source),
        }
    }

    async fn more_than(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        match &mut self.below {
            Below::Client(sink) => sink.more_than(object, at).await,
            Below::Include(seam) => Box::pin(seam.more_than(object, at)).await,
            Below::Lent => Err(SendError::Source),
        }
    }

    fn check(&mut self) -> Result<(), SendError> {
        match &mut self.below {
            Below::Client(sink) => sink.check(),
            Below::Include(seam) => seam.check(),
            Below::Lent => Err(SendError::Source),
        }
    }

    async fn end_with(&mut self, piece: &[u8]) -> Result<(), SendError> {
        self.write(piece).await?;
        self.end().await
    }

    async fn end(&mut self) -> Result<(), SendError> {
        self.end_filters().await?;
        self.below.settle(Ok(())).await
    }
}

impl<S: Sink> Below<S> {
    /// After the last of a body, which came to this.
    pub async fn settle(&mut self, sent: Result<(), SendError>) -> Result<(), SendError> {
        let Below::Client(sink) = self else { return sent };
        match sent {
            Ok(()) | Err(SendError::Enough) => sink.end().await,
            Err(SendError::Io(_)) => sent,
            // What came before the failure goes out, without an end.
            Err(_) => sink.flush().await.and(sent),
        }
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        match self {
            Below::Client(sink) => sink.write(piece).await,
            Below::Include(seam) => Box::pin(seam.write(piece)).await,
            Below::Lent => Err(SendError::Source),
        }
    }
}
