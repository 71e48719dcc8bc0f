//! Health probes, the part without sockets: what a probe wants, what the last 64 attempts brought, and
//! whether that makes an origin healthy.
//!
//! Of each attempt eight facts are kept, each as a bit in a map of its own; the newest is the lowest bit.

use std::fmt::Write;

/// A probe's settings with the defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub timeout: f64,
    pub interval: f64,
    pub window: u32,
    pub threshold: u32,
    /// Good attempts that are taken for granted at the start.
    pub initial: u32,
    pub status: u32,
    pub expect_close: bool,
}

/// The same as the user gave it; what is missing or zero gets its default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub timeout: Option<f64>,
    pub interval: Option<f64>,
    pub window: Option<u32>,
    pub threshold: Option<u32>,
    pub initial: Option<u32>,
    pub status: Option<u32>,
    pub expect_close: Option<bool>,
}

impl Settings {
    /// Makes the settings of a probe. Values that are missing in VCL or not positive become Varnish's defaults.
    pub fn new(wanted: Wanted) -> Settings {
        let seconds = |given: Option<f64>, default| given.filter(|&t| t > 0.0).unwrap_or(default);
        let number = |given: Option<u32>, default| given.filter(|&n| n > 0).unwrap_or(default);
        let threshold = number(wanted.threshold, 3);
        Settings {
            timeout: seconds(wanted.timeout, 2.0),
            interval: seconds(wanted.interval, 5.0),
            window: number(wanted.window, 8),
            threshold,
            initial: wanted.initial.unwrap_or(threshold - 1).min(threshold),
            status: number(wanted.status, 200),
            expect_close: wanted.expect_close.unwrap_or(true),
        }
    }
}

/// One fact of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    GoodIpv4,
    GoodIpv6,
    GoodUnix,
    ErrorSent,
    GoodSent,
    ErrorReceived,
    GoodReceived,
    Happy,
}

/// Fact, letter, name for people.
const FACTS: [(Fact, char, &str); 8] = [
    (Fact::GoodIpv4, '4', "Good IPv4"),
    (Fact::GoodIpv6, '6', "Good IPv6"),
    (Fact::GoodUnix, 'U', "Good UNIX"),
    (Fact::ErrorSent, 'x', "Error Xmit"),
    (Fact::GoodSent, 'X', "Good Xmit"),
    (Fact::ErrorReceived, 'r', "Error Recv"),
    (Fact::GoodReceived, 'R', "Good Recv"),
    (Fact::Happy, 'H', "Happy"),
];

/// Result of one attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempt {
    facts: [bool; FACTS.len()],
    /// Seconds to the end of the answer.
    pub took: f64,
    /// First line of the answer, or what went wrong.
    pub text: String,
}

impl Attempt {
    pub fn note(&mut self, fact: Fact) {
        self.facts[fact as usize] = true;
    }

    pub fn has(&self, fact: Fact) -> bool {
        self.facts[fact as usize]
    }

    /// Examines the answer's beginning: records its first line, and whether that has the wanted status.
    pub fn judge(&mut self, answer: &[u8], status: u32) {
        let end = answer.iter().position(|b| matches!(b, b'\r' | b'\n' | 0)).unwrap_or(answer.len());
        self.text = String::from_utf8_lossy(&answer[..end]).into_owned();
        if status_of(&self.text) == Some(status) {
            self.note(Fact::Happy);
        }
    }
}

/// The status of `HTTP/1.1 200 OK`; whatever number stands for the version.
fn status_of(line: &str) -> Option<u32> {
    let rest = line.strip_prefix("HTTP/")?.trim_start();
    let (version, rest) = rest.split_once(char::is_whitespace)?;
    version.parse::<f64>().ok()?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The attempts so far.
#[derive(Clone, Debug, Default)]
pub struct History {
    maps: [u64; FACTS.len()],
    /// Good ones in the window.
    pub good: u32,
    pub last: f64,
    pub average: f64,
    /// How many attempts the average is of; it forgets older ones.
    rate: f64,
    pub text: String,
}

/// The average is of about so many attempts.
const AVERAGE_OVER: f64 = 4.0;

impl History {
    /// Begins anew, with the good attempts that are taken for granted.
    pub fn new(settings: &Settings) -> History {
        let mut history = History::default();
        let mut good = Attempt::default();
        good.note(Fact::Happy);
        for _ in 0..settings.initial {
            history.add(&good, settings);
        }
        history
    }

    /// Takes an attempt into the history, which judges health anew.
    pub fn add(&mut self, attempt: &Attempt, settings: &Settings) {
        for (map, &fact) in self.maps.iter_mut().zip(&attempt.facts) {
            *map = *map << 1 | u64::from(fact);
        }
        self.last = attempt.took;
        self.text.clone_from(&attempt.text);
        if attempt.has(Fact::Happy) {
            self.rate = if self.rate < AVERAGE_OVER { self.rate + 1.0 } else { self.rate };
            self.average += (self.last - self.average) / self.rate;
        }
        let window = 1u64.checked_shl(settings.window).map_or(u64::MAX, |bit| bit - 1);
        self.good = (self.map(Fact::Happy) & window).count_ones();
    }

    /// Of which attempts the fact is true: the latest is the lowest bit.
    pub fn map(&self, fact: Fact) -> u64 {
        self.maps[fact as usize]
    }

    pub fn is_sick(&self, settings: &Settings) -> bool {
        self.good < settings.threshold
    }

    /// Returns the record of the latest attempt, without the leading words about the origin's health.
    pub fn log_text(&self, settings: &Settings) -> String {
        let letters: String = FACTS
            .iter()
            .map(|&(fact, letter, _)| if self.map(fact) & 1 != 0 { letter } else { '-' })
            .collect();
        format!(
            "{letters} {} {} {} {:.6} {:.6} \"{}\"",
            self.good, settings.threshold, settings.window, self.last, self.average, self.text
        )
    }

    /// For `backend.list -p`.
    pub fn details(&self, settings: &Settings) -> String {
        let mut out = format!(
            "\n Current states  good: {:2} threshold: {:2} window: {:2}\n",
            self.good, settings.threshold, settings.window
        );
        let _ = writeln!(out, "  Average response time of good probes: {:.6}", self.average);
        out += "  Oldest ================================================== Newest\n";
        for (fact, letter, name) in FACTS {
            let map = self.map(fact);
            if map == 0 && fact != Fact::Happy {
                continue;
            }
            let bits = (0..u64::BITS).rev().map(|bit| if map >> bit & 1 != 0 { letter } else { '-' });
            let _ = writeln!(out, "  {} {name}", bits.collect::<String>());
        }
        out
    }

    /// For `backend.list -j -p`.
    pub fn json(&self, settings: &Settings) -> String {
        let mut out = "{\n".to_owned();
        for (fact, letter, _) in FACTS {
            let _ = writeln!(out, "  \"bits_{letter}\": {},", self.map(fact));
        }
        let _ = write!(
            out,
            "  \"good\": {},\n  \"threshold\": {},\n  \"window\": {}\n}}",
            self.good, settings.threshold, settings.window
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> Attempt {
        let mut attempt = Attempt { took: 0.5, ..Attempt::default() };
        attempt.note(Fact::GoodIpv4);
        attempt.judge(line.as_bytes(), 200);
        attempt
    }

    #[test]
    fn defaults_are_one_short_of_healthy() {
        let settings = Settings::new(Wanted::default());
        assert_eq!((settings.window, settings.threshold, settings.initial), (8, 3, 2));
        let history = History::new(&settings);
        assert_eq!(history.good, 2);
        assert!(history.is_sick(&settings));
        let all = Settings::new(Wanted { initial: Some(99), ..Wanted::default() });
        assert!(!History::new(&all).is_sick(&all));
    }

    #[test]
    fn only_the_window_counts() {
        let settings = Settings::new(Wanted {
            window: Some(2),
            threshold: Some(1),
            initial: Some(0),
            ..Wanted::default()
        });
        let mut history = History::new(&settings);
        history.add(&answered("HTTP/1.1 200 OK\r\nFoo: bar\r\n"), &settings);
        assert!(!history.is_sick(&settings));
        history.add(&answered("HTTP/1.1 404 Not Found\r\n"), &settings);
        assert!(!history.is_sick(&settings));
        history.add(&answered("FROBOZ 200 OK\r\n"), &settings);
        assert!(history.is_sick(&settings));
        assert_eq!(history.map(Fact::Happy), 0b100);
        assert_eq!(history.log_text(&settings), "4------- 0 1 2 0.500000 0.500000 \"FROBOZ 200 OK\"");
        let wide = Settings::new(Wanted { window: Some(64), ..Wanted::default() });
        history.add(&answered("HTTP/1.1 200 \r\n"), &wide);
        assert_eq!(history.good, 2);
    }

    #[test]
    fn status_is_read_as_leniently_as_ever() {
        assert_eq!(status_of("HTTP/1.1 200 "), Some(200));
        assert_eq!(status_of("HTTP/1.1  503 Busy"), Some(503));
        assert_eq!(status_of("HTTP/2 204"), Some(204));
        assert_eq!(status_of("HTTP/x 200"), None);
        assert_eq!(status_of("ICY 200 OK"), None);
    }

    #[test]
    fn details_show_what_was_seen() {
        let settings = Settings::new(Wanted::default());
        let mut history = History::new(&settings);
        history.add(&answered("HTTP/1.1 200 OK"), &settings);
        let text = history.details(&settings);
        assert!(text.starts_with("\n Current states  good:  3 threshold:  3 window:  8\n"), "{text}");
        assert!(text.contains("-HHH Happy\n") && text.contains("--4 Good IPv4\n"), "{text}");
        assert!(!text.contains("IPv6"), "{text}");
        assert!(history.json(&settings).contains("\"bits_H\": 7,"));
    }
}
