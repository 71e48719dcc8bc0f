//! The streams of the protocol: the client's unidirectional streams, and this side's control and QPACK decoder streams.

use std::collections::HashMap;
use std::rc::Rc;
use std::task::Context;

use lacquer_engine::h3::Conn;
use lacquer_h3::{Connection, Effects, Error, Reason, UniStream};
use lacquer_quic::{Dir, ReadError, StreamId, WriteError};
use lacquer_sources::clock;

/// The number of bytes to read at a time, and of reads before other tasks run.
const STEP: usize = 4096;
const READS: usize = 64;

/// A stream of this side, with the bytes that wait for it.
struct Outgoing {
    id: StreamId,
    bytes: Vec<u8>,
}

impl Outgoing {
    /// Writes the waiting bytes, as far as the client permits.
    fn flush(&mut self, conn: &Conn) -> Result<(), Error> {
        while !self.bytes.is_empty() {
            match conn.quic.write(self.id, &self.bytes) {
                Ok(n) => {
                    conn.count_overhead(0, n);
                    self.bytes.drain(..n);
                }
                Err(WriteError::Blocked) => return Ok(()),
                Err(WriteError::Closed) if conn.error().is_some() => return Ok(()),
                Err(WriteError::Closed) => {
                    return Err(conn.log_fault(&conn.protocol.borrow().stopped()));
                }
            }
        }
        Ok(())
    }
}

pub struct Control {
    conn: Rc<Conn>,
    /// The streams of the client.
    incoming: HashMap<StreamId, UniStream>,
    /// This side's control stream.
    settings: Outgoing,
    /// This side's QPACK decoder stream.
    decoder: Outgoing,
    /// The streams of the client that may have more to read.
    unread: Vec<StreamId>,
}

impl Control {
    /// Opens this side's streams. Fails if the client does not permit them (RFC 9114 section 6.2).
    pub fn open(conn: &Rc<Conn>) -> Result<Control, Error> {
        let too_few = Error::Connection(Reason::GeneralProtocolError);
        let open = || conn.quic.open_uni().ok_or(too_few);
        let mut settings = Outgoing { id: open()?, bytes: Vec::new() };
        let mut decoder = Outgoing { id: open()?, bytes: Vec::new() };
        conn.protocol.borrow().begin_control(&mut settings.bytes);
        Connection::begin_decoder(&mut decoder.bytes);
        Ok(Control { conn: conn.clone(), incoming: HashMap::new(), settings, decoder, unread: Vec::new() })
    }

    /// Reads the streams that the client has opened. Returns the effects of all bytes.
    pub fn accept(&mut self, cx: &Context<'_>) -> Result<Effects, Error> {
        let mut all = Effects::default();
        while let Some(id) = self.conn.quic.accept(Dir::Uni) {
            self.incoming.insert(id, UniStream::default());
            let effects = self.read(id, cx)?;
            all.has_inserted |= effects.has_inserted;
        }
        Ok(all)
    }

    /// Reads more of the streams that had too much for one turn.
    pub fn read_rest(&mut self, cx: &Context<'_>) -> Result<Effects, Error> {
        let mut all = Effects::default();
        for id in std::mem::take(&mut self.unread) {
            let effects = self.read(id, cx)?;
            all.has_inserted |= effects.has_inserted;
        }
        Ok(all)
    }

    /// Reads a stream of the client. If it has too much for one turn, the task is woken, and
    /// [`read_rest`](Self::read_rest) reads more.
    pub fn read(&mut self, id: StreamId, cx: &Context<'_>) -> Result<Effects, Error> {
        let mut all = Effects::default();
        for _ in 0..READS {
            let Some(stream) = self.incoming.get_mut(&id) else { return Ok(all) };
            let conn = &self.conn;
            match conn.quic.read(id, STEP) {
                Ok(Some(bytes)) => {
                    conn.count_overhead(bytes.len(), 0);
                    let effects = conn.protocol.borrow_mut().receive(stream, &bytes, clock::real());
                    let effects = effects.map_err(|fault| conn.log_fault(&fault))?;
                    all.has_inserted |= effects.has_inserted;
                    if effects.ignores_stream {
                        conn.quic.stop(id, Reason::StreamCreationError.code());
                        self.incoming.remove(&id);
                    }
                }
                Err(ReadError::Blocked) => return Ok(all),
                Err(ReadError::Closed) if conn.error().is_some() => return Ok(all),
                Ok(None) | Err(ReadError::Reset(_) | ReadError::Closed) => {
                    let ended = conn.protocol.borrow_mut().end(stream, clock::real());
                    self.incoming.remove(&id);
                    ended.map_err(|fault| self.conn.log_fault(&fault))?;
                }
            }
        }
        if !self.unread.contains(&id) {
            self.unread.push(id);
        }
        cx.waker().wake_by_ref();
        Ok(all)
    }

    /// Returns whether a stream is one of this side's.
    pub fn is_own(&self, id: StreamId) -> bool {
        id == self.settings.id || id == self.decoder.id
    }

    /// Announces the end of the connection. Requests on their way are still served.
    pub fn announce_end(&mut self) {
        self.conn.protocol.borrow_mut().announce_end(&mut self.settings.bytes);
    }

    /// Announces that later requests are refused.
    pub fn go_away(&mut self) {
        self.conn.protocol.borrow_mut().go_away(&mut self.settings.bytes);
    }

    /// Writes what waits for this side's streams.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.settings.flush(&self.conn)?;
        let mut protocol = self.conn.protocol.borrow_mut();
        let output = protocol.qpack.output().map_err(|fault| self.conn.log_fault(&fault))?;
        self.decoder.bytes.append(output);
        drop(protocol);
        self.decoder.flush(&self.conn)
    }
}
