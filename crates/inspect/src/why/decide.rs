//! The decision which outcome a request had, as a function from its records.

use lacquer_flow::why::PassReason;
use lacquer_shm::Tag;

use super::history::{Change, Past, PastFetch, PastPurge, Removal};
use super::lifetime::{Obstacle, Storing, storing};
use super::story::{Place, Story};
use super::ttl::{ending, has_error_page};
use crate::page::short;
use crate::transaction::{ORIGIN_REQUEST, REQUEST, Timestamp, Transaction, value_of};

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Hit,
    /// A hit on an object whose fetch is in progress.
    HitInProgress,
    /// The object is past its lifetime, but not past its grace.
    GracedHit(Staleness),
    /// It waited for another request's fetch.
    CoalescedHit,
    Miss(Absence),
    /// The origin confirmed a stale object.
    Revalidated,
    HitForMiss,
    HitForPass,
    Pass(Reason),
    Pipe(Reason),
    Synth(Option<Place>),
    Purged(Option<Place>),
    /// The origin has failed, and an expired copy was delivered instead of the error.
    StaleForError(String),
    /// The origin gave no response.
    OriginFailed(String),
    VclFailed(String),
    /// It was refused before any VCL ran.
    Rejected(String),
}

/// The age of an object that was delivered past its lifetime.
#[derive(Clone, Debug, PartialEq)]
pub struct Staleness {
    /// The seconds since its lifetime ended.
    pub since_end: f64,
    /// The whole grace in seconds.
    pub grace: f64,
    /// Whether this request began a fetch in the background.
    pub is_refreshed: bool,
}

/// Why the cache had no object.
#[derive(Clone, Debug, PartialEq)]
pub enum Absence {
    /// Nothing in the log mentions the page.
    First,
    /// It expired so many seconds ago.
    Expired(f64),
    /// It was purged so many seconds ago by a client.
    Purged(f64, String),
    /// This request found it banned, by one of these bans.
    Banned(Vec<String>),
    /// It was banned before this request.
    BannedEarlier,
    /// A request has changed the page at the origin, so many seconds ago by a client.
    Invalidated(f64, String, Change),
    /// It was removed by this tag: by a request of a client, or by a command.
    Tagged(String, Option<String>),
    /// It was removed to make room; false if that is only likely.
    Evicted(bool),
    /// Only variants for other values of these headers are cached.
    OtherVariant(Vec<String>),
    /// VCL forbade to use the object.
    Forced(Place),
    /// The last response could not be cached.
    NotStored,
}

/// Why a request went past the cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    Method(String),
    Cookie,
    Authorization,
    Vcl(Option<Place>),
}

/// The outcome of a request and what became of its response.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub outcome: Outcome,
    pub storing: Option<Storing>,
    /// Seconds for which it waited for another request.
    pub waited: Option<f64>,
    pub restarts: usize,
}

impl Outcome {
    /// Returns a name for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Hit => "hit",
            Outcome::HitInProgress => "hit-in-progress",
            Outcome::GracedHit(_) => "graced-hit",
            Outcome::CoalescedHit => "coalesced-hit",
            Outcome::Miss(absence) => absence.name(),
            Outcome::Revalidated => "revalidated",
            Outcome::HitForMiss => "hit-for-miss",
            Outcome::HitForPass => "hit-for-pass",
            Outcome::Pass(Reason::Method(_)) => "pass-method",
            Outcome::Pass(Reason::Cookie) => "pass-cookie",
            Outcome::Pass(Reason::Authorization) => "pass-authorization",
            Outcome::Pass(Reason::Vcl(_)) => "pass-vcl",
            Outcome::Pipe(_) => "pipe",
            Outcome::Synth(_) => "synth",
            Outcome::Purged(_) => "purged",
            Outcome::StaleForError(_) => "stale-if-error",
            Outcome::OriginFailed(_) => "origin-failed",
            Outcome::VclFailed(_) => "vcl-failed",
            Outcome::Rejected(_) => "rejected",
        }
    }
}

impl Absence {
    fn name(&self) -> &'static str {
        match self {
            Absence::First => "miss",
            Absence::Expired(_) => "miss-expired",
            Absence::Purged(..) => "miss-purged",
            Absence::Banned(_) | Absence::BannedEarlier => "miss-banned",
            Absence::Invalidated(..) => "miss-invalidated",
            Absence::Tagged(..) => "miss-tagged",
            Absence::Evicted(_) => "miss-evicted",
            Absence::OtherVariant(_) => "miss-variant",
            Absence::Forced(_) => "miss-forced",
            Absence::NotStored => "miss-not-stored",
        }
    }
}

/// Decides the outcome of a request or include.
pub fn decide(story: &Story, request: u64) -> Option<Decision> {
    let requests = story.requests(request);
    let last = *requests.last()?;
    let fetch = story.fetches(last).last().copied();
    let waits = last.timestamps().into_iter().filter(|stamp| stamp.step == "Waitinglist");
    let waited = waits.map(|stamp: Timestamp| stamp.since_last).reduce(|a, b| a + b);
    let outcome = outcome(story, last, fetch, waited.is_some());
    Some(Decision {
        storing: fetch.filter(|_| fetches(&outcome)).map(|fetch| storing(story, fetch)),
        outcome,
        waited,
        restarts: requests.len() - 1,
    })
}

/// Returns whether the response of a fetch is evidence for the outcome.
fn fetches(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::Pass(_) | Outcome::Pipe(_) | Outcome::Synth(_) | Outcome::Purged(_))
}

fn outcome(story: &Story, request: &Transaction, fetch: Option<&Transaction>, waited: bool) -> Outcome {
    if request.first(Tag::VCL_call).is_none() {
        let why =
            [Tag::BogoHeader, Tag::Error, Tag::HttpGarbage].into_iter().find_map(|tag| request.first(tag));
        return Outcome::Rejected(why.map_or_else(|| "the log has no reason".to_owned(), short));
    }
    let calls = story.calls(request);
    let returned = |action: &str| calls.iter().rfind(|call| call.action == action);
    if returned("fail").is_some() {
        let why = request.last(Tag::VCL_Error).map_or_else(|| "the log has no reason".to_owned(), short);
        return Outcome::VclFailed(why);
    }
    if let Some(call) = returned("purge") {
        return Outcome::Purged(call.place.clone());
    }
    if let Some(call) = calls.iter().find(|call| call.action == "pipe") {
        return Outcome::Pipe(reason(request, call.place.clone()));
    }
    if request.first(Tag::HitPass).is_some() {
        return failed(story, fetch).unwrap_or(Outcome::HitForPass);
    }
    if let Some(call) = returned("pass") {
        return failed(story, fetch).unwrap_or_else(|| Outcome::Pass(reason(request, call.place.clone())));
    }
    if request.first(Tag::HitMiss).is_some() {
        return failed(story, fetch).unwrap_or(Outcome::HitForMiss);
    }
    if let Some(call) = returned("synth") {
        return Outcome::Synth(call.place.clone());
    }
    if let Some(hit) = request.last(Tag::Hit).filter(|_| returned("deliver").is_some()) {
        return hit_of(hit, waited, fetch.is_some());
    }
    if let Some(failure) = failed(story, fetch) {
        return failure;
    }
    if fetch.is_some_and(|fetch| fetch.first(Tag::BerespStatus) == Some(b"304")) {
        return Outcome::Revalidated;
    }
    Outcome::Miss(absence(story, request, fetch))
}

/// The beginning of the note of a fetch whose error a stale object has replaced.
const STALE_FOR_ERROR: &[u8] = b"stale-if-error:";

fn hit_of(record: &[u8], waited: bool, is_refreshed: bool) -> Outcome {
    let text = String::from_utf8_lossy(record);
    let fields: Vec<f64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    match fields[..] {
        _ if waited => Outcome::CoalescedHit,
        [_, ttl, grace, ..] if ttl < 0.0 => {
            Outcome::GracedHit(Staleness { since_end: -ttl, grace, is_refreshed })
        }
        [_, _, _, _, _, ..] => Outcome::HitInProgress,
        _ => Outcome::Hit,
    }
}

/// Returns the failure of a fetch for which an expired copy or an error page was delivered.
fn failed(story: &Story, fetch: Option<&Transaction>) -> Option<Outcome> {
    let fetch = fetch?;
    let has_error_page = has_error_page(fetch);
    if fetch.all(Tag::Notice).any(|note| note.starts_with(STALE_FOR_ERROR)) {
        let status =
            || format!("it responded with {}", fetch.last(Tag::BerespStatus).map(short).unwrap_or_default());
        let why = fetch_error(fetch).filter(|_| has_error_page);
        return Some(Outcome::StaleForError(why.unwrap_or_else(status)));
    }
    if let Some(action) = ending(fetch).filter(|_| !has_error_page) {
        return Some(ended(story, fetch, action));
    }
    has_error_page.then(|| {
        let others = || fetch.last(Tag::VCL_Error).map(short).or_else(|| refusal(fetch));
        let why = fetch_error(fetch).or_else(others);
        Outcome::OriginFailed(why.unwrap_or_else(|| "VCL returned an error".to_owned()))
    })
}

/// Returns the outcome of a fetch that VCL ended by this action.
fn ended(story: &Story, fetch: &Transaction, action: &[u8]) -> Outcome {
    let place = story.calls(fetch).pop().and_then(|call| call.place);
    let line = place.map_or_else(String::new, |place| format!(", {}", place.words()));
    if action == b"fail" {
        let why = fetch.last(Tag::VCL_Error).map(short);
        return Outcome::VclFailed(why.unwrap_or_else(|| format!("it returned fail{line}")));
    }
    let status =
        fetch.last(Tag::BerespStatus).map(|status| format!("response with status {}", short(status)));
    let what = status.unwrap_or_else(|| "request".to_owned());
    Outcome::OriginFailed(format!("VCL abandoned the {what}{line}"))
}

/// The error of a fetch whose response is malformed. Another record names the line, or contains what came.
const MALFORMED: &[u8] = b"http format error";

/// Returns why a fetch has failed.
fn fetch_error(fetch: &Transaction) -> Option<String> {
    let error = fetch.last(Tag::FetchError)?;
    let text = short(error);
    if error != MALFORMED {
        return Some(text);
    }
    let line = fetch.last(Tag::BogoHeader).map(|line| format!("{text}: {}", short(line)));
    let garbage =
        || fetch.last(Tag::HttpGarbage).map(|bytes| format!("{text}: it begins with `{}`", short(bytes)));
    Some(line.or_else(garbage).unwrap_or(text))
}

/// The error of a response whose headers say nothing certain about the length of its body.
const NO_FRAMING: &[u8] = b"Body cannot be fetched";

/// Returns why the head of a response was refused.
fn refusal(fetch: &Transaction) -> Option<String> {
    let error = fetch.last(Tag::Error)?;
    let is_framing = |record: &&[u8]| {
        ["Content-Length", "Transfer-Encoding"].iter().any(|name| value_of(record, name).is_some())
    };
    let headers = fetch.all(Tag::BerespHeader).filter(|_| error == NO_FRAMING);
    let framing: Vec<String> = headers.filter(is_framing).map(short).collect();
    let text = short(error);
    Some(if framing.is_empty() { text } else { format!("{text}: {}", framing.join(", ")) })
}

/// Returns why a request was passed. The built-in VCL has a subroutine for each reason; without trace points, the headers
/// of the request are the best evidence.
fn reason(request: &Transaction, place: Option<Place>) -> Reason {
    let method = request.last(Tag::ReqMethod).map(short).unwrap_or_default();
    let has = |name| request.header(REQUEST, name).is_some();
    let reason = match &place {
        Some(place) => PassReason::of_sub(&place.sub),
        None => PassReason::of_request(&method, has("Authorization"), has("Cookie")),
    };
    match reason {
        PassReason::Method => Reason::Method(method),
        PassReason::Authorization => Reason::Authorization,
        PassReason::Cookie => Reason::Cookie,
        PassReason::Vcl => Reason::Vcl(place),
    }
}

fn absence(story: &Story, request: &Transaction, fetch: Option<&Transaction>) -> Absence {
    let banned: Vec<u64> = request.all(Tag::ExpBan).filter_map(first_number).collect();
    if let Some(vxid) = banned.last() {
        return Absence::Banned(candidates(story, request, *vxid));
    }
    let now = request.start();
    let past = &story.past;
    let purged = |purge: &PastPurge| match &purge.change {
        Some(change) => Absence::Invalidated(now - purge.at, purge.client.clone(), change.clone()),
        None => Absence::Purged(now - purge.at, purge.client.clone()),
    };
    let Some(last) = past.fetches.last() else { return past.purges.last().map_or(Absence::First, purged) };
    // Later purges have found nothing.
    let first_purge = |after: f64| past.purges.iter().find(|purge| purge.at > after);
    let Some(usable) = newest_usable(past, fetch) else {
        return match first_purge(last.at) {
            Some(purge) => purged(purge),
            None => Absence::OtherVariant(last.variant.iter().map(|(name, _)| name.clone()).collect()),
        };
    };
    // Its removal shows that no purge had removed it before.
    let removed = past.removed.get(&usable.vxid);
    match removed.filter(|_| usable.lifetime.is_some()) {
        Some(Removal::Banned(_)) => return Absence::BannedEarlier,
        Some(Removal::Evicted) => return Absence::Evicted(true),
        Some(Removal::Tagged(tag, client)) => return Absence::Tagged(tag.clone(), client.clone()),
        Some(Removal::Expired) | None => {}
    }
    let was_there = |at: f64| {
        !usable.has_failed && usable.lifetime.as_ref().is_none_or(|lifetime| lifetime.end() > at - 1.0)
    };
    if let Some(purge) = first_purge(usable.at).filter(|purge| was_there(purge.at)) {
        return purged(purge);
    }
    let Some(lifetime) = &usable.lifetime else { return Absence::NotStored };
    // Times in the log are rounded to seconds.
    let expired = now - (lifetime.origin + lifetime.ttl + lifetime.grace);
    if expired > -1.0 {
        return Absence::Expired(now - (lifetime.origin + lifetime.ttl));
    }
    match story.ran(request, "req.hash_always_miss") {
        Some(place) => Absence::Forced(place),
        None => Absence::Evicted(false),
    }
}

/// Returns the newest response that the request could have used. A fetch that failed leaves the object before it, unless
/// that had expired, was purged, or was found banned by a request whose fetch has failed.
fn newest_usable<'p>(past: &'p Past, fetch: Option<&Transaction>) -> Option<&'p PastFetch> {
    let mut same = past.fetches.iter().rev().filter(|other| is_same_variant(other, fetch));
    let newest = same.next()?;
    if !newest.has_failed {
        return Some(newest);
    }
    let is_left = |other: &&PastFetch| {
        let banned_by = |by: &PastFetch| past.removed.get(&other.vxid) == Some(&Removal::Banned(by.parent));
        let was_banned = past.fetches.iter().any(|by| by.has_failed && banned_by(by));
        let was_purged = past.purges.iter().any(|purge| other.at < purge.at && purge.at < newest.at);
        let has_lived = other.lifetime.as_ref().is_some_and(|lifetime| lifetime.end() > newest.at);
        has_lived && !was_banned && !was_purged
    };
    Some(same.find(|other| !other.has_failed).filter(is_left).unwrap_or(newest))
}

fn first_number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split(' ').next()?.parse().ok()
}

/// Returns whether the request of a fetch has the same values of the headers by which an earlier response varies.
fn is_same_variant(other: &PastFetch, fetch: Option<&Transaction>) -> bool {
    let value = |name: &str| fetch.and_then(|fetch| fetch.header(ORIGIN_REQUEST, name));
    other.variant.iter().all(|(name, theirs)| value(name) == *theirs)
}

/// Returns the bans that may have removed an object: those newer than it that this request does not contradict.
fn candidates(story: &Story, request: &Transaction, vxid: u64) -> Vec<String> {
    let created = story.past.fetches.iter().find(|fetch| fetch.vxid == vxid).map_or(0.0, |fetch| fetch.at);
    let bans = story.bans.iter().flatten();
    let newer = bans.filter(|ban| ban.at >= created && may_match(&ban.expression, request));
    newer.map(|ban| short(ban.expression.as_bytes())).collect()
}

/// Returns whether a ban may match a request. Conditions that cannot be tested here count as matching.
fn may_match(expression: &str, request: &Transaction) -> bool {
    expression.split(" && ").all(|condition| {
        let mut words = condition.splitn(3, ' ');
        let (Some(field), Some(operator), Some(operand)) = (words.next(), words.next(), words.next()) else {
            return true;
        };
        let value = match field.strip_prefix("req.http.") {
            Some(name) => request.header(REQUEST, name).unwrap_or_default(),
            None if field == "req.url" => request.last(Tag::ReqURL).map(short).unwrap_or_default(),
            None => return true,
        };
        let operand = operand.trim_matches('"');
        let is_literal = !operand.contains(|c: char| "\\^$.|?*+()[]{}".contains(c));
        match operator {
            "==" => value == operand,
            "!=" => value != operand,
            "~" if is_literal => value.contains(operand),
            "~" => matches_anchored(operand, &value).unwrap_or(true),
            _ => true,
        }
    })
}

/// Tests the common pattern of a literal behind `^`, and maybe before `$`. Returns `None` for all others.
fn matches_anchored(pattern: &str, value: &str) -> Option<bool> {
    let literal = pattern.strip_prefix('^')?;
    let (literal, is_whole) = match literal.strip_suffix('$') {
        Some(literal) => (literal, true),
        None => (literal, false),
    };
    let is_literal = !literal.contains(|c: char| "\\^$.|?*+()[]{}".contains(c));
    is_literal.then(|| if is_whole { value == literal } else { value.starts_with(literal) })
}

/// Returns what forbids to cache the response of a decision.
pub fn obstacle(decision: &Decision) -> Option<&Obstacle> {
    match &decision.storing {
        Some(Storing::Not(obstacle, _)) => Some(obstacle),
        _ => None,
    }
}
