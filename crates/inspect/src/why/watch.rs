//! Collects the facts of a request: prepares the log, sends the request and reads its records.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_shm::Tag;

use super::explanation::{Explanation, exchange_line, explain};
use super::history::{Historian, Past};
use super::story::{SourceText, Story, parse_bans, parse_sources};
use crate::directory::Directory;
use crate::fault::Fault;
use crate::management::Management;
use crate::page::plain;
use crate::request::{OTHER_PROTOCOL, Request, Response, Target};
use crate::ring::LogReader;
use crate::transaction::{Grouping, Kind, ORIGIN_REQUEST, REQUEST, Transaction};
use crate::wire::{Address, Means};

/// The time that the records may need after the response.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of transactions of a request.
const MAX_TRANSACTIONS: usize = 5000;

/// The tags that an explanation needs and that may be masked.
const TAGS: [&str; 16] = [
    "Hash",
    "VCL_trace",
    "VCL_call",
    "VCL_return",
    "Begin",
    "End",
    "Link",
    "ReqStart",
    "ReqURL",
    "ReqHeader",
    "TTL",
    "Timestamp",
    "Hit",
    "ExpBan",
    "BerespHeader",
    "BackendOpen",
];

/// The request that the user asks about.
#[derive(Clone, Debug)]
pub struct Question {
    pub target: Target,
    pub method: String,
    pub headers: Vec<(String, String)>,
    /// The listener to use.
    pub to: Option<String>,
    pub means: Means,
}

/// The answer: a line about the exchange, and its explanation.
#[derive(Clone, Debug)]
pub struct Answer {
    pub exchange: String,
    pub status: Option<u16>,
    /// The response's own explanation: its header `X-Lacquer-Why`.
    pub header: Option<String>,
    pub explanation: Explanation,
}

/// Sends the request to the daemon of a directory, and explains what became of it.
pub fn ask(directory: &Directory, question: &Question) -> Result<Answer, Fault> {
    match Management::of(directory) {
        Ok(mut management) => ask_with(directory, Some(&mut management), None, question),
        Err(fault) => ask_with(directory, None, Some(fault.what), question),
    }
}

/// Sends the request like [`ask`], with a connection to the manager that exists, or the reason why there is none.
pub fn ask_with(
    directory: &Directory,
    mut management: Option<&mut Management>,
    why_not: Option<String>,
    question: &Question,
) -> Result<Answer, Fault> {
    let mut reader = LogReader::at_end(directory)?;
    let to = listener(directory, management.as_deref_mut(), question)?;
    let host = match question.target.host.as_str() {
        "" => match &to {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(_) => "localhost".to_owned(),
        },
        host => host.to_owned(),
    };
    let request = Request {
        method: question.method.clone(),
        host,
        path: question.target.path.clone(),
        headers: question.headers.clone(),
    };
    let bans = management
        .as_deref_mut()
        .and_then(|open| open.command("ban.list").ok())
        .map(|reply| parse_bans(&reply.text));
    let details = management.as_deref_mut().map_or_else(Vec::new, enable_details);
    let sent = request.send(&to, &question.means);
    let tree = sent.as_ref().ok().map(|response| follow(&mut reader, &to, response)).transpose();
    // The log is set back whatever happened.
    if let Some(open) = management.as_deref_mut() {
        disable_details(open, &details);
    }
    let (response, tree) = (sent?, tree?.unwrap_or_default());
    let mut story = Story { root: tree.root, transactions: tree.all, bans, ..Story::default() };
    if story.transaction(story.root).is_none() && response.head.is_empty() {
        return Err(Fault::new(format_args!("the listener {to} closed the connection"), OTHER_PROTOCOL));
    }
    if story.transaction(story.root).is_none() {
        return Err(Fault::new(
            "the request is not in the log",
            "the address may belong to another program (--to HOST:PORT), or the log is too small (vsl_space)",
        ));
    }
    story.sources = management.map_or_else(Vec::new, |open| sources(open, &story));
    story.past = past(directory, &story);
    let mut explanation =
        explain(&story).ok_or_else(|| Fault::new("the log has no records of it", "repeat the command"))?;
    if let Some(why) = why_not {
        let note = format!("the lines of the VCL and the bans are not known, because {why}");
        explanation.notes.push(note);
    }
    if !tree.is_complete {
        explanation
            .notes
            .push("some transactions of the request had not ended after five seconds".to_owned());
    }
    let exchange = exchange_line(&request, response.status, response.body, &story);
    let header = header_of(&response.head, "x-lacquer-why");
    Ok(Answer { exchange, status: response.status, header, explanation })
}

/// Returns the address of the listener: the one that the user names, the one with the URL's port, or the first.
fn listener(
    directory: &Directory,
    management: Option<&mut Management>,
    question: &Question,
) -> Result<Address, Fault> {
    if let Some(to) = &question.to {
        if to.starts_with('/') {
            return Ok(Address::Unix(to.into()));
        }
        let parsed = to.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        return parsed.map(Address::Tcp).ok_or_else(|| {
            Fault::new(
                format_args!("--to {} is not an address", plain(to.as_bytes())),
                "write it as HOST:PORT, or as the path of a UNIX socket: /PATH",
            )
        });
    }
    let listed = management.and_then(|open| open.listeners().ok()).unwrap_or_default();
    let mut all: Vec<SocketAddr> = listed.iter().filter_map(|(ip, port)| address_of(ip, port)).collect();
    if all.is_empty() {
        all = logged_listeners(directory);
    }
    let wanted = question.target.port.unwrap_or(if question.target.is_https { 443 } else { 80 });
    let same_port = all.iter().find(|address| address.port() == wanted);
    // Another listener may have other certificates, or none.
    let other = all.first().filter(|_| !question.target.is_https || all.len() == 1);
    same_port.or(other).copied().map(Address::Tcp).ok_or_else(|| {
        if question.target.is_https {
            let what = format_args!("no listener has the port {wanted}");
            return Fault::new(what, "name the one with TLS: --to HOST:PORT");
        }
        Fault::new(
            "the address on which the daemon listens is not known",
            "name it: --to HOST:PORT, or --to /PATH of a UNIX socket",
        )
    })
}

/// Returns the address by which a listener can be reached.
fn address_of(ip: &str, port: &str) -> Option<SocketAddr> {
    let ip: IpAddr = ip.parse().ok()?;
    let ip = match ip {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Some(SocketAddr::new(ip, port.parse().ok()?))
}

/// Returns the listeners that the sessions in the log name, the newest first.
fn logged_listeners(directory: &Directory) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    if let Ok(mut reader) = LogReader::at_start(directory) {
        let _ = reader.read(&mut |record| {
            if record.tag == Tag::SessOpen {
                let text = record.shown();
                let words: Vec<&str> = text.split(' ').collect();
                if let [_, _, _, ip, port, ..] = words[..] {
                    found.extend(address_of(ip, port));
                }
            }
        });
    }
    found.reverse();
    found
}

/// A change of a parameter, and the command that takes it back.
type Details = Vec<[&'static str; 2]>;

/// Unmasks the tags that the explanation needs, and the trace of VCL. Only what this function changes is set back, so
/// that other users of the log keep what they have set.
fn enable_details(management: &mut Management) -> Details {
    let mut changed = Vec::new();
    let mask = value_of(management, "vsl_mask");
    for tag in TAGS {
        if mask.split(',').any(|word| word.strip_prefix('-') == Some(tag)) || mask == "none" {
            changed.push(["vsl_mask", tag]);
        }
    }
    if !value_of(management, "feature").split(',').any(|word| word == "+trace") {
        changed.push(["feature", "trace"]);
    }
    changed.retain(|[name, bit]| {
        let reply = management.command(&format!("param.set {name} +{bit}"));
        reply.is_ok_and(|reply| reply.status == 200)
    });
    changed
}

fn disable_details(management: &mut Management, changed: &Details) {
    for [name, bit] in changed {
        // A daemon that has ended has nothing to set back.
        let _ = management.command(&format!("param.set {name} -{bit}"));
    }
}

fn value_of(management: &mut Management, name: &str) -> String {
    let reply = management.command(&format!("param.show {name}")).ok();
    let text = reply.map(|reply| reply.text).unwrap_or_default();
    let value = text.lines().find_map(|line| line.trim().strip_prefix("Value is: ").map(str::to_owned));
    value.unwrap_or_default().split(" (default)").next().unwrap_or_default().to_owned()
}

/// The transactions of a request.
#[derive(Debug, Default)]
struct Tree {
    root: u64,
    all: BTreeMap<u64, Transaction>,
    is_complete: bool,
}

/// Reads the log until all transactions of the request have ended.
fn follow(reader: &mut LogReader, to: &Address, response: &Response) -> Result<Tree, Fault> {
    let mut grouping = Grouping::default();
    let mut ended: BTreeMap<u64, Transaction> = BTreeMap::new();
    let start = Instant::now();
    let x_varnish = x_varnish(&response.head);
    loop {
        let read = reader.read(&mut |record| {
            let transaction = grouping.add(&record).filter(|_| ended.len() < MAX_TRANSACTIONS * 20);
            if let Some(transaction) = transaction {
                ended.insert(transaction.vxid, transaction.clone());
            }
        });
        read.map_err(|error| {
            Fault::new(
                format_args!("the log cannot be read: {error}"),
                "the daemon may have ended; repeat the command",
            )
        })?;
        let root = find_root(&ended, to, response.local_port, x_varnish);
        let tree = root.map(|root| tree_of(&ended, root));
        let is_late = start.elapsed() > PATIENCE;
        match tree {
            Some(tree) if tree.is_complete || is_late => return Ok(tree),
            None if is_late => return Ok(Tree::default()),
            _ => thread::sleep(PAUSE),
        }
    }
}

/// Finds the request by the port of its client, or by its number in the response if the listener's clients have none.
fn find_root(
    ended: &BTreeMap<u64, Transaction>,
    to: &Address,
    port: Option<u16>,
    x_varnish: Option<u64>,
) -> Option<u64> {
    let is_loopback = matches!(to, Address::Tcp(to) if to.ip().is_loopback());
    let is_first = |t: &&Transaction| t.kind == Kind::Request && t.reason == "rxreq";
    let by_port = |port: u16| {
        ended.values().filter(is_first).find(|t| {
            client_of(t).is_some_and(|client| {
                client.ends_with(&format!(" {port}"))
                    && (!is_loopback || client.starts_with("127.") || client.starts_with("::1"))
            })
        })
    };
    let by_number = || ended.values().filter(is_first).find(|t| Some(t.vxid) == x_varnish);
    port.and_then(by_port).or_else(by_number).map(|t| t.vxid)
}

/// Returns the request's number from the response.
fn x_varnish(head: &[u8]) -> Option<u64> {
    header_of(head, "x-varnish")?.split(' ').next()?.parse().ok()
}

/// Returns the value of a header of a response.
fn header_of(head: &[u8], wanted: &str) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
    })
}

fn tree_of(ended: &BTreeMap<u64, Transaction>, root: u64) -> Tree {
    let mut tree = Tree { root, is_complete: true, ..Tree::default() };
    let mut next = vec![root];
    while let Some(vxid) = next.pop() {
        if tree.all.contains_key(&vxid) || tree.all.len() >= MAX_TRANSACTIONS {
            continue;
        }
        match ended.get(&vxid) {
            Some(found) => {
                next.extend(found.links().into_iter().map(|(_, vxid, _)| vxid));
                tree.all.insert(vxid, found.clone());
            }
            None => tree.is_complete = false,
        }
    }
    tree
}

/// Reads the texts of the VCL that the request has used.
fn sources(management: &mut Management, story: &Story) -> Vec<SourceText> {
    let used = story.requests(story.root).last().and_then(|request| request.last(Tag::VCL_use).map(plain));
    let Some(name) = used.as_deref().and_then(|text| text.split(' ').next()) else { return Vec::new() };
    let reply = management.words(&["vcl.show", "-v", name]);
    reply.map_or_else(|_| Vec::new(), |text| parse_sources(&text))
}

/// Reads what the log contains of the page's past.
fn past(directory: &Directory, story: &Story) -> Past {
    let requests = story.requests(story.root);
    let Some(last) = requests.last() else { return Past::default() };
    let fetch = story.fetches(last).last().copied();
    let (url, host) = match fetch {
        Some(fetch) => (fetch.first(Tag::BereqURL), fetch.header(ORIGIN_REQUEST, "Host")),
        None => (last.last(Tag::ReqURL), last.header(REQUEST, "Host")),
    };
    let url = String::from_utf8_lossy(url.unwrap_or_default()).into_owned();
    let host = host.unwrap_or_default();
    let is_own = |vxid: u64| story.transactions.contains_key(&vxid);
    let mut historian = Historian::new(&url, &host, &is_own);
    if let Ok(mut reader) = LogReader::at_start(directory) {
        // Records that were read before a failure are still true.
        let mut grouping = Grouping::default();
        let _ = reader.read(&mut |record| {
            historian.add_event(&record);
            if let Some(ended) = grouping.add(&record) {
                historian.add_ended(ended);
            }
        });
    }
    historian.finish()
}

/// Returns the address and port of the client of a request.
fn client_of(request: &Transaction) -> Option<String> {
    let start = plain(request.first(Tag::ReqStart)?);
    let mut words = start.split(' ');
    Some(format!("{} {}", words.next()?, words.next()?))
}
