//! Simulated HTTP/3 clients over a network with faults: several requests at once on one connection, streams that are
//! reset, addresses that change.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lacquer_h3::qpack::{self, Begun, Decoder, Step};
use lacquer_h3::{Connection, Reason, frame, settings};
use lacquer_sources::clock;
use lacquer_sources::random;
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionHandle, DatagramEvent, Dir, EndpointConfig, Event, ReadError,
    StreamId, TransportErrorCode, VarInt,
};
use tokio::time::{sleep_until, timeout};

use crate::http::{Broken, Head};
use crate::network::{Inbox, Network, SERVICE};
use crate::page_request::PageRequest;
use crate::requester::Requester;
use crate::wire::{MAX_WAIT, below, one_of};

/// The name in the certificate of the service.
pub const NAME: &str = "world";
/// The largest datagram group of one call.
const SEGMENTS: usize = 4;
/// The bytes that are read at a time.
const STEP: usize = 4096;
const CANCELLED: VarInt = VarInt::from_u32(0x10c);
const NO_ERROR: u64 = 0x100;
/// The time for a handshake, `tls_handshake_timeout`, less the time that the first packet needs.
const LEAST_HANDSHAKE: Duration = Duration::from_secs(7);
/// The least time after which the engine gives up on the head of a request (`timeout_idle`).
const LEAST_SECTION: Duration = Duration::from_secs(5);

pub struct H3Client {
    pub requester: Requester,
    pub network: Rc<Network>,
    pub address: SocketAddr,
    pub config: ClientConfig,
    pub most_requests: u64,
}

/// A request and the received part of its response.
struct Stream {
    requested: PageRequest,
    /// The bytes of the request that were not accepted yet.
    left: Vec<u8>,
    reader: frame::Reader,
    kind: frame::Kind,
    section: Vec<u8>,
    head: Option<Head>,
    body: Vec<u8>,
}

/// The next part of a stream.
enum Read {
    Bytes(bytes::Bytes),
    End,
    /// No more has arrived.
    Blocked,
    Reset,
}

/// A connection of a client.
struct Driver {
    requester: Requester,
    network: Rc<Network>,
    address: SocketAddr,
    inbox: Rc<Inbox>,
    endpoint: quinn_proto::Endpoint,
    handle: ConnectionHandle,
    connection: quinn_proto::Connection,
    streams: BTreeMap<StreamId, Stream>,
    /// The engine's control stream, with what was read of it.
    control: BTreeMap<StreamId, (Vec<u8>, frame::Reader)>,
    begun: Instant,
    is_connected: bool,
    /// No further requests may be sent.
    is_closing: bool,
}

fn now() -> Instant {
    clock::Instant::now().into_std()
}

fn malformed(why: impl Into<String>) -> Broken {
    Broken::Malformed(why.into())
}

impl H3Client {
    pub async fn run(self) {
        let ledger = self.requester.ledger.clone();
        // A very slow network makes clients give up after this time.
        let result = timeout(MAX_WAIT * 4, self.connection()).await.unwrap_or(Ok(()));
        let mut ledger = ledger.borrow_mut();
        match result {
            Ok(()) | Err(Broken::Ended) => ledger.note(format_args!("an HTTP/3 client ends")),
            Err(Broken::Malformed(why)) => ledger.fault(&format!("an HTTP/3 client got {why}")),
        }
    }

    async fn connection(self) -> Result<(), Broken> {
        let H3Client { requester, network, address, config, most_requests } = self;
        let inbox = Rc::<Inbox>::default();
        network.join(address, &inbox);
        let mut settings = EndpointConfig::default();
        let mut seed = [0; 32];
        // Numbers of this thread's seed.
        let _ = random::secret(&mut seed);
        settings.rng_seed(Some(seed));
        let mut endpoint = quinn_proto::Endpoint::new(Arc::new(settings), None, true, None);
        let connected = endpoint.connect(now(), config, SERVICE, NAME);
        let (handle, connection) = connected.map_err(|error| malformed(error.to_string()))?;
        let chance = requester.chance.clone();
        let mut driver = Driver {
            requester,
            network,
            address,
            inbox,
            endpoint,
            handle,
            connection,
            streams: BTreeMap::new(),
            control: BTreeMap::new(),
            begun: now(),
            is_connected: false,
            is_closing: false,
        };
        let mut left = 1 + below(&chance, most_requests);
        let at_once = 1 + below(&chance, 8) as usize;
        let result = driver.drive(&mut left, at_once).await;
        if result.is_ok() && one_of(&chance, &[true, true, false]) {
            driver.connection.close(now(), (NO_ERROR as u32).into(), bytes::Bytes::new());
            driver.transmit();
        }
        driver.network.leave(driver.address);
        result
    }
}

impl Driver {
    async fn drive(&mut self, left: &mut u64, at_once: usize) -> Result<(), Broken> {
        loop {
            self.receive();
            self.handle_events()?;
            if self.is_connected {
                while *left > 0 && self.streams.len() < at_once && !self.is_closing && self.ask() {
                    *left -= 1;
                }
                self.send_bodies();
                self.read_streams()?;
            }
            self.transmit();
            let is_over = *left == 0 || self.is_closing;
            if is_over && self.streams.is_empty() || self.requester.is_impatient(1) {
                return Ok(());
            }
            self.wait().await?;
        }
    }

    /// Waits for a datagram or a timer.
    async fn wait(&mut self) -> Result<(), Broken> {
        let due = self.connection.poll_timeout().unwrap_or_else(|| now() + MAX_WAIT);
        let inbox = self.inbox.clone();
        let wait = async {
            tokio::select! {
                biased;
                () = inbox.arrived() => {}
                () = sleep_until(due.into()) => {}
            }
        };
        timeout(MAX_WAIT, wait).await.map_err(|_| malformed("no response, and its connection did not end"))
    }

    /// Handles the datagrams that have arrived, and the timers that have expired.
    fn receive(&mut self) {
        let mut output = Vec::new();
        while let Some(datagram) = self.inbox.take() {
            let event = self.endpoint.handle(now(), SERVICE, None, None, datagram[..].into(), &mut output);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.connection.handle_event(event);
            }
            output.clear();
        }
        if self.connection.poll_timeout().is_some_and(|due| due <= now()) {
            self.connection.handle_timeout(now());
        }
    }

    fn transmit(&mut self) {
        let mut output = Vec::new();
        while let Some(transmit) = self.connection.poll_transmit(now(), SEGMENTS, &mut output) {
            let bytes = &output[..transmit.size];
            for datagram in bytes.chunks(transmit.segment_size.unwrap_or(bytes.len()).max(1)) {
                self.network.send(self.address, datagram);
            }
            output.clear();
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
    }

    fn handle_events(&mut self) -> Result<(), Broken> {
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => {
                    self.is_connected = true;
                    self.open_control()?;
                }
                Event::ConnectionLost { reason } => return Err(lost(&reason, now() - self.begun)),
                _ => {}
            }
        }
        Ok(())
    }

    fn open_control(&mut self) -> Result<(), Broken> {
        let id = self.connection.streams().open(Dir::Uni);
        let id = id.ok_or_else(|| malformed("no stream for the settings"))?;
        let mut bytes = Vec::new();
        Connection::new(settings::Settings::DEFAULT).begin_control(&mut bytes);
        self.connection.send_stream(id).write(&bytes).map_err(|error| malformed(error.to_string()))?;
        Ok(())
    }

    /// Begins a request. Returns false if the engine allows no more at once.
    fn ask(&mut self) -> bool {
        let Some(id) = self.connection.streams().open(Dir::Bi) else { return false };
        let requested = self.requester.choose();
        let mut left = Vec::new();
        frame::write_section(&mut left, |out| {
            qpack::begin(out);
            let path = requested.key.path.as_str();
            let fields =
                [(":method", requested.method), (":scheme", "https"), (":authority", NAME), (":path", path)];
            let more = requested.fields.iter().map(|(name, value)| (*name, value.as_str()));
            for (name, value) in fields.into_iter().chain(more) {
                qpack::field(out, name.as_bytes(), value.as_bytes());
            }
        });
        let mut body = &requested.body[..];
        while !body.is_empty() {
            let (piece, rest) =
                body.split_at(body.len().min(1 + below(&self.requester.chance, 50_000) as usize));
            left.extend_from_slice(frame::data_header(piece.len() as u64).as_slice());
            left.extend_from_slice(piece);
            body = rest;
        }
        let stream = Stream {
            requested,
            left,
            reader: frame::Reader::default(),
            kind: frame::Kind::Unknown,
            section: Vec::new(),
            head: None,
            body: Vec::new(),
        };
        self.streams.insert(id, stream);
        if self.requester.is_impatient(4) {
            self.cancel(id);
        }
        if self.requester.is_impatient(5) {
            self.change_address();
        }
        true
    }

    fn cancel(&mut self, id: StreamId) {
        self.streams.remove(&id);
        let _ = self.connection.send_stream(id).reset(CANCELLED);
        let _ = self.connection.recv_stream(id).stop(CANCELLED);
    }

    /// Continues from another port, as behind a router that has forgotten the client.
    fn change_address(&mut self) {
        self.network.leave(self.address);
        let port = 1024 + below(&self.requester.chance, 60_000) as u16;
        self.address.set_port(port);
        self.network.join(self.address, &self.inbox);
    }

    /// Sends as much of the requests as the windows allow.
    fn send_bodies(&mut self) {
        for (&id, stream) in &mut self.streams {
            if stream.left.is_empty() {
                continue;
            }
            let mut to = self.connection.send_stream(id);
            if let Ok(n) = to.write(&stream.left) {
                stream.left.drain(..n);
            }
            if stream.left.is_empty() {
                let _ = to.finish();
            }
        }
    }

    fn read_streams(&mut self) -> Result<(), Broken> {
        while let Some(id) = self.connection.streams().accept(Dir::Uni) {
            self.control.insert(id, Default::default());
        }
        let ids: Vec<StreamId> = self.control.keys().copied().collect();
        for id in ids {
            self.read_control(id)?;
        }
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.read_response(id)?;
        }
        Ok(())
    }

    fn read(&mut self, id: StreamId) -> Read {
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Read::Blocked };
        let read = match chunks.next(STEP) {
            Ok(Some(chunk)) => Read::Bytes(chunk.bytes),
            Ok(None) => Read::End,
            Err(ReadError::Blocked) => Read::Blocked,
            Err(ReadError::Reset(_)) => Read::Reset,
        };
        let _ = chunks.finalize();
        read
    }

    /// Reads a stream of the engine, and notices GOAWAY.
    fn read_control(&mut self, id: StreamId) -> Result<(), Broken> {
        loop {
            let Read::Bytes(bytes) = self.read(id) else { return Ok(()) };
            let Some((kind, reader)) = self.control.get_mut(&id) else { return Ok(()) };
            let mut input = &bytes[..];
            if kind.is_empty() {
                kind.push(input[0]);
                input = &input[1..];
            }
            if kind[0] != 0 {
                continue;
            }
            while let Some(piece) = reader.next(&mut input) {
                if let frame::Piece::Begin(header) = piece {
                    self.is_closing |= header.kind() == frame::Kind::GoAway;
                }
            }
        }
    }

    fn read_response(&mut self, id: StreamId) -> Result<(), Broken> {
        loop {
            if self.requester.is_impatient(1) && below(&self.requester.chance, 20) == 0 {
                self.cancel(id);
                return Ok(());
            }
            match self.read(id) {
                Read::Bytes(bytes) => self.add(id, &bytes)?,
                Read::End => return self.finish(id),
                Read::Blocked => return Ok(()),
                Read::Reset => {
                    self.streams.remove(&id);
                    return Ok(());
                }
            }
        }
    }

    fn add(&mut self, id: StreamId, bytes: &[u8]) -> Result<(), Broken> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let mut input = bytes;
        while let Some(piece) = stream.reader.next(&mut input) {
            match piece {
                frame::Piece::Begin(header) => {
                    stream.kind = header.kind();
                    if !matches!(stream.kind, frame::Kind::Headers | frame::Kind::Data | frame::Kind::Unknown)
                    {
                        return Err(malformed(format!("a frame {:?} in a response", stream.kind)));
                    }
                    if stream.kind == frame::Kind::Data && stream.head.is_none() && stream.section.is_empty()
                    {
                        return Err(malformed("a body without a head"));
                    }
                }
                frame::Piece::Payload(bytes) if stream.kind == frame::Kind::Headers => {
                    stream.section.extend_from_slice(bytes);
                    if stream.reader.left() == 0 {
                        let head = decode(&std::mem::take(&mut stream.section))?;
                        self.requester.saw(&head);
                        stream.head.get_or_insert(head);
                    }
                }
                frame::Piece::Payload(bytes) if stream.kind == frame::Kind::Data => {
                    stream.body.extend_from_slice(bytes);
                }
                frame::Piece::Payload(_) => {}
            }
        }
        Ok(())
    }

    /// Checks the complete response of a stream.
    fn finish(&mut self, id: StreamId) -> Result<(), Broken> {
        let Some(stream) = self.streams.remove(&id) else { return Ok(()) };
        if !stream.reader.is_between_frames() {
            return Err(malformed("a response that ends within a frame"));
        }
        let head = stream.head.ok_or_else(|| malformed("a response without a head"))?;
        if !stream.left.is_empty() {
            let _ = self.connection.send_stream(id).reset((NO_ERROR as u32).into());
        }
        let announced = head.number("content-length");
        let has_body = !stream.requested.is_head() && head.status() != Some(304);
        if has_body && announced.is_some_and(|length| length != stream.body.len()) {
            return Err(malformed(format!("{} bytes of {announced:?}", stream.body.len())));
        }
        self.requester.judge(&stream.requested, &head, &stream.body)
    }
}

/// Returns the end of a connection after some time. Only a fault that one of the sides has found is one.
fn lost(reason: &ConnectionError, after: Duration) -> Broken {
    match reason {
        ConnectionError::ApplicationClosed(close) if close.error_code.into_inner() == NO_ERROR => {
            Broken::Ended
        }
        // The engine also gives up on the head of a request, whose packets may be lost again and again.
        ConnectionError::ApplicationClosed(close)
            if *close.reason == *Reason::HeaderTimeout.text().as_bytes() && after >= LEAST_SECTION =>
        {
            Broken::Ended
        }
        ConnectionError::TimedOut
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => Broken::Ended,
        // The engine refuses connections while it drains.
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            Broken::Ended
        }
        // It gives up on handshakes, whose last packets may be lost again and again, after their time.
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::APPLICATION_ERROR && after >= LEAST_HANDSHAKE =>
        {
            Broken::Ended
        }
        reason => malformed(format!("the end of its connection: {reason}")),
    }
}

fn decode(section: &[u8]) -> Result<Head, Broken> {
    let mut decoder = Decoder::new(0, 0);
    let Ok(Begun::Section(mut section)) = decoder.begin(0, section) else {
        return Err(malformed("a field section that waits for another"));
    };
    let (mut head, mut out) = (Head::default(), vec![0; 64 * 1024]);
    loop {
        match decoder.next(&mut section, &mut out) {
            Ok(Step::Field(line)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (name, value) = (text(line.name(&out)), text(line.value(&out)));
                if name == ":status" {
                    head.start = format!("HTTP/3 {value}");
                } else {
                    head.add(name, value);
                }
            }
            Ok(Step::End) => return Ok(head),
            other => return Err(malformed(format!("a field section with {other:?}"))),
        }
    }
}
