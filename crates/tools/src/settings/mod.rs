//! The file `lacquer.toml`: the options of `lacquer run`, each with its line.

mod repair;

use std::borrow::Cow;

use lacquer_params::nearest;
use lacquer_vcl::diagnostics::{Piece, Place};
use lacquer_vcl::{Diagnostic, Severity, Text};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::site::{RULES, Site, Wrong};
use repair::{Repaired, repair};

/// The name of the file that is read from the current folder.
pub const FILE: &str = "lacquer.toml";
/// The table of the daemon's parameters.
const PARAM: &str = "param";
/// Maximum size of a file in bytes.
const MAX_SIZE: usize = 1 << 20;
/// Maximum number of mistakes that are shown.
pub const MAX_MISTAKES: usize = 100;

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
    /// Where its key and its value are: offsets in bytes.
    key_at: At,
    at: At,
}

/// A range of bytes of a file.
type At = (usize, usize);

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    pub wrong: Wrong,
    at: At,
}

/// The contents of a file.
#[derive(Debug, Default, PartialEq)]
pub struct Contents {
    /// The options without mistakes of form, in the order of the file.
    pub settings: Vec<Setting>,
    pub mistakes: Vec<Mistake>,
}

impl Contents {
    fn refused(at: At, what: &str, hint: &str) -> Contents {
        Contents { mistakes: vec![mistake(at, what, hint)], ..Contents::default() }
    }

    fn add(&mut self, key: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        let (name, key_at) = (key.get_ref(), at(&key.span()));
        if name == PARAM {
            return self.add_parameters(value);
        }
        match known(name, key_at) {
            Ok((name, kind)) => self.add_values(name, kind, key_at, value),
            Err(mistake) => self.mistakes.push(mistake),
        }
    }

    fn add_values(&mut self, name: &'static str, kind: Kind, key_at: At, value: &Spanned<DeValue<'_>>) {
        let here = at(&value.span());
        let mut push = |value: &str, at| {
            self.settings.push(Setting { name, value: value.to_owned(), key_at, at });
        };
        let wrong = |at| mistake(at, format!("`{name}` has a wrong value"), kind.allowed(name));
        match (kind, value.get_ref()) {
            (Kind::Flag | Kind::FlagOrList, DeValue::Boolean(is_on)) => {
                if *is_on {
                    push("", here);
                }
            }
            (Kind::Text | Kind::List | Kind::FlagOrList, DeValue::String(text)) => push(text, here),
            (Kind::List | Kind::FlagOrList, DeValue::Array(list)) => {
                for element in list {
                    let here = at(&element.span());
                    match element.get_ref() {
                        DeValue::String(text) => push(text, here),
                        _ => self.mistakes.push(wrong(here)),
                    }
                }
            }
            _ => self.mistakes.push(wrong(here)),
        }
    }

    fn add_parameters(&mut self, value: &Spanned<DeValue<'_>>) {
        let hint = "write the parameters of the daemon below [param]: default_ttl = 120";
        let DeValue::Table(table) = value.get_ref() else {
            return self.mistakes.push(mistake(at(&value.span()), "`param` is not a table", hint));
        };
        for (key, value) in table {
            let (name, key_at, here) = (key.get_ref(), at(&key.span()), at(&value.span()));
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                self.mistakes.push(mistake(key_at, "this is not the name of a parameter", hint));
                continue;
            }
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => number.to_string(),
                DeValue::Float(number) => number.to_string(),
                DeValue::Boolean(is_on) => if *is_on { "on" } else { "off" }.to_owned(),
                _ => {
                    self.mistakes.push(mistake(here, format!("`{name}` has a wrong value"), hint));
                    continue;
                }
            };
            self.settings.push(Setting { name: "p", value: format!("{name}={text}"), key_at, at: here });
        }
    }
}

/// Reads a file. Finds all mistakes in its form; of several in a statement that is not TOML, the first.
pub fn read(bytes: &[u8]) -> Contents {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            return Contents::refused(
                (at, at + 1),
                "this is not a character of UTF-8",
                "save the file as UTF-8",
            );
        }
    };
    if text.len() > MAX_SIZE {
        let hint = "name a file with options of `lacquer run`";
        return Contents::refused((0, 0), "the file is larger than 1 MB", hint);
    }
    let Repaired { text, errors } = repair(text);
    let mut contents = Contents::default();
    for (key, value) in DeTable::parse_recoverable(&text).0.get_ref() {
        contents.add(key, value);
    }
    contents.settings.sort_by_key(|setting| setting.at);
    let hint = "a line is NAME = VALUE, with texts in quotes; see docs/run.md";
    contents.mistakes.extend(errors.into_iter().map(|(at, what)| mistake(at, what, hint)));
    contents
}

fn at(span: &std::ops::Range<usize>) -> At {
    (span.start, span.end)
}

fn mistake(at: At, what: impl Into<String>, hint: impl Into<String>) -> Mistake {
    Mistake { wrong: Wrong { what: what.into(), hint: hint.into() }, at }
}

fn known(key: &str, at: At) -> Result<(&'static str, Kind), Mistake> {
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

/// Returns the site that settings describe, and the mistakes in their values. Backends are not part of it.
pub fn site(settings: &[Setting]) -> (Site, Vec<Mistake>) {
    let mut site = Site::default();
    let set =
        |setting: &Setting| site.set(setting.name, &setting.value).err().map(|wrong| setting.mistake(wrong));
    let mut mistakes: Vec<Mistake> = settings.iter().filter_map(set).collect();
    let last = settings.iter().rfind(|setting| RULES.contains(&setting.name));
    let place = last.map_or((0, 0), |setting| setting.at);
    mistakes.extend(site.check().err().map(|wrong| Mistake { wrong, at: place }));
    (site, mistakes)
}

impl Setting {
    /// Returns a mistake in this setting's value.
    pub fn mistake(&self, wrong: Wrong) -> Mistake {
        Mistake { wrong: self.explain(wrong), at: self.at }
    }

    /// Returns a mistake in this setting's key.
    pub fn mistake_of_key(&self, wrong: Wrong) -> Mistake {
        Mistake { wrong: self.explain(wrong), at: self.key_at }
    }

    /// Adds the name of the setting to a mistake.
    fn explain(&self, wrong: Wrong) -> Wrong {
        let name = if self.name == "p" { PARAM } else { self.name };
        Wrong { what: format!("{name}: {}", wrong.what), ..wrong }
    }
}

/// Returns the mistakes of a file in the order of their places, at most [`MAX_MISTAKES`].
pub fn diagnostics(mistakes: &mut [Mistake], file: &str, bytes: &[u8]) -> Vec<Diagnostic> {
    mistakes.sort_by_key(|mistake| mistake.at);
    mistakes.iter().take(MAX_MISTAKES).map(|mistake| mistake.diagnostic(file, bytes)).collect()
}

impl Mistake {
    /// Returns the mistake with its place in the file.
    fn diagnostic(&self, file: &str, bytes: &[u8]) -> Diagnostic {
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
