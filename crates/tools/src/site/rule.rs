//! Rules of the form `WHAT=TIME`: how long responses are cached.

use super::pattern::{Pattern, escaped};
use super::wrong::Wrong;

/// The longest time in seconds: ten years.
const MAX_SECONDS: f64 = 315_360_000.0;
const MAX_DECIMALS: usize = 3;
const UNITS: [(&str, f64); 7] = [
    ("ms", 0.001),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("w", 604_800.0),
    ("y", 31_536_000.0),
];

/// A duration as VCL writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Time(String);

impl Time {
    /// Parses a number with its unit. Only 0 needs none.
    pub fn parse(text: &str) -> Result<Time, Wrong> {
        let hint = "write a number with its unit, such as 30s, 10m, 12h or 7d; 0 for never";
        let wrong = || Wrong::new(format!("`{}` is not a time", shown(text)), hint);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let number: f64 = digits.parse().map_err(|_| wrong())?;
        if number == 0.0 && unit.is_empty() {
            return Ok(Time("0s".to_owned()));
        }
        let (unit, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        if number * factor > MAX_SECONDS
            || digits.starts_with('.')
            || digits.ends_with('.')
            || digits.len() > 12
        {
            return Err(Wrong::new(
                format!("`{}` is not a usable time", shown(text)),
                "the longest time is 10y",
            ));
        }
        // VCL has no more of them.
        if digits.split_once('.').is_some_and(|(_, decimals)| decimals.len() > MAX_DECIMALS) {
            return Err(Wrong::new(
                format!("`{}` has more than {MAX_DECIMALS} decimals", shown(text)),
                "write fewer, or a smaller unit such as ms",
            ));
        }
        Ok(Time(if number == 0.0 { "0s".to_owned() } else { format!("{digits}{unit}") }))
    }

    pub fn is_zero(&self) -> bool {
        self.0 == "0s"
    }

    pub fn vcl(&self) -> &str {
        &self.0
    }
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The responses that a rule concerns.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    Url(Pattern),
    /// A regular expression for the media type.
    Type(String),
    Status(Statuses),
}

/// A range of statuses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statuses {
    first: u16,
    last: u16,
}

impl Statuses {
    /// Parses a status, or a class such as `4xx`.
    fn parse(text: &str) -> Result<Statuses, Wrong> {
        let class = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX"));
        let class = class.filter(|class| class.len() == 1).and_then(|class| class.parse().ok());
        match (class, text.parse::<u16>()) {
            (Some(class @ 2..=5), _) => Ok(Statuses { first: class * 100, last: class * 100 + 99 }),
            (None, Ok(status @ 200..=599)) if text.len() == 3 => Ok(Statuses { first: status, last: status }),
            _ => Err(Wrong::new(
                format!("`{}` is not a status", shown(text)),
                "write one such as status:404, or a class such as status:4xx",
            )),
        }
    }

    pub fn have_errors(self) -> bool {
        self.last >= 400
    }

    /// Returns the condition of VCL.
    pub fn condition(self) -> String {
        let Statuses { first, last } = self;
        if first == last {
            return format!("beresp.status == {first}");
        }
        format!("beresp.status >= {first} && beresp.status <= {last}")
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub subject: Subject,
    pub time: Time,
    /// The rule as the user wrote it, for comments.
    pub given: String,
}

impl Rule {
    pub fn parse(given: &str) -> Result<Rule, Wrong> {
        let (what, time) = given.rsplit_once('=').ok_or_else(|| {
            Wrong::new("a rule needs a time", "write WHAT=TIME, such as '*.jpg=1d' or 'type:text/html=60s'")
        })?;
        let subject = if let Some(media) = what.strip_prefix("type:") {
            Subject::Type(media_type(media)?)
        } else if let Some(status) = what.strip_prefix("status:") {
            Subject::Status(Statuses::parse(status)?)
        } else {
            Subject::Url(Pattern::parse(what)?)
        };
        Ok(Rule { subject, time: Time::parse(time)?, given: given.to_owned() })
    }
}

fn media_type(text: &str) -> Result<String, Wrong> {
    let is_part = |part: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "*!#$&-^_.+".contains(c);
        !part.is_empty() && part.chars().all(is_allowed)
    };
    let parts = text.split_once('/').filter(|(kind, sub)| is_part(kind) && is_part(sub));
    if parts.is_none() || text.len() > 200 {
        return Err(Wrong::new(
            format!("`{}` is not a media type", shown(text)),
            "write one such as type:text/html or type:image/*",
        ));
    }
    let parts = text.chars().map(|c| if c == '*' { "[^;]*".to_owned() } else { escaped(c) });
    Ok(format!("(?i)^{}\\s*(;|$)", parts.collect::<String>()))
}
