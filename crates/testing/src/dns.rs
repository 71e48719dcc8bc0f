//! A name server for tests. Its zone may change at any time, and it can be slow, wrong, or malicious.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The reaction to a query for a name.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These addresses with this TTL.
    Addresses(u32, Vec<IpAddr>),
    /// These addresses with this TTL. Negative answers for the other record types expire after the last number of seconds.
    WithNegative(u32, Vec<IpAddr>, u32),
    /// These addresses with this TTL. Queries for the other record types fail with this code.
    OrCode(u32, Vec<IpAddr>, u8),
    /// These addresses with this TTL. Queries for the other record types get no answer.
    OrSilence(u32, Vec<IpAddr>),
    /// An alias, and the addresses of its target.
    Alias(u32, String, Vec<IpAddr>),
    /// SRV records: priority, weight, port, target.
    Services(u32, Vec<(u16, u16, u16, String)>),
    /// An answer without records and this code (3: the name does not exist).
    Code(u8),
    /// The addresses, but over UDP an answer that is marked as truncated.
    Truncated(u32, Vec<IpAddr>),
    /// The reply after a while.
    Slow(Duration, Box<Reply>),
    /// The addresses with another query's number.
    WrongId(Vec<IpAddr>),
    /// The addresses as the answer to another question.
    WrongQuestion(Vec<IpAddr>),
    /// The addresses from another port.
    ForgedSource(Vec<IpAddr>),
    /// These bytes after a header that fits the query.
    Bytes(Vec<u8>),
    /// Nothing.
    Silence,
}

#[derive(Default)]
struct Zone {
    replies: HashMap<String, Reply>,
    queries: Vec<Asked>,
    /// The number of queries over UDP from each port.
    ports: HashMap<u16, usize>,
}

/// A query that was received. A client that waits for long sends it again with the same number.
struct Asked {
    id: [u8; 2],
    name: String,
    kind: u16,
}

pub struct NameServer {
    pub address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
}

fn locked(zone: &Mutex<Zone>) -> MutexGuard<'_, Zone> {
    zone.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NameServer {
    /// Starts a server, whose zone is empty.
    pub fn start() -> NameServer {
        let (udp, tcp) = sockets();
        let address = udp.local_addr().expect("it is bound");
        let zone = Arc::new(Mutex::new(Zone::default()));
        let shared = zone.clone();
        thread::spawn(move || {
            let mut query = [0; 1500];
            let udp = Arc::new(udp);
            while let Ok((length, from)) = udp.recv_from(&mut query) {
                let (query, zone, udp) = (query[..length].to_vec(), shared.clone(), udp.clone());
                thread::spawn(move || answer_datagram(&query, &zone, &udp, from));
            }
        });
        let shared = zone.clone();
        thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                let zone = shared.clone();
                thread::spawn(move || answer_stream(stream, &zone));
            }
        });
        NameServer { address, zone }
    }

    /// Sets the reply for a name.
    pub fn set(&self, name: &str, reply: Reply) {
        locked(&self.zone).replies.insert(name.to_ascii_lowercase(), reply);
    }

    /// Sets addresses for a name, with this TTL.
    pub fn addresses(&self, name: &str, ttl: u32, addresses: &[&str]) {
        let parsed = addresses.iter().map(|address| address.parse().expect("an address"));
        self.set(name, Reply::Addresses(ttl, parsed.collect()));
    }

    /// Returns the number of queries for a name, repeated ones among them.
    pub fn queries(&self, name: &str) -> usize {
        locked(&self.zone).queries.iter().filter(|query| query.name == name).count()
    }

    /// Returns the number of different queries for the addresses of a name: those for IPv4, and those for IPv6.
    pub fn queries_by_family(&self, name: &str) -> (usize, usize) {
        let zone = locked(&self.zone);
        let count = |kind| {
            let asked = zone.queries.iter().filter(|query| query.name == name && query.kind == kind);
            asked.map(|query| query.id).collect::<HashSet<_>>().len()
        };
        (count(A), count(AAAA))
    }

    /// Returns the number of queries over UDP from each port.
    pub fn ports(&self) -> HashMap<u16, usize> {
        locked(&self.zone).ports.clone()
    }
}

/// Binds UDP and TCP sockets with the same port.
fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("there is a free port");
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("it is bound")) {
            return (udp, tcp);
        }
    }
    panic!("no port is free for both protocols");
}

/// The parts of a query.
struct Query<'q> {
    id: [u8; 2],
    name: String,
    kind: u16,
    question: &'q [u8],
}

fn parse(query: &[u8]) -> Option<Query<'_>> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*query.get(at)?);
        let label = query.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
    }
    let kind = u16::from_be_bytes(query.get(at..at + 2)?.try_into().ok()?);
    Some(Query { id: [query[0], query[1]], name: labels.join("."), kind, question: query.get(12..at + 4)? })
}

fn wire_name(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut out: Vec<u8> =
        labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    out.push(0);
    out
}

fn record(name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u16).to_be_bytes();
    [name, &kind.to_be_bytes(), &1u16.to_be_bytes(), &ttl.to_be_bytes(), &length, data].concat()
}

const A: u16 = 1;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const NAME_OF_QUESTION: &[u8] = &[0xc0, 12];

fn address_records(name: &[u8], kind: u16, ttl: u32, addresses: &[IpAddr]) -> Vec<Vec<u8>> {
    let data = addresses.iter().filter_map(|address| match (address, kind) {
        (IpAddr::V4(v4), A) => Some(v4.octets().to_vec()),
        (IpAddr::V6(v6), AAAA) => Some(v6.octets().to_vec()),
        _ => None,
    });
    data.map(|data| record(name, kind, ttl, &data)).collect()
}

fn message(query: &Query<'_>, code: u8, flags: u8, records: &[Vec<u8>]) -> Vec<u8> {
    let count = (records.len() as u16).to_be_bytes();
    let header = [query.id[0], query.id[1], 0x81 | flags, 0x80 | code, 0, 1, count[0], count[1], 0, 0, 0, 0];
    [&header, query.question, &records.concat()].concat()
}

/// Returns a negative answer that expires after this time.
fn negative(query: &Query<'_>, seconds: u32) -> Vec<u8> {
    let numbers = [1, 3600, 600, 86400, seconds].map(u32::to_be_bytes).concat();
    let authority = [wire_name("ns.example"), wire_name("admin.example"), numbers].concat();
    let record = record(NAME_OF_QUESTION, SOA, u32::MAX >> 1, &authority);
    let mut message = message(query, 0, 0, &[]);
    // The number of authorities.
    message[9] = 1;
    [message, record].concat()
}

/// Returns the answer to a query, or `None` for silence.
fn answer(query: &Query<'_>, reply: &Reply, is_udp: bool) -> Option<Vec<u8>> {
    let addressed = |ttl, list: &[IpAddr]| address_records(NAME_OF_QUESTION, query.kind, ttl, list);
    Some(match reply {
        Reply::Truncated(..) if is_udp => message(query, 0, 2, &[]),
        Reply::Addresses(ttl, list) | Reply::Truncated(ttl, list) => {
            message(query, 0, 0, &addressed(*ttl, list))
        }
        Reply::WithNegative(ttl, list, seconds) => match addressed(*ttl, list) {
            none if none.is_empty() => negative(query, *seconds),
            records => message(query, 0, 0, &records),
        },
        Reply::OrCode(ttl, list, code) => match addressed(*ttl, list) {
            none if none.is_empty() => message(query, *code, 0, &[]),
            records => message(query, 0, 0, &records),
        },
        Reply::OrSilence(ttl, list) => match addressed(*ttl, list) {
            none if none.is_empty() => return None,
            records => message(query, 0, 0, &records),
        },
        Reply::Alias(ttl, target, list) => {
            let target = wire_name(target);
            let mut records = vec![record(NAME_OF_QUESTION, CNAME, *ttl, &target)];
            records.extend(address_records(&target, query.kind, *ttl, list));
            message(query, 0, 0, &records)
        }
        Reply::Services(ttl, list) => {
            let service = |(priority, weight, port, target): &(u16, u16, u16, String)| {
                let numbers = [*priority, *weight, *port].map(u16::to_be_bytes).concat();
                record(NAME_OF_QUESTION, SRV, *ttl, &[numbers, wire_name(target)].concat())
            };
            let records: Vec<_> = list.iter().filter(|_| query.kind == SRV).map(service).collect();
            message(query, 0, 0, &records)
        }
        Reply::Code(code) => message(query, *code, 0, &[]),
        Reply::Slow(time, reply) => {
            thread::sleep(*time);
            return answer(query, reply, is_udp);
        }
        Reply::WrongId(list) => {
            let mut wrong = message(query, 0, 0, &addressed(60, list));
            wrong[0] = !wrong[0];
            wrong
        }
        Reply::WrongQuestion(list) => {
            let question =
                [wire_name("other.example"), query.kind.to_be_bytes().to_vec(), vec![0, 1]].concat();
            let other = Query { id: query.id, name: String::new(), kind: query.kind, question: &question };
            message(&other, 0, 0, &addressed(60, list))
        }
        Reply::ForgedSource(list) => message(query, 0, 0, &addressed(60, list)),
        Reply::Bytes(bytes) => {
            let mut start = message(query, 0, 0, &[vec![]]);
            start.extend(bytes);
            start
        }
        Reply::Silence => return None,
    })
}

fn reply_of(zone: &Mutex<Zone>, query: &Query<'_>) -> Reply {
    let mut zone = locked(zone);
    zone.queries.push(Asked { id: query.id, name: query.name.clone(), kind: query.kind });
    zone.replies.get(&query.name).cloned().unwrap_or(Reply::Code(3))
}

fn answer_datagram(query: &[u8], zone: &Mutex<Zone>, socket: &UdpSocket, from: SocketAddr) {
    let Some(query) = parse(query) else { return };
    *locked(zone).ports.entry(from.port()).or_default() += 1;
    let reply = reply_of(zone, &query);
    let Some(answer) = answer(&query, &reply, true) else { return };
    if matches!(reply, Reply::ForgedSource(_)) {
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let _ = other.send_to(&answer, from);
    } else {
        let _ = socket.send_to(&answer, from);
    }
}

fn answer_stream(mut stream: TcpStream, zone: &Mutex<Zone>) {
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        if stream.read_exact(&mut query).is_err() {
            return;
        }
        let Some(query) = parse(&query) else { return };
        let Some(answer) = answer(&query, &reply_of(zone, &query), false) else { return };
        let whole = [&(answer.len() as u16).to_be_bytes(), &answer[..]].concat();
        if stream.write_all(&whole).is_err() {
            return;
        }
    }
}
