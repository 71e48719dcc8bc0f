//! The spans of traced transactions, from their records in the log (`engine/src/spans.rs`).
//!
//! A transaction is a span, and the phases within it are spans below: each VCL subroutine, the wait for the fetch of another
//! request, the connection to the origin, its response, the delivery. Their times are those of the log's timestamps.

use lacquer_inspect::log_line::LogLine;
use lacquer_inspect::page::short;
use lacquer_inspect::ring::Record;
use lacquer_inspect::transaction::{Kind as Transactions, ORIGIN_REQUEST, REQUEST, TRACE, Transaction};
use lacquer_shm::Tag;

use super::span::{Kind, Span};

/// Maximum number of spans below that of a transaction.
const MAX_PHASES: usize = 64;
/// The methods that are names of spans. Others may be anything.
const METHODS: &[&str] =
    &["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "PURGE", "BAN"];

/// The phases that end with a timestamp and begin with the one before it.
const REQUEST_PHASES: &[(&str, &str)] = &[
    ("Waitinglist", "lookup wait"),
    ("Disk", "lookup on disk"),
    ("ReqBody", "request body"),
    ("Resp", "deliver"),
    ("Pipe", "connect"),
    ("PipeSess", "pipe"),
    ("Upgrade", "connect"),
];
const FETCH_PHASES: &[(&str, &str)] = &[
    ("Connected", "connect"),
    ("Bereq", "send request"),
    ("Beresp", "wait for response"),
    ("BerespBody", "response body"),
];

/// Returns whether the spans of a transaction depend on a record of it. It has little of transactions that are not traced.
#[inline]
pub fn is_needed(record: &Record<'_>, transaction: &Transaction) -> bool {
    match record.tag {
        Tag::Notice => record.text.starts_with(TRACE),
        Tag::Timestamp if record.text.starts_with(b"Start:") => true,
        _ => transaction.is_traced(),
    }
}

/// Returns whether spans may depend on records with a tag.
pub fn is_tag_needed(tag: Tag) -> bool {
    matches!(
        tag,
        Tag::Notice
            | Tag::Timestamp
            | Tag::ReqStart
            | Tag::ReqMethod
            | Tag::ReqURL
            | Tag::ReqProtocol
            | Tag::ReqHeader
            | Tag::ReqUnset
            | Tag::ReqAcct
            | Tag::RespStatus
            | Tag::BereqMethod
            | Tag::BereqURL
            | Tag::BereqHeader
            | Tag::BereqUnset
            | Tag::BerespStatus
            | Tag::BackendOpen
            | Tag::FetchError
            | Tag::VCL_call
            | Tag::VCL_return
            | Tag::Hit
            | Tag::HitPass
            | Tag::HitMiss
    )
}

/// Returns the spans of a transaction; `None` if it is not traced.
pub fn spans(transaction: &Transaction) -> Option<Vec<Span>> {
    let (context, parent) = transaction.trace()?;
    let is_of_client = transaction.reason == "rxreq";
    let kind = match transaction.kind {
        Transactions::Request if is_of_client => Kind::Server,
        Transactions::Request => Kind::Internal,
        Transactions::Fetch => Kind::Client,
        Transactions::Session => return None,
    };
    let stamps = transaction.timestamps();
    let end = stamps.iter().map(|stamp| stamp.at).fold(transaction.start(), f64::max);
    let mut span = Span {
        context,
        parent,
        is_parent_remote: is_of_client && parent != 0,
        kind,
        name: String::new(),
        times: [transaction.start(), end],
        texts: Vec::new(),
        numbers: vec![("lacquer.vxid", transaction.vxid)],
        failure: None,
    };
    if kind == Kind::Client {
        describe_fetch(&mut span, transaction);
    } else {
        describe(&mut span, transaction);
    }
    let table = if kind == Kind::Client { FETCH_PHASES } else { REQUEST_PHASES };
    let waits = stamps.iter().filter_map(|stamp| {
        let (_, name) = table.iter().find(|(step, _)| *step == stamp.step)?;
        Some(((*name).to_owned(), [stamp.at - stamp.since_last, stamp.at]))
    });
    let subroutines = transaction.all(Tag::Notice).skip(1).filter_map(subroutine);
    let mut phases: Vec<(String, [f64; 2])> = waits.chain(subroutines).take(MAX_PHASES).collect();
    phases.sort_by(|a, b| a.1[0].total_cmp(&b.1[0]));
    let below = phases.into_iter().zip(1..).map(|((name, times), at)| Span {
        context: context.with_span(mixed(context.span(), at)),
        parent: context.span(),
        is_parent_remote: false,
        kind: Kind::Internal,
        name,
        times,
        texts: Vec::new(),
        numbers: Vec::new(),
        failure: None,
    });
    let below: Vec<Span> = below.collect();
    Some(std::iter::once(span).chain(below).collect())
}

/// Parses `trace: vcl_recv BEGIN SECONDS`.
fn subroutine(text: &[u8]) -> Option<(String, [f64; 2])> {
    let text = std::str::from_utf8(text.strip_prefix(TRACE)?).ok()?;
    let mut words = text.split(' ');
    let (name, begin, seconds) = (words.next()?, words.next()?, words.next()?);
    let (begin, seconds) = (begin.parse::<f64>().ok()?, seconds.parse::<f64>().ok()?);
    name.starts_with("vcl_").then(|| (name.to_owned(), [begin, begin + seconds]))
}

/// Returns the number of the span below another one with this position (the finalizer of SplitMix64).
fn mixed(above: u64, at: u64) -> u64 {
    let mut x = above.wrapping_add(at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn span_name(method: &str) -> String {
    if METHODS.contains(&method) { method.to_owned() } else { "HTTP".to_owned() }
}

fn text(transaction: &Transaction, tag: Tag) -> String {
    transaction.first(tag).map(short).unwrap_or_default()
}

/// Adds the attributes of a request, with the names of OpenTelemetry's conventions for HTTP.
fn describe(span: &mut Span, request: &Transaction) {
    let method = text(request, Tag::ReqMethod);
    span.name = span_name(&method);
    let url = text(request, Tag::ReqURL);
    let (path, query) = url.split_once('?').unwrap_or((&url, ""));
    let header = |name: &str| short(request.header(REQUEST, name).unwrap_or_default().as_bytes());
    let start = text(request, Tag::ReqStart);
    let client = start.split(' ').next().unwrap_or_default();
    // `ADDRESS PORT LISTENER`, and with TLS `https`.
    let scheme = if start.split(' ').nth(3) == Some("https") { "https" } else { "http" };
    let protocol = text(request, Tag::ReqProtocol);
    span.texts.extend([
        ("http.request.method", method),
        ("url.path", path.to_owned()),
        ("url.query", query.to_owned()),
        ("url.scheme", scheme.to_owned()),
        ("client.address", client.to_owned()),
        ("user_agent.original", header("User-Agent")),
        ("network.protocol.version", protocol.strip_prefix("HTTP/").unwrap_or_default().to_owned()),
    ]);
    add_server(span, &header("Host"));
    if let Some(line) = LogLine::of(request) {
        span.texts.push(("lacquer.handling", line.how.to_owned()));
        span.numbers.push(("http.response.size", line.bytes));
    } else {
        span.texts.push(("lacquer.reason", request.reason.clone()));
    }
    add_status(span, request.last(Tag::RespStatus));
}

fn describe_fetch(span: &mut Span, fetch: &Transaction) {
    let method = text(fetch, Tag::BereqMethod);
    span.name = span_name(&method);
    let host = short(fetch.header(ORIGIN_REQUEST, "Host").unwrap_or_default().as_bytes());
    let url = fetch.last(Tag::BereqURL).map(short).unwrap_or_default();
    span.texts.push(("http.request.method", method));
    add_server(span, &host);
    // `25 NAME ADDRESS PORT ...`
    if let Some(opened) = fetch.last(Tag::BackendOpen).map(short) {
        let has_tls = fetch.all(Tag::Notice).any(|text| text.strip_prefix(TRACE) == Some(&b"https"[..]));
        let scheme = if has_tls { "https" } else { "http" };
        let mut words = opened.split(' ').skip(1).map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        span.texts.extend([
            ("url.full", format!("{scheme}://{host}{url}")),
            ("lacquer.backend", word()),
            ("network.peer.address", word()),
        ]);
        if let Ok(port) = word().parse() {
            span.numbers.push(("network.peer.port", port));
        }
    }
    span.texts.push(("lacquer.reason", fetch.reason.clone()));
    add_status(span, fetch.last(Tag::BerespStatus));
    if let Some(why) = fetch.last(Tag::FetchError) {
        span.failure = Some(short(why));
    }
}

/// Adds the host and the port of a `Host` header.
fn add_server(span: &mut Span, host: &str) {
    let parts = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
    // The colons of an IPv6 address are in brackets if a port follows.
    let parts = parts.filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
    let name = parts.map_or(host, |(name, _)| name);
    span.texts.push(("server.address", name.trim_matches(['[', ']']).to_owned()));
    if let Some((_, port)) = parts {
        span.numbers.push(("server.port", port.into()));
    }
}

fn add_status(span: &mut Span, record: Option<&[u8]>) {
    if let Some(status) = record.and_then(|text| short(text).parse::<u64>().ok()) {
        span.numbers.push(("http.response.status_code", status));
        if status >= 500 {
            span.failure = Some(String::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_inspect::transaction::Grouping;

    const CONTEXT: &str = "trace: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 0000000000000abc";

    fn spans_of(vxid: u64, records: &[(Tag, &str)]) -> Vec<Span> {
        let mut grouping = Grouping::default();
        let mut made = Vec::new();
        for (tag, text) in records.iter().chain(&[(Tag::End, "")]) {
            let record = Record { tag: *tag, vxid, is_backend: false, text: text.as_bytes() };
            if let Some(ended) = grouping.add_if(&record, |open| is_needed(&record, open)) {
                made.extend(spans(ended).unwrap_or_default());
            }
        }
        made
    }

    #[test]
    fn a_request_is_a_span_with_its_phases() {
        let spans = spans_of(
            7,
            &[
                (Tag::Begin, "req 1 rxreq"),
                (Tag::Timestamp, "Start: 100.000000 0.000000 0.000000"),
                (Tag::Notice, CONTEXT),
                (Tag::ReqStart, "192.0.2.1 5000 a0"),
                (Tag::ReqMethod, "GET"),
                (Tag::ReqURL, "/a?b=c"),
                (Tag::ReqHeader, "Host: www.example.org"),
                (Tag::VCL_call, "RECV"),
                (Tag::Notice, "trace: vcl_recv 100.001000 0.000200"),
                (Tag::Notice, "vsl: another notice"),
                (Tag::Timestamp, "Waitinglist: 100.500000 0.500000 0.498000"),
                (Tag::Hit, "3 10.0 10.0 0.0"),
                (Tag::RespStatus, "503"),
                (Tag::Timestamp, "Resp: 100.600000 0.600000 0.050000"),
            ],
        );
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["GET", "vcl_recv", "lookup wait", "deliver"]);
        let [root, vcl, wait, deliver] = &spans[..] else { panic!("four spans") };
        assert_eq!((root.parent, root.is_parent_remote, root.kind), (0xabc, true, Kind::Server));
        assert_eq!((root.times, root.failure.as_deref()), ([100.0, 100.6], Some("")));
        for (name, text) in [
            ("url.path", "/a"),
            ("url.query", "b=c"),
            ("url.scheme", "http"),
            ("server.address", "www.example.org"),
            ("client.address", "192.0.2.1"),
            ("lacquer.handling", "hit"),
        ] {
            assert!(root.texts.contains(&(name, text.to_owned())), "{name}: {:?}", root.texts);
        }
        assert!(root.numbers.contains(&("http.response.status_code", 503)));
        assert!([vcl, wait, deliver].iter().all(|span| span.parent == root.context.span()));
        assert!((wait.times[0] - 100.002).abs() < 1e-6 && (deliver.times[1] - 100.6).abs() < 1e-6);
        assert_ne!(vcl.context.span(), wait.context.span());
        assert_eq!(vcl.context.trace(), root.context.trace());
    }

    #[test]
    fn a_fetch_is_a_span_below_its_request() {
        let spans = spans_of(
            8,
            &[
                (Tag::Begin, "bereq 7 fetch"),
                (Tag::Notice, CONTEXT),
                (Tag::Timestamp, "Start: 100.0 0.0 0.0"),
                (Tag::BereqMethod, "X\u{1b}"),
                (Tag::BereqURL, "/a"),
                (Tag::BackendOpen, "25 boot.a 192.0.2.9 80 192.0.2.1 4000 connect"),
                (Tag::Timestamp, "Connected: 100.2 0.2 0.1"),
                (Tag::FetchError, "backend a: timeout"),
            ],
        );
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["HTTP", "connect"]);
        assert_eq!((spans[0].kind, spans[0].is_parent_remote), (Kind::Client, false));
        assert_eq!(spans[0].failure.as_deref(), Some("backend a: timeout"));
        assert!(spans[0].texts.contains(&("network.peer.address", "192.0.2.9".to_owned())));
    }

    #[test]
    fn the_scheme_is_that_of_the_connection_and_the_port_is_apart() {
        let start = (Tag::Timestamp, "Start: 100.0 0.0 0.0");
        for (host, name, port) in [
            ("h.example:8443", "h.example", Some(8443)),
            ("[::1]:80", "::1", Some(80)),
            ("[::1]", "::1", None),
            ("::1:80", "::1:80", None),
            ("h:x", "h:x", None),
        ] {
            let header = format!("Host: {host}");
            let of_tls = (Tag::ReqStart, "192.0.2.1 5000 a1 https");
            let request = [(Tag::Begin, "req 1 rxreq"), start, (Tag::Notice, CONTEXT), of_tls];
            let request = spans_of(7, &[&request[..], &[(Tag::ReqHeader, header.as_str())]].concat());
            let number = |name: &str| {
                request[0].numbers.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
            };
            assert!(request[0].texts.contains(&("url.scheme", "https".to_owned())));
            assert!(
                request[0].texts.contains(&("server.address", name.to_owned())),
                "{:?}",
                request[0].texts
            );
            assert_eq!(number("server.port"), port, "{host}");
        }
        let opened = (Tag::BackendOpen, "25 boot.a 192.0.2.9 443 192.0.2.1 4000 connect");
        let tls = (Tag::Notice, "trace: https");
        for (connection, full) in [
            (&[opened, tls][..], Some("https://h:443/a")),
            (&[opened][..], Some("http://h:443/a")),
            // It never had a connection, whose scheme would be known.
            (&[][..], None),
        ] {
            let fetch = [(Tag::Begin, "bereq 7 fetch"), start, (Tag::Notice, CONTEXT)];
            let head = [(Tag::BereqURL, "/a"), (Tag::BereqHeader, "Host: h:443")];
            let spans = spans_of(8, &[&fetch[..], &head, connection].concat());
            assert_eq!(spans.len(), 1, "the record of TLS is no span");
            let found = spans[0].texts.iter().find(|(name, _)| *name == "url.full");
            assert_eq!(found.map(|(_, text)| text.as_str()), full);
        }
    }

    #[test]
    fn others_and_damaged_records_give_no_spans() {
        let plain = (Tag::Timestamp, "Start: 100.0 0.0 0.0");
        for records in [
            vec![(Tag::Begin, "req 1 rxreq"), plain],
            vec![(Tag::Begin, "sess 0 HTTP/1"), (Tag::Notice, CONTEXT), plain],
            vec![(Tag::Begin, "req 1 rxreq"), (Tag::Notice, "trace: x -"), plain],
            vec![(Tag::Begin, "req 1 rxreq"), (Tag::Notice, "trace: 00-"), plain],
            // VCL has written it.
            vec![(Tag::Begin, "req 1 rxreq"), (Tag::VCL_Log, CONTEXT), plain],
        ] {
            assert_eq!(spans_of(9, &records), [], "{records:?}");
        }
        let many: Vec<(Tag, &str)> = [(Tag::Begin, "req 1 rxreq"), (Tag::Notice, CONTEXT), plain]
            .into_iter()
            .chain((0..1000).map(|_| (Tag::Notice, "trace: vcl_recv NaN inf")))
            .collect();
        let spans = spans_of(9, &many);
        assert_eq!(spans.len(), 1 + MAX_PHASES);
        assert!(spans.iter().all(|span| !span.message().into_bytes().is_empty()));
    }
}
