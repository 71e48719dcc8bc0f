//! The bytes that a client sends after the preface, to a server that sends no responses: no window and no limit is
//! exceeded, and an accepted request is also a valid HTTP/1 request with the same meaning, so that no request can be
//! smuggled through the change of protocols.
#![no_main]

mod as_http1;

use lacquer_h2::flow::{INITIAL_WINDOW, ReceiveWindow};
use lacquer_h2::frame::{Frame, FrameHeader, HEADER_LEN, parse};
use lacquer_h2::hpack::Decoder;
use lacquer_h2::request::{Limits, RequestDecoder};
use lacquer_h2::rules::{Admit, Rules};
use lacquer_h2::settings::{Settings, entries};
use lacquer_h2::stream::{Stream, charge_connection};
use lacquer_h2::{Error, Fault};
use lacquer_http::{Message, Workspace};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits =
    Limits { req_size: 2048, hdr_len: 1024, list_size: 3072, extended_connect: true, ordered: false };
const MAX_FRAME: u32 = 16384;

struct Connection {
    rules: Rules,
    peer: Settings,
    window: ReceiveWindow,
    streams: Vec<Stream>,
    decoder: Decoder,
    block: Option<(RequestDecoder, u32, bool)>,
    trailers: bool,
    ws: Workspace,
    msg: Message,
}

impl Connection {
    fn stream(&mut self, id: u32) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.id == id)
    }

    fn frame(&mut self, mut header: FrameHeader, payload: &[u8]) -> Result<(), Fault> {
        let state = self.stream(header.stream).map(|stream| stream.state);
        let admit = self.rules.admit(&mut header, state, &mut |_| ())?;
        if admit == Admit::Ignore {
            return Ok(());
        }
        match parse(&header, payload)? {
            Frame::Headers { fragment, end_headers, end_stream } => {
                self.trailers = admit == Admit::Trailers;
                let request = match admit {
                    Admit::Trailers => RequestDecoder::trailers(&mut self.decoder, &LIMITS),
                    Admit::Refuse(fault) => RequestDecoder::refused(&mut self.decoder, fault.error, &LIMITS),
                    _ => {
                        let window = self.peer.initial_window_size;
                        self.streams.push(Stream::open(header.stream, INITIAL_WINDOW, window));
                        self.ws.reset();
                        RequestDecoder::begin(&mut self.decoder, &mut self.ws, &mut self.msg, &LIMITS)
                    }
                };
                self.block = Some((request, header.stream, end_stream));
                self.fragment(fragment, end_headers)
            }
            Frame::Continuation { fragment, end_headers } => self.fragment(fragment, end_headers),
            Frame::Data { data, end_stream } => {
                charge_connection(&mut self.window, &header)?;
                match self.stream(header.stream) {
                    Some(stream) => stream.data(&header, data.len(), end_stream),
                    None => Ok(()),
                }
            }
            Frame::WindowUpdate { increment } => match self.stream(header.stream) {
                Some(stream) => Ok(stream.send.credit(increment)?),
                None => Ok(()),
            },
            Frame::Settings { entries: payload } => {
                for entry in entries(payload) {
                    let applied = self.peer.apply(entry, false);
                    applied.error.map_or(Ok(()), Err)?;
                    for stream in self.streams.iter_mut().filter(|stream| stream.follows_settings()) {
                        stream.send.adjust(applied.window_delta);
                    }
                }
                Ok(())
            }
            Frame::RstStream { .. } => {
                self.end(header.stream);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fragment(&mut self, fragment: &[u8], end_headers: bool) -> Result<(), Fault> {
        let (request, ..) = self.block.as_mut().expect("the rules permit no other fragment");
        request.feed(&mut self.decoder, fragment, &mut self.ws, &mut self.msg, &mut |_| ())?;
        if !end_headers {
            return Ok(());
        }
        let (request, id, end_stream) = self.block.take().expect("as above");
        if self.trailers {
            let trailers = request.finish_trailers(&mut |_| ())?;
            as_http1::check_trailers(&trailers);
            return self.stream(id).expect("only an open stream has trailers").trailers(trailers);
        }
        let head = request.finish(&mut self.ws, &mut self.msg, end_stream, &mut |_| ())?;
        self.stream(id).expect("a refused stream has no request").expect(head.body);
        as_http1::check(&mut self.msg, &self.ws);
        Ok(())
    }

    fn end(&mut self, id: u32) {
        if let Some(at) = self.streams.iter().position(|stream| stream.id == id) {
            self.streams.swap_remove(at);
            self.rules.close_one();
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut left = bytes;
    let mut connection = Connection {
        rules: Rules::new(3),
        peer: Settings::DEFAULT,
        window: ReceiveWindow::new(INITIAL_WINDOW),
        streams: Vec::new(),
        decoder: Decoder::new(256),
        block: None,
        trailers: false,
        ws: Workspace::new(8192),
        msg: Message::new(32),
    };
    while let Some(header) = FrameHeader::read(left) {
        let Some(frame) = left.get(..header.total_len()).filter(|_| header.len <= MAX_FRAME) else { break };
        left = &left[header.total_len()..];
        if let Err(fault) = connection.frame(header, &frame[HEADER_LEN..]) {
            match fault.error {
                Error::Stream(_) if header.stream > 0 => connection.end(header.stream),
                _ => break,
            }
        }
        assert!(connection.rules.open <= 3 && connection.rules.open as usize == connection.streams.len());
        assert!(connection.window.left() >= 0);
    }
});
