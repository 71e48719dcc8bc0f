//! Sends spans and metrics to the collector, each on a thread of its own, and waits longer after each failure. So a collector
//! that hangs with spans, or refuses them, delays no metrics.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::post::{Outcome, Target};
use super::queue::Queue;
use super::span::Span;
use crate::attribute;
use crate::metrics::Exported;
use crate::protobuf::Message;

/// The time for which spans are collected before they are sent.
const COLLECT: Duration = Duration::from_secs(1);
/// The pauses after failures: each is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// The longest pause that a collector may ask for.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// Failures after which a batch is dropped once spans behind it have no room: it may be the cause.
const ATTEMPTS: u32 = 5;
/// Time between two messages about data that the collector has refused.
const SILENCE: Duration = Duration::from_mins(1);

/// The data that waits.
#[derive(Debug, Default)]
struct Waiting {
    queue: Queue,
    /// The latest metrics. They replace those that were not sent.
    metrics: Option<Vec<u8>>,
    /// How often the collector has got other addresses.
    moves: u64,
}

/// The exporter.
#[derive(Debug)]
pub struct Exporter {
    target: Target,
    waiting: Mutex<Waiting>,
    added: Condvar,
    has_metrics: Condvar,
    has_moved: Condvar,
    sent: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    /// Points of metrics that the collector has refused.
    refused_points: AtomicU64,
    failures: AtomicU64,
    overruns: AtomicU64,
}

/// The state of a thread that sends.
#[derive(Debug)]
struct Progress {
    /// The word for its data.
    kind: &'static str,
    /// A batch of spans that was not taken, and their number.
    batch: Option<(Vec<u8>, u64)>,
    attempts: u32,
    pause: Duration,
    next_attempt: Option<Instant>,
    /// The moves of the collector before the last attempt; `None` if it has asked for the pause itself.
    moves: Option<u64>,
    /// Whether it had an address then.
    had_address: bool,
    dropped_before: u64,
    last_complaint: Option<Instant>,
}

impl Progress {
    fn of(kind: &'static str) -> Progress {
        Progress {
            kind,
            batch: None,
            attempts: 0,
            pause: Duration::ZERO,
            next_attempt: None,
            moves: None,
            had_address: true,
            dropped_before: 0,
            last_complaint: None,
        }
    }
}

impl Exporter {
    pub fn new(target: Target) -> Exporter {
        Exporter {
            target,
            waiting: Mutex::default(),
            added: Condvar::new(),
            has_metrics: Condvar::new(),
            has_moved: Condvar::new(),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refused_points: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a span, or drops and counts it.
    pub fn add(&self, span: &Span) {
        let mut waiting = self.lock();
        if !waiting.queue.add(span.message()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if waiting.queue.is_full_batch() {
            self.added.notify_one();
        }
    }

    /// Sets the metrics that are sent next: the fields of their scope.
    pub fn set_metrics(&self, fields: Vec<u8>) {
        self.lock().metrics = Some(fields);
        self.has_metrics.notify_one();
    }

    /// Replaces the addresses of the collector. What was not sent for lack of them, or to the old ones, is sent at once.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        self.target.set_addresses(addresses);
        self.lock().moves += 1;
        self.has_moved.notify_all();
    }

    /// Waits until the next attempt, or until the collector has other addresses. Returns false if there was no failure.
    fn wait(&self, progress: &mut Progress) -> bool {
        let Some(next) = progress.next_attempt.take() else { return false };
        let moves = progress.moves;
        let mut waiting = self.lock();
        while moves.is_none_or(|moves| moves == waiting.moves) {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let woken = self.has_moved.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !progress.had_address {
            // The failures were neither of the data nor of the collector.
            progress.attempts = 0;
            progress.pause = progress.pause.min(FIRST_PAUSE);
        }
        true
    }

    fn post(&self, progress: &mut Progress, path: &str, body: &[u8]) -> Outcome {
        progress.moves = Some(self.lock().moves);
        progress.had_address = self.target.has_address();
        self.target.post(path, body)
    }

    pub fn add_overruns(&self, count: u64) {
        self.overruns.fetch_add(count, Ordering::Relaxed);
    }

    fn host(&self) -> &str {
        &self.target.collector().host
    }

    /// Returns the time between two exports of metrics; `None` if there are none.
    pub fn interval(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.target.collector().interval)).filter(|interval| !interval.is_zero())
    }

    pub fn counts(&self) -> Exported {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Exported {
            sent_spans: value(&self.sent),
            dropped_spans: value(&self.dropped),
            refused_spans: value(&self.refused),
            refused_points: value(&self.refused_points),
            failures: value(&self.failures),
            overruns: value(&self.overruns),
        }
    }

    /// Sends spans until the process ends.
    pub fn send_spans(&self) {
        let mut progress = Progress::of("spans");
        loop {
            if !self.wait(&mut progress) {
                let waiting = self.lock();
                if !waiting.queue.is_full_batch() {
                    drop(self.added.wait_timeout(waiting, COLLECT));
                }
            }
            self.send_waiting_spans(&mut progress);
        }
    }

    /// Sends metrics until the process ends. Those that were not taken are replaced by later ones.
    pub fn send_metrics(&self) {
        let mut progress = Progress::of("metrics");
        loop {
            self.wait(&mut progress);
            let wanted = self.has_metrics.wait_while(self.lock(), |waiting| waiting.metrics.is_none());
            let metrics = wanted.unwrap_or_else(PoisonError::into_inner).metrics.take();
            let body = self.request(&metrics.unwrap_or_default());
            let outcome = self.post(&mut progress, "/v1/metrics", &body);
            self.conclude(&mut progress, outcome, 0);
        }
    }

    /// Sends the spans that wait, as long as the collector takes them.
    fn send_waiting_spans(&self, progress: &mut Progress) {
        loop {
            if progress.batch.is_none() {
                let spans = self.lock().queue.take();
                progress.batch = (!spans.is_empty()).then(|| (self.traces(&spans), spans.len() as u64));
            }
            let Some((body, spans)) = progress.batch.take() else { break };
            let outcome = self.post(progress, "/v1/traces", &body);
            progress.batch = Some((body, spans));
            if !self.conclude(progress, outcome, spans) {
                return;
            }
            progress.batch = None;
        }
    }

    /// Counts the outcome of an export with a number of spans. Returns whether the export is over.
    fn conclude(&self, progress: &mut Progress, outcome: Outcome, spans: u64) -> bool {
        match outcome {
            Outcome::Taken { refused } => {
                if spans == 0 {
                    self.refused_points.fetch_add(refused, Ordering::Relaxed);
                }
                let refused = refused.min(spans);
                self.sent.fetch_add(spans - refused, Ordering::Relaxed);
                self.refused.fetch_add(refused, Ordering::Relaxed);
                if !progress.pause.is_zero() {
                    let dropped = self.counts().dropped_spans - progress.dropped_before;
                    let lost = if spans == 0 { String::new() } else { format!("; {dropped} were dropped") };
                    eprintln!("The collector {} takes {} again{lost}", self.host(), progress.kind);
                }
                progress.pause = Duration::ZERO;
                progress.attempts = 0;
                true
            }
            Outcome::Refused(why) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                self.refused.fetch_add(spans, Ordering::Relaxed);
                if progress.last_complaint.is_none_or(|last| last.elapsed() >= SILENCE) {
                    progress.last_complaint = Some(Instant::now());
                    eprintln!("The collector {} refuses {}: {why}", self.host(), progress.kind);
                }
                progress.attempts = 0;
                true
            }
            Outcome::Later(why, wait) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                self.start_later(progress, &why, wait);
                if spans == 0 {
                    return true;
                }
                progress.attempts += 1;
                let is_given_up = progress.attempts >= ATTEMPTS && self.lock().queue.has_dropped();
                if is_given_up {
                    self.dropped.fetch_add(spans, Ordering::Relaxed);
                    progress.attempts = 0;
                    progress.batch = None;
                }
                false
            }
        }
    }

    fn start_later(&self, progress: &mut Progress, why: &str, wait: Option<Duration>) {
        if progress.pause.is_zero() {
            progress.dropped_before = self.counts().dropped_spans;
        }
        progress.pause = (progress.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        if wait.is_some() {
            progress.moves = None;
        }
        let pause = wait.map_or(progress.pause, |wait| wait.clamp(FIRST_PAUSE, LONGEST_WAIT));
        progress.next_attempt = Some(Instant::now() + pause);
        eprintln!(
            "The collector {} does not take {}: {why}; the next try is in {} s",
            self.host(),
            progress.kind,
            pause.as_secs()
        );
    }

    /// Returns a request to export spans.
    fn traces(&self, spans: &[Message]) -> Vec<u8> {
        let mut fields = Message::default();
        for span in spans {
            fields.message(2, span);
        }
        self.request(&fields.into_bytes())
    }

    /// Returns a request with one resource and one scope: both kinds of requests number their fields alike.
    fn request(&self, fields: &[u8]) -> Vec<u8> {
        let version = env!("CARGO_PKG_VERSION");
        let mut resource = Message::default();
        for (name, value) in [
            ("service.name", "lacquer"),
            ("service.version", version),
            ("service.instance.id", &self.target.collector().instance),
        ] {
            resource.message(1, &attribute::text(name, value));
        }
        let mut name = Message::default();
        name.text(1, "lacquer");
        name.text(2, version);
        let mut scope = Message::default();
        scope.message(1, &name);
        scope.append(fields);
        let mut data = Message::default();
        data.message(1, &resource);
        data.message(2, &scope);
        let mut request = Message::default();
        request.message(1, &data);
        request.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread::spawn;

    use lacquer_cli::admin::Collector;

    use super::*;
    use crate::otlp::{follow_addresses, send};

    /// Returns an exporter whose exports fail at once.
    fn without_collector() -> Exporter {
        exporter(Vec::new())
    }

    fn exporter(addresses: Vec<SocketAddr>) -> Exporter {
        let collector = Collector {
            host: "collector.example".to_owned(),
            trusted: None,
            addresses,
            path: String::new(),
            interval: 60,
            instance: "a".to_owned(),
        };
        Exporter::new(Target::new(collector).expect("it has no certificates"))
    }

    #[test]
    fn a_collector_may_be_away_for_long_while_spans_have_room() {
        let exporter = without_collector();
        let mut span = Message::default();
        span.text(1, "a");
        assert!(exporter.lock().queue.add(span.clone()));
        let mut progress = Progress::of("spans");
        for _ in 0..3 * ATTEMPTS {
            exporter.send_waiting_spans(&mut progress);
        }
        assert!(progress.batch.is_some());
        assert_eq!((exporter.counts().dropped_spans, exporter.counts().failures), (0, 15));
        while exporter.lock().queue.add(span.clone()) {}
        exporter.send_waiting_spans(&mut progress);
        assert!(progress.batch.is_none());
        assert_eq!(exporter.counts().dropped_spans, 1);
        // The next batch has the room that it leaves.
        for _ in 0..2 * ATTEMPTS {
            exporter.send_waiting_spans(&mut progress);
        }
        assert_eq!(exporter.counts().dropped_spans, 1);
    }

    #[test]
    fn refused_points_and_spans_are_counted_apart() {
        let exporter = without_collector();
        let mut progress = Progress::of("spans");
        assert!(exporter.conclude(&mut progress, Outcome::Taken { refused: 7 }, 0));
        assert!(exporter.conclude(&mut progress, Outcome::Taken { refused: 2 }, 5));
        let counts = exporter.counts();
        assert_eq!((counts.refused_points, counts.refused_spans, counts.sent_spans), (7, 2, 3));
    }

    #[test]
    fn spans_that_wait_go_to_an_address_that_is_found_later() {
        let collector = lacquer_testing::collector::Collector::start();
        let exporter = Arc::new(without_collector());
        let mut span = Message::default();
        span.text(1, "a");
        assert!(exporter.lock().queue.add(span));
        let mut progress = Progress::of("spans");
        exporter.send_waiting_spans(&mut progress);
        assert_eq!((exporter.counts().failures, exporter.counts().sent_spans), (1, 0));
        let (mut manager, own) = UnixStream::pair().expect("sockets");
        follow_addresses(own, Arc::clone(&exporter)).expect("a thread begins");
        lacquer_cli::link::send(&mut manager, &[collector.address].as_slice()).expect("it is read");
        let is_sent = || {
            exporter.send_waiting_spans(&mut progress);
            exporter.counts().sent_spans == 1
        };
        assert!(lacquer_testing::until(is_sent));
        assert_eq!(collector.received().requests.len(), 1);
    }

    #[test]
    fn pauses_end_when_the_collector_has_an_address() {
        let exporter = Arc::new(without_collector());
        let mut progress = Progress::of("spans");
        let outcome = exporter.post(&mut progress, "/v1/traces", &[]);
        assert!(!exporter.conclude(&mut progress, outcome, 1));
        progress.pause = LONGEST_PAUSE;
        progress.next_attempt = Some(Instant::now() + LONGEST_PAUSE);
        let (own, (sender, woken)) = (Arc::clone(&exporter), channel());
        spawn(move || {
            let has_failed = own.wait(&mut progress);
            let _ = sender.send((has_failed, progress.attempts, progress.pause));
        });
        exporter.set_addresses(vec![([127, 0, 0, 1], 1).into()]);
        assert_eq!(woken.recv_timeout(LONGEST_PAUSE / 2), Ok((true, 0, FIRST_PAUSE)));
        // A pause that the collector has asked for is kept.
        let mut progress = Progress::of("spans");
        let busy = Outcome::Later("status 429".to_owned(), Some(FIRST_PAUSE));
        let begun = Instant::now();
        assert!(!exporter.conclude(&mut progress, busy, 1));
        exporter.set_addresses(Vec::new());
        assert!(exporter.wait(&mut progress) && begun.elapsed() > FIRST_PAUSE / 2);
    }

    #[test]
    fn metrics_do_not_wait_for_spans() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (sender, arrived) = channel();
        // A collector that replies to metrics, and keeps the connections of spans.
        spawn(move || {
            let mut kept = Vec::new();
            for mut stream in listener.incoming().flatten() {
                let mut head = [0; 64];
                let is_of_metrics =
                    stream.read_exact(&mut head).is_ok() && head.starts_with(b"POST /v1/metrics ");
                if is_of_metrics {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
                kept.push(stream);
                let _ = sender.send(if is_of_metrics { "metrics" } else { "spans" });
            }
        });
        let exporter = send(exporter(vec![address])).expect("threads begin");
        let mut span = Message::default();
        span.text(1, "a");
        while exporter.lock().queue.add(span.clone()) {}
        // Half of the time that an export of spans has.
        let next = || arrived.recv_timeout(Duration::from_secs(5));
        assert_eq!(next(), Ok("spans"));
        for _ in 0..3 {
            exporter.set_metrics(Vec::new());
            assert_eq!(next(), Ok("metrics"));
        }
        assert_eq!(exporter.counts().failures, 0);
    }
}
