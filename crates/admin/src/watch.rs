//! The thread that reads counters and log for metrics and dashboards, while anybody is interested.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lacquer_inspect::counters::read_sets;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::log_line;
use lacquer_live::source::Source;
use lacquer_live::state::State;
use serde_json::{Value, json};
use tokio::sync::watch::{Receiver, Sender, channel};

use crate::limits::INTEREST;
use crate::metrics::{LIMITS, Latencies, Series};

const PAUSE: Duration = Duration::from_millis(100);
/// Time between two snapshots.
const SNAPSHOT: Duration = Duration::from_secs(1);
/// Time between two looks at all counters, so that the series of a VCL that is discarded miss little.
const COUNTERS: Duration = Duration::from_secs(5);
/// Rows of the lists of URLs and origins in a snapshot.
const ROWS: usize = 50;

/// The counters and latencies that the thread has read.
#[derive(Debug)]
pub struct Watch {
    directory: Directory,
    snapshots: Sender<Bytes>,
    latencies: Mutex<Latencies>,
    series: Mutex<Series>,
    wanted: Mutex<Option<Instant>>,
    overruns: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Starts the thread.
    pub fn start(directory: Directory) -> std::io::Result<Arc<Watch>> {
        let (snapshots, _) = channel(Bytes::new());
        let watch = Arc::new(Watch {
            directory,
            snapshots,
            latencies: Mutex::default(),
            series: Mutex::default(),
            wanted: Mutex::new(None),
            overruns: AtomicU64::new(0),
        });
        let own = Arc::clone(&watch);
        thread::Builder::new().name("watch".to_owned()).spawn(move || own.run())?;
        Ok(watch)
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

    /// Calls a function with the present values of all counters.
    pub fn with_series<T>(&self, function: impl FnOnce(&Series) -> T) -> T {
        let mut series = lock(&self.series);
        // Without a daemon that can be read, there are no counters.
        series.update(read_sets(&self.directory).unwrap_or_default());
        function(&series)
    }

    fn is_wanted(&self) -> bool {
        let is_recent = lock(&self.wanted).is_some_and(|last| last.elapsed() < INTEREST);
        is_recent || self.snapshots.receiver_count() > 0
    }

    fn run(&self) {
        loop {
            if self.is_wanted() {
                self.follow();
            }
            thread::sleep(PAUSE);
        }
    }

    /// Reads until nobody is interested.
    fn follow(&self) {
        let mut source = Source::waiting(self.directory.clone());
        let mut state = State::new(&source.name(), source.now());
        let (mut last_snapshot, mut last_counters) = (Instant::now(), Instant::now());
        let mut seen = 0;
        while self.is_wanted() {
            let more = {
                let mut latencies = lock(&self.latencies);
                source.poll_with(&mut state, &mut |event| latencies.add(event))
            };
            if last_counters.elapsed() >= COUNTERS {
                last_counters = Instant::now();
                self.with_series(|_| ());
            }
            if last_snapshot.elapsed() >= SNAPSHOT {
                last_snapshot = Instant::now();
                self.overruns.fetch_add(state.overruns() - seen, Ordering::Relaxed);
                seen = state.overruns();
                // A scraper of metrics needs no snapshot.
                if self.snapshots.receiver_count() > 0 {
                    self.send(state.snapshot(source.now(), log_line::now()).json());
                }
            }
            if !more {
                thread::sleep(PAUSE);
            }
        }
    }

    fn send(&self, mut snapshot: Value) {
        for list in ["busiest", "missed", "slowest", "origins"] {
            if let Some(list) = snapshot[list].as_array_mut() {
                list.truncate(ROWS);
            }
        }
        snapshot["latency"]["totals"] = self.totals();
        self.snapshots.send_replace(snapshot.to_string().into());
    }

    /// Returns the counts of the buckets since the process began.
    fn totals(&self) -> Value {
        let latencies = lock(&self.latencies);
        let [hits, misses] = latencies.by_class();
        json!({"limits": LIMITS, "hits": hits, "misses": misses})
    }
}
