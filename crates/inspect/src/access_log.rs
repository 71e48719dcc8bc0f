//! The formats of an access log: one line for each request.

use std::fmt::Write as _;

use lacquer_http::date::{Civil, MONTHS};
use lacquer_shm::Tag;
use serde_json::{Map, Value};

use crate::log_line::LogLine;
use crate::page::plain;
use crate::transaction::{REQUEST, RESPONSE, Transaction};

/// A format of lines.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// An object for each request.
    Json,
    /// An object with these fields.
    JsonFields(Vec<Field>),
    /// Columns for people.
    Text,
    /// The combined format of NCSA and Apache.
    Combined,
    /// Texts, and fields between them.
    Custom(Vec<Part>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Field(Field),
}

/// A property of a request, and its name.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    Known(Known),
    /// A header of the request, as the client sent it or as VCL has changed it.
    Request(String),
    /// A header of the response.
    Response(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known {
    Time,
    Epoch,
    Client,
    Port,
    Method,
    Host,
    Url,
    Protocol,
    Status,
    Reason,
    Handling,
    Bytes,
    BodyBytes,
    RequestBytes,
    Seconds,
    Wait,
    Vxid,
    Trace,
}

const FIELDS: [(&str, Known); 18] = [
    ("time", Known::Time),
    ("epoch", Known::Epoch),
    ("client", Known::Client),
    ("port", Known::Port),
    ("method", Known::Method),
    ("host", Known::Host),
    ("url", Known::Url),
    ("protocol", Known::Protocol),
    ("status", Known::Status),
    ("reason", Known::Reason),
    ("handling", Known::Handling),
    ("bytes", Known::Bytes),
    ("body_bytes", Known::BodyBytes),
    ("request_bytes", Known::RequestBytes),
    ("seconds", Known::Seconds),
    ("wait", Known::Wait),
    ("vxid", Known::Vxid),
    ("trace", Known::Trace),
];
const JSON_FIELDS: &str = "json:";

impl Format {
    /// Parses `json`, `json:FIELD,FIELD`, `text`, `combined`, or a text with names of fields in braces. The error says what
    /// is allowed.
    pub fn parse(text: &str) -> Result<Format, String> {
        match text {
            "json" => return Ok(Format::Json),
            "text" => return Ok(Format::Text),
            "combined" => return Ok(Format::Combined),
            _ if text.chars().any(char::is_control) => return Err("a format is one line".to_owned()),
            _ => {}
        }
        if let Some(names) = text.strip_prefix(JSON_FIELDS) {
            let fields = names.split(',').map(|name| Field::parse(name.trim())).collect::<Result<_, _>>()?;
            return Ok(Format::JsonFields(fields));
        }
        if !text.contains('{') {
            return Err(
                "write json, text, combined, json:time,url,status for some fields, or a format such as \
                        '{client} {method} {host}{url} {status}'"
                    .to_owned(),
            );
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            parts.push(Part::Text(before.to_owned()));
            let (name, after) = after.split_once('}').ok_or("a brace is not closed")?;
            parts.push(Part::Field(Field::parse(name)?));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Format::Custom(parts))
    }

    /// Returns the line of a request, without its end. `records` are all that the log has of it.
    pub fn line(&self, request: &LogLine, records: &Transaction, has_colors: bool) -> String {
        match self {
            Format::Json => request.json().to_string(),
            Format::JsonFields(fields) => {
                let entry = |field: &Field| (field.name(), field.value(request, records));
                Value::Object(fields.iter().map(entry).collect::<Map<_, _>>()).to_string()
            }
            Format::Text => request.text(has_colors),
            Format::Combined => combined(request, records),
            Format::Custom(parts) => {
                let mut line = String::new();
                for part in parts {
                    match part {
                        Part::Text(text) => line.push_str(text),
                        Part::Field(field) => field.write(request, records, &mut line),
                    }
                }
                line
            }
        }
    }
}

impl Field {
    fn parse(name: &str) -> Result<Field, String> {
        let is_header = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if let Some(header) = name.strip_prefix("req.").filter(|header| is_header(header)) {
            return Ok(Field::Request(header.to_owned()));
        }
        if let Some(header) = name.strip_prefix("resp.").filter(|header| is_header(header)) {
            return Ok(Field::Response(header.to_owned()));
        }
        let known = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| Field::Known(*field));
        known.ok_or_else(|| {
            let all = FIELDS.map(|(known, _)| known).join(", ");
            format!("there is no field `{name}`; the fields are {all}, and headers: req.NAME, resp.NAME")
        })
    }

    fn name(&self) -> String {
        match self {
            Field::Known(known) => {
                FIELDS.iter().find(|(_, field)| field == known).map_or("", |(name, _)| name).to_owned()
            }
            Field::Request(name) => format!("req.{name}"),
            Field::Response(name) => format!("resp.{name}"),
        }
    }

    /// Returns the value; null if the request has none.
    fn value(&self, request: &LogLine, records: &Transaction) -> Value {
        let header = |tags, name: &str| records.header(tags, name).map(|value| plain(value.as_bytes()));
        match self {
            Field::Known(known) => known.value(request, records),
            Field::Request(name) => header(REQUEST, name).into(),
            Field::Response(name) => header(RESPONSE, name).into(),
        }
    }

    fn write(&self, request: &LogLine, records: &Transaction, line: &mut String) {
        match self.value(request, records) {
            Value::String(text) if !text.is_empty() => line.push_str(&text),
            Value::Number(number) if matches!(self, Field::Known(Known::Seconds | Known::Wait)) => {
                let _ = write!(line, "{:.6}", number.as_f64().unwrap_or(0.0));
            }
            Value::Number(number) => {
                let _ = write!(line, "{number}");
            }
            _ => line.push('-'),
        }
    }
}

impl Known {
    fn value(self, request: &LogLine, records: &Transaction) -> Value {
        let text = |tag| records.last(tag).map(plain);
        // The counts of bytes: received head, body and sum, and sent head, body and sum.
        let count =
            |at: usize| text(Tag::ReqAcct).and_then(|all| all.split(' ').nth(at)?.parse::<u64>().ok());
        match self {
            Known::Time => utc(request.at).into(),
            Known::Epoch => request.at.into(),
            Known::Client => request.client.as_str().into(),
            Known::Port => {
                text(Tag::ReqStart).and_then(|all| all.split(' ').nth(1)?.parse::<u16>().ok()).into()
            }
            Known::Method => request.method.as_str().into(),
            Known::Host => request.host.as_str().into(),
            Known::Url => request.url.as_str().into(),
            Known::Protocol => text(Tag::ReqProtocol).into(),
            Known::Status => request.status.into(),
            Known::Reason => text(Tag::RespReason).into(),
            Known::Handling => request.how.into(),
            Known::Bytes => request.bytes.into(),
            Known::BodyBytes => count(4).into(),
            Known::RequestBytes => count(2).into(),
            Known::Seconds => request.seconds.into(),
            Known::Wait => records.timestamp("Process").map(|stamp| stamp.since_start).into(),
            Known::Vxid => request.vxid.into(),
            Known::Trace => records.trace().map(|(context, _)| format!("{:032x}", context.trace())).into(),
        }
    }
}

/// Returns the line of a request in the combined format. Quotes within a quoted part are escaped.
fn combined(request: &LogLine, records: &Transaction) -> String {
    let word = |text: &str| if text.is_empty() { "-".to_owned() } else { text.replace(' ', "\\x20") };
    let quoted = |text: String| {
        let text = text.replace('\"', "\\\"");
        if text.is_empty() { "-".to_owned() } else { text }
    };
    let header = |name: &str| {
        quoted(records.header(REQUEST, name).map(|value| plain(value.as_bytes())).unwrap_or_default())
    };
    let protocol = records.last(Tag::ReqProtocol).map(plain).unwrap_or_default();
    let host = if request.host.is_empty() { String::new() } else { format!("http://{}", request.host) };
    let first = quoted(format!("{} {host}{} {protocol}", request.method, request.url));
    let bytes = records.last(Tag::ReqAcct).map(plain).unwrap_or_default();
    let bytes = bytes.split(' ').nth(4).filter(|count| *count != "0").unwrap_or("-").to_owned();
    format!(
        "{} - - [{}] \"{first}\" {} {bytes} \"{}\" \"{}\"",
        word(&request.client),
        clf(request.at),
        request.status,
        header("Referer"),
        header("User-Agent")
    )
}

/// Returns a time in UTC, and the thousandths of its second. Times are clamped to the years 1970 to 9999.
fn moment(at: f64) -> (Civil, u64) {
    let at = at.clamp(0.0, 253_402_300_799.0);
    let seconds = at as i64;
    (Civil::at(seconds), ((at - seconds as f64) * 1000.0) as u64)
}

fn time(Civil { hour, minute, second, .. }: &Civil) -> String {
    format!("{hour:02}:{minute:02}:{second:02}")
}

/// Returns a time as the common log format does.
fn clf(at: f64) -> String {
    let (moment, _) = moment(at);
    let month = MONTHS[moment.month as usize - 1];
    format!("{:02}/{month}/{:04}:{} +0000", moment.day, moment.year, time(&moment))
}

/// Returns a time in the format of RFC 3339, in UTC.
fn utc(at: f64) -> String {
    let (moment, milliseconds) = moment(at);
    let Civil { year, month, day, .. } = moment;
    format!("{year:04}-{month:02}-{day:02}T{}.{milliseconds:03}Z", time(&moment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::transaction;

    fn request() -> LogLine {
        LogLine {
            vxid: 3,
            at: 1_709_164_799.25,
            client: "127.0.0.1".to_owned(),
            method: "GET".to_owned(),
            host: String::new(),
            url: "/\"a\\x0a".to_owned(),
            status: 200,
            how: "hit",
            bytes: 5,
            seconds: 0.001,
        }
    }

    #[test]
    fn formats_are_parsed_and_written() {
        let custom =
            Format::parse("{time} [{client}] {method} {host}{url} {status} {handling} {bytes} {seconds}");
        let records = records();
        assert_eq!(
            custom.expect("correct").line(&request(), &records, false),
            "2024-02-28T23:59:59.250Z [127.0.0.1] GET -/\"a\\x0a 200 hit 5 0.001000"
        );
        let json = Format::parse("json").expect("correct").line(&request(), &records, true);
        let value: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!(value["url"], "/\"a\\x0a");
        for (text, why) in [
            ("xml", "json, "),
            ("", "json"),
            ("{", "closed"),
            ("{ip}", "client"),
            ("{url}\n", "line"),
            ("json:", "no field"),
            ("json:a", "no field"),
            ("json:req.", "no field"),
        ] {
            assert!(Format::parse(text).is_err_and(|error| error.contains(why)), "{text}");
        }
    }

    fn records() -> Transaction {
        transaction(
            3,
            "req 2 rxreq",
            &[
                (Tag::ReqStart, "127.0.0.1 1234 a0"),
                (Tag::ReqProtocol, "HTTP/1.1"),
                (Tag::ReqHeader, "User-Agent: a \"b\"\u{1}</script>"),
                (Tag::RespHeader, "Age: 7"),
                (Tag::RespReason, "OK"),
                (Tag::Timestamp, "Process: 1709164799.26 0.01 0.01"),
                (Tag::ReqAcct, "10 0 10 20 5 25"),
            ],
        )
    }

    #[test]
    fn json_has_the_chosen_fields_and_is_valid() {
        let names =
            "time,epoch,port,protocol,reason,body_bytes,request_bytes,wait,req.user-agent,resp.Age,resp.None";
        let format = Format::parse(&format!("json:{names}")).expect("correct");
        let line = format.line(&request(), &records(), false);
        let value: Value = serde_json::from_str(&line).expect("it is JSON");
        assert_eq!(value["req.user-agent"], "a \"b\"\\x01</script>");
        assert_eq!((value["port"].as_u64(), value["wait"].as_f64()), (Some(1234), Some(0.01)));
        assert_eq!((&value["resp.Age"], &value["resp.None"]), (&Value::from("7"), &Value::Null));
        assert_eq!((value["body_bytes"].as_u64(), value["request_bytes"].as_u64()), (Some(5), Some(10)));
        assert!(names.split(',').all(|name| value.get(name).is_some()), "{line}");
        let nothing = LogLine { at: f64::NAN, seconds: f64::INFINITY, ..request() };
        let line = Format::parse("json:epoch,seconds").expect("correct").line(
            &nothing,
            &transaction(3, "req 2 rxreq", &[]),
            false,
        );
        assert_eq!(line, "{\"epoch\":null,\"seconds\":null}");
    }

    #[test]
    fn combined_lines_cannot_be_broken_by_clients() {
        let line = Format::Combined.line(&request(), &records(), false);
        assert_eq!(
            line,
            "127.0.0.1 - - [28/Feb/2024:23:59:59 +0000] \"GET /\\\"a\\x0a HTTP/1.1\" 200 5 \"-\" \"a \\\"b\\\"\\x01</script>\""
        );
    }

    #[test]
    fn times_are_dates() {
        for (at, text) in [
            (0.0, "1970-01-01T00:00:00.000Z"),
            (951_782_400.0, "2000-02-29T00:00:00.000Z"),
            (1_767_225_599.999, "2025-12-31T23:59:59.99"),
            (f64::MAX, "9999-12-31"),
            (-1.0, "1970-01-01"),
            (f64::NAN, "1970-01-01"),
        ] {
            assert!(utc(at).starts_with(text), "{at}: {}", utc(at));
        }
    }
}
