//! Requests as lines: when, who, what, and how the cache treated it.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use lacquer_shm::Tag;
use serde_json::{Value, json};

use crate::dates::utc;
use crate::page::{WIDTH, duration, plain};
use crate::transaction::{Kind, REQUEST, Timestamp, Transaction};

/// A request in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    pub vxid: u64,
    /// When it began, in seconds since the epoch.
    pub at: f64,
    pub client: String,
    pub method: String,
    pub host: String,
    pub url: String,
    pub status: u16,
    pub how: &'static str,
    pub bytes: u64,
    pub seconds: f64,
}

/// Which requests are shown.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// A text that host and URL contain.
    pub url: Option<String>,
    /// A status such as `404`, or a class such as `5xx`.
    pub status: Option<String>,
    pub only_misses: bool,
    /// The number of a request, which error pages show.
    pub vxid: Option<u64>,
}

/// The records of a request that its line is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    start: &'a [u8],
    method: Option<&'a [u8]>,
    pub host: &'a [u8],
    url: Option<&'a [u8]>,
    status: &'a [u8],
    account: &'a [u8],
    hit: &'a [u8],
    steps: u8,
    /// The first and the last timestamp, and the one when the response began.
    stamps: [Option<&'a [u8]>; 3],
}

/// The steps by which the cache treated a request: the bits of [`Parts::steps`], and the words for them.
const STEPS: [(u8, &str); 6] = [
    (PURGE, "purge"),
    (PIPE, "pipe"),
    (HIT_PASS, "hit-for-pass"),
    (HIT_MISS, "hit-for-miss"),
    (PASS, "pass"),
    (MISS, "miss"),
];
const PURGE: u8 = 1;
const PIPE: u8 = 2;
const HIT_PASS: u8 = 4;
const HIT_MISS: u8 = 8;
const PASS: u8 = 16;
const MISS: u8 = 32;
const SYNTH: u8 = 64;

impl<'a> Parts<'a> {
    /// Returns the parts of a request of a client. Includes and restarted requests have none.
    pub fn of(request: &'a Transaction) -> Option<Parts<'a>> {
        if request.kind != Kind::Request || request.reason == "esi" {
            return None;
        }
        let mut parts = Parts::default();
        for record in request.records() {
            let text = record.text;
            match record.tag {
                Tag::ReqStart => parts.start = text,
                Tag::ReqMethod => parts.method = parts.method.or(Some(text)),
                Tag::ReqURL => parts.url = parts.url.or(Some(text)),
                tag if tag == REQUEST.0 || tag == REQUEST.1 => {
                    if let Some(host) = host(text) {
                        parts.host = if tag == REQUEST.0 { host } else { b"" };
                    }
                }
                Tag::RespStatus => parts.status = text,
                Tag::ReqAcct => parts.account = text,
                Tag::Hit => parts.hit = text,
                Tag::HitPass => parts.steps |= HIT_PASS,
                Tag::HitMiss => parts.steps |= HIT_MISS,
                Tag::Timestamp => parts.stamp(text),
                Tag::VCL_call => parts.steps |= step(text),
                Tag::VCL_return if text == b"restart" => return None,
                Tag::VCL_return if text == b"purge" => parts.steps |= PURGE,
                _ => {}
            }
        }
        Some(parts)
    }

    fn stamp(&mut self, text: &'a [u8]) {
        let [first, last, process] = &mut self.stamps;
        *first = first.or(Some(text));
        *last = Some(text);
        // Behind the name of the step are numbers. VCL may have written names that begin with it.
        if text.strip_prefix(b"Process: ").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit)) {
            *process = Some(text);
        }
    }

    pub fn url(&self) -> &'a [u8] {
        self.url.unwrap_or_default()
    }

    pub fn status(&self) -> u16 {
        number(self.status).and_then(|status| u16::try_from(status).ok()).unwrap_or(0)
    }

    /// Returns the bytes that were sent to the client.
    pub fn bytes(&self) -> u64 {
        self.account.split(|byte| *byte == b' ').nth(5).and_then(number).unwrap_or(0)
    }

    /// Returns when it began, in seconds since the epoch.
    fn at(&self) -> f64 {
        self.stamps[0].and_then(Timestamp::parse).map_or(0.0, |stamp| stamp.at)
    }

    /// Returns the seconds that it took.
    fn seconds(&self) -> f64 {
        self.stamps[1].and_then(Timestamp::parse).map_or(0.0, |stamp| stamp.since_start)
    }

    /// Returns the seconds until the response began, or that it took if none did.
    pub fn wait(&self) -> f64 {
        let process = self.stamps[2].and_then(Timestamp::parse);
        process.map_or_else(|| self.seconds(), |stamp| stamp.since_start)
    }

    /// Returns how the cache treated it.
    pub fn how(&self) -> &'static str {
        match STEPS.iter().find(|(step, _)| self.steps & step != 0) {
            Some((_, word)) => word,
            None if self.is_graced() => "graced-hit",
            None if !self.hit.is_empty() => "hit",
            None if self.steps & SYNTH != 0 => "synth",
            None => "refused",
        }
    }

    fn is_graced(&self) -> bool {
        let ttl = self.hit.split(|byte| *byte == b' ').nth(1).and_then(|ttl| std::str::from_utf8(ttl).ok());
        ttl.and_then(|ttl| ttl.parse::<f64>().ok()).is_some_and(|ttl| ttl < 0.0)
    }
}

/// Returns the bit of a VCL subroutine.
fn step(called: &[u8]) -> u8 {
    match called {
        b"PIPE" => PIPE,
        b"PASS" => PASS,
        b"MISS" => MISS,
        b"SYNTH" => SYNTH,
        _ => 0,
    }
}

/// Returns the value of a header if it is the host.
pub fn host(header: &[u8]) -> Option<&[u8]> {
    let (name, value) = header.split_first_chunk::<5>()?;
    name.eq_ignore_ascii_case(b"host:").then(|| value.trim_ascii())
}

pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl LogLine {
    /// Returns the line of a request of a client. Includes and restarted requests have none.
    pub fn of(request: &Transaction) -> Option<LogLine> {
        let parts = Parts::of(request)?;
        Some(LogLine {
            vxid: request.vxid,
            at: parts.at(),
            client: plain(parts.start.split(|byte| *byte == b' ').next().unwrap_or_default()),
            method: plain(parts.method.unwrap_or_default()),
            host: plain(parts.host),
            url: plain(parts.url()),
            status: parts.status(),
            how: parts.how(),
            bytes: parts.bytes(),
            seconds: parts.seconds(),
        })
    }

    /// Returns the line as text, in color if `has_colors`.
    pub fn text(&self, has_colors: bool) -> String {
        let head = format!("{} {:<15} ", time_of_day(self.at), self.client);
        let tail = format!(
            " {:>3} {:<12} {:>8} {:>8}",
            self.status,
            self.how,
            bytes(self.bytes),
            duration(self.seconds)
        );
        let room = WIDTH.saturating_sub(head.chars().count() + tail.chars().count()).max(10);
        let mut what = format!("{} {}{}", self.method, self.host, self.url);
        if let Some((end, _)) =
            what.char_indices().nth(room).map(|_| what.char_indices().nth(room - 3).unwrap_or((0, ' ')))
        {
            what.truncate(end);
            what.push_str("...");
        }
        let color = match self.status {
            500.. => "\x1b[31m",
            400.. => "\x1b[33m",
            _ if self.how.contains("hit") => "\x1b[32m",
            _ => "",
        };
        let line = format!("{head}{what:<room$}{tail}");
        let line: String = line.chars().take(WIDTH).collect();
        if has_colors && !color.is_empty() { format!("{color}{line}\x1b[0m") } else { line }
    }

    /// Returns the fields of the format `json`, which `access_log` has too. Absent ones are null.
    pub fn json(&self) -> Value {
        let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
        json!({
            "vxid": self.vxid, "time": utc(self.at), "epoch": self.at, "client": text(&self.client),
            "method": text(&self.method), "host": text(&self.host), "url": text(&self.url),
            "status": Some(self.status).filter(|status| *status > 0),
            "handling": self.how, "bytes": self.bytes, "seconds": self.seconds,
        })
    }
}

impl Filter {
    pub fn accepts(&self, line: &LogLine) -> bool {
        let status = line.status.to_string();
        let is_status = |wanted: &str| {
            let mut pairs = wanted.chars().zip(status.chars());
            wanted.len() == status.len() && pairs.all(|(want, is)| want == is || matches!(want, 'x' | 'X'))
        };
        self.vxid.is_none_or(|vxid| vxid == line.vxid)
            && self.url.as_deref().is_none_or(|text| format!("{}{}", line.host, line.url).contains(text))
            && self.status.as_deref().is_none_or(is_status)
            && (!self.only_misses || !matches!(line.how, "hit" | "graced-hit" | "synth"))
    }
}

/// Returns the time of a day in UTC.
fn time_of_day(at: f64) -> String {
    let seconds = at.rem_euclid(86400.0);
    let whole = seconds as u64;
    let mut text = String::new();
    let thousandths = ((seconds - whole as f64) * 1000.0) as u64;
    let _ = write!(text, "{:02}:{:02}:{:02}.{thousandths:03}", whole / 3600, whole / 60 % 60, whole % 60);
    text
}

fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} kB", count / 1000),
        _ => format!("{} MB", count / 1_000_000),
    }
}

/// Returns the present time, in seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::transaction;

    fn line(records: &[(Tag, &str)]) -> LogLine {
        LogLine::of(&transaction(3, "req 2 rxreq", records)).expect("a request")
    }

    #[test]
    fn a_request_is_one_line_of_a_hundred_columns() {
        let long = format!("/a\x1b[2J{}", "x".repeat(500));
        let line = line(&[
            (Tag::Timestamp, "Start: 1795732703.25 0.0 0.0"),
            (Tag::ReqStart, "127.0.0.1 52710 a0"),
            (Tag::ReqMethod, "GET"),
            (Tag::ReqURL, &long),
            (Tag::ReqHeader, "Host: a.example"),
            (Tag::VCL_call, "RECV"),
            (Tag::Hit, "2 -1.5 10 0"),
            (Tag::RespStatus, "200"),
            (Tag::Timestamp, "Resp: 1795732703.35 0.1 0.1"),
            (Tag::ReqAcct, "1 2 3 4 5 9"),
        ]);
        let text = line.text(false);
        assert!(
            text.chars().count() <= WIDTH && !text.contains('\x1b') && text.starts_with("22:38:23.250"),
            "{text}"
        );
        assert!(text.contains("graced-hit") && text.contains("9 B") && text.contains("100.0 ms"), "{text}");
        assert!(line.text(true).starts_with("\x1b[32m"));
    }

    #[test]
    fn filters_select_requests() {
        let line = line(&[(Tag::RespStatus, "404"), (Tag::ReqURL, "/a/b"), (Tag::VCL_call, "MISS")]);
        let accepts = |url: Option<&str>, status: Option<&str>, only_misses| {
            let filter = Filter {
                url: url.map(str::to_owned),
                status: status.map(str::to_owned),
                only_misses,
                vxid: None,
            };
            filter.accepts(&line)
        };
        assert!(accepts(Some("a/"), Some("4xx"), true) && accepts(None, Some("404"), false));
        assert!(!accepts(Some("c"), None, false) && !accepts(None, Some("5xx"), false));
        assert!(!accepts(None, Some("4"), false));
        for (vxid, is_accepted) in [(3, true), (4, false)] {
            assert_eq!(Filter { vxid: Some(vxid), ..Filter::default() }.accepts(&line), is_accepted);
        }
    }
}
