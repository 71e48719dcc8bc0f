//! Requests as lines: when, who, what, and how the cache treated it.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::dates::utc;
use crate::page::{WIDTH, duration, first_chars, plain};
use crate::parts::Parts;
use crate::transaction::Transaction;

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// A text that host and URL contain.
    pub url: Option<String>,
    /// A status such as `404`, or a class such as `5xx`.
    pub status: Option<String>,
    pub only_misses: bool,
    /// The number of a request, which error pages show.
    pub vxid: Option<u64>,
}

impl LogLine {
    /// Returns the line of a request of a client. Includes and restarted requests have none.
    pub fn of(request: &Transaction) -> Option<LogLine> {
        Parts::of(request).map(|parts| LogLine::of_parts(request.vxid, &parts))
    }

    pub fn of_parts(vxid: u64, parts: &Parts<'_>) -> LogLine {
        LogLine {
            vxid,
            at: parts.began().value(),
            client: plain(parts.client()),
            method: plain(parts.method().unwrap_or_default()),
            host: plain(parts.host().unwrap_or_default()),
            url: plain(parts.url().unwrap_or_default()),
            status: parts.status(),
            how: parts.how(),
            bytes: parts.bytes(),
            seconds: parts.seconds().value(),
        }
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
        if first_chars(&what, room).len() < what.len() {
            what.truncate(first_chars(&what, room - 3).len());
            what.push_str("...");
        }
        let color = match self.status {
            500.. => "\x1b[31m",
            400.. => "\x1b[33m",
            _ if self.how.contains("hit") => "\x1b[32m",
            _ => "",
        };
        let line = format!("{head}{what:<room$}{tail}");
        let line = first_chars(&line, WIDTH);
        if has_colors && !color.is_empty() { format!("{color}{line}\x1b[0m") } else { line.to_owned() }
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
    use lacquer_shm::Tag;

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
