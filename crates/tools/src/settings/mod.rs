//! The file `lacquer.toml`: the options of `lacquer run`, each with its line.

use lacquer_vcl::diagnostics::{Piece, Place};
use lacquer_vcl::{Diagnostic, Severity, Text};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::nearest;
use crate::site::{RULES, Site, Wrong};

/// The name of the file that is read from the current folder.
pub const FILE: &str = "lacquer.toml";
/// The table of the daemon's parameters.
const PARAM: &str = "param";
/// Maximum size of a file in bytes.
const MAX_SIZE: usize = 1 << 20;

/// The values that a key may have.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    List,
    Flag,
    FlagOrList,
}

impl Kind {
    fn allowed(self, name: &str) -> String {
        match self {
            Kind::Text => format!("write a text: {name} = \"...\""),
            Kind::List => format!("write a text or a list of texts: {name} = [\"...\", \"...\"]"),
            Kind::Flag => format!("write {name} = true or {name} = false"),
            Kind::FlagOrList => format!("write {name} = true, or a list of texts: {name} = [\"...\"]"),
        }
    }
}

const KEYS: [(&str, Kind); 25] = [
    ("listen", Kind::List),
    ("https", Kind::List),
    ("https-listen", Kind::List),
    ("no-http3", Kind::Flag),
    ("hsts", Kind::Flag),
    ("staging", Kind::Flag),
    ("email", Kind::Text),
    ("backend", Kind::List),
    ("probe", Kind::Text),
    ("vcl", Kind::Text),
    ("ignore-cookies", Kind::FlagOrList),
    ("except", Kind::List),
    ("cache", Kind::List),
    ("stale", Kind::Text),
    ("compress", Kind::Flag),
    ("purge-from", Kind::List),
    ("tags", Kind::Text),
    ("storage", Kind::Text),
    ("log", Kind::Text),
    ("log-to", Kind::Text),
    ("name", Kind::Text),
    ("admin", Kind::Text),
    ("web", Kind::Text),
    ("otlp", Kind::Text),
    ("secret", Kind::Text),
];

/// An option of a file. Its name for parameters of the daemon is `p`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    /// Where its value is: offsets in bytes.
    at: (usize, usize),
}

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    pub wrong: Wrong,
    at: (usize, usize),
}

/// Reads a file. Returns its options in the order of the file.
pub fn read(bytes: &[u8]) -> Result<Vec<Setting>, Mistake> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        mistake((at, at + 1), "this is not a character of UTF-8", "save the file as UTF-8")
    })?;
    if text.len() > MAX_SIZE {
        return Err(mistake(
            (0, 0),
            "the file is larger than 1 MB",
            "name a file with options of `lacquer run`",
        ));
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    let end = text.len();
    let place = |error: &toml::de::Error| error.span().map_or((end, end), |span| (span.start, span.end));
    if let Some(error) = errors.iter().min_by_key(|error| place(error)) {
        let hint = "a line is NAME = VALUE, with texts in quotes; see docs/run.md";
        return Err(mistake(place(error), error.message(), hint));
    }
    let mut settings = Vec::new();
    for (key, value) in table.get_ref() {
        if key.get_ref() == PARAM {
            parameters(value, &mut settings)?;
        } else {
            let (name, kind) = known(key.get_ref(), at(&key.span()))?;
            add(name, kind, value, &mut settings)?;
        }
    }
    settings.sort_by_key(|setting| setting.at);
    Ok(settings)
}

fn at(span: &std::ops::Range<usize>) -> (usize, usize) {
    (span.start, span.end)
}

fn mistake(at: (usize, usize), what: impl Into<String>, hint: impl Into<String>) -> Mistake {
    Mistake { wrong: Wrong { what: what.into(), hint: hint.into() }, at }
}

fn known(key: &str, at: (usize, usize)) -> Result<(&'static str, Kind), Mistake> {
    if let Some(found) = KEYS.into_iter().find(|(name, _)| *name == key) {
        return Ok(found);
    }
    let names = KEYS.map(|(name, _)| name);
    let hint = nearest(key, names.into_iter().chain([PARAM])).map_or_else(
        || format!("the names are {} and the table [{PARAM}]", names.join(", ")),
        |name| format!("did you mean `{name}`?"),
    );
    Err(mistake(at, format!("there is no option `{}`", key.escape_debug()), hint))
}

fn add(
    name: &'static str,
    kind: Kind,
    value: &Spanned<DeValue<'_>>,
    settings: &mut Vec<Setting>,
) -> Result<(), Mistake> {
    let wrong = |span| mistake(at(&span), format!("`{name}` has a wrong value"), kind.allowed(name));
    let mut push =
        |value: &str, span| settings.push(Setting { name, value: value.to_owned(), at: at(&span) });
    match (kind, value.get_ref()) {
        (Kind::Flag | Kind::FlagOrList, DeValue::Boolean(is_on)) => {
            if *is_on {
                push("", value.span());
            }
        }
        (Kind::Text | Kind::List | Kind::FlagOrList, DeValue::String(text)) => push(text, value.span()),
        (Kind::List | Kind::FlagOrList, DeValue::Array(list)) => {
            for element in list {
                match element.get_ref() {
                    DeValue::String(text) => push(text, element.span()),
                    _ => return Err(wrong(element.span())),
                }
            }
        }
        _ => return Err(wrong(value.span())),
    }
    Ok(())
}

fn parameters(value: &Spanned<DeValue<'_>>, settings: &mut Vec<Setting>) -> Result<(), Mistake> {
    let hint = "write the parameters of the daemon below [param]: default_ttl = 120";
    let DeValue::Table(table) = value.get_ref() else {
        return Err(mistake(at(&value.span()), "`param` is not a table", hint));
    };
    for (key, value) in table {
        let name = key.get_ref();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(mistake(at(&key.span()), "this is not the name of a parameter", hint));
        }
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(is_on) => if *is_on { "on" } else { "off" }.to_owned(),
            _ => return Err(mistake(at(&value.span()), format!("`{name}` has a wrong value"), hint)),
        };
        settings.push(Setting { name: "p", value: format!("{name}={text}"), at: at(&value.span()) });
    }
    Ok(())
}

/// Returns the site that settings describe. Backends are not part of it.
pub fn site(settings: &[Setting]) -> Result<Site, Mistake> {
    let mut site = Site::default();
    for setting in settings {
        site.set(setting.name, &setting.value).map_err(|wrong| setting.mistake(wrong))?;
    }
    let last = settings.iter().rfind(|setting| RULES.contains(&setting.name));
    site.check().map_err(|wrong| Mistake { wrong, at: last.map_or((0, 0), |setting| setting.at) })?;
    Ok(site)
}

impl Setting {
    /// Returns a mistake in this setting's value.
    pub fn mistake(&self, wrong: Wrong) -> Mistake {
        let what = format!("{}: {}", self.name, wrong.what);
        Mistake { wrong: Wrong { what, ..wrong }, at: self.at }
    }
}

impl Mistake {
    /// Returns the mistake with its place in the file.
    pub fn diagnostic(&self, file: &str, bytes: &[u8]) -> Diagnostic {
        let start = self.at.0.min(bytes.len());
        let before = &bytes[..start];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line_len = bytes[line_start..].iter().position(|byte| *byte == b'\n');
        let line_end = line_len.map_or(bytes.len(), |len| line_start + len);
        let text = &bytes[line_start..line_end];
        let line = before.split(|byte| *byte == b'\n').count();
        let end = self.at.1.clamp(start, line_end.max(start)) - line_start;
        let place = Place {
            file: file.to_owned(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            start: start - line_start,
            end: end.max(start - line_start + 1),
            text: Text::from(text),
            last: None,
            range: true,
            included_from: Vec::new(),
        };
        Diagnostic {
            severity: Severity::Error,
            pieces: vec![Piece::Text(format!("{}\n", self.wrong.what)), Piece::Place(place)],
            hint: Some(self.wrong.hint.clone()),
            focus: None,
        }
    }
}

#[cfg(test)]
mod tests;
