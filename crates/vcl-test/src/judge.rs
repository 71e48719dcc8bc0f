//! Compares the expectations of a test with what happened.

use std::rc::Rc;

use lacquer_inspect::page::short;

use crate::claim::{Asked, Claim};
use crate::evidence::{Evidence, Finding};
use crate::format::{Action, Check, Condition, Count, ExpectedFetch, ExpectedResponse, Field, Subject};
use crate::message::Message;
use crate::origin::{Fetched, matches};
use crate::world::Exchange;

/// Most requests to origins that a report lists.
const MOST_LISTED: usize = 5;

/// An expectation that was not met.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub line: u32,
    /// The name of what differs, such as `status`.
    pub subject: String,
    pub expected: String,
    pub got: String,
    /// The causes, as far as they are known.
    pub notes: Vec<String>,
}

impl Mismatch {
    /// Returns the failure of a test that could not be carried out.
    pub fn fault(line: u32, why: String) -> Mismatch {
        Mismatch { line, subject: String::new(), expected: String::new(), got: why, notes: Vec::new() }
    }
}

/// Compares the claims of one test.
pub struct Judge<'r> {
    asked: &'r [Asked],
    fetched: &'r [Rc<Fetched>],
    evidence: Evidence,
    /// The port of the last request whose story was told.
    told: Option<u16>,
}

impl<'r> Judge<'r> {
    pub fn new(asked: &'r [Asked], fetched: &'r [Rc<Fetched>], evidence: Evidence) -> Judge<'r> {
        Judge { asked, fetched, evidence, told: None }
    }

    pub fn check(&mut self, claim: &Claim<'_>) -> Vec<Mismatch> {
        let Some(asked) = self.asked.get(claim.asked) else { return Vec::new() };
        let fetched = &self.fetched[asked.fetches_before..claim.fetches_until.max(asked.fetches_before)];
        let line = claim.step.line;
        match &claim.step.action {
            Action::ExpectResponse(expected) => self.response(line, expected, asked, fetched),
            Action::ExpectFetch(expected) => self.fetch(line, expected, asked, fetched),
            Action::ExpectCount(count) => {
                let all = &self.fetched[..claim.fetches_until];
                self.count(line, count, asked, if count.in_all { all } else { fetched }).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns what happened to the request of a claim, unless that was told.
    fn story(&mut self, asked: &Asked, exchange: Option<&Exchange>) -> Vec<String> {
        let port = exchange.map(|exchange| exchange.port);
        if port.is_some() && std::mem::replace(&mut self.told, port) == port {
            return Vec::new();
        }
        let request = &asked.request;
        let shown = format!("{} {}", request.method, short(request.url.as_bytes()));
        let Some(exchange) = exchange else { return vec![shown] };
        let status = exchange.response.as_ref().and_then(Message::status);
        let status = status.map_or_else(|| "no response".to_owned(), |status| status.to_string());
        let mut notes = Vec::new();
        match self.evidence.find(exchange.port, true) {
            Some(finding) => {
                notes.push(format!("{shown}: {status}, {}", finding.decision.outcome.name()));
                notes.extend(self.evidence.headline(&finding));
            }
            None => notes.push(format!("{shown}: {status}")),
        }
        notes
    }

    fn response(
        &mut self,
        line: u32,
        expected: &ExpectedResponse,
        asked: &Asked,
        fetched: &[Rc<Fetched>],
    ) -> Vec<Mismatch> {
        let mut found: Vec<Mismatch> = Vec::new();
        found.extend(expected.outcome.as_deref().and_then(|wanted| self.outcome(line, wanted, asked)));
        for exchange in &asked.exchanges {
            let before = found.len();
            let mut differs = |line, subject: &str, expected: String, got: String, notes: Vec<String>| {
                found.push(Mismatch { line, subject: subject.to_owned(), expected, got, notes });
            };
            let response = exchange.response.as_ref();
            let status = response.and_then(Message::status);
            if let Some(wanted) = expected.status.filter(|wanted| Some(*wanted) != status) {
                let got = status.map_or_else(|| "no response".to_owned(), |status| status.to_string());
                differs(line, "status", wanted.to_string(), got, Vec::new());
            }
            if let Some(wanted) = &expected.reason
                && let Some(got) = response.map(Message::reason).filter(|got| got != wanted)
            {
                differs(line, "reason", wanted.clone(), short(got.as_bytes()), Vec::new());
            }
            let finding = self.evidence.find(exchange.port, false);
            for check in &expected.checks {
                let values = self.values(check, exchange, finding.as_ref(), fetched);
                if !holds(check, &values) {
                    let notes = self.cause(check, finding.as_ref(), true);
                    differs(check.line, &name_of(check), check.condition.to_string(), shown(&values), notes);
                }
            }
            // The other clients would report the same.
            if found.len() > before {
                return self.with_story(found, asked, Some(exchange));
            }
        }
        self.with_story(found, asked, asked.exchanges.first())
    }

    /// Adds what happened to the first of several mismatches.
    fn with_story(
        &mut self,
        mut found: Vec<Mismatch>,
        asked: &Asked,
        exchange: Option<&Exchange>,
    ) -> Vec<Mismatch> {
        if !found.is_empty() {
            let story = self.story(asked, exchange);
            found[0].notes.extend(story);
        }
        found
    }

    /// One of several clients must have had the outcome.
    fn outcome(&mut self, line: u32, wanted: &str, asked: &Asked) -> Option<Mismatch> {
        let is_precise = wanted.contains('-');
        let mut got = Vec::new();
        for exchange in &asked.exchanges {
            let finding = self.evidence.find(exchange.port, is_precise);
            let name = finding.map_or("unknown", |finding| finding.decision.outcome.name());
            if is_outcome(wanted, name) {
                return None;
            }
            if !got.contains(&name) {
                got.push(name);
            }
        }
        let (expected, got) = (wanted.to_owned(), got.join(", "));
        Some(Mismatch { line, subject: "outcome".to_owned(), expected, got, notes: Vec::new() })
    }

    fn values(
        &mut self,
        check: &Check,
        exchange: &Exchange,
        finding: Option<&Finding>,
        fetched: &[Rc<Fetched>],
    ) -> Vec<Vec<u8>> {
        let field = match &check.subject {
            Subject::Field(field) => *field,
            subject => {
                return exchange.response.as_ref().map_or_else(Vec::new, |found| of_message(subject, found));
            }
        };
        match field {
            Field::Took => vec![exchange.took.to_string().into_bytes()],
            Field::Backend => {
                fetched.last().map(|last| last.backend.clone().into_bytes()).into_iter().collect()
            }
            Field::Because => self.evidence.reasons(exchange.port),
            field => finding.map_or_else(Vec::new, |finding| self.evidence.values(finding, field)),
        }
    }

    /// Returns the line of VCL that set a header that differs.
    fn cause(&mut self, check: &Check, finding: Option<&Finding>, in_response: bool) -> Vec<String> {
        let (Subject::Header(name), Some(finding)) = (&check.subject, finding) else { return Vec::new() };
        let place = self.evidence.origin_of_header(finding, name, in_response);
        place.map(|place| format!("{name} was set {place}")).into_iter().collect()
    }

    fn fetch(
        &mut self,
        line: u32,
        expected: &ExpectedFetch,
        asked: &Asked,
        fetched: &[Rc<Fetched>],
    ) -> Vec<Mismatch> {
        let is_target = |fetched: &&Rc<Fetched>| {
            let Fetched { backend, message } = &***fetched;
            expected.backend.as_ref().is_none_or(|name| name == backend)
                && expected.method.as_ref().is_none_or(|name| name == message.word(0))
                && expected.url.as_ref().is_none_or(|pattern| matches(pattern, message.word(1)))
        };
        let wrong = |fetched: &Fetched| -> Vec<&Check> {
            let differs = |check: &&Check| !holds(check, &of_message(&check.subject, &fetched.message));
            expected.checks.iter().filter(differs).collect()
        };
        let targets: Vec<&Rc<Fetched>> = fetched.iter().filter(is_target).collect();
        if targets.iter().any(|fetched| wrong(fetched).is_empty()) {
            return Vec::new();
        }
        let exchange = asked.exchanges.first();
        let Some(nearest) = targets.iter().min_by_key(|fetched| wrong(fetched).len()) else {
            let parts = [&expected.backend, &expected.method, &expected.url];
            let wanted: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
            let wanted = if wanted.is_empty() { "a request".to_owned() } else { wanted.join(" ") };
            let found = Mismatch {
                line,
                subject: "fetch".to_owned(),
                expected: wanted,
                got: list(fetched),
                notes: Vec::new(),
            };
            return self.with_story(vec![found], asked, exchange);
        };
        let finding = exchange.and_then(|exchange| self.evidence.find(exchange.port, false));
        let found = wrong(nearest).into_iter().map(|check| Mismatch {
            line: check.line,
            subject: format!("fetch {}: {}", short(nearest.message.word(1).as_bytes()), name_of(check)),
            expected: check.condition.to_string(),
            got: shown(&of_message(&check.subject, &nearest.message)),
            notes: self.cause(check, finding.as_ref(), false),
        });
        let found = found.collect();
        self.with_story(found, asked, exchange)
    }

    fn count(
        &mut self,
        line: u32,
        count: &Count,
        asked: &Asked,
        fetched: &[Rc<Fetched>],
    ) -> Option<Mismatch> {
        if fetched.len() == count.number {
            return None;
        }
        let got = format!("{}: {}", fetched.len(), list(fetched));
        let notes = self.story(asked, asked.exchanges.first());
        let subject = "number of fetches".to_owned();
        Some(Mismatch { line, subject, expected: count.number.to_string(), got, notes })
    }
}

/// Returns whether the name of an outcome is the wanted one, or one of its kind.
fn is_outcome(wanted: &str, name: &str) -> bool {
    match wanted {
        "hit" => matches!(name, "hit" | "hit-in-progress" | "graced-hit" | "coalesced-hit"),
        "miss" => name.starts_with("miss") || matches!(name, "revalidated" | "hit-for-miss"),
        "pass" => name.starts_with("pass-") || name == "hit-for-pass",
        "failed" => name.ends_with("-failed"),
        wanted => wanted == name,
    }
}

/// Returns the values of a header or the body of a message.
fn of_message(subject: &Subject, message: &Message) -> Vec<Vec<u8>> {
    match subject {
        Subject::Header(name) => message.all(name).map(|value| value.as_bytes().to_vec()).collect(),
        Subject::Body => vec![message.plain_body()],
        Subject::Field(_) => Vec::new(),
    }
}

/// Returns whether the values meet a condition. An empty body counts as none.
fn holds(check: &Check, values: &[Vec<u8>]) -> bool {
    let is_about_presence = matches!(check.condition, Condition::Present | Condition::Absent);
    if matches!(check.subject, Subject::Body) && is_about_presence && values.iter().all(Vec::is_empty) {
        return check.condition.holds(&[]);
    }
    check.condition.holds(values)
}

fn name_of(check: &Check) -> String {
    match &check.subject {
        Subject::Header(name) => name.clone(),
        Subject::Body => "body".to_owned(),
        Subject::Field(field) => format!("{field:?}").to_lowercase(),
    }
}

fn shown(values: &[Vec<u8>]) -> String {
    match values {
        [] => "(none)".to_owned(),
        values => values.iter().map(|value| short(value)).collect::<Vec<_>>().join(" | "),
    }
}

fn list(fetched: &[Rc<Fetched>]) -> String {
    let line = |fetched: &Rc<Fetched>| {
        let Fetched { backend, message } = &**fetched;
        format!("{backend} {} {}", short(message.word(0).as_bytes()), short(message.word(1).as_bytes()))
    };
    let mut lines: Vec<String> = fetched.iter().take(MOST_LISTED).map(line).collect();
    if fetched.len() > MOST_LISTED {
        lines.push("...".to_owned());
    }
    if lines.is_empty() { "no fetch".to_owned() } else { lines.join(", ") }
}
