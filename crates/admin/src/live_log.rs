//! The live log: a thread reads the requests of the log while a stream shows them, and gives each stream those that its
//! filter accepts. A stream that cannot keep up, or that gets more than a number in a second, misses some, which are
//! counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::log_line::{Filter, LogLine};
use lacquer_inspect::request_log::RequestLog;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

use crate::limits::{LINES, QUEUE};

const PAUSE: Duration = Duration::from_millis(50);
/// Number of pauses between two looks whether the worker is another one.
const ROUNDS: u32 = 20;

/// The requests for one stream.
struct Subscriber {
    filter: Filter,
    lines: Sender<Bytes>,
    dropped: Arc<AtomicU64>,
    second: Instant,
    sent: u32,
}

/// The end of a stream that receives lines.
#[derive(Debug)]
pub struct Subscription {
    pub lines: Receiver<Bytes>,
    /// The requests that it did not get.
    pub dropped: Arc<AtomicU64>,
}

/// All streams.
pub struct LiveLog {
    directory: Directory,
    all: Mutex<Vec<Subscriber>>,
    /// The sum over all streams.
    dropped: AtomicU64,
}

impl LiveLog {
    /// Starts the thread.
    pub fn start(directory: Directory) -> std::io::Result<Arc<LiveLog>> {
        let log = Arc::new(LiveLog { directory, all: Mutex::default(), dropped: AtomicU64::new(0) });
        let own = Arc::clone(&log);
        thread::Builder::new().name("live-log".to_owned()).spawn(move || own.run())?;
        Ok(log)
    }

    pub fn subscribe(&self, filter: Filter) -> Subscription {
        let (sender, lines) = channel(QUEUE);
        let dropped = Arc::<AtomicU64>::default();
        let subscriber = Subscriber {
            filter,
            lines: sender,
            dropped: Arc::clone(&dropped),
            second: Instant::now(),
            sent: 0,
        };
        self.lock().push(subscriber);
        Subscription { lines, dropped }
    }

    /// Returns the number of requests that streams did not get.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            if !self.lock().is_empty() {
                self.follow();
            }
            thread::sleep(PAUSE);
        }
    }

    /// Reads until there is no stream, or the log cannot be read.
    fn follow(&self) {
        let Ok(mut requests) = RequestLog::open_at_end(&self.directory) else { return };
        let mut round = 0;
        while !self.lock().is_empty() {
            // Locked for each request only, so that a stream that begins does not wait.
            if requests.read(&mut |line| self.publish(&mut self.lock(), &line)).is_err() {
                return;
            }
            self.lock().retain(|subscriber| !subscriber.lines.is_closed());
            round += 1;
            if round % ROUNDS == 0 {
                requests.reopen(&self.directory);
            }
            thread::sleep(PAUSE);
        }
    }

    fn publish(&self, all: &mut [Subscriber], line: &LogLine) {
        let mut json: Option<Bytes> = None;
        let now = Instant::now();
        for subscriber in all.iter_mut().filter(|subscriber| subscriber.filter.accepts(line)) {
            if now.duration_since(subscriber.second) >= Duration::from_secs(1) {
                (subscriber.second, subscriber.sent) = (now, 0);
            }
            subscriber.sent = subscriber.sent.saturating_add(1);
            let is_dropped = subscriber.sent > LINES || {
                let json = json.get_or_insert_with(|| line.json().to_string().into());
                matches!(subscriber.lines.try_send(json.clone()), Err(TrySendError::Full(_)))
            };
            if is_dropped {
                subscriber.dropped.fetch_add(1, Ordering::Relaxed);
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
