//! Simulated HTTP/2 clients: several requests at once on one connection, windows of all sizes, streams that are reset.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use lacquer_h2::flow::SendWindow;
use lacquer_h2::frame::{self, Frame, FrameHeader, HEADER_LEN, Kind, flag};
use lacquer_h2::hpack::{self, Decoder, Step};
use lacquer_h2::settings;
use lacquer_net::memory::Peer;
use tokio::time::timeout;

use crate::http::{Broken, Head};
use crate::page_request::PageRequest;
use crate::requester::Requester;
use crate::wire::{self, Chance, Incoming, MAX_WAIT, below, one_of};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The initial window size without settings (RFC 9113 section 6.9.2).
const DEFAULT_WINDOW: u32 = 65_535;
const INITIAL_WINDOW_SIZE: u16 = 4;

pub struct H2Client {
    pub requester: Requester,
    pub peer: Peer,
    pub incoming: Incoming,
    pub most_requests: u64,
}

/// A window below this size grows by it with each frame, after a while: long bodies in tiny frames take too long.
const SMALL: u32 = 100;
const BODY_IN_SMALL_FRAMES: usize = 300;

/// A request and the received part of its response.
struct Stream {
    requested: PageRequest,
    head: Option<Head>,
    body: Vec<u8>,
    window: SendWindow,
    /// The number of sent bytes of the request's body.
    sent: usize,
}

/// The state of a connection.
struct Connection {
    streams: BTreeMap<u32, Stream>,
    next: u32,
    decoder: Decoder,
    /// The incomplete header block of a stream.
    block: Vec<u8>,
    ends_stream: bool,
    window: SendWindow,
    initial_window: u32,
    /// The size of the windows of its own streams at their start.
    own_window: u32,
    out: Vec<u8>,
    /// No further requests may be sent.
    is_closing: bool,
}

fn malformed(why: impl Into<String>) -> Broken {
    Broken::Malformed(why.into())
}

impl H2Client {
    fn chance(&self) -> &Chance {
        &self.requester.chance
    }

    pub async fn run(mut self) {
        // A very slow client gives up after this time.
        let result = timeout(MAX_WAIT * 4, self.connection()).await.unwrap_or(Ok(()));
        let mut ledger = self.requester.ledger.borrow_mut();
        ledger.check_flushed(&self.peer, "an HTTP/2 client");
        match result {
            Ok(()) | Err(Broken::Ended) => ledger.note(format_args!("an HTTP/2 client ends")),
            Err(Broken::Malformed(why)) => ledger.fault(&format!("an HTTP/2 client got {why}")),
        }
    }

    async fn connection(&mut self) -> Result<(), Broken> {
        let window = one_of(self.chance(), &[DEFAULT_WINDOW, 1 << 20, 1000, 1]);
        let mut connection = Connection {
            streams: BTreeMap::new(),
            next: 1,
            decoder: Decoder::new(4096),
            block: Vec::new(),
            ends_stream: false,
            window: SendWindow::new(DEFAULT_WINDOW),
            initial_window: DEFAULT_WINDOW,
            own_window: window,
            out: PREFACE.to_vec(),
            is_closing: false,
        };
        let [a, b] = INITIAL_WINDOW_SIZE.to_be_bytes();
        let [c, d, e, f] = window.to_be_bytes();
        push(&mut connection.out, Kind::Settings, 0, 0, &[a, b, c, d, e, f]);
        let mut left = 1 + below(self.chance(), self.most_requests);
        let at_once = 1 + below(self.chance(), 8) as usize;
        while left > 0 || !connection.streams.is_empty() {
            while left > 0 && connection.streams.len() < at_once && !connection.is_closing {
                left -= 1;
                connection.ask(&self.requester);
            }
            if connection.is_closing && connection.streams.is_empty() || self.requester.is_impatient(1) {
                return Ok(());
            }
            connection.send_bodies(self.chance());
            let out = std::mem::take(&mut connection.out);
            let exchanged = timeout(MAX_WAIT, self.exchange(&out)).await;
            exchanged.map_err(|_| malformed("no response, and its connection did not end"))??;
            while let Some(header) = FrameHeader::read(&self.incoming.bytes)
                && self.incoming.bytes.len() >= header.total_len()
            {
                let bytes = self.incoming.take(header.total_len());
                connection.receive(&header, &bytes[HEADER_LEN..], &self.requester)?;
            }
        }
        Ok(())
    }

    /// Writes bytes and reads meanwhile, because the engine may wait until its client reads.
    async fn exchange(&mut self, out: &[u8]) -> Result<(), Broken> {
        let (peer, chance) = (&self.peer, &self.requester.chance);
        let mut write = pin!(wire::write(peer, out, chance));
        let mut is_written = false;
        loop {
            let mut more = pin!(self.incoming.more(peer, chance));
            let has_more = poll_fn(|cx| {
                if !is_written && let Poll::Ready(done) = write.as_mut().poll(cx) {
                    is_written = true;
                    done?;
                }
                more.as_mut().poll(cx)
            })
            .await?;
            if !has_more {
                return Err(Broken::Ended);
            }
            if is_written {
                return Ok(());
            }
        }
    }
}

fn push(out: &mut Vec<u8>, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    out.extend(FrameHeader::new(kind, flags, stream, payload.len()).bytes());
    out.extend(payload);
}

impl Connection {
    fn ask(&mut self, requester: &Requester) {
        let request = requester.choose();
        let mut block = Vec::new();
        let fields = [
            (":method", request.method),
            (":path", &request.key.path),
            (":scheme", "http"),
            (":authority", "world"),
        ];
        let more = request.fields.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in fields.into_iter().chain(more) {
            hpack::encode::remembered(&mut block, name.as_bytes(), value.as_bytes());
        }
        let stream = self.next;
        self.next += 2;
        let end = if request.body.is_empty() { flag::END_STREAM } else { 0 };
        push(&mut self.out, Kind::Headers, flag::END_HEADERS | end, stream, &block);
        let window = SendWindow::new(self.initial_window);
        self.streams
            .insert(stream, Stream { requested: request, head: None, body: Vec::new(), window, sent: 0 });
        if requester.is_impatient(4) {
            push(&mut self.out, Kind::RstStream, 0, stream, &u32::to_be_bytes(8));
            self.streams.remove(&stream);
        }
    }

    /// Sends as much of the request bodies as the windows allow.
    fn send_bodies(&mut self, chance: &Chance) {
        for (&id, stream) in &mut self.streams {
            let left = &stream.requested.body[stream.sent..];
            let most = left.len().min(self.window.available()).min(stream.window.available());
            let n = most.min(1 + below(chance, 16_000) as usize);
            if n == 0 {
                continue;
            }
            let end = if n == left.len() { flag::END_STREAM } else { 0 };
            push(&mut self.out, Kind::Data, end, id, &left[..n]);
            self.window.charge(n);
            stream.window.charge(n);
            stream.sent += n;
        }
    }

    fn receive(&mut self, header: &FrameHeader, payload: &[u8], requester: &Requester) -> Result<(), Broken> {
        let frame = frame::parse(header, payload).map_err(|fault| malformed(format!("{fault:?}")))?;
        let id = header.stream;
        match frame {
            Frame::Data { data, end_stream } => {
                self.data(id, data);
                if header.len > 0 {
                    self.return_credit(id, header.len, requester);
                }
                if end_stream {
                    self.finish(id, requester)?;
                }
            }
            Frame::Headers { fragment, end_headers, end_stream } => {
                self.ends_stream = end_stream;
                self.fields(id, fragment, end_headers, requester)?;
            }
            Frame::Continuation { fragment, end_headers } => {
                self.fields(id, fragment, end_headers, requester)?;
            }
            Frame::RstStream { .. } => drop(self.streams.remove(&id)),
            Frame::Settings { entries } => self.settings(entries),
            Frame::Ping { opaque } => push(&mut self.out, Kind::Ping, flag::ACK, 0, &opaque),
            Frame::GoAway { last_stream, .. } => {
                self.is_closing = true;
                self.streams.retain(|&id, _| id <= last_stream);
            }
            Frame::WindowUpdate { increment } => {
                let window = match (id, self.streams.get_mut(&id)) {
                    (0, _) => &mut self.window,
                    (_, Some(stream)) => &mut stream.window,
                    (_, None) => return Ok(()),
                };
                window.credit(increment).map_err(|error| malformed(format!("{error:?}")))?;
            }
            Frame::SettingsAck | Frame::Priority | Frame::Unknown => {}
        }
        Ok(())
    }

    fn settings(&mut self, entries: &[u8]) {
        for (number, value) in settings::entries(entries) {
            if number == INITIAL_WINDOW_SIZE {
                let delta = i64::from(value) - i64::from(self.initial_window);
                self.initial_window = value;
                self.streams.values_mut().for_each(|stream| stream.window.adjust(delta));
            }
        }
        push(&mut self.out, Kind::Settings, flag::ACK, 0, &[]);
    }

    fn data(&mut self, id: u32, data: &[u8]) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.body.extend(data);
        }
    }

    /// Returns window credit for `bytes`, of the stream and of the connection. Some clients reset the stream instead.
    fn return_credit(&mut self, id: u32, bytes: u32, requester: &Requester) {
        push(&mut self.out, Kind::WindowUpdate, 0, 0, &bytes.to_be_bytes());
        if let Some(stream) = self.streams.get(&id) {
            let is_enough = self.own_window < SMALL && stream.body.len() >= BODY_IN_SMALL_FRAMES;
            let bytes = if is_enough { bytes + SMALL } else { bytes };
            if requester.is_impatient(1) {
                push(&mut self.out, Kind::RstStream, 0, id, &u32::to_be_bytes(8));
                self.streams.remove(&id);
            } else {
                push(&mut self.out, Kind::WindowUpdate, 0, id, &bytes.to_be_bytes());
            }
        }
    }

    fn fields(
        &mut self,
        id: u32,
        fragment: &[u8],
        is_end: bool,
        requester: &Requester,
    ) -> Result<(), Broken> {
        self.block.extend(fragment);
        if !is_end {
            return Ok(());
        }
        let head = self.decode()?;
        if let Some(stream) = self.streams.get_mut(&id) {
            requester.saw(&head);
            stream.head.get_or_insert(head);
        }
        if self.ends_stream { self.finish(id, requester) } else { Ok(()) }
    }

    fn decode(&mut self) -> Result<Head, Broken> {
        let block = std::mem::take(&mut self.block);
        let (mut rest, mut head) = (&block[..], Head::default());
        let mut out = vec![0; self.decoder.field_size_bound(rest)];
        self.decoder.begin();
        loop {
            match self.decoder.next(&mut rest, &mut out) {
                Ok(Step::Field(line)) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let (name, value) = (text(line.name(&out)), text(line.value(&out)));
                    if name == ":status" {
                        head.start = format!("HTTP/2 {value}");
                    } else {
                        head.add(name, value);
                    }
                }
                Ok(Step::End) => return Ok(head),
                other => return Err(malformed(format!("a header block with {other:?}"))),
            }
        }
    }

    /// Checks the complete response of a stream.
    fn finish(&mut self, id: u32, requester: &Requester) -> Result<(), Broken> {
        let Some(stream) = self.streams.remove(&id) else { return Ok(()) };
        let head = stream.head.ok_or_else(|| malformed("a body without a head"))?;
        if stream.sent < stream.requested.body.len() {
            push(&mut self.out, Kind::RstStream, 0, id, &u32::to_be_bytes(0));
        }
        let announced = head.number("content-length");
        let has_body = !stream.requested.is_head() && head.status() != Some(304);
        if has_body && announced.is_some_and(|length| length != stream.body.len()) {
            return Err(malformed(format!("{} bytes of {announced:?}", stream.body.len())));
        }
        requester.judge(&stream.requested, &head, &stream.body)
    }
}
