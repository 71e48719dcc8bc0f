//! The probe of an origin: its history, and the resulting health.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lacquer_net::probe::{Attempt, Fact, History, Settings, Wanted};
use lacquer_vcl::Text;
use lacquer_vcl::program::Probe;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The health of an origin after a probe.
pub struct Conclusion {
    pub is_sick: bool,
    /// The health has changed with this probe.
    pub has_changed: bool,
    /// The results of the last probes as bits, for the counter `happy`.
    pub happy: u64,
    /// The text for the log.
    pub text: String,
}

pub struct Prober {
    settings: Settings,
    request: Vec<u8>,
    history: Mutex<History>,
    sick: AtomicBool,
    /// The time of the last change between sick and healthy, as the bits of an `f64`.
    changed: AtomicU64,
    task: Mutex<Option<AbortHandle>>,
}

impl Prober {
    pub fn new(probe: &Probe, host: &Text, now: f64) -> Prober {
        let settings = Settings::new(Wanted {
            timeout: probe.timeout,
            interval: probe.interval,
            window: probe.window,
            threshold: probe.threshold,
            initial: probe.initial,
            status: probe.expected_response,
            expect_close: probe.expect_close,
        });
        let request = probe.request.clone().unwrap_or_else(|| {
            let url = probe.url.as_deref().unwrap_or(b"/");
            let parts = [b"GET ", url, b" HTTP/1.1\r\nHost: ", host, b"\r\nConnection: close\r\n\r\n"];
            parts.concat().into()
        });
        Prober {
            history: Mutex::new(History::new(&settings)),
            settings,
            request: request.0,
            sick: AtomicBool::new(false),
            changed: AtomicU64::new(now.to_bits()),
            task: Mutex::new(None),
        }
    }

    pub fn is_sick(&self) -> bool {
        self.sick.load(Ordering::Relaxed)
    }

    pub fn changed(&self) -> f64 {
        f64::from_bits(self.changed.load(Ordering::Relaxed))
    }

    /// Returns the number of good probes, and of those that count.
    pub fn count(&self) -> (u32, u32) {
        (self.history.lock().good, self.settings.window)
    }

    /// Returns the text for `backend.list -p`.
    pub fn details(&self) -> String {
        self.history.lock().details(&self.settings)
    }

    /// Returns the JSON for `backend.list -j -p`.
    pub fn json(&self) -> String {
        self.history.lock().json(&self.settings)
    }

    /// Returns the reason why the origin is sick, if it is. It is short, because a log record (`vsl_reclen`) has several.
    pub fn sickness(&self) -> Option<String> {
        if !self.is_sick() {
            return None;
        }
        let history = self.history.lock();
        let (good, Settings { window, threshold, .. }) = (history.good, &self.settings);
        Some(match &*history.text {
            "" => format!("{good}/{window} probes good, {threshold} needed"),
            last => format!("{good}/{window} probes good, {threshold} needed, last: {last}"),
        })
    }

    pub fn add(&self, attempt: &Attempt) {
        self.history.lock().add(attempt, &self.settings);
    }

    /// Returns the bitmap of the good attempts.
    pub fn good_attempts(&self) -> u64 {
        self.history.lock().map(Fact::Happy)
    }

    /// Continues with the good attempts of another process.
    pub fn resume(&self, happy: u64) {
        self.history.lock().resume(happy, &self.settings);
    }

    /// Clears the history.
    pub fn reset(&self) {
        *self.history.lock() = History::new(&self.settings);
    }

    /// Computes and records the health that results from the history.
    pub fn conclude(&self, now: f64) -> Conclusion {
        let (is_sick, happy, text) = {
            let history = self.history.lock();
            let is_sick = history.is_sick(&self.settings);
            (is_sick, history.map(Fact::Happy), history.log_text(&self.settings))
        };
        let has_changed = self.sick.swap(is_sick, Ordering::Relaxed) != is_sick;
        if has_changed {
            self.changed.store(now.to_bits(), Ordering::Relaxed);
        }
        Conclusion { is_sick, has_changed, happy, text }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Sets the task that probes, and aborts the previous one.
    pub fn set_task(&self, task: Option<AbortHandle>) {
        if let Some(before) = std::mem::replace(&mut *self.task.lock(), task) {
            before.abort();
        }
    }
}
