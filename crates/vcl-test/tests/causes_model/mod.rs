//! The model of a cache with the VCL of these worlds. It knows no log: it predicts from what was done.
//!
//! All steps are at multiples of four seconds and all lifetimes end between them, so that no outcome depends on the time
//! that a request takes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lacquer_testing::Random;

pub const VCL: &str = r#"vcl 4.1;
import xkey;
backend b { .host = "192.0.2.1"; }
sub vcl_recv {
    if (req.method == "PURGE") {
        return (purge);
    }
    if (req.url ~ "^/pass") {
        return (pass);
    }
    if (req.url ~ "^/pipe") { return (pipe); }
    if (req.url ~ "^/synth") { return (synth(403)); }
    if (req.url ~ "^/fail") { return (fail("no such page")); }
    if (req.url ~ "^/again" && req.restarts == 0) {
        set req.url = regsub(req.url, "again", "age");
        return (restart);
    }
    if (req.http.X-Force) {
        set req.hash_always_miss = true;
    }
}
sub vcl_backend_response {
    set beresp.grace = 4s;
    set beresp.keep = 0s;
    if (bereq.url ~ "^/etag") { set beresp.keep = 40s; }
    if (bereq.url ~ "^/hfp") {
        return (pass(10s));
    }
    if (bereq.url ~ "^/hfm") {
        set beresp.uncacheable = true;
        set beresp.ttl = 10s;
    }
    if (bereq.url ~ "^/vcl") {
        set beresp.ttl = 30s;
    }
}
"#;

/// The outcomes that the worlds must contain.
pub const ALL: [&str; 24] = [
    "coalesced-hit",
    "graced-hit",
    "hit",
    "hit-for-miss",
    "hit-for-pass",
    "miss",
    "miss-banned",
    "miss-expired",
    "miss-forced",
    "miss-not-stored",
    "miss-purged",
    "miss-tagged",
    "miss-variant",
    "origin-failed",
    "pass-authorization",
    "pass-cookie",
    "pass-method",
    "pass-vcl",
    "pipe",
    "purged",
    "rejected",
    "revalidated",
    "synth",
    "vcl-failed",
];

/// A kind of page, by the beginning of its path.
struct Kind {
    name: &'static str,
    /// The headers of its responses.
    headers: &'static str,
    status: u16,
    /// The lifetime in seconds of an object, and the time for which it is kept after its grace.
    lifetime: Option<(u64, u64)>,
    /// For how long the cache remembers that it is not cacheable.
    mark: u64,
    /// Words of the explanation of a miss.
    because: &'static str,
}

const fn stored(name: &'static str, headers: &'static str, ttl: u64, because: &'static str) -> Kind {
    Kind { name, headers, status: 200, lifetime: Some((ttl, 0)), mark: 0, because }
}

const fn unstored(name: &'static str, headers: &'static str, mark: u64, because: &'static str) -> Kind {
    Kind { name, headers, status: 200, lifetime: None, mark, because }
}

const GRACE: u64 = 4;
const MINUTES: u64 = 122;

const KINDS: [Kind; 13] = [
    stored("age", "Cache-Control: max-age=18", 18, "set by the origin's Cache-Control: max-age=18"),
    stored("plain", "", MINUTES, "the parameter default_ttl"),
    stored("vcl", "Cache-Control: max-age=99", 30, "`set beresp.ttl = 30s`"),
    stored("tag", "xkey: red", MINUTES, "default_ttl"),
    stored("vary", "Vary: Accept-Language", MINUTES, "default_ttl"),
    Kind {
        lifetime: Some((6, 40)),
        ..stored("etag", "ETag: \"1\"\n Cache-Control: max-age=6", 6, "max-age=6")
    },
    unstored("cookie", "Set-Cookie: a=b", MINUTES, "sets a cookie (Set-Cookie)"),
    unstored("private", "Cache-Control: private", MINUTES, "forbids it with Cache-Control: private"),
    unstored("zero", "Cache-Control: max-age=0", MINUTES, "no lifetime left: Cache-Control: max-age=0"),
    unstored("star", "Vary: *", MINUTES, "has Vary: *"),
    Kind { status: 500, ..unstored("error", "", MINUTES, "responses with the status 500 are not cached") },
    unstored("hfm", "", 10, "`set beresp.uncacheable = true`"),
    unstored("hfp", "", 10, "`return (pass(10s))`"),
];

/// Few kinds, so that most requests are for pages with a past.
const KINDS_AT_ONCE: usize = 3;

/// The statements before the tests.
pub fn setup() -> String {
    let mut text =
        "param default_ttl 122\nparam uncacheable_ttl 122\nparam why_header 127.0.0.0/8\n".to_owned();
    for kind in &KINDS {
        let _ = writeln!(text, "origin GET /{}* {}", kind.name, kind.status);
        for header in kind.headers.lines() {
            let _ = writeln!(text, " {}", header.trim());
        }
    }
    text + "origin GET /closes* closes\n"
}

/// The state of a page, or of one of its variants.
#[derive(Clone, Debug)]
enum State {
    /// Fresh, usable with grace, and kept until these times.
    Object {
        fresh: u64,
        usable: u64,
        kept: u64,
    },
    /// A mark until this time, and whether requests pass.
    Mark {
        until: u64,
        passes: bool,
    },
    Purged,
    Tagged,
    Failed,
}

/// Returns the outcome in the header `X-Lacquer-Why`, as a pattern. The header does not know the past of a page, only its
/// objects that are still kept. `None` if a response has no such header, or several responses have other ones.
fn in_header(outcome: &str, is_forced: bool) -> Option<String> {
    Some(match outcome {
        "pipe" | "rejected" | "coalesced-hit" => return None,
        outcome if is_forced && outcome.starts_with("miss") => "miss-forced".to_owned(),
        "miss-purged" | "miss-tagged" | "miss-not-stored" => "miss".to_owned(),
        "miss-expired" => "miss(-expired|-variant)?".to_owned(),
        outcome => outcome.to_owned(),
    })
}

pub struct Course {
    random: Random,
    text: String,
    outcomes: Vec<&'static str>,
    now: u64,
    /// The kinds of pages that are requested.
    kinds: [usize; KINDS_AT_ONCE],
    states: BTreeMap<(String, u64), State>,
    /// The bans of pages, since their object was stored.
    bans: BTreeMap<String, Vec<String>>,
    /// The origin of the pages /age closes its connections.
    is_down: bool,
}

impl Course {
    pub fn new(seed: u64) -> Course {
        let mut random = Random(seed);
        let kinds = [(); KINDS_AT_ONCE].map(|()| random.index(KINDS.len()));
        Course {
            random,
            kinds,
            text: format!("test \"{seed}\"\n"),
            outcomes: Vec::new(),
            now: 1000,
            states: BTreeMap::new(),
            bans: BTreeMap::new(),
            is_down: false,
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn outcomes(&self) -> &[&'static str] {
        &self.outcomes
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    /// Adds a request with these details, and its outcome.
    fn ask(&mut self, line: &str, details: &[&str], outcome: &'static str, because: &[&str]) {
        let _ = writeln!(self.text, " {line}");
        for detail in details {
            let _ = writeln!(self.text, "  {detail}");
        }
        let _ = writeln!(self.text, " expect {outcome}");
        for words in because.iter().filter(|words| !words.is_empty()) {
            let escaped = words.replace(['(', ')', '*', '`', '^', '$', '.'], ".");
            let _ = writeln!(self.text, "  because ~ {escaped}");
        }
        if let Some(name) = in_header(outcome, details.contains(&"X-Force: 1")) {
            let _ = writeln!(self.text, "  X-Lacquer-Why ~ ^{name}(;|$)");
        }
        self.outcomes.push(outcome);
    }

    /// Takes a random step: time, a purge, a ban or a request.
    pub fn step(&mut self) {
        match self.below(20) {
            0..4 => self.pass_time(),
            4 => self.purge(),
            5 => self.ban(),
            6 => self.purge_tag(),
            7 => self.toggle_origin(),
            8 => self.without_cache(),
            9 => self.passed(),
            _ => self.page(),
        }
    }

    fn pass_time(&mut self) {
        let seconds = [4, 4, 8, 16, 20, 24, 48, 132][self.below(8) as usize];
        let _ = writeln!(self.text, " after {seconds}s");
        self.now += seconds;
    }

    fn toggle_origin(&mut self) {
        self.is_down = !self.is_down;
        let rule = if self.is_down { "closes" } else { "200\n  Cache-Control: max-age=18" };
        let _ = writeln!(self.text, " origin GET /age* {rule}");
    }

    fn without_cache(&mut self) {
        match self.below(6) {
            0 => self.ask("GET /pass", &[], "pass-vcl", &["at line 9 of", "in vcl_recv (`return (pass)`)"]),
            1 => self.ask("GET /synth", &[], "synth", &["at line 12 of"]),
            2 => self.ask("GET /fail", &[], "vcl-failed", &["no such page"]),
            3 => self.ask("GET /closes", &[], "origin-failed", &["gave no usable response"]),
            4 => self.ask("GET /pipe", &[], "pipe", &["at line 11 of"]),
            _ => self.ask("GET /age0", &["Content-Length: x"], "rejected", &["before VCL ran"]),
        }
    }

    fn passed(&mut self) {
        let (line, detail, outcome, because) = match self.below(3) {
            0 => ("GET /plain0", "Cookie: a=b", "pass-cookie", "has a Cookie header"),
            1 => ("GET /plain0", "Authorization: x", "pass-authorization", "has an Authorization header"),
            _ => ("POST /plain0", "body \"x\"", "pass-method", "its method is POST"),
        };
        self.ask(line, &[detail], outcome, &[because]);
    }

    /// Returns a page of a kind.
    fn path(&mut self, kind: &Kind) -> String {
        format!("/{}{}", kind.name, self.below(2))
    }

    /// Returns a page of a requested kind among the first ones.
    fn some_page(&mut self, first: usize) -> Option<String> {
        let kind = self.kinds[self.random.index(KINDS_AT_ONCE)];
        (kind < first).then(|| self.path(&KINDS[kind]))
    }

    fn object(&self, path: &str, variant: u64) -> Option<(u64, u64, u64)> {
        match self.states.get(&(path.to_owned(), variant))? {
            State::Object { fresh, usable, kept } => Some((*fresh, *usable, *kept)),
            _ => None,
        }
    }

    fn is_cached(&self, path: &str) -> bool {
        self.object(path, 0).is_some_and(|(_, _, kept)| self.now < kept)
    }

    fn purge(&mut self) {
        let Some(path) = self.some_page(4) else { return };
        // A purge of a page that nobody has requested is not a cause.
        if !self.states.contains_key(&(path.clone(), 0)) {
            return;
        }
        self.ask(&format!("PURGE {path}"), &[], "purged", &["at line 6 of"]);
        if self.is_cached(&path) {
            self.states.insert((path.clone(), 0), State::Purged);
        }
        self.bans.remove(&path);
    }

    fn ban(&mut self) {
        let Some(path) = self.some_page(3) else { return };
        let ban = match self.below(2) {
            0 => format!("req.url == {path}"),
            _ => format!("req.url ~ ^{path}$"),
        };
        let _ = writeln!(self.text, " ban {ban}");
        if self.is_cached(&path) {
            self.bans.entry(path).or_default().push(ban);
        }
    }

    fn purge_tag(&mut self) {
        // Records of commands have no time; this request's have.
        self.ask("GET /synth", &[], "synth", &["synth.403"]);
        self.text += " tag red\n";
        for number in 0..2 {
            let path = format!("/tag{number}");
            if self.is_cached(&path) {
                self.states.insert((path.clone(), 0), State::Tagged);
                self.bans.remove(&path);
            }
        }
    }

    fn page(&mut self) {
        let kind = &KINDS[self.kinds[self.below(KINDS_AT_ONCE as u64) as usize]];
        let mut path = self.path(kind);
        let is_vary = kind.name == "vary";
        let variant = if is_vary { self.below(2) } else { 0 };
        let mut details: Vec<&str> = if is_vary {
            vec![["Accept-Language: de", "Accept-Language: en"][variant as usize]]
        } else {
            vec![]
        };
        let is_forced = kind.lifetime.is_some() && !self.bans.contains_key(&path) && self.below(8) == 0;
        if is_forced {
            details.push("X-Force: 1");
        }
        let Some((outcome, cause)) = self.predict(kind, &path, variant, is_forced) else { return };
        let state = self.states.get(&(path.clone(), variant)).cloned();
        let fails = kind.name == "age" && self.is_down;
        let is_fetched = !matches!(outcome, "hit" | "graced-hit");
        let mut because = vec![cause];
        let mut outcome = outcome;
        if fails && is_fetched {
            (outcome, because) = ("origin-failed", vec![String::new()]);
        } else if is_fetched && kind.name != "hfp" && outcome != "revalidated" {
            because.push(kind.because.to_owned());
        }
        self.renew(kind, (path.clone(), variant), state.as_ref(), outcome);
        if outcome == "miss" && kind.lifetime.is_some() && !is_forced && self.below(2) == 0 {
            outcome = "coalesced-hit";
            because.clear();
            details.push("clients 2");
        }
        if kind.name == "age" && !is_forced && self.below(6) == 0 {
            path = path.replace("age", "again");
        }
        let because: Vec<&str> = because.iter().map(String::as_str).collect();
        self.ask(&format!("GET {path}"), &details, outcome, &because);
    }

    /// Returns the outcome if the origin responds, and its cause. Returns `None` where the rules of the cache leave it open.
    fn predict(
        &self,
        kind: &Kind,
        path: &str,
        variant: u64,
        is_forced: bool,
    ) -> Option<(&'static str, String)> {
        let state = self.states.get(&(path.to_owned(), variant));
        let none = String::new;
        let other = self.object(path, 1 - variant.min(1)).filter(|_| kind.name == "vary");
        Some(match state {
            None => match other {
                Some((_, usable, _)) if self.now < usable => {
                    ("miss-variant", "only for other values of Accept-Language".to_owned())
                }
                Some(_) => return None,
                None => ("miss", none()),
            },
            Some(State::Object { kept, .. }) if self.bans.contains_key(path) && self.now < *kept => {
                let cause = match &self.bans[path][..] {
                    [ban] => format!("the ban `{ban}` matches it"),
                    _ => "one of these bans matches it".to_owned(),
                };
                ("miss-banned", cause)
            }
            Some(State::Object { usable, .. }) if is_forced && self.now < *usable => {
                ("miss-forced", "VCL forbade to use it (at line 19 of".to_owned())
            }
            Some(State::Object { fresh, .. }) if self.now < *fresh => ("hit", none()),
            Some(State::Object { usable, .. }) if self.now < *usable => ("graced-hit", none()),
            Some(State::Object { kept, .. }) if self.now < *kept && kind.name == "etag" && !is_forced => {
                ("revalidated", none())
            }
            Some(State::Object { .. }) => ("miss-expired", "the last one expired".to_owned()),
            Some(State::Mark { until, passes }) if self.now < *until => {
                if *passes {
                    ("hit-for-pass", none())
                } else {
                    ("hit-for-miss", none())
                }
            }
            Some(State::Mark { until, .. }) if self.now < until + GRACE => return None,
            Some(State::Mark { .. } | State::Failed) => ("miss-not-stored", none()),
            Some(State::Purged) => ("miss-purged", "it was purged".to_owned()),
            Some(State::Tagged) => ("miss-tagged", "removed by its tag red".to_owned()),
        })
    }

    /// Changes the state after a request.
    fn renew(&mut self, kind: &Kind, at: (String, u64), before: Option<&State>, outcome: &str) {
        let has_failed = outcome == "origin-failed" || kind.name == "age" && self.is_down;
        let next = match (outcome, kind.lifetime) {
            ("hit" | "hit-for-pass", _) => return,
            _ if has_failed => match before {
                Some(State::Object { kept, .. }) if self.now < *kept && !self.bans.contains_key(&at.0) => {
                    return;
                }
                _ => State::Failed,
            },
            (_, Some((ttl, keep))) => {
                let fresh = self.now + ttl;
                State::Object { fresh, usable: fresh + GRACE, kept: fresh + GRACE + keep }
            }
            (_, None) => State::Mark { until: self.now + kind.mark, passes: kind.name == "hfp" },
        };
        self.bans.remove(&at.0);
        self.states.insert(at, next);
    }
}
