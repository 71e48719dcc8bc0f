//! A collector of OpenTelemetry (OTLP over HTTP) for tests. It decodes the messages by the numbers of the published
//! protocol (`opentelemetry/proto`), with no code of the programs under test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const TAKEN: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";

/// A span that was received.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// In base 16.
    pub trace: String,
    pub id: String,
    /// The span above it; empty if there is none.
    pub parent: String,
    pub name: String,
    /// 1 internal, 2 server, 3 client.
    pub kind: u64,
    /// In nanoseconds since the epoch.
    pub begin: u64,
    pub end: u64,
    pub attributes: BTreeMap<String, String>,
    /// 2 is an error.
    pub status: u64,
    pub message: String,
}

/// A metric that was received.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metric {
    /// `gauge`, `sum` or `histogram`.
    pub kind: String,
    /// Empty if there is none.
    pub unit: String,
    pub is_monotonic: bool,
    /// The value of each point, or the count of a histogram, by its attributes.
    pub points: BTreeMap<String, f64>,
}

/// The data that has arrived.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub spans: Vec<Span>,
    pub metrics: BTreeMap<String, Metric>,
    /// The attributes of the sender.
    pub resource: BTreeMap<String, String>,
    /// The first lines of the requests.
    pub requests: Vec<String>,
    /// Requests that could not be decoded.
    pub faults: Vec<String>,
}

struct State {
    received: Received,
    /// The response to each request; `None` is none at all.
    reply: Option<String>,
}

/// A collector.
pub struct Collector {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Collector {
    /// Starts a collector that takes everything.
    pub fn start() -> Collector {
        Collector::at("127.0.0.1:0".parse().expect("an address")).expect("there is a free port")
    }

    /// Starts a collector at an address.
    pub fn at(address: SocketAddr) -> io::Result<Collector> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let state =
            Arc::new(Mutex::new(State { received: Received::default(), reply: Some(TAKEN.to_owned()) }));
        let own = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = Arc::clone(&own);
                thread::spawn(move || serve(stream, &own));
            }
        });
        Ok(Collector { address, state })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the argument of `-w` for this collector.
    pub fn option(&self) -> String {
        format!("otlp=http://{}", self.address)
    }

    /// Sets the response to the requests that follow; `None` is none at all.
    pub fn reply_with(&self, reply: Option<&str>) {
        self.lock().reply = reply.map(str::to_owned);
    }

    /// Takes everything from now on.
    pub fn take_all(&self) {
        self.reply_with(Some(TAKEN));
    }

    pub fn received(&self) -> Received {
        self.lock().received.clone()
    }
}

impl Received {
    /// Returns the traces as text: each span below the one above it, with its time and attributes.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let is_root = |span: &&Span| !self.spans.iter().any(|other| other.id == span.parent);
        for root in self.spans.iter().filter(is_root) {
            let _ = writeln!(out, "trace {}", root.trace);
            self.write(root, root.begin, 1, &mut out);
        }
        out
    }

    fn write(&self, span: &Span, origin: u64, depth: usize, out: &mut String) {
        let kind = ["", "internal", "server", "client"].get(span.kind as usize).unwrap_or(&"?");
        let milliseconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        let _ = writeln!(
            out,
            "{:indent$}{} ({kind}) {}, at {:.3} ms for {:.3} ms",
            "",
            span.name,
            span.id,
            milliseconds(origin, span.begin),
            milliseconds(span.begin, span.end),
            indent = depth * 2
        );
        for (name, value) in &span.attributes {
            let _ = writeln!(out, "{:indent$}{name} = {value}", "", indent = depth * 2 + 4);
        }
        let mut below: Vec<&Span> = self.spans.iter().filter(|other| other.parent == span.id).collect();
        below.sort_by_key(|span| span.begin);
        for span in below {
            self.write(span, origin, depth + 1, out);
        }
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let Some((head, body)) = read_request(&mut stream) else { return };
    let first = head.lines().next().unwrap_or_default().to_owned();
    let reply = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.received.requests.push(first.clone());
        let reply = state.reply.clone();
        // Only a collector that takes data may use it: the sender repeats the rest.
        if reply.as_deref() == Some(TAKEN) && decode(&first, &body, &mut state.received).is_none() {
            state.received.faults.push(format!("{first}: {body:?}"));
        }
        reply
    };
    match reply {
        Some(reply) => drop(stream.write_all(reply.as_bytes())),
        None => thread::sleep(Duration::from_secs(30)),
    }
}

fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 65536];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
            let field = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?;
            let length: usize = field.parse().ok()?;
            if bytes.len() >= end + 4 + length {
                return Some((head, bytes[end + 4..end + 4 + length].to_vec()));
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
        }
    }
}

/// A field of a message.
enum Value<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

impl<'m> Value<'m> {
    fn number(&self) -> Option<u64> {
        if let Value::Number(number) = self { Some(*number) } else { None }
    }

    fn bytes(&self) -> Option<&'m [u8]> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    fn text(&self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn hex(&self, length: usize) -> Option<String> {
        let bytes = self.bytes().filter(|bytes| bytes.len() == length)?;
        Some(bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn taken<'m>(bytes: &mut &'m [u8], length: usize) -> Option<&'m [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Returns the fields of a message. Fails if it is not one.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            1 => Value::Number(little_endian(taken(&mut bytes, 8)?)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Value::Bytes(taken(&mut bytes, length)?)
            }
            5 => Value::Number(little_endian(taken(&mut bytes, 4)?)),
            _ => return None,
        };
        all.push((key >> 3, value));
    }
    Some(all)
}

/// Returns the messages in a field.
fn messages(bytes: &[u8], number: u64) -> Option<Vec<&[u8]>> {
    let all = fields(bytes)?;
    Some(all.iter().filter(|(field, _)| *field == number).filter_map(|(_, value)| value.bytes()).collect())
}

fn decode(first: &str, body: &[u8], into: &mut Received) -> Option<()> {
    // `resource_spans` and `resource_metrics`.
    for data in messages(body, 1)? {
        for resource in messages(data, 1)? {
            for attribute in messages(resource, 1)? {
                into.resource.extend([key_value(attribute)?]);
            }
        }
        for scope in messages(data, 2)? {
            for item in messages(scope, 2)? {
                match first {
                    "POST /v1/traces HTTP/1.1" => into.spans.push(span(item)?),
                    "POST /v1/metrics HTTP/1.1" => into.metrics.extend([metric(item)?]),
                    _ => return None,
                }
            }
        }
    }
    Some(())
}

/// `KeyValue`, whose value is an `AnyValue`.
fn key_value(bytes: &[u8]) -> Option<(String, String)> {
    let (mut name, mut text) = (None, None);
    for (field, value) in fields(bytes)? {
        match field {
            1 => name = value.text(),
            2 => {
                let any = fields(value.bytes()?)?;
                text = match any.first()? {
                    (1, value) => value.text(),
                    (3, value) => value.number().map(|number| number.to_string()),
                    _ => None,
                };
            }
            _ => return None,
        }
    }
    Some((name?, text?))
}

/// `opentelemetry.proto.trace.v1.Span`.
fn span(bytes: &[u8]) -> Option<Span> {
    let mut span = Span::default();
    for (field, value) in fields(bytes)? {
        match field {
            1 => span.trace = value.hex(16)?,
            2 => span.id = value.hex(8)?,
            4 => span.parent = value.hex(8)?,
            5 => span.name = value.text()?,
            6 => span.kind = value.number()?,
            7 => span.begin = value.number()?,
            8 => span.end = value.number()?,
            9 => span.attributes.extend([key_value(value.bytes()?)?]),
            15 => {
                for (field, value) in fields(value.bytes()?)? {
                    match field {
                        2 => span.message = value.text()?,
                        3 => span.status = value.number()?,
                        _ => return None,
                    }
                }
            }
            16 => drop(value.number()?),
            _ => return None,
        }
    }
    (!span.trace.is_empty() && !span.id.is_empty() && span.begin <= span.end).then_some(span)
}

/// `opentelemetry.proto.metrics.v1.Metric`.
fn metric(bytes: &[u8]) -> Option<(String, Metric)> {
    let (mut name, mut metric) = (String::new(), Metric::default());
    for (field, value) in fields(bytes)? {
        let kind = match field {
            1 => {
                name = value.text()?;
                continue;
            }
            2 => {
                value.text()?;
                continue;
            }
            3 => {
                metric.unit = value.text()?;
                continue;
            }
            5 => "gauge",
            7 => "sum",
            9 => "histogram",
            _ => return None,
        };
        kind.clone_into(&mut metric.kind);
        for (field, value) in fields(value.bytes()?)? {
            match (field, kind) {
                (1, _) => metric.points.extend([point(value.bytes()?, kind)?]),
                // Cumulative.
                (2, "sum" | "histogram") if value.number() == Some(2) => {}
                (3, "sum") => metric.is_monotonic = value.number()? == 1,
                _ => return None,
            }
        }
    }
    Some((name, metric))
}

/// `NumberDataPoint` or `HistogramDataPoint`.
fn point(bytes: &[u8], kind: &str) -> Option<(String, f64)> {
    let (mut labels, mut number, mut buckets, mut limits) = (Vec::new(), None, 0, 0);
    for (field, value) in fields(bytes)? {
        match (field, kind) {
            (7, "gauge" | "sum") | (9, "histogram") => {
                let (name, text) = key_value(value.bytes()?)?;
                labels.push(format!("{name}={text}"));
            }
            (4, "histogram") => number = value.number().map(|count| count as f64),
            (4, _) => number = value.number().map(f64::from_bits),
            (2 | 3, _) | (5, "histogram") => drop(value.number()?),
            (6, "histogram") => buckets = value.bytes()?.len() / 8,
            (7, "histogram") => limits = value.bytes()?.len() / 8,
            _ => return None,
        }
    }
    let is_valid = kind != "histogram" || buckets == limits + 1;
    Some((labels.join(","), number.filter(|_| is_valid)?))
}
