//! The streams of a client: pieces of bytes, each after a byte for its stream and one for its length. The effect does
//! not depend on the size of the pieces, and an accepted request is also a valid HTTP/1 request with the same meaning.
#![no_main]

mod as_http1;

use lacquer_h3::request::{Decoded, Event, Limits, RequestHead, decode, decode_trailers};
use lacquer_h3::settings::Settings;
use lacquer_h3::{Connection, Error, Fault, RequestStream, UniStream};
use lacquer_http::{Message, Workspace};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits =
    Limits { req_size: 2048, hdr_len: 1024, list_size: 3072, extended_connect: true, ordered: false };
const NOW: f64 = 1.0;
const STREAMS: usize = 4;

/// A request stream. A blocked section keeps the bytes that follow it.
struct Request {
    stream: RequestStream,
    /// A section that is blocked, and whether it contains trailers.
    blocked: Option<(Vec<u8>, bool)>,
    kept: Vec<u8>,
    is_over: bool,
}

struct Client {
    connection: Connection,
    uni: [UniStream; STREAMS],
    requests: [Request; STREAMS],
    /// A record of everything that happened.
    log: Vec<String>,
}

impl Client {
    fn new() -> Client {
        let settings = Settings { max_table_capacity: 256, ..Settings::of_server(3072) };
        let request = || Request {
            stream: RequestStream::new(LIMITS.list_size),
            blocked: None,
            kept: Vec::new(),
            is_over: false,
        };
        Client {
            connection: Connection::new(settings),
            uni: Default::default(),
            requests: std::array::from_fn(|_| request()),
            log: Vec::new(),
        }
    }

    fn uni(&mut self, at: usize, bytes: &[u8]) -> Result<(), Fault> {
        let effects = self.connection.receive(&mut self.uni[at], bytes, NOW)?;
        if effects.has_inserted {
            let ready: Vec<u64> = self.connection.qpack.unblocked().collect();
            for id in ready {
                self.request(id as usize / 4, &[])?;
            }
        }
        self.connection.qpack.output()?.clear();
        Ok(())
    }

    /// Handles bytes of a request stream. A fault of the stream ends only that.
    fn request(&mut self, at: usize, bytes: &[u8]) -> Result<(), Fault> {
        if self.requests[at].is_over {
            return Ok(());
        }
        match self.read(at, bytes) {
            Err(Fault { error: Error::Stream(reason), .. }) => {
                self.log.push(format!("{at}: {reason:?}"));
                self.requests[at].is_over = true;
                self.connection.qpack.cancel(at as u64 * 4);
                Ok(())
            }
            other => other,
        }
    }

    fn read(&mut self, at: usize, bytes: &[u8]) -> Result<(), Fault> {
        let request = &mut self.requests[at];
        request.kept.extend_from_slice(bytes);
        if let Some((section, is_trailers)) = request.blocked.take() {
            self.section(at, section, is_trailers)?;
        }
        let kept = std::mem::take(&mut self.requests[at].kept);
        let mut input = &kept[..];
        while self.requests[at].blocked.is_none() {
            let Some(event) = self.requests[at].stream.next(&mut input)? else { break };
            match event {
                Event::Headers(section) => self.section(at, section.into_owned(), false)?,
                Event::Trailers(section) => self.section(at, section.into_owned(), true)?,
                Event::Data(data) => {
                    assert!(!data.is_empty());
                    self.log.extend(data.iter().map(|byte| format!("{at}: {byte}")));
                }
            }
        }
        self.requests[at].kept = input.to_vec();
        Ok(())
    }

    fn section(&mut self, at: usize, section: Vec<u8>, is_trailers: bool) -> Result<(), Fault> {
        let (qpack, stream) = (&mut self.connection.qpack, at as u64 * 4);
        if is_trailers {
            match decode_trailers(qpack, stream, &section, &LIMITS, &mut |_| ())? {
                Decoded::Done(trailers) => {
                    as_http1::check_trailers(&trailers);
                    self.log.push(format!("{at}: trailers"));
                }
                Decoded::Blocked => self.requests[at].blocked = Some((section, true)),
            }
            return Ok(());
        }
        let (mut ws, mut msg) = (Workspace::new(8192), Message::new(32));
        match decode(qpack, stream, &section, (&mut ws, &mut msg), &LIMITS, false, &mut |_| ())? {
            Decoded::Done(RequestHead { body, .. }) => {
                self.requests[at].stream.expect(body);
                self.log.push(format!("{at}: {body:?}"));
                as_http1::check(&mut msg, &ws);
            }
            Decoded::Blocked => self.requests[at].blocked = Some((section, false)),
        }
        Ok(())
    }

    fn piece(&mut self, selector: u8, bytes: &[u8]) -> Result<(), Fault> {
        let at = selector as usize % STREAMS;
        match selector / STREAMS as u8 % 4 {
            0 => self.uni(at, bytes),
            1 | 2 => self.request(at, bytes),
            _ if self.requests[at].is_over || self.requests[at].blocked.is_some() => Ok(()),
            _ => {
                self.requests[at].is_over = true;
                match self.requests[at].stream.end() {
                    Err(fault) if fault.error.is_connection() => Err(fault),
                    other => {
                        self.log.push(format!("{at}: {:?}", other.is_ok()));
                        Ok(())
                    }
                }
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (mut whole, mut bytewise) = (Client::new(), Client::new());
    let mut left = bytes;
    while let Some((&[selector, len], rest)) = left.split_first_chunk() {
        let (piece, rest) = rest.split_at((len as usize).min(rest.len()));
        left = rest;
        let result = whole.piece(selector, piece);
        let same = match piece {
            [] => bytewise.piece(selector, piece),
            _ => piece.chunks(1).try_for_each(|byte| bytewise.piece(selector, byte)),
        };
        // A section that waited for fields is decoded before or after the next instructions, one of which may be faulty
        // or remove the fields again.
        let is_encoder = selector as usize / STREAMS % 4 == 0;
        if is_encoder && (result.is_err() || same.is_err()) {
            return;
        }
        assert_eq!(result, same);
        if result.is_err() {
            return;
        }
        assert_eq!(whole.log, bytewise.log);
    }
});
