//! The formats of an access log: one line for each request.

use std::fmt::Write as _;

use lacquer_shm::Tag;

use crate::dates::{clf, utc};
use crate::field_value::{Value, add_escaped};
use crate::log_line::{self, LogLine};
use crate::transaction::{REQUEST, RESPONSE, Transaction};

/// A format of lines.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// An object with these fields.
    Json(Vec<Field>),
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
/// Bytes of a usual line.
const LENGTH: usize = 512;
const JSON_FIELDS: &str = "json:";
/// The fields of the format `json`, which [`LogLine::json`] has too.
const USUAL: [Known; 11] = [
    Known::Time,
    Known::Epoch,
    Known::Vxid,
    Known::Client,
    Known::Method,
    Known::Host,
    Known::Url,
    Known::Status,
    Known::Handling,
    Known::Bytes,
    Known::Seconds,
];

impl Format {
    /// Returns the format `json`.
    pub fn json() -> Format {
        Format::Json(USUAL.map(Field::Known).to_vec())
    }

    /// Parses `json`, `json:FIELD,FIELD`, `text`, `combined`, or a text with names of fields in braces. The error says what
    /// is allowed.
    pub fn parse(text: &str) -> Result<Format, String> {
        match text {
            "json" => return Ok(Format::json()),
            "text" => return Ok(Format::Text),
            "combined" => return Ok(Format::Combined),
            _ if text.chars().any(char::is_control) => return Err("a format is one line".to_owned()),
            _ => {}
        }
        if let Some(names) = text.strip_prefix(JSON_FIELDS) {
            let fields =
                names.split(',').map(|name| Field::parse(name.trim())).collect::<Result<Vec<_>, _>>()?;
            if (1..fields.len()).any(|at| fields[..at].contains(&fields[at])) {
                return Err("a field is named twice".to_owned());
            }
            return Ok(Format::Json(fields));
        }
        let parts = parts(text)?;
        if !parts.iter().any(|part| matches!(part, Part::Field(_))) {
            return Err(
                "write json, text, combined, json:time,url,status for some fields, or a format such as \
                        '{client} {method} {host}{url} {status}'"
                    .to_owned(),
            );
        }
        Ok(Format::Custom(parts))
    }

    /// Returns the line of a request, without its end. `records` are all that the log has of it.
    pub fn line(&self, request: &LogLine, records: &Transaction, has_colors: bool) -> String {
        let mut line = String::with_capacity(LENGTH);
        match self {
            Format::Json(fields) => {
                for (at, field) in fields.iter().enumerate() {
                    line.push(if at == 0 { '{' } else { ',' });
                    field.add_name(&mut line);
                    field.value(request, records).add_json(&mut line);
                }
                line.push('}');
            }
            Format::Text => return request.text(has_colors),
            Format::Combined => add_combined(&mut line, request, records),
            Format::Custom(parts) => {
                for part in parts {
                    match part {
                        Part::Text(text) => line.push_str(text),
                        Part::Field(field) => field.value(request, records).add_text(&mut line),
                    }
                }
            }
        }
        line
    }
}

/// Splits a format into texts and fields. `{{` and `}}` are braces.
fn parts(text: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut literal) = (Vec::new(), String::new());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        literal.push_str(before);
        let brace = &after[..1];
        rest = &after[1..];
        if let Some(behind) = rest.strip_prefix(brace) {
            literal.push_str(brace);
            rest = behind;
        } else if brace == "}" {
            literal.push_str(brace);
        } else {
            let (name, behind) = rest.split_once('}').ok_or("a brace is not closed; {{ is a brace")?;
            parts.push(Part::Text(std::mem::take(&mut literal)));
            parts.push(Part::Field(Field::parse(name)?));
            rest = behind;
        }
    }
    literal.push_str(rest);
    parts.push(Part::Text(literal));
    Ok(parts)
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

    /// Appends the name as the key of an object. Names need no escapes.
    fn add_name(&self, line: &mut String) {
        let (prefix, name) = match self {
            Field::Known(known) => {
                ("", FIELDS.iter().find(|(_, field)| field == known).map_or("", |(name, _)| name))
            }
            Field::Request(name) => ("req.", name.as_str()),
            Field::Response(name) => ("resp.", name.as_str()),
        };
        line.push('"');
        line.push_str(prefix);
        line.push_str(name);
        line.push_str("\":");
    }

    fn value<'a>(&self, request: &'a LogLine, records: &'a Transaction) -> Value<'a> {
        match self {
            Field::Known(known) => known.value(request, records),
            Field::Request(name) => records.header_bytes(REQUEST, name).into(),
            Field::Response(name) => records.header_bytes(RESPONSE, name).into(),
        }
    }
}

impl Known {
    fn value<'a>(self, request: &'a LogLine, records: &'a Transaction) -> Value<'a> {
        match self {
            Known::Time => Value::Own(utc(request.at)),
            Known::Epoch => Value::Float(request.at),
            Known::Client => Some(request.client.as_bytes()).filter(|client| !client.is_empty()).into(),
            Known::Port => number(records, Tag::ReqStart, 1).into(),
            Known::Method => records.first(Tag::ReqMethod).into(),
            Known::Host => records.header_bytes(REQUEST, "Host").into(),
            Known::Url => records.first(Tag::ReqURL).into(),
            Known::Protocol => records.last(Tag::ReqProtocol).into(),
            Known::Status => Some(u64::from(request.status)).filter(|status| *status > 0).into(),
            Known::Reason => records.last(Tag::RespReason).into(),
            Known::Handling => Value::Bytes(request.how.as_bytes()),
            Known::Bytes => Value::Number(request.bytes),
            // The counts of bytes: received head, body and sum, and sent head, body and sum.
            Known::BodyBytes => number(records, Tag::ReqAcct, 4).into(),
            Known::RequestBytes => number(records, Tag::ReqAcct, 2).into(),
            Known::Seconds => Value::Seconds(request.seconds),
            Known::Wait => {
                records.timestamp("Process").map_or(Value::None, |stamp| Value::Seconds(stamp.since_start))
            }
            Known::Vxid => Value::Number(request.vxid),
            Known::Trace => records
                .trace()
                .map_or(Value::None, |(context, _)| Value::Own(format!("{:032x}", context.trace()))),
        }
    }
}

/// Returns a number from the last record with a tag.
fn number(records: &Transaction, tag: Tag, at: usize) -> Option<u64> {
    log_line::number(records.last(tag)?.split(|byte| *byte == b' ').nth(at)?)
}

/// Appends the line of a request in the combined format.
fn add_combined(line: &mut String, request: &LogLine, records: &Transaction) {
    let header = |name| records.header_bytes(REQUEST, name);
    Known::Client.value(request, records).add_text(line);
    line.push_str(" - - [");
    line.push_str(&clf(request.at));
    line.push_str("] \"");
    let (method, url) = (records.first(Tag::ReqMethod), records.first(Tag::ReqURL));
    if method.is_none() && url.is_none() {
        line.push('-');
    } else {
        add_escaped(line, method.unwrap_or_default());
        line.push(' ');
        if let Some(host) = header("Host").filter(|host| !host.is_empty()) {
            line.push_str("http://");
            add_escaped(line, host);
        }
        add_escaped(line, url.unwrap_or_default());
        line.push(' ');
        add_escaped(line, records.last(Tag::ReqProtocol).unwrap_or_default());
    }
    let _ = write!(line, "\" {} ", request.status);
    match number(records, Tag::ReqAcct, 4).unwrap_or(0) {
        0 => line.push('-'),
        bytes => {
            let _ = write!(line, "{bytes}");
        }
    }
    for name in ["Referer", "User-Agent"] {
        line.push_str(" \"");
        Value::from(header(name)).add_text(line);
        line.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::transaction;
    use serde_json::Value;

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

    fn line(format: &str, records: &Transaction) -> String {
        Format::parse(format).expect(format).line(&request(), records, false)
    }

    #[test]
    fn formats_are_parsed_and_written() {
        let all = "{time} [{client}] {method} {host}{url} {status} {handling} {bytes} {seconds}";
        for (format, expected) in [
            (all, r#"2024-02-28T23:59:59.250Z [127.0.0.1] GET -/\"a\x0a 200 hit 5 0.001000"#),
            ("'{req.user-agent}' {epoch}", r#"'a \"b\"\x01</script>' 1709164799.25"#),
            (r#"{{"u":"{url}","n":{{}}}}"#, r#"{"u":"/\"a\x0a","n":{}}"#),
            ("{{url}} {url}}", r#"{url} /\"a\x0a}"#),
        ] {
            assert_eq!(line(format, &records()), expected, "{format}");
        }
        for (text, why) in [
            ("xml", "json, "),
            ("", "json"),
            ("{", "closed"),
            ("{{url}}", "json"),
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
        records_of("a \"b\"\u{1}</script>")
    }

    fn records_of(agent: &str) -> Transaction {
        transaction(
            3,
            "req 2 rxreq",
            &[
                (Tag::ReqStart, "127.0.0.1 1234 a0"),
                (Tag::ReqMethod, "GET"),
                (Tag::ReqURL, "/\"a\n"),
                (Tag::ReqProtocol, "HTTP/1.1"),
                (Tag::ReqHeader, &format!("User-Agent: {agent}")),
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
        let text = line(&format!("json:{names}"), &records());
        let value: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(value["req.user-agent"], "a \"b\"\\x01</script>");
        assert_eq!((value["port"].as_u64(), value["wait"].as_f64()), (Some(1234), Some(0.01)));
        assert_eq!((&value["resp.Age"], &value["resp.None"]), (&Value::from("7"), &Value::Null));
        assert_eq!((value["body_bytes"].as_u64(), value["request_bytes"].as_u64()), (Some(5), Some(10)));
        assert!(names.split(',').all(|name| value.get(name).is_some()), "{text}");
        let nothing = LogLine { at: f64::NAN, seconds: f64::INFINITY, ..request() };
        let format = Format::parse("json:epoch,seconds").expect("correct");
        let text = format.line(&nothing, &transaction(3, "req 2 rxreq", &[]), false);
        assert_eq!(text, "{\"epoch\":null,\"seconds\":null}");
    }

    #[test]
    fn fields_have_one_type_in_all_json() {
        for records in [records(), transaction(3, "req 2 rxreq", &[])] {
            let of_line = LogLine::of(&records).expect("a request");
            let usual: Value =
                serde_json::from_str(&Format::json().line(&of_line, &records, false)).expect("it is JSON");
            assert_eq!(usual, of_line.json());
            let chosen = Format::parse("json:time,method,url,host").expect("correct");
            let chosen: Value =
                serde_json::from_str(&chosen.line(&of_line, &records, false)).expect("it is JSON");
            for (name, value) in chosen.as_object().expect("an object") {
                assert_eq!(value, &usual[name], "{name}");
            }
        }
        let refused = LogLine::of(&transaction(3, "req 2 rxreq", &[])).expect("a request").json();
        assert!(
            ["client", "method", "host", "url", "status"].iter().all(|name| refused[name].is_null()),
            "{refused}"
        );
    }

    #[test]
    fn combined_lines_cannot_be_broken_by_clients() {
        for (agent, shown) in [
            ("a \"b\"\u{1}</script>", r#"a \"b\"\x01</script>"#),
            (r#"a\" 999"#, r#"a\\\" 999"#),
            (r"ends\", r"ends\\"),
            (r"\x01", r"\\x01"),
        ] {
            assert_eq!(
                line("combined", &records_of(agent)),
                format!(
                    r#"127.0.0.1 - - [28/Feb/2024:23:59:59 +0000] "GET /\"a\x0a HTTP/1.1" 200 5 "-" "{shown}""#
                )
            );
            assert_eq!(line("'\"{req.user-agent}\"'", &records_of(agent)), format!("'\"{shown}\"'"));
        }
        let refused = transaction(3, "req 2 rxreq", &[(Tag::ReqAcct, "1 0 1 2 0 2")]);
        assert!(line("combined", &refused).contains("] \"-\" 200 - \"-\" \"-\""));
    }
}
