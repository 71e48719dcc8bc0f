//! The counters, and what the log reports, for metrics and dashboards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use lacquer_cli::access_log::Counts;
use lacquer_inspect::Fault;
use lacquer_inspect::counters::read_sets;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::log_line;
use lacquer_live::event::Event;
use lacquer_live::state::State;
use serde_json::{Value, json};
use tokio::sync::watch::{Receiver, Sender, channel};

use crate::limits::INTEREST;
use crate::metrics::{LIMITS, Latencies, Series};

/// Rows of the lists of URLs and origins in a snapshot.
const ROWS: usize = 50;

/// The counters and latencies.
#[derive(Debug)]
pub struct Watch {
    directory: Directory,
    snapshots: Sender<Bytes>,
    latencies: Mutex<Latencies>,
    series: Mutex<Series>,
    /// Why there are no counters, as it was last reported.
    fault: Mutex<Option<Fault>>,
    wanted: Mutex<Option<Instant>>,
    overruns: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    pub fn new(directory: Directory) -> Watch {
        let (snapshots, _) = channel(Bytes::new());
        Watch {
            directory,
            snapshots,
            latencies: Mutex::default(),
            series: Mutex::default(),
            fault: Mutex::default(),
            wanted: Mutex::new(None),
            overruns: AtomicU64::new(0),
        }
    }

    /// Records that somebody is interested.
    pub fn touch(&self) {
        *lock(&self.wanted) = Some(Instant::now());
    }

    /// Returns the snapshots, each as JSON. The first one may be old or empty.
    pub fn subscribe(&self) -> Receiver<Bytes> {
        self.touch();
        self.snapshots.subscribe()
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub fn latencies(&self) -> Latencies {
        lock(&self.latencies).clone()
    }

    pub fn overruns(&self) -> u64 {
        self.overruns.load(Ordering::Relaxed)
    }

    /// Returns the counts of the access log, if there is one.
    pub fn access_log(&self) -> Option<Counts> {
        Counts::read(self.directory.path())
    }

    /// Calls a function with the present values of all counters.
    pub fn with_series<T>(&self, function: impl FnOnce(&Series) -> T) -> T {
        let mut series = lock(&self.series);
        let read = read_sets(&self.directory);
        if let Some(line) = self.news_of(read.as_ref().err()) {
            eprintln!("{line}");
        }
        // Without a daemon that can be read, there are no counters.
        series.update(read.unwrap_or_default());
        function(&series)
    }

    /// Returns the line to print about why there are no counters, unless the last read had the same fault.
    fn news_of(&self, fault: Option<&Fault>) -> Option<String> {
        let mut last = lock(&self.fault);
        if last.as_ref() == fault {
            return None;
        }
        *last = fault.cloned();
        fault.map(|fault| format!("The admin listener: no counters: {}; {}", fault.what, fault.hint))
    }

    pub fn is_wanted(&self) -> bool {
        let is_recent = lock(&self.wanted).is_some_and(|last| last.elapsed() < INTEREST);
        is_recent || self.snapshots.receiver_count() > 0
    }

    /// Adds an event to the histograms.
    pub fn add(&self, event: &Event) {
        lock(&self.latencies).add(event);
    }

    pub fn add_overruns(&self, count: u64) {
        self.overruns.fetch_add(count, Ordering::Relaxed);
    }

    /// Sends a snapshot to the dashboards. A scraper of metrics needs none.
    pub fn show(&self, now: f64, state: &State) {
        if self.snapshots.receiver_count() > 0 {
            let mut snapshot = state.snapshot(now, log_line::now());
            snapshot.origins.truncate(ROWS);
            let urls = &mut snapshot.urls;
            urls.busiest.truncate(ROWS);
            urls.missed.truncate(ROWS);
            urls.slowest.truncate(ROWS);
            let mut json = snapshot.json();
            json["latency"]["totals"] = self.totals();
            self.snapshots.send_replace(json.to_string().into());
        }
    }

    /// Returns the counts of the buckets since the process began.
    fn totals(&self) -> Value {
        let latencies = lock(&self.latencies);
        let [hits, misses] = latencies.by_class();
        json!({"limits": LIMITS, "hits": hits, "misses": misses})
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lacquer_live::figures::Figures;

    use super::*;

    #[test]
    fn the_reason_without_counters_is_reported_once() {
        let watch = Watch::new(Directory::at(Path::new("/nonexistent")));
        let fault = Fault::new("the index is too large", "discard VCL programs");
        let line = "The admin listener: no counters: the index is too large; discard VCL programs";
        assert_eq!(watch.news_of(Some(&fault)).as_deref(), Some(line));
        assert_eq!((watch.news_of(Some(&fault)), watch.news_of(None)), (None, None));
        assert!(watch.news_of(Some(&fault)).is_some(), "it was read meanwhile");
    }

    #[test]
    fn sick_origins_are_shown_among_very_many() {
        let watch = Watch::new(Directory::at(Path::new("/nonexistent")));
        let snapshots = watch.subscribe();
        let counters = |number: usize, requests: u64| {
            let is_sick = number == 7_000;
            let fields = [
                ("happy", u64::MAX),
                ("healthy", u64::from(!is_sick)),
                ("req", if is_sick { 0 } else { requests }),
            ];
            fields.map(|(field, value)| (format!("VBE.boot.b{number}.{field}"), value))
        };
        let mut state = State::new("n", 0.0);
        for (now, requests) in [(1.0, 10), (61.0, 70)] {
            let mut all: Vec<(String, u64)> =
                (0..10_001).flat_map(|number| counters(number, requests)).collect();
            all.push(("MAIN.uptime".to_owned(), 1));
            state.counters(now, Figures::of(all.iter().map(|(name, value)| (name.as_str(), *value))));
        }
        watch.show(61.0, &state);
        let shown: Value = serde_json::from_slice(&snapshots.borrow()).expect("JSON");
        assert_eq!(shown["origins"].as_array().map(Vec::len), Some(ROWS));
        assert_eq!(
            (&shown["origins"][0]["name"], &shown["origins"][0]["health"]),
            (&"boot.b7000".into(), &"sick".into())
        );
        assert_eq!(shown["origin_counts"], json!({"all": 10_001, "sick": 1}));
    }
}
