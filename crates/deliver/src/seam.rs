//! The seam between an included response and the one that includes it: bytes go through as they are, or are made part of
//! the including response's gzip stream.

use std::io::{self, BufRead, Read};

use lacquer_cache::{BodyState, Chunk, Object};
use lacquer_filters::STEP_MAX;
use lacquer_filters::splice::{self, Checksum, Landmarks, Scanner, Strip};

use crate::outlet::Outlet;
use crate::sink::{SendError, Sink};

/// How a body becomes part of the including one.
enum Mode {
    Through,
    /// A plain one in a gzip stream.
    Wrap,
    /// A gzipped one in a gzip stream.
    Strip(Strip),
}

/// Between an included response and the one that includes it.
pub struct Seam<S> {
    outlet: Outlet<S>,
    /// The including response is a gzip stream, with this checksum so far.
    is_gzip: bool,
    sum: Checksum,
    /// Without this response the including one is not complete.
    or_fail: bool,
    failure: Option<SendError>,
    mode: Mode,
    packed: Vec<u8>,
    count: u64,
}

impl<S: Sink> Seam<S> {
    pub fn new(outlet: Outlet<S>, is_gzip: bool, sum: Checksum, or_fail: bool) -> Seam<S> {
        Seam {
            outlet,
            is_gzip,
            sum,
            or_fail,
            failure: None,
            mode: Mode::Through,
            packed: Vec::new(),
            count: 0,
        }
    }

    /// Returns the including response's outlet and its checksum so far, and why it cannot go on, if so.
    pub fn into_parts(self) -> (Outlet<S>, Checksum, Result<(), SendError>) {
        (self.outlet, self.sum, self.failure.map_or(Ok(()), Err))
    }

    pub fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    /// Returns whether what is written becomes part of a gzip stream as it is.
    pub fn takes_gzip(&self) -> bool {
        self.is_gzip && matches!(self.mode, Mode::Through)
    }

    /// The including gzip stream goes on with bytes that unpack to this.
    pub fn append(&mut self, sum: Checksum) {
        self.sum.append(sum);
    }

    /// Lets the client have all that there is so far.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        self.outlet.flush().await
    }

    pub(crate) async fn more_than(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        self.outlet.more_than(object, at).await
    }

    pub(crate) fn check(&mut self) -> Result<(), SendError> {
        self.outlet.check()
    }

    /// Makes ready for the body; false if it cannot be included.
    pub async fn fit(&mut self, object: Option<&Object>, gzipped: bool, has_esi: bool) -> bool {
        self.mode = match object {
            Some(object) if self.is_gzip && gzipped && !has_esi => {
                // Half a body in the middle of a stream would break it: the whole must be there, and the
                // fetch is not to wait for us to take it.
                object.stored().delivered(u64::MAX, false);
                if object.end().await == BodyState::Failed {
                    return false;
                }
                let Some(marks) = Box::pin(self.scan(object)).await else { return false };
                Mode::Strip(Strip::new(marks))
            }
            _ if self.is_gzip && !gzipped => Mode::Wrap,
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
    pub(crate) async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        for part in piece.chunks(STEP_MAX) {
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
