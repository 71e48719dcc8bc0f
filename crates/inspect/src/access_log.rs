//! The formats of an access log: one line for each request.

use std::fmt::Write as _;

use crate::log_line::LogLine;

/// A format of lines.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// An object for each request.
    Json,
    /// Columns for people.
    Text,
    /// Texts, and fields between them.
    Custom(Vec<Part>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Field(Field),
}

/// A property of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    Time,
    Client,
    Method,
    Host,
    Url,
    Status,
    Handling,
    Bytes,
    Seconds,
    Vxid,
}

const FIELDS: [(&str, Field); 10] = [
    ("time", Field::Time),
    ("client", Field::Client),
    ("method", Field::Method),
    ("host", Field::Host),
    ("url", Field::Url),
    ("status", Field::Status),
    ("handling", Field::Handling),
    ("bytes", Field::Bytes),
    ("seconds", Field::Seconds),
    ("vxid", Field::Vxid),
];

impl Format {
    /// Parses `json`, `text`, or a text with names of fields in braces. The error says what is allowed.
    pub fn parse(text: &str) -> Result<Format, String> {
        match text {
            "json" => return Ok(Format::Json),
            "text" => return Ok(Format::Text),
            _ if !text.contains('{') => {
                return Err("write json, text, or a format such as '{client} {method} {host}{url} {status}'"
                    .to_owned());
            }
            _ if text.chars().any(char::is_control) => return Err("a format is one line".to_owned()),
            _ => {}
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            parts.push(Part::Text(before.to_owned()));
            let (name, after) = after.split_once('}').ok_or("a brace is not closed")?;
            let field = FIELDS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
                let known = FIELDS.map(|(known, _)| known).join(", ");
                format!("there is no field `{name}`; the fields are {known}")
            })?;
            parts.push(Part::Field(field.1));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Format::Custom(parts))
    }

    /// Returns the line of a request, without its end.
    pub fn line(&self, request: &LogLine, has_colors: bool) -> String {
        match self {
            Format::Json => request.json().to_string(),
            Format::Text => request.text(has_colors),
            Format::Custom(parts) => {
                let mut line = String::new();
                for part in parts {
                    match part {
                        Part::Text(text) => line.push_str(text),
                        Part::Field(field) => field.write(request, &mut line),
                    }
                }
                line
            }
        }
    }
}

impl Field {
    fn write(self, request: &LogLine, line: &mut String) {
        let text = match self {
            Field::Client => &request.client,
            Field::Method => &request.method,
            Field::Host => &request.host,
            Field::Url => &request.url,
            Field::Handling => request.how,
            _ => {
                let _ = match self {
                    Field::Status => write!(line, "{}", request.status),
                    Field::Bytes => write!(line, "{}", request.bytes),
                    Field::Seconds => write!(line, "{:.6}", request.seconds),
                    Field::Vxid => write!(line, "{}", request.vxid),
                    _ => write!(line, "{}", utc(request.at)),
                };
                return;
            }
        };
        line.push_str(if text.is_empty() { "-" } else { text });
    }
}

/// Returns a time in the format of RFC 3339, in UTC.
fn utc(at: f64) -> String {
    let at = at.clamp(0.0, 253_402_300_799.0);
    let seconds = at as u64;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the day of a leap year is the last.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let milliseconds = ((at - seconds as f64) * 1000.0) as u64;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{milliseconds:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            custom.expect("correct").line(&request(), false),
            "2024-02-28T23:59:59.250Z [127.0.0.1] GET -/\"a\\x0a 200 hit 5 0.001000"
        );
        let json = Format::parse("json").expect("correct").line(&request(), true);
        let value: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!(value["url"], "/\"a\\x0a");
        for (text, why) in
            [("xml", "json, text"), ("", "json"), ("{", "closed"), ("{ip}", "client"), ("{url}\n", "line")]
        {
            assert!(Format::parse(text).is_err_and(|error| error.contains(why)), "{text}");
        }
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
