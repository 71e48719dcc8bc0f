//! The lines below a statement.

use std::cmp::Ordering;

use super::condition::Condition;
use super::lines::{Fault, Line};
use super::model::{Check, ClientRequest, Field, OriginRule, Page, Subject};
use super::quantity::{duration, size};
use super::words::{Word, words};
use crate::suggest::suggest;

/// Most clients that send a request at the same time.
const MOST_CLIENTS: usize = 1000;

/// Splits a header into its name and value; `None` if the line is no header.
fn header(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once(':')?;
    is_token(name).then(|| (name.to_owned(), value.trim().to_owned()))
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// A detail that begins with a word.
struct Detail<'t> {
    line: Line<'t>,
    words: Vec<Word>,
}

impl<'t> Detail<'t> {
    fn of(line: Line<'t>) -> Result<Detail<'t>, Fault> {
        let words = words(line.text).map_err(|why| Fault::new(line.number, why))?;
        Ok(Detail { line, words })
    }

    fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::new(self.line.number, what)
    }

    fn name(&self) -> &str {
        self.words
            .first()
            .filter(|word| !word.is_quoted)
            .and_then(|word| word.text().ok())
            .unwrap_or_default()
    }

    /// Returns the only word behind the name.
    fn value(&self) -> Result<&Word, Fault> {
        match &self.words[..] {
            [_, value] => Ok(value),
            [_] => Err(self.fault(format!("`{}` needs a value", self.name()))),
            _ => {
                Err(self
                    .fault(format!("`{}` has too many values; a text with blanks needs quotes", self.name())))
            }
        }
    }

    fn text(&self) -> Result<&str, Fault> {
        self.value()?.text().map_err(|why| self.fault(why))
    }

    fn parsed<T>(&self, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Fault> {
        parse(self.text()?).map_err(|why| self.fault(why))
    }

    /// Fails if there are words behind the name.
    fn alone(&self) -> Result<(), Fault> {
        if self.words.len() > 1 { Err(self.fault(format!("`{}` has no value", self.name()))) } else { Ok(()) }
    }

    fn unknown(&self, of: &str, known: &[&str]) -> Fault {
        let name =
            lacquer_inspect::page::short(self.line.text.split(' ').next().unwrap_or_default().as_bytes());
        let hint = suggest(&name, known)
            .unwrap_or_else(|| format!("known are {} and headers as `Name: value`", known.join(", ")));
        self.fault(format!("{of} have no detail `{name}`: {hint}"))
    }
}

fn count(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_| format!("`{word}` is not a number"))
}

/// Adds a line of a body. Lines are separated by line feeds.
fn add_line(body: &mut Vec<u8>, has_lines: &mut bool, line: &[u8]) {
    if std::mem::replace(has_lines, true) {
        body.push(b'\n');
    }
    body.extend(line);
}

/// Adds the details of an origin's rule. `page` is the response, if the origin gives one.
pub fn of_origin(lines: &[Line<'_>], rule: &mut OriginRule, page: Option<&mut Page>) -> Result<(), Fault> {
    const KNOWN: [&str; 8] = ["body", "size", "after", "once", "times", "gzip", "chunked", "cut"];
    let mut has_lines = false;
    let mut page = page;
    for &line in lines {
        if let Some(header) = header(line.text) {
            let page = page.as_mut().ok_or_else(|| no_response(line))?;
            page.headers.push(header);
            continue;
        }
        let detail = Detail::of(line)?;
        match (detail.name(), page.as_mut()) {
            ("after", _) => rule.delay = detail.parsed(duration)?.max(0.0),
            ("once", _) => {
                detail.alone()?;
                rule.times = Some(1);
            }
            ("times", _) => rule.times = Some(detail.parsed(count)? as u32),
            (name, None) if KNOWN.contains(&name) => return Err(no_response(line)),
            ("body", Some(page)) => add_line(&mut page.body, &mut has_lines, &detail.value()?.bytes),
            ("size", Some(page)) => page.body = vec![b'x'; detail.parsed(size)?],
            ("gzip", Some(page)) => {
                detail.alone()?;
                page.is_packed = true;
            }
            ("chunked", Some(page)) => {
                detail.alone()?;
                page.is_chunked = true;
            }
            ("cut", Some(page)) => {
                detail.alone()?;
                page.is_cut = true;
            }
            _ => return Err(detail.unknown("origins", &KNOWN)),
        }
    }
    Ok(())
}

fn no_response(line: Line<'_>) -> Fault {
    Fault::new(line.number, "an origin without a status gives no response, and has no headers and body")
}

/// Adds the details of a client's request.
pub fn of_request(lines: &[Line<'_>], request: &mut ClientRequest) -> Result<(), Fault> {
    const KNOWN: [&str; 3] = ["from", "body", "clients"];
    let (mut body, mut has_lines) = (Vec::new(), false);
    for &line in lines {
        if let Some(header) = header(line.text) {
            request.headers.push(header);
            continue;
        }
        let detail = Detail::of(line)?;
        match detail.name() {
            "from" => {
                let address = |word: &str| word.parse().map_err(|_| format!("`{word}` is not an IP address"));
                request.from = detail.parsed(address)?;
            }
            "body" => add_line(&mut body, &mut has_lines, &detail.value()?.bytes),
            "clients" => {
                request.clients = detail.parsed(count)?;
                if !(1..=MOST_CLIENTS).contains(&request.clients) {
                    return Err(detail.fault(format!("`clients` is a number from 1 to {MOST_CLIENTS}")));
                }
            }
            _ => return Err(detail.unknown("requests", &KNOWN)),
        }
    }
    request.body = has_lines.then_some(body);
    Ok(())
}

const FIELDS: [(&str, Field); 10] = [
    ("ttl", Field::Ttl),
    ("grace", Field::Grace),
    ("keep", Field::Keep),
    ("stored", Field::Stored),
    ("restarts", Field::Restarts),
    ("retries", Field::Retries),
    ("backend", Field::Backend),
    ("log", Field::Log),
    ("took", Field::Took),
    ("because", Field::Because),
];

/// Parses the details of an expectation. Only responses have fields.
pub fn of_expectation(lines: &[Line<'_>], has_fields: bool) -> Result<Vec<Check>, Fault> {
    let check = |line: &Line<'_>| {
        let (subject, condition) = check(*line, has_fields)?;
        Ok(Check { line: line.number, subject, condition })
    };
    let mut checks: Vec<Check> = Vec::new();
    for line in lines {
        let next: Check = check(line)?;
        // Several lines of a body are one text.
        if let (Subject::Body, Condition::Is(more)) = (&next.subject, &next.condition)
            && let Some(Check { subject: Subject::Body, condition: Condition::Is(body), .. }) =
                checks.last_mut()
        {
            body.push(b'\n');
            body.extend(more);
            continue;
        }
        checks.push(next);
    }
    Ok(checks)
}

fn check(line: Line<'_>, has_fields: bool) -> Result<(Subject, Condition), Fault> {
    if let Some((name, value)) = header(line.text) {
        return Ok((Subject::Header(name), Condition::Is(value.into_bytes())));
    }
    // Patterns are read as they are written, without escapes.
    let (subject, rest) = line.text.split_once(char::is_whitespace).unwrap_or((line.text, ""));
    let rest = rest.trim_start();
    for (operator, must_match) in [("~", true), ("!~", false)] {
        if let Some(pattern) =
            rest.strip_prefix(operator).filter(|rest| rest.starts_with(char::is_whitespace))
        {
            let pattern = pattern.trim();
            let inside = pattern.strip_prefix('"').and_then(|p| p.strip_suffix('"')).unwrap_or(pattern);
            let condition =
                Condition::pattern(inside, must_match).map_err(|why| Fault::new(line.number, why))?;
            return Ok((subject_of(line, subject, has_fields)?, condition));
        }
    }
    let detail = Detail::of(line)?;
    match (detail.name(), detail.words.len()) {
        ("no" | "has", 2) => {
            let condition = if detail.name() == "no" { Condition::Absent } else { Condition::Present };
            Ok((subject_of(line, detail.text()?, has_fields)?, condition))
        }
        ("not", 2) if has_fields && detail.text()? == "stored" => {
            Ok((Subject::Field(Field::Stored), Condition::Absent))
        }
        ("stored", 1) if has_fields => Ok((Subject::Field(Field::Stored), Condition::Present)),
        ("body", 2) => Ok((Subject::Body, Condition::Is(detail.value()?.bytes.clone()))),
        (name, _) => {
            let field = FIELDS.iter().find(|(known, _)| has_fields && *known == name);
            match field {
                Some((_, field)) => Ok((Subject::Field(*field), field_condition(&detail, *field)?)),
                None => {
                    let mut known = vec!["no", "has", "body"];
                    known.extend(FIELDS.iter().map(|(name, _)| *name).filter(|_| has_fields));
                    Err(detail.unknown("expectations", &known))
                }
            }
        }
    }
}

fn subject_of(line: Line<'_>, name: &str, has_fields: bool) -> Result<Subject, Fault> {
    if name == "body" {
        return Ok(Subject::Body);
    }
    if let Some((_, field)) = FIELDS.iter().find(|(known, _)| has_fields && *known == name) {
        return Ok(Subject::Field(*field));
    }
    if is_token(name) {
        return Ok(Subject::Header(name.to_owned()));
    }
    let name = lacquer_inspect::page::short(name.as_bytes());
    Err(Fault::new(line.number, format!("`{name}` is not the name of a header")))
}

/// Parses the value of a field: a text, or a number with an operator before it.
fn field_condition(detail: &Detail<'_>, field: Field) -> Result<Condition, Fault> {
    if matches!(field, Field::Backend | Field::Log | Field::Because) {
        return Ok(Condition::Is(detail.value()?.bytes.clone()));
    }
    let (order, word) = match &detail.words[1..] {
        [word] => (Ordering::Equal, word),
        [operator, word] => match &operator.bytes[..] {
            b"<" => (Ordering::Less, word),
            b">" => (Ordering::Greater, word),
            b"=" | b"==" => (Ordering::Equal, word),
            _ => return Err(detail.fault("the operators are <, > and =")),
        },
        _ => return Err(detail.fault(format!("`{}` needs a value", detail.name()))),
    };
    let word = word.text().map_err(|why| detail.fault(why))?;
    let is_count = matches!(field, Field::Restarts | Field::Retries);
    let number = if is_count { count(word).map(|number| number as f64) } else { duration(word) };
    let number = number.map_err(|why| detail.fault(why))?;
    Ok(Condition::Number(order, number, word.to_owned()))
}
