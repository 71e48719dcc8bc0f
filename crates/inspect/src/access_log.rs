//! The formats of an access log: one line for each request.

use lacquer_shm::Tag;

use crate::field_value::{Value, add_escaped, add_number};
use crate::log_line::LogLine;
use crate::parts::Parts;
use crate::request_log::Needs;
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

/// The names, in the order of the enum.
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
/// The headers in the combined format.
const COMBINED_HEADERS: [&str; 2] = ["Referer", "User-Agent"];
const TRACE_DIGITS: usize = 32;
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

    /// Returns the records that lines depend on.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        match self {
            Format::Json(fields) => fields.iter().for_each(|field| field.add_needs(&mut needs)),
            Format::Text => {}
            Format::Combined => {
                needs.add_tag(Tag::ReqProtocol);
                for name in COMBINED_HEADERS {
                    needs.add_header(REQUEST, name);
                }
            }
            Format::Custom(parts) => {
                for part in parts {
                    if let Part::Field(field) = part {
                        field.add_needs(&mut needs);
                    }
                }
            }
        }
        needs
    }

    /// Appends the line of a request, without its end. `records` are those that [`Format::needs`] names, at least.
    pub fn add_line(&self, line: &mut String, request: &Parts<'_>, records: &Transaction, has_colors: bool) {
        match self {
            Format::Json(fields) => {
                for (at, field) in fields.iter().enumerate() {
                    line.push(if at == 0 { '{' } else { ',' });
                    field.add_name(line);
                    field.value(request, records).add_json(line);
                }
                line.push('}');
            }
            Format::Text => line.push_str(&LogLine::of_parts(records.vxid, request).text(has_colors)),
            Format::Combined => add_combined(line, request, records),
            Format::Custom(parts) => {
                for part in parts {
                    match part {
                        Part::Text(text) => line.push_str(text),
                        Part::Field(field) => field.value(request, records).add_text(line),
                    }
                }
            }
        }
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
            Field::Known(known) => ("", FIELDS[*known as usize].0),
            Field::Request(name) => ("req.", name.as_str()),
            Field::Response(name) => ("resp.", name.as_str()),
        };
        line.push('"');
        line.push_str(prefix);
        line.push_str(name);
        line.push_str("\":");
    }

    fn add_needs(&self, needs: &mut Needs) {
        match self {
            Field::Known(Known::Protocol) => needs.add_tag(Tag::ReqProtocol),
            Field::Known(Known::Reason) => needs.add_tag(Tag::RespReason),
            Field::Known(Known::Trace) => needs.add_tag(Tag::Notice),
            // Every line has these records.
            Field::Known(_) => {}
            Field::Request(name) => needs.add_header(REQUEST, name),
            Field::Response(name) => needs.add_header(RESPONSE, name),
        }
    }

    fn value<'a>(&self, request: &Parts<'a>, records: &'a Transaction) -> Value<'a> {
        match self {
            Field::Known(known) => known.value(request, records),
            Field::Request(name) => records.header_bytes(REQUEST, name).into(),
            Field::Response(name) => records.header_bytes(RESPONSE, name).into(),
        }
    }
}

impl Known {
    fn value<'a>(self, request: &Parts<'a>, records: &'a Transaction) -> Value<'a> {
        match self {
            Known::Time => Value::Time(request.began().moment()),
            Known::Epoch => Value::Decimal(request.began()),
            Known::Client => Some(request.client()).filter(|client| !client.is_empty()).into(),
            Known::Port => request.port().into(),
            Known::Method => request.method().into(),
            Known::Host => request.host().into(),
            Known::Url => request.url().into(),
            Known::Protocol => records.last(Tag::ReqProtocol).into(),
            Known::Status => Some(u64::from(request.status())).filter(|status| *status > 0).into(),
            Known::Reason => records.last(Tag::RespReason).into(),
            Known::Handling => Value::Word(request.how()),
            Known::Bytes => Value::Number(request.bytes()),
            Known::BodyBytes => request.account(4).into(),
            Known::RequestBytes => request.account(2).into(),
            Known::Seconds => Value::Seconds(request.seconds()),
            Known::Wait => request.process().map_or(Value::None, Value::Seconds),
            Known::Vxid => Value::Number(records.vxid),
            Known::Trace => {
                records.trace().map_or(Value::None, |(context, _)| Value::Hex(context.trace(), TRACE_DIGITS))
            }
        }
    }
}

/// Appends the line of a request in the combined format.
fn add_combined(line: &mut String, request: &Parts<'_>, records: &Transaction) {
    Known::Client.value(request, records).add_text(line);
    line.push_str(" - - [");
    request.began().moment().add_clf(line);
    line.push_str("] \"");
    if request.method().is_none() && request.url().is_none() {
        line.push('-');
    } else {
        add_escaped(line, request.method().unwrap_or_default());
        line.push(' ');
        if let Some(host) = request.host().filter(|host| !host.is_empty()) {
            line.push_str("http://");
            add_escaped(line, host);
        }
        add_escaped(line, request.url().unwrap_or_default());
        line.push(' ');
        add_escaped(line, records.last(Tag::ReqProtocol).unwrap_or_default());
    }
    line.push_str("\" ");
    add_number(line, request.status().into());
    line.push(' ');
    match request.account(4).unwrap_or(0) {
        0 => line.push('-'),
        bytes => add_number(line, bytes),
    }
    for name in COMBINED_HEADERS {
        line.push_str(" \"");
        Value::from(records.header_bytes(REQUEST, name)).add_text(line);
        line.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::transaction;
    use serde_json::Value;

    fn line(format: &str, records: &Transaction) -> String {
        line_of(&Format::parse(format).expect(format), records)
    }

    /// Returns a line of the records that the format needs.
    fn line_of(format: &Format, records: &Transaction) -> String {
        let (needs, mut records) = (format.needs(), records.clone());
        records.retain(|record| needs.has(record));
        let (mut line, parts) = (String::new(), Parts::of(&records).expect("a request"));
        format.add_line(&mut line, &parts, &records, false);
        line
    }

    #[test]
    fn formats_are_parsed_and_written() {
        let all = "{time} [{client}] {method} {host}{url} {status} {handling} {bytes} {seconds}";
        for (format, expected) in [
            (all, r#"2024-02-28T23:59:59.250Z [127.0.0.1] GET -/\"a\x0a 200 hit 25 0.011000"#),
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
                (Tag::Timestamp, "Start: 1709164799.250000 0.000000 0.000000"),
                (Tag::ReqStart, "127.0.0.1 1234 a0"),
                (Tag::ReqMethod, "GET"),
                (Tag::ReqURL, "/\"a\n"),
                (Tag::ReqProtocol, "HTTP/1.1"),
                (Tag::ReqHeader, &format!("User-Agent: {agent}")),
                (Tag::Hit, "2 10.0 10.0 0.0"),
                (Tag::RespHeader, "Age: 7"),
                (Tag::RespStatus, "200"),
                (Tag::RespReason, "OK"),
                (Tag::Timestamp, "Process: 1709164799.260000 0.010000 0.010000"),
                (Tag::Timestamp, "Resp: 1709164799.261000 0.011000 0.001000"),
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
        let damaged = transaction(3, "req 2 rxreq", &[(Tag::Timestamp, "Start: NaN inf inf")]);
        assert_eq!(line("json:epoch,seconds", &damaged), "{\"epoch\":null,\"seconds\":null}");
    }

    #[test]
    fn fields_have_their_names() {
        for (at, (name, field)) in FIELDS.into_iter().enumerate() {
            assert_eq!(field as usize, at, "{name}");
        }
    }

    #[test]
    fn fields_have_one_type_in_all_json() {
        for records in [records(), transaction(3, "req 2 rxreq", &[])] {
            let of_line = LogLine::of(&records).expect("a request");
            let usual: Value = serde_json::from_str(&line_of(&Format::json(), &records)).expect("it is JSON");
            assert_eq!(usual, of_line.json());
            let chosen = line("json:time,method,url,host", &records);
            let chosen: Value = serde_json::from_str(&chosen).expect("it is JSON");
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
        let refused =
            transaction(3, "req 2 rxreq", &[(Tag::RespStatus, "400"), (Tag::ReqAcct, "1 0 1 2 0 2")]);
        assert!(line("combined", &refused).contains("] \"-\" 400 - \"-\" \"-\""));
    }
}
