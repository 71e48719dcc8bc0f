//! The health of an origin, for directors and `backend.list`: the result of its probe, and the circuit breaker of its
//! address.

use std::fmt::Write as _;

use lacquer_cli::json;
use lacquer_system::error_text;

use crate::backends::Origin;
use crate::probes::Prober;

/// Returns the word for a health in texts that programs read.
pub(crate) fn health_word(is_healthy: bool) -> &'static str {
    if is_healthy { "healthy" } else { "sick" }
}

impl Origin {
    /// Returns whether the probe found the origin sick. An origin without a probe counts as healthy.
    pub fn is_sick(&self) -> bool {
        self.prober.as_ref().is_some_and(Prober::is_sick)
    }

    /// Returns whether directors select the origin. It is not while its circuit breaker is open, until the next attempt
    /// to connect is allowed.
    pub fn is_healthy(&self) -> bool {
        !self.is_sick() && !self.endpoint.is_breaker_open()
    }

    /// Returns the time of the last change of its health; 0 if it has no probe and its circuit breaker never opened.
    pub(crate) fn health_changed(&self) -> f64 {
        self.prober.as_ref().map_or(0.0, Prober::changed).max(self.endpoint.breaker_changed())
    }

    /// Returns the reason why directors do not select it, if they do not.
    pub(crate) fn sickness(&self) -> Option<String> {
        let of_breaker = || Some(format!("circuit breaker open, last error: {}", self.breaker_failure()?));
        self.prober.as_ref().and_then(Prober::sickness).or_else(of_breaker)
    }

    /// Returns the last failure to connect, if the circuit breaker is open.
    fn breaker_failure(&self) -> Option<String> {
        let errno = self.endpoint.breaker_error()?;
        Some(format!("errno {errno} ({})", error_text(errno)))
    }

    /// Returns its health, with the reason if that is the circuit breaker.
    pub(crate) fn health_text(&self) -> &'static str {
        let is_sick = self.is_sick();
        if !is_sick && self.endpoint.is_breaker_open() {
            "sick (circuit breaker)"
        } else {
            health_word(!is_sick)
        }
    }

    /// Returns the text for `backend.list`.
    pub(crate) fn list(&self, details: bool, json: bool) -> String {
        let (good, window) = self.prober.as_ref().map_or((0, 0), Prober::count);
        match (details, json) {
            (false, false) => format!("{good}/{window}\t{}", self.health_text()),
            (false, true) => format!("[{good}, {window}, \"{}\"]", health_word(self.is_healthy())),
            (true, false) => self.details(),
            (true, true) => self.json(),
        }
    }

    fn details(&self) -> String {
        let mut text = self.prober.as_ref().map_or_else(String::new, Prober::details);
        if let Some(failure) = self.breaker_failure() {
            if text.is_empty() {
                text.push('\n');
            }
            let _ = writeln!(text, "  circuit breaker open, last error: {failure}");
        }
        text
    }

    fn json(&self) -> String {
        let mut text = self.prober.as_ref().map_or_else(|| "{}".to_owned(), Prober::json);
        if let (Some(failure), Some(end)) = (self.breaker_failure(), text.rfind('}')) {
            let rest = text.split_off(end);
            let separator = if self.prober.is_some() { ",\n  " } else { "" };
            text.truncate(text.trim_end().len());
            let _ = write!(text, "{separator}\"circuit_breaker\": {}{rest}", json::string(&failure));
        }
        text
    }
}
