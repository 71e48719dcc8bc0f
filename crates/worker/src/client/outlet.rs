//! Where the body of a response goes: through filters to the client, or into the response that includes
//! it. An included response has its parent's outlet for as long as it is delivered.

use std::io::{self, BufRead, Read};

use lacquer_cache::{BodyState, Chunk, Object};
use lacquer_filters::splice::{self, Checksum, Landmarks, Scanner, Strip};
use lacquer_filters::{Chain, Filter, Report, STEP_MAX};

use crate::bodies;
use crate::h2::StreamSender;
use crate::pace::Pace;
use crate::sender::{SendError, Sender};

/// Bytes of a stored body that are read, or copied, at a time.
const STEP: usize = STEP_MAX;

pub struct Outlet {
    chain: Chain,
    pace: Pace,
    pub below: Below,
}

pub enum Below {
    Client(Sender),
    Stream(StreamSender),
    Include(Box<Seam>),
    /// Its place while it is lent to an included response.
    Lent,
}

impl Outlet {
    /// `step` is the parameter `gzip_buffer`: the most that a filter holds.
    pub fn new(filters: Vec<Box<dyn Filter>>, step: u64, below: Below) -> Outlet {
        Outlet { chain: Chain::new(filters, step), pace: Pace::default(), below }
    }

    pub fn lent() -> Outlet {
        Outlet::new(Vec::new(), 0, Below::Lent)
    }

    /// The seam, if what is written becomes part of a gzip stream as it is.
    pub fn enclosing_gzip(&mut self) -> Option<&mut Seam> {
        match &mut self.below {
            Below::Include(seam) if seam.gzip && matches!(seam.mode, Mode::Through) => Some(seam),
            _ => None,
        }
    }

    pub async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        if self.chain.is_empty() {
            return self.below.write(piece).await;
        }
        self.filter(piece, false).await?;
        if self.chain.is_done() { Err(SendError::Enough) } else { Ok(()) }
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

    /// Bytes of a stored body, as they arrive.
    pub async fn stored(&mut self, object: &Object, from: u64, to: u64) -> Result<(), SendError> {
        let mut at = from;
        bodies::delivered(object, at);
        while at < to {
            if object.body_len() <= at && object.state() == BodyState::Fetching {
                self.flush().await?;
            }
            let state = self.below.more_than(object, at).await?;
            let Some(mut chunk) = object.chunk_at(at).filter(|c| !c.is_empty()) else {
                return if state == BodyState::Failed { Err(SendError::Source) } else { Ok(()) };
            };
            chunk.truncate(usize::try_from(to - at).unwrap_or(usize::MAX).min(STEP));
            at += chunk.len() as u64;
            self.write(chunk.bytes()).await?;
            bodies::delivered(object, at);
        }
        Ok(())
    }

    /// Lets the client have what there is so far.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        match &mut self.below {
            Below::Client(sender) => sender.flush().await,
            Below::Stream(sender) => Box::pin(sender.flush()).await,
            Below::Include(seam) => Box::pin(seam.outlet.flush()).await,
            Below::Lent => Err(SendError::Source),
        }
    }

    /// Fails if nobody waits for more: the client is gone, or had its time.
    pub fn check(&mut self) -> Result<(), SendError> {
        match &mut self.below {
            Below::Client(sender) => sender.check(),
            Below::Stream(sender) => sender.check(),
            Below::Include(seam) => seam.outlet.check(),
            Below::Lent => Err(SendError::Source),
        }
    }

    /// The end of the body, for the filters.
    pub async fn end(&mut self) -> Result<(), SendError> {
        if self.chain.is_empty() { Ok(()) } else { self.filter(&[], true).await }
    }

    pub fn report(&mut self) -> Report {
        self.chain.report()
    }
}

impl Below {
    /// After the last of a body, which came to this.
    pub async fn settle(&mut self, poured: Result<(), SendError>) -> Result<(), SendError> {
        let ends = matches!(poured, Ok(()) | Err(SendError::Enough));
        if matches!(poured, Err(SendError::Io(_))) {
            return poured;
        }
        // What came before a failure goes out, without an end.
        match self {
            Below::Client(sender) if ends => sender.end().await,
            Below::Client(sender) => sender.flush().await.and(poured),
            Below::Stream(sender) if ends => sender.end().await,
            Below::Stream(sender) => sender.flush().await.and(poured),
            Below::Include(_) | Below::Lent => poured,
        }
    }

    /// Waits until there is more of a body to send, or until the client is gone.
    async fn more_than(&self, object: &Object, at: u64) -> Result<BodyState, SendError> {
        if bodies::has_more_than(object, at) {
            return Ok(object.state());
        }
        match self {
            Below::Client(sender) => sender.more_than(object, at).await,
            Below::Stream(sender) => Box::pin(sender.more_than(object, at)).await,
            Below::Include(seam) => Box::pin(seam.outlet.below.more_than(object, at)).await,
            Below::Lent => Err(SendError::Source),
        }
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        match self {
            Below::Client(sender) => sender.gather(piece).await,
            Below::Stream(sender) => Box::pin(sender.gather(piece)).await,
            Below::Include(seam) => Box::pin(seam.write(piece)).await,
            Below::Lent => Err(SendError::Source),
        }
    }
}

/// How a body becomes part of the including one.
enum Mode {
    Through,
    /// A plain one in a gzip stream.
    Wrap,
    /// A gzipped one in a gzip stream.
    Strip(Strip),
}

/// Between an included response and the one that includes it.
pub struct Seam {
    pub outlet: Outlet,
    /// The including response is a gzip stream, with this checksum so far.
    pub gzip: bool,
    pub sum: Checksum,
    /// Without this response the including one is not complete.
    pub or_fail: bool,
    pub failure: Option<SendError>,
    mode: Mode,
    packed: Vec<u8>,
    count: u64,
}

impl Seam {
    pub fn new(outlet: Outlet, gzip: bool, sum: Checksum, or_fail: bool) -> Seam {
        Seam { outlet, gzip, sum, or_fail, failure: None, mode: Mode::Through, packed: Vec::new(), count: 0 }
    }

    /// Makes ready for the body; false if it cannot be included.
    pub async fn fit(&mut self, object: Option<&Object>, gzipped: bool, has_esi: bool) -> bool {
        self.mode = match object {
            Some(object) if self.gzip && gzipped && !has_esi => {
                // Half a body in the middle of a stream would break it: the whole must be there, and the
                // fetch is not to wait for us to take it.
                object.stored().delivered(u64::MAX, false);
                if object.end().await == BodyState::Failed {
                    return false;
                }
                let Some(marks) = Box::pin(self.scan(object)).await else { return false };
                Mode::Strip(Strip::new(marks))
            }
            _ if self.gzip && !gzipped => Mode::Wrap,
            _ => Mode::Through,
        };
        true
    }

    /// Finds the landmarks of a packed body and lets others run in between; returns `None` if it is broken, or
    /// nobody waits for it any more.
    async fn scan(&mut self, object: &Object) -> Option<Landmarks> {
        let mut scanner = Scanner::new(Stored { object, at: 0, chunk: None, used: 0 });
        loop {
            match scanner.step() {
                Ok(None) => tokio::task::yield_now().await,
                done => return done.ok().flatten(),
            }
            if let Err(failed) = self.outlet.check() {
                self.failure = Some(failed);
                return None;
            }
        }
    }

    /// A long piece is copied part by part.
    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        for part in piece.chunks(STEP) {
            self.write_part(part).await?;
        }
        Ok(())
    }

    async fn write_part(&mut self, piece: &[u8]) -> Result<(), SendError> {
        self.count += piece.len() as u64;
        self.packed.clear();
        let piece = match &mut self.mode {
            Mode::Through => piece,
            Mode::Wrap => {
                self.sum.append(Checksum::of(piece));
                splice::wrap(piece, &mut self.packed);
                &self.packed
            }
            Mode::Strip(strip) => {
                strip.push(piece, &mut self.packed);
                &self.packed
            }
        };
        if piece.is_empty() { Ok(()) } else { self.outlet.write(piece).await }
    }

    /// The included response is no good.
    pub fn fail(&mut self) {
        if self.or_fail {
            self.failure = Some(SendError::Include);
        }
    }

    /// Delivery stopped before the end of the included body.
    pub fn broken(&mut self, why: SendError) {
        match why {
            SendError::Enough => {}
            SendError::Io(_) | SendError::Include => self.failure = Some(why),
            SendError::Source | SendError::Filter => self.fail(),
        }
    }

    /// The included body is through.
    pub fn close(&mut self) {
        if let Mode::Strip(strip) = &self.mode {
            self.sum.append(strip.checksum());
        }
        self.mode = Mode::Through;
    }

    /// Bytes that the included response gave.
    pub fn take_count(&mut self) -> u64 {
        std::mem::take(&mut self.count)
    }
}

/// A complete stored body, to be read.
struct Stored<'o> {
    object: &'o Object,
    at: u64,
    chunk: Option<Chunk<'o>>,
    used: usize,
}

impl Read for Stored<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Stored<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.as_ref().is_none_or(|c| self.used >= c.len()) {
            self.chunk = self.object.chunk_at(self.at).filter(|c| !c.is_empty());
            self.used = 0;
        }
        Ok(self.chunk.as_ref().map_or(&[], |c| &c.bytes()[self.used..]))
    }

    fn consume(&mut self, n: usize) {
        self.used += n;
        self.at += n as u64;
    }
}
