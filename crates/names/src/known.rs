//! The last good answers of names as a text, with which another process continues: a line for each name.
//!
//! ```text
//! h www.example 192.0.2.1 2001:db8::1
//! s _http._tcp.example 10:5:81:a.example
//! ```
//!
//! The text has passed through other processes, so a line is used only if it could be the answer of a name server.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::found::{LONGEST_ANSWER, Place, usable};
use crate::name::{Answer, Kind};

/// The maximum length of a text in bytes.
pub const LONGEST_TEXT: usize = 8 << 20;
/// The maximum length of a name (RFC 1035 section 2.3.4).
const LONGEST_NAME: usize = 255;
/// The time for which answers wait for the first user of their name.
const KEPT: Duration = Duration::from_mins(10);

/// The answers of another process for names that have no user yet.
#[derive(Default)]
pub struct Known {
    answers: HashMap<(String, Kind), Answer>,
    until: Option<Instant>,
}

impl Known {
    /// Reads the text of another process. Skips lines that are damaged.
    pub fn read(text: &str) -> Known {
        let text = &text[..text.floor_char_boundary(LONGEST_TEXT)];
        // The last line may be cut short, and its last address another one.
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let answers = lines.filter_map(parse).map(|(name, kind, answer)| ((name, kind), answer)).collect();
        Known { answers, until: Some(Instant::now() + KEPT) }
    }

    /// Removes and returns the answer for a name, which has a user from now on.
    pub fn take(&mut self, name: &str, kind: Kind) -> Option<Answer> {
        self.forget_old();
        if self.answers.is_empty() {
            return None;
        }
        self.answers.remove(&(name.to_owned(), kind))
    }

    /// Returns the answers whose names have no user yet.
    pub fn rest(&mut self) -> impl Iterator<Item = (&str, Kind, &Answer)> {
        self.forget_old();
        self.answers.iter().map(|((name, kind), answer)| (name.as_str(), *kind, answer))
    }

    fn forget_old(&mut self) {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            *self = Known::default();
        }
    }
}

/// Appends the line of a name, if it has an answer and the text has room for it.
pub fn write(text: &mut String, name: &str, kind: Kind, answer: &Answer) {
    let start = text.len();
    // Writing to a string cannot fail.
    let _ = match kind {
        Kind::Host if answer.addresses.is_empty() => return,
        Kind::Service if answer.places.is_empty() => return,
        Kind::Host => write!(text, "h {name}"),
        Kind::Service => write!(text, "s {name}"),
    };
    for ip in &answer.addresses {
        let _ = write!(text, " {ip}");
    }
    for Place { priority, weight, port, host } in &answer.places {
        let _ = write!(text, " {priority}:{weight}:{port}:{host}");
    }
    text.push('\n');
    if text.len() > LONGEST_TEXT {
        text.truncate(start);
    }
}

fn parse(line: &str) -> Option<(String, Kind, Answer)> {
    let mut words = line.split(' ');
    let (kind, name) = (words.next()?, words.next()?);
    if !is_name(name) {
        return None;
    }
    let (kind, answer) = match kind {
        "h" => {
            let addresses: Option<Vec<IpAddr>> = words.map(|word| word.parse().ok()).collect();
            let addresses = usable(addresses?.into_iter(), None).ok()?.addresses;
            (Kind::Host, Answer { addresses, ..Answer::default() })
        }
        "s" => {
            let places: Option<Vec<Place>> = words.map(place).collect();
            let mut places = places?;
            places.sort_unstable();
            places.dedup();
            places.truncate(LONGEST_ANSWER);
            if places.is_empty() {
                return None;
            }
            (Kind::Service, Answer { places, ..Answer::default() })
        }
        _ => return None,
    };
    Some((name.to_owned(), kind, answer))
}

fn place(word: &str) -> Option<Place> {
    let mut parts = word.splitn(4, ':');
    let mut number = || parts.next()?.parse().ok();
    let (priority, weight, port) = (number()?, number()?, number()?);
    let host = parts.next().filter(|host| is_name(host))?.to_owned();
    Some(Place { priority, weight, port, host })
}

/// Returns whether a text can be a name, in lower case.
fn is_name(text: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b);
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(addresses: &[&str]) -> Answer {
        let addresses = addresses.iter().map(|ip| ip.parse().expect("an address")).collect();
        Answer { addresses, ..Answer::default() }
    }

    #[test]
    fn answers_are_read_as_written() {
        let (one, none) = (host(&["10.0.0.1", "fd00::1"]), Answer::default());
        let place = Place { priority: 10, weight: 5, port: 81, host: "b.example".into() };
        let service = Answer { places: vec![place], ..Answer::default() };
        let mut text = String::new();
        write(&mut text, "a.example", Kind::Host, &one);
        write(&mut text, "none.example", Kind::Host, &none);
        write(&mut text, "_http._tcp.example", Kind::Service, &service);
        assert_eq!(text, "h a.example 10.0.0.1 fd00::1\ns _http._tcp.example 10:5:81:b.example\n");
        let mut known = Known::read(&text);
        assert_eq!(known.take("a.example", Kind::Service), None);
        assert_eq!(known.take("a.example", Kind::Host), Some(one));
        assert_eq!(known.take("a.example", Kind::Host), None);
        let rest: Vec<_> = known.rest().collect();
        assert_eq!(rest, [("_http._tcp.example", Kind::Service, &service)]);
    }

    #[test]
    fn damaged_lines_are_skipped_and_texts_are_limited() {
        let damaged = [
            "",
            "h",
            "h a",
            "x a 10.0.0.1",
            "h a 10.0.0.1.1",
            "h A 10.0.0.1",
            "h a/b 10.0.0.1",
            "h  10.0.0.1",
            "h a 0.0.0.0",
            "h a 10.0.0.1 ",
            "h a 10.0.0.1\r",
            "s a 1:2:3",
            "s a 1:2:99999:b",
            "s a 1:2:3:",
            "s a 1:2:3:b/c",
            "s a",
            "h ä 10.0.0.1",
        ];
        assert_eq!(Known::read(&(damaged.join("\n") + "\n")).answers.len(), 0);
        assert_eq!(Known::read(&(damaged.join("\n") + "\nh good 10.0.0.1\n")).answers.len(), 1);
        assert_eq!(Known::read(&format!("h {} 10.0.0.1\n", "a".repeat(256))).answers.len(), 0);
        assert_eq!(
            Known::read("h a 10.0.0.1\nh b 10.0.0.1").answers.len(),
            1,
            "the last line is not complete"
        );
        let many: Vec<String> = (0..200u8).map(|n| format!("10.0.0.{n}")).collect();
        let mut known = Known::read(&format!("h many {}\n", many.join(" ")));
        assert_eq!(known.take("many", Kind::Host).map(|answer| answer.addresses.len()), Some(LONGEST_ANSWER));
        let endless = "ä".repeat(LONGEST_TEXT);
        assert_eq!(Known::read(&endless).answers.len(), 0);
        let mut full = "x".repeat(LONGEST_TEXT - 5);
        write(&mut full, "a", Kind::Host, &host(&["10.0.0.1"]));
        assert_eq!(full.len(), LONGEST_TEXT - 5);
    }

    #[test]
    fn each_damage_of_a_text_is_survived() {
        let good = "h a.example 10.0.0.1 fd00::1\ns _b._tcp.example 10:5:81:b.example\n".as_bytes();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut other = good.to_vec();
                other[at] ^= 1 << bit;
                let _ = Known::read(&String::from_utf8_lossy(&other));
            }
        }
    }
}
