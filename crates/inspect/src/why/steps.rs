//! The steps of a request in words.

use std::fmt::Write as _;

use lacquer_shm::Tag;

use super::decide::{Decision, decide};
use super::lifetime::Storing;
use super::sentences::{headline, lifetime_words, obstacle_words};
use super::story::{Call, Story};
use crate::page::{duration, plain, short};
use crate::transaction::{Kind, ORIGIN_REQUEST, ORIGIN_RESPONSE, REQUEST, RESPONSE, Transaction};

/// Number of includes of a page that are listed.
const MAX_INCLUDES: usize = 20;

/// A step: its name and its lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub name: &'static str,
    pub lines: Vec<String>,
}

/// Returns the steps of a request.
pub fn steps(story: &Story, request: u64, decision: &Decision) -> Vec<Step> {
    let requests = story.requests(request);
    let mut steps = Vec::new();
    for (at, this) in requests.iter().enumerate() {
        let name = if at == 0 { "Request" } else { "Restart" };
        steps.push(Step { name, lines: request_lines(this) });
        let calls = story.calls(this);
        let (before, after): (Vec<&Call>, Vec<&Call>) =
            calls.iter().partition(|call| ["vcl_recv", "vcl_hash"].contains(&call.sub.as_str()));
        add(&mut steps, "VCL", before.into_iter().map(call_words).collect());
        add(&mut steps, "Cache key", key(this));
        add(&mut steps, "Lookup", lookup(story, this));
        let deliver = |call: &&Call| ["vcl_deliver", "vcl_synth"].contains(&call.sub.as_str());
        add(
            &mut steps,
            "VCL",
            after.iter().filter(|call| !deliver(call)).map(|call| call_words(call)).collect(),
        );
        for fetch in story.fetches(this) {
            add(&mut steps, "Origin", origin(story, fetch));
        }
        if at + 1 == requests.len() {
            add(&mut steps, "Lifetime", lifetime(decision));
            add(&mut steps, "Variant", variant(story, this));
        }
        add(&mut steps, "Includes", includes(story, this));
        add(&mut steps, "Response", response(this, after.iter().filter(|call| deliver(call))));
        add(&mut steps, "Time", times(story, this));
    }
    steps
}

fn add(steps: &mut Vec<Step>, name: &'static str, lines: Vec<String>) {
    if !lines.is_empty() {
        steps.push(Step { name, lines });
    }
}

fn request_lines(request: &Transaction) -> Vec<String> {
    let text = |tag| request.first(tag).map(short).unwrap_or_default();
    let host = request.header_until(REQUEST, "Host", usize::MAX).unwrap_or_default();
    let mut line =
        format!("{} {} for the host {}", text(Tag::ReqMethod), text(Tag::ReqURL), plain(host.as_bytes()));
    if let Some(vcl) = request.first(Tag::VCL_use) {
        let _ = write!(line, ", with the VCL {}", plain(vcl));
    }
    let protocol = text(Tag::ReqProtocol);
    if !protocol.is_empty() && protocol != "HTTP/1.1" {
        let _ = write!(line, ", over {protocol}");
    }
    let mut lines = vec![line];
    for tag in [Tag::BogoHeader, Tag::LostHeader, Tag::VCL_Error, Tag::Error] {
        lines.extend(request.all(tag).map(|text| format!("{}: {}", tag.name(), short(text))));
    }
    lines
}

fn call_words(call: &Call) -> String {
    match &call.place {
        Some(place) => format!("{} returned {} {}", call.sub, call.action, place.words()),
        None => format!("{} returned {}", call.sub, call.action),
    }
}

fn key(request: &Transaction) -> Vec<String> {
    let unquoted = |text: &[u8]| {
        let text = short(text);
        let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(&text).to_owned();
        text.strip_suffix("%00").unwrap_or(&text).to_owned()
    };
    let parts: Vec<String> = request.all(Tag::Hash).map(|part| format!("`{}`", unquoted(part))).collect();
    if parts.is_empty() { Vec::new() } else { vec![parts.join(" + ")] }
}

fn lookup(story: &Story, request: &Transaction) -> Vec<String> {
    let mut lines = Vec::new();
    for text in request.all(Tag::ExpBan) {
        lines.push(format!("found a banned object and removed it (object {})", first_word(text)));
    }
    for stamp in request.timestamps().iter().filter(|stamp| stamp.step == "Waitinglist") {
        lines.push(format!("waited {} for another request's fetch", duration(stamp.since_last)));
    }
    if let Some(hit) = request.last(Tag::Hit) {
        let text = plain(hit);
        let fields: Vec<f64> = text.split(' ').skip(1).filter_map(|word| word.parse().ok()).collect();
        let vxid = first_word(hit);
        lines.push(match fields[..] {
            [ttl, grace, ..] if ttl < 0.0 => {
                format!(
                    "hit: object {vxid}, expired {} ago, with {} of grace",
                    duration(-ttl),
                    duration(grace)
                )
            }
            [ttl, _, _, came, ..] => {
                format!(
                    "hit: object {vxid}, still fresh for {}, {came} bytes of which had arrived",
                    duration(ttl)
                )
            }
            [ttl, ..] => format!("hit: object {vxid}, still fresh for {}", duration(ttl)),
            [] => format!("hit: object {vxid}"),
        });
    }
    for (tag, what) in [(Tag::HitMiss, "hit-for-miss"), (Tag::HitPass, "hit-for-pass")] {
        if let Some(mark) = request.last(tag) {
            let left = plain(mark).split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0);
            lines.push(format!("{what}: the mark {} is valid for {} more", first_word(mark), duration(left)));
        }
    }
    let missed = story.call(request, "vcl_miss").is_some() && request.first(Tag::HitMiss).is_none();
    if missed {
        lines.push("miss".to_owned());
    }
    lines.extend(request.all(Tag::Notice).map(|text| format!("note: {}", short(text))));
    lines
}

fn first_word(text: &[u8]) -> String {
    plain(text).split(' ').next().unwrap_or_default().to_owned()
}

fn origin(story: &Story, fetch: &Transaction) -> Vec<String> {
    let mut lines = Vec::new();
    let kind = match fetch.reason.as_str() {
        "bgfetch" => "in the background",
        "pass" => "for this request only",
        "retry" => "again",
        _ => "for the cache",
    };
    let text = |tag| fetch.last(tag).map(short).unwrap_or_default();
    let host = fetch.header(ORIGIN_REQUEST, "Host").unwrap_or_default();
    let (method, url) = (text(Tag::BereqMethod), text(Tag::BereqURL));
    lines.push(format!("fetched {kind}: {method} {url} for the host {}", plain(host.as_bytes())));
    if let Some(open) = fetch.last(Tag::BackendOpen) {
        let open = plain(open);
        let words: Vec<&str> = open.split(' ').collect();
        if let [_, name, ip, port, ..] = words[..] {
            let state = if words.contains(&"reuse") { "an open" } else { "a new" };
            lines.push(format!("from {name} ({ip} port {port}) over {state} connection"));
        }
    }
    if let Some(status) = fetch.first(Tag::BerespStatus) {
        lines.push(format!(
            "status {} {}",
            plain(status),
            fetch.first(Tag::BerespReason).map(short).unwrap_or_default()
        ));
    }
    for name in [
        "Cache-Control",
        "Expires",
        "Age",
        "Vary",
        "Set-Cookie",
        "Surrogate-Control",
        "ETag",
        "Last-Modified",
    ] {
        if let Some(value) = fetch.header(ORIGIN_RESPONSE, name) {
            lines.push(format!("{name}: {}", short(value.as_bytes())));
        }
    }
    for tag in [Tag::FetchError, Tag::VCL_Error, Tag::Error, Tag::Notice] {
        lines.extend(fetch.all(tag).map(|text| format!("{}: {}", tag.name(), short(text))));
    }
    lines.extend(story.calls(fetch).iter().map(call_words));
    lines
}

fn lifetime(decision: &Decision) -> Vec<String> {
    match &decision.storing {
        Some(Storing::Stored(lifetime, source)) => vec![lifetime_words(lifetime, source)],
        Some(Storing::Not(obstacle, remembered)) => {
            let mut lines = vec![format!("not stored: {}", obstacle_words(Some(obstacle)))];
            if *remembered > 0.0 {
                lines.push(format!("the cache remembers that for {}", duration(*remembered)));
            }
            lines
        }
        None => Vec::new(),
    }
}

fn variant(story: &Story, request: &Transaction) -> Vec<String> {
    let from_origin = story.fetches(request).last().and_then(|fetch| fetch.header(ORIGIN_RESPONSE, "Vary"));
    let vary = from_origin.or_else(|| request.header(RESPONSE, "Vary"));
    let names = vary.iter().flat_map(|vary| vary.split(',')).map(str::trim);
    let value = |name: &str| request.header(REQUEST, name);
    let names = names.filter(|name| !name.is_empty() && *name != "*");
    names
        .map(|name| match value(name) {
            Some(value) => format!("{}: {}", plain(name.as_bytes()), short(value.as_bytes())),
            None => format!("{}: not in the request", plain(name.as_bytes())),
        })
        .collect()
}

fn includes(story: &Story, request: &Transaction) -> Vec<String> {
    let all = story.includes(request);
    let mut lines: Vec<String> = all
        .iter()
        .take(MAX_INCLUDES)
        .filter_map(|vxid| {
            let decision = decide(story, *vxid)?;
            let url = story.transaction(*vxid)?.last(Tag::ReqURL).map(short).unwrap_or_default();
            Some(format!("{url}: {}. {}", decision.outcome.name(), headline(&decision)))
        })
        .collect();
    if all.len() > MAX_INCLUDES {
        lines.push(format!("and {} more", all.len() - MAX_INCLUDES));
    }
    lines
}

fn response<'a>(request: &Transaction, calls: impl Iterator<Item = &'a &'a Call>) -> Vec<String> {
    let mut lines: Vec<String> = calls.map(|call| call_words(call)).collect();
    let text = |tag| request.last(tag).map(short).unwrap_or_default();
    if request.first(Tag::RespStatus).is_some() {
        lines.push(format!("status {} {}", text(Tag::RespStatus), text(Tag::RespReason)));
    }
    let age = request.header(RESPONSE, "Age").and_then(|age| age.parse().ok());
    if let Some(age) = age.filter(|age| *age > 0.0) {
        lines.push(format!("Age: {age}, the origin made it {} ago", duration(age)));
    }
    lines
}

/// The steps of fetches that have another meaning than those of requests.
const FETCH_STEPS: [(&str, &str); 2] =
    [("Fetch", "preparing the request"), ("Process", "running VCL on the response")];

/// The steps of timestamps in words.
const STEPS: [(&str, &str); 17] = [
    ("Req", "receiving the request"),
    ("ReqBody", "receiving the body of the request"),
    ("Waitinglist", "waiting for another request"),
    ("Fetch", "waiting for the origin"),
    ("Disk", "reading from the disk"),
    ("Process", "preparing the response"),
    ("Resp", "sending the response"),
    ("Restart", "running VCL before the restart"),
    ("Pipe", "opening the pipe"),
    ("PipeSess", "the piped connection"),
    ("Connected", "connecting to the origin"),
    ("Bereq", "sending the request to the origin"),
    ("Beresp", "waiting for the head of the response"),
    ("BerespBody", "receiving the body of the response"),
    ("Error", "making an error page"),
    ("Retry", "running VCL before the retry"),
    ("Reset", "until the client left"),
];

fn times(story: &Story, request: &Transaction) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(time_line("in total", request));
    for fetch in story.fetches(request) {
        lines.extend(time_line("of the fetch", fetch));
    }
    lines
}

fn time_line(what: &str, of: &Transaction) -> Option<String> {
    let stamps = of.timestamps();
    let total = stamps.last()?.since_start;
    let own: &[_] = if of.kind == Kind::Fetch { &FETCH_STEPS } else { &[] };
    let words = |step: &str| {
        let known = own.iter().chain(&STEPS).find(|(name, _)| *name == step);
        known.map_or_else(|| plain(step.as_bytes()), |(_, words)| (*words).to_owned())
    };
    // Steps that took no time worth a word are left out.
    let parts = stamps.iter().filter(|stamp| stamp.step != "Start" && stamp.since_last >= 1e-6);
    let parts: Vec<String> =
        parts.map(|stamp| format!("{} {}", duration(stamp.since_last), words(stamp.step))).collect();
    let list = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    Some(format!("{} {what}{list}", duration(total)))
}
