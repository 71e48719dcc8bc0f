//! The records that a test has left in the log: the outcome of each request, and the lines of VCL that decided.

use std::collections::BTreeMap;

use lacquer_inspect::ring::Record;
use lacquer_inspect::transaction::{Grouping, Kind, ORIGIN_REQUEST, REQUEST, Transaction, split_header};
use lacquer_inspect::why::{
    Ban, Decision, Historian, Outcome, Past, SourceText, Storing, Story, decide, explain,
};
use lacquer_shm::Tag;

use crate::format::Field;

/// The records of a test.
pub struct Evidence {
    story: Story,
    /// The texts of the VCL, while the story has none: it is faster without them.
    sources: Vec<SourceText>,
    /// The events of all transactions, in the order of the log.
    events: Vec<Event>,
    /// The bans of the test.
    bans: Vec<Ban>,
    /// The first transaction of the request from each port.
    roots: BTreeMap<u16, u64>,
}

enum Event {
    /// A transaction has ended.
    Ended(u64),
    /// A record that is an event of its own.
    Record(Tag, u64, Vec<u8>),
}

/// The records so far.
#[derive(Default)]
pub struct Records {
    grouping: Grouping,
    transactions: BTreeMap<u64, Transaction>,
    events: Vec<Event>,
}

impl Records {
    pub fn add(&mut self, record: &Record<'_>) {
        if Historian::is_event(record) {
            self.events.push(Event::Record(record.tag, record.vxid, record.text.to_vec()));
        }
        if let Some(ended) = self.grouping.add(record) {
            self.events.push(Event::Ended(ended.vxid));
            self.transactions.insert(ended.vxid, ended.clone());
        }
    }
}

/// The decision about one request.
pub struct Finding {
    pub decision: Decision,
    root: u64,
}

impl Evidence {
    pub fn new(sources: &[SourceText], records: Records, bans: Vec<Ban>) -> Evidence {
        let Records { transactions, events, .. } = records;
        let port = |t: &Transaction| {
            let start = String::from_utf8_lossy(t.first(Tag::ReqStart)?).into_owned();
            start.split(' ').nth(1)?.parse().ok()
        };
        let firsts = transactions.values().filter(|t| t.kind == Kind::Request && t.reason == "rxreq");
        let roots = firsts.filter_map(|t| Some((port(t)?, t.vxid))).collect();
        let story = Story { transactions, ..Story::default() };
        Evidence { story, sources: sources.to_vec(), events, bans, roots }
    }

    /// Lets the story name lines of VCL, or not.
    fn name_lines(&mut self, names_lines: bool) {
        if self.story.sources.is_empty() == names_lines {
            std::mem::swap(&mut self.story.sources, &mut self.sources);
        }
    }

    /// Returns the decision about the request from a port. `is_precise` also determines which line of VCL decided, and why
    /// a page was not in the cache, which takes longer.
    pub fn find(&mut self, port: u16, is_precise: bool) -> Option<Finding> {
        let root = *self.roots.get(&port)?;
        self.name_lines(is_precise);
        self.story.root = root;
        self.story.past = Past::default();
        let decision = decide(&self.story, root)?;
        if is_precise && matches!(decision.outcome, Outcome::Miss(_)) {
            self.story.past = self.past(root);
            let begun = self.story.transaction(root)?.start();
            self.story.bans = Some(self.bans.iter().filter(|ban| ban.at <= begun).cloned().collect());
            return Some(Finding { decision: decide(&self.story, root)?, root });
        }
        Some(Finding { decision, root })
    }

    /// Returns what happened to the page before a request.
    fn past(&self, root: u64) -> Past {
        let requests = self.story.requests(root);
        let Some(last) = requests.last() else { return Past::default() };
        let fetch = self.story.fetches(last).last().copied();
        let (url, host) = match fetch {
            Some(fetch) => (fetch.first(Tag::BereqURL), fetch.header(ORIGIN_REQUEST, "Host")),
            None => (last.last(Tag::ReqURL), last.header(REQUEST, "Host")),
        };
        let url = String::from_utf8_lossy(url.unwrap_or_default()).into_owned();
        let host = host.unwrap_or_default();
        let own: Vec<u64> = requests
            .iter()
            .flat_map(|r| std::iter::once(r.vxid).chain(r.links().into_iter().map(|l| l.1)))
            .collect();
        let is_own = |vxid: u64| own.contains(&vxid);
        let mut historian = Historian::new(&url, &host, &is_own);
        for event in &self.events {
            match event {
                Event::Ended(vxid) if *vxid == last.vxid => break,
                Event::Ended(vxid) => {
                    if let Some(ended) = self.story.transaction(*vxid) {
                        historian.add_ended(ended);
                    }
                }
                Event::Record(tag, vxid, text) => {
                    historian.add_event(&Record { tag: *tag, vxid: *vxid, is_backend: false, text });
                }
            }
        }
        historian.finish()
    }

    /// Returns in one sentence what happened to a request, and which line of VCL decided.
    pub fn headline(&mut self, finding: &Finding) -> Option<String> {
        self.name_lines(true);
        let story = Story { root: finding.root, ..self.story.clone() };
        Some(explain(&story)?.headline)
    }

    /// Returns the sentences of the explanation of the request from a port.
    pub fn reasons(&mut self, port: u16) -> Vec<Vec<u8>> {
        let Some(explanation) = self.find(port, true).and_then(|_| explain(&self.story)) else {
            return Vec::new();
        };
        let steps = explanation.steps.into_iter().flat_map(|step| step.lines);
        std::iter::once(explanation.headline).chain(steps).map(String::into_bytes).collect()
    }

    fn last_request(&self, finding: &Finding) -> Option<&Transaction> {
        self.story.requests(finding.root).last().copied()
    }

    /// Returns the values of a field; none if the request has no such fact.
    pub fn values(&self, finding: &Finding, field: Field) -> Vec<Vec<u8>> {
        let number = |value: f64| value.to_string().into_bytes();
        let requests = self.story.requests(finding.root);
        let fetches = requests.iter().flat_map(|request| self.story.fetches(request));
        match field {
            Field::Ttl | Field::Grace | Field::Keep => {
                let lifetime = self.lifetime(finding);
                let at = match field {
                    Field::Ttl => 0,
                    Field::Grace => 1,
                    _ => 2,
                };
                lifetime.map(|lifetime| number(lifetime[at])).into_iter().collect()
            }
            Field::Stored => match self.lifetime(finding) {
                Some(_) => vec![b"stored".to_vec()],
                None => Vec::new(),
            },
            Field::Restarts => vec![number(finding.decision.restarts as f64)],
            Field::Retries => vec![number(fetches.count().saturating_sub(1) as f64)],
            Field::Log => {
                let all = requests.iter().copied().chain(fetches);
                all.flat_map(|t| t.all(Tag::VCL_Log).map(<[u8]>::to_vec)).collect()
            }
            Field::Backend | Field::Took | Field::Because => Vec::new(),
        }
    }

    /// Returns lifetime, grace and keep of the object that the request got or stored.
    fn lifetime(&self, finding: &Finding) -> Option<[f64; 3]> {
        if let Some(Storing::Stored(lifetime, _)) = &finding.decision.storing {
            return Some([lifetime.ttl, lifetime.grace, lifetime.keep]);
        }
        let is_hit = matches!(
            finding.decision.outcome,
            Outcome::Hit | Outcome::HitInProgress | Outcome::GracedHit(_) | Outcome::CoalescedHit
        );
        let hit = self.last_request(finding).filter(|_| is_hit)?.last(Tag::Hit)?;
        let text = String::from_utf8_lossy(hit).into_owned();
        let numbers: Vec<f64> = text.split(' ').skip(1).filter_map(|word| word.parse().ok()).collect();
        numbers.first_chunk().copied()
    }

    /// Returns the statement of VCL that set or removed a header last, in a response or in the request to an origin.
    pub fn origin_of_header(&mut self, finding: &Finding, name: &str, in_response: bool) -> Option<String> {
        self.name_lines(true);
        let request = self.last_request(finding)?;
        let found = |t: &Transaction, tags: [Tag; 2]| {
            let is_it = |record: Record<'_>| {
                tags.contains(&record.tag)
                    && split_header(record.text).is_some_and(|(known, _)| known.eq_ignore_ascii_case(name))
            };
            let at = t.records().rposition(is_it)?;
            let lower = name.to_ascii_lowercase();
            self.story.place(t, at, &|line| line.to_ascii_lowercase().contains(&format!("http.{lower}")))
        };
        let fetch = self.story.fetches(request).last().copied();
        let place = if in_response {
            found(request, [Tag::RespHeader, Tag::RespUnset])
                .or_else(|| found(fetch?, [Tag::BerespHeader, Tag::BerespUnset]))
        } else {
            fetch
                .and_then(|fetch| found(fetch, [Tag::BereqHeader, Tag::BereqUnset]))
                .or_else(|| found(request, [Tag::ReqHeader, Tag::ReqUnset]))
        };
        place.map(|place| place.words())
    }
}
