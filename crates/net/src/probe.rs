//! Health probes without I/O: the settings of a probe, the results of the last 64 attempts, and the health that
//! follows from them.
//!
//! Eight facts are recorded for each attempt. Each fact has a bitmap of its own, in which the newest attempt is the
//! lowest bit.

use std::fmt::Write;

/// A probe's settings with the defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub timeout: f64,
    pub interval: f64,
    pub window: u32,
    pub threshold: u32,
    /// The number of attempts that count as good at the start.
    pub initial: u32,
    pub status: u32,
    pub expect_close: bool,
}

/// The settings from VCL. Missing or zero ones get their defaults.
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
    /// Fills in Varnish's defaults for values that are missing in VCL or not positive.
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

/// Each fact with its letter and its name in the output.
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
    /// Seconds to the end of the response.
    pub took: f64,
    /// The first line of the response, or the error.
    pub text: String,
}

impl Attempt {
    pub fn note(&mut self, fact: Fact) {
        self.facts[fact as usize] = true;
    }

    pub fn has(&self, fact: Fact) -> bool {
        self.facts[fact as usize]
    }

    /// Evaluates the beginning of the response: records its first line, and whether that has the expected status.
    pub fn evaluate(&mut self, response: &[u8], status: u32) {
        let end = response.iter().position(|b| matches!(b, b'\r' | b'\n' | 0)).unwrap_or(response.len());
        self.text = String::from_utf8_lossy(&response[..end]).into_owned();
        if status_of(&self.text) == Some(status) {
            self.note(Fact::Happy);
        }
    }
}

/// Returns the status in a line like `HTTP/1.1 200 OK`; accepts any version number.
fn status_of(line: &str) -> Option<u32> {
    let rest = line.strip_prefix("HTTP/")?.trim_start();
    let (version, rest) = rest.split_once(char::is_whitespace)?;
    version.parse::<f64>().ok()?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The results of the attempts so far.
#[derive(Clone, Debug, Default)]
pub struct History {
    maps: [u64; FACTS.len()],
    /// The number of good attempts in the window.
    pub good: u32,
    pub last: f64,
    pub average: f64,
    /// The number of good attempts that the average covers, at most `AVERAGE_OVER`. Older ones lose weight.
    rate: f64,
    pub text: String,
}

/// The maximum number of attempts that the average covers, approximately.
const AVERAGE_OVER: f64 = 4.0;

impl History {
    /// Creates a history with the attempts that count as good at the start.
    pub fn new(settings: &Settings) -> History {
        let mut history = History::default();
        let mut good = Attempt::default();
        good.note(Fact::Happy);
        for _ in 0..settings.initial {
            history.add(&good, settings);
        }
        history
    }

    /// Adds an attempt and updates the health.
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
        self.count(settings);
    }

    /// Continues the history of another process, with the bitmap of its good attempts.
    pub fn resume(&mut self, happy: u64, settings: &Settings) {
        self.maps[Fact::Happy as usize] = happy;
        self.count(settings);
    }

    fn count(&mut self, settings: &Settings) {
        let window = 1u64.checked_shl(settings.window).map_or(u64::MAX, |bit| bit - 1);
        self.good = (self.map(Fact::Happy) & window).count_ones();
    }

    /// Returns the bitmap of the attempts for which the fact is true. The latest is the lowest bit.
    pub fn map(&self, fact: Fact) -> u64 {
        self.maps[fact as usize]
    }

    pub fn is_sick(&self, settings: &Settings) -> bool {
        self.good < settings.threshold
    }

    /// Returns the log text for the latest attempt, without the leading words about the backend's health.
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

    /// Returns the text for `backend.list -p`.
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

    /// Returns the JSON for `backend.list -j -p`.
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

    fn attempt_with(line: &str) -> Attempt {
        let mut attempt = Attempt { took: 0.5, ..Attempt::default() };
        attempt.note(Fact::GoodIpv4);
        attempt.evaluate(line.as_bytes(), 200);
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
        history.add(&attempt_with("HTTP/1.1 200 OK\r\nFoo: bar\r\n"), &settings);
        assert!(!history.is_sick(&settings));
        history.add(&attempt_with("HTTP/1.1 404 Not Found\r\n"), &settings);
        assert!(!history.is_sick(&settings));
        history.add(&attempt_with("FROBOZ 200 OK\r\n"), &settings);
        assert!(history.is_sick(&settings));
        assert_eq!(history.map(Fact::Happy), 0b100);
        assert_eq!(history.log_text(&settings), "4------- 0 1 2 0.500000 0.500000 \"FROBOZ 200 OK\"");
        let wide = Settings::new(Wanted { window: Some(64), ..Wanted::default() });
        history.add(&attempt_with("HTTP/1.1 200 \r\n"), &wide);
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
        history.add(&attempt_with("HTTP/1.1 200 OK"), &settings);
        let text = history.details(&settings);
        assert!(text.starts_with("\n Current states  good:  3 threshold:  3 window:  8\n"), "{text}");
        assert!(text.contains("-HHH Happy\n") && text.contains("--4 Good IPv4\n"), "{text}");
        assert!(!text.contains("IPv6"), "{text}");
        assert!(history.json(&settings).contains("\"bits_H\": 7,"));
    }
}
