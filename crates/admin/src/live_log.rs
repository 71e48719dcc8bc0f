//! The live log: each stream gets the requests that its filter accepts. A stream that cannot keep up, or that gets more than
//! a number in a second, misses some, which are counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lacquer_inspect::log_line::{Filter, LogLine};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::sync::oneshot;

use crate::limits::{LINES, LOG_TIME, QUEUE};

/// The requests for one stream.
struct Subscriber {
    filter: Filter,
    lines: Sender<Bytes>,
    dropped: Arc<AtomicU64>,
    second: Instant,
    sent: u32,
    /// Dropped as soon as the log is read for this stream.
    begins: Option<oneshot::Sender<()>>,
}

/// The end of a stream that receives lines.
#[derive(Debug)]
pub struct Subscription {
    pub lines: Receiver<Bytes>,
    /// The requests that it did not get.
    pub dropped: Arc<AtomicU64>,
    begins: oneshot::Receiver<()>,
}

impl Subscription {
    /// Waits until the log is read for this stream, which then misses no request, but not for long.
    pub async fn begun(&mut self) {
        // The sender is dropped, so the error is the message.
        let _ = tokio::time::timeout(LOG_TIME, &mut self.begins).await;
    }
}

#[derive(Default)]
struct Streams {
    subscribers: Vec<Subscriber>,
    /// The log is read for streams, without a pause since it was last read.
    is_read: bool,
}

/// All streams.
#[derive(Default)]
pub struct LiveLog {
    all: Mutex<Streams>,
    /// The sum over all streams.
    dropped: AtomicU64,
}

impl LiveLog {
    pub fn subscribe(&self, filter: Filter) -> Subscription {
        let (sender, lines) = channel(QUEUE);
        let dropped = Arc::<AtomicU64>::default();
        let (begins, begun) = oneshot::channel();
        let mut all = self.lock();
        let subscriber = Subscriber {
            filter,
            lines: sender,
            dropped: Arc::clone(&dropped),
            second: Instant::now(),
            sent: 0,
            begins: (!all.is_read).then_some(begins),
        };
        all.subscribers.push(subscriber);
        Subscription { lines, dropped, begins: begun }
    }

    /// Returns the number of requests that streams did not get.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the streams that have ended. Returns whether there are any left.
    pub fn is_wanted(&self) -> bool {
        let mut all = self.lock();
        all.subscribers.retain(|subscriber| !subscriber.lines.is_closed());
        let is_wanted = !all.subscribers.is_empty();
        all.is_read &= is_wanted;
        is_wanted
    }

    /// Records that the log was read for the streams, up to its end.
    pub fn begun(&self) {
        let mut all = self.lock();
        if !std::mem::replace(&mut all.is_read, true) {
            all.subscribers.iter_mut().for_each(|subscriber| subscriber.begins = None);
        }
    }

    /// Gives a request to the streams. They are locked for it alone, so that a stream that begins does not wait.
    pub fn publish(&self, line: &LogLine) {
        let mut all = self.lock();
        let mut json: Option<Bytes> = None;
        let now = Instant::now();
        for subscriber in all.subscribers.iter_mut().filter(|subscriber| subscriber.filter.accepts(line)) {
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
