//! The thread that reads the log, once for all that need it: metrics and dashboards, the live log, and spans for a collector.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lacquer_inspect::Fault;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::follow::{Follower, Sink};
use lacquer_inspect::log_line::LogLine;
use lacquer_inspect::ring::Record;
use lacquer_inspect::transaction::{Grouping, Transaction};
use lacquer_live::event::{Event, MAX_OPEN, is_needed};
use lacquer_live::snapshot::Status;
use lacquer_live::source::{BUDGET, look};
use lacquer_live::state::State;
use lacquer_shm::Tag;

use crate::live_log::LiveLog;
use crate::otlp::{Exporter, traced};
use crate::threads;
use crate::watch::Watch;

const PAUSE: Duration = Duration::from_millis(100);
/// The pause while a stream shows requests.
const LIVE_PAUSE: Duration = Duration::from_millis(50);
/// Time between two snapshots.
const SNAPSHOT: Duration = Duration::from_secs(1);
/// Time between two looks at all counters, so that the series of a VCL that is discarded miss little.
const COUNTERS: Duration = Duration::from_secs(5);

/// The consumers that need the log now.
struct Needs<'a> {
    events: Option<Events<'a>>,
    live_log: Option<&'a LiveLog>,
    exporter: Option<&'a Exporter>,
}

/// The receivers of events.
struct Events<'a> {
    watch: &'a Watch,
    state: &'a mut State,
    now: f64,
}

/// Gives a piece of the log to its consumers.
struct Reading<'a> {
    grouping: &'a mut Grouping,
    needs: Needs<'a>,
}

impl Sink for Reading<'_> {
    #[inline]
    fn record(&mut self, record: Record<'_>) {
        let (grouping, needs) = (&mut *self.grouping, &mut self.needs);
        let ended = match record.tag {
            Tag::Begin if record.text.starts_with(b"sess") => return,
            Tag::Begin | Tag::End => grouping.add(&record),
            // Kept for all consumers, so that one that joins finds whole transactions.
            _ if is_needed(&record) => grouping.add(&record),
            tag if needs.exporter.is_some() && traced::is_tag_needed(tag) => {
                grouping.add_if(&record, |open| traced::is_needed(&record, open))
            }
            _ => return,
        };
        if let Some(ended) = ended {
            needs.end(ended);
        }
    }

    fn gap(&mut self, overruns: u64) {
        // The ends of transactions in progress may be among what is missing.
        *self.grouping = Grouping::with_limit(MAX_OPEN);
        if let Some(events) = &mut self.needs.events {
            events.state.lost(overruns);
            events.watch.add_overruns(overruns);
        }
        if let Some(exporter) = self.needs.exporter {
            exporter.add_overruns(overruns);
        }
    }

    fn looked(&mut self, directory: &Directory, found: &Result<(), Fault>) {
        if let Some(events) = &mut self.needs.events {
            look(found, directory, events.now, events.state);
        }
    }
}

impl Needs<'_> {
    fn end(&mut self, ended: &Transaction) {
        if self.events.is_some() {
            self.event(Event::of(ended));
        }
        if let Some((live_log, line)) = self.live_log.and_then(|log| Some((log, LogLine::of(ended)?))) {
            live_log.publish(&line);
        }
        if let Some(exporter) = self.exporter {
            for span in traced::spans(ended).unwrap_or_default() {
                exporter.add(&span);
            }
        }
    }

    fn event(&mut self, event: Option<Event>) {
        if let (Some(events), Some(event)) = (&mut self.events, event) {
            events.watch.add(&event);
            events.state.event(events.now, event);
        }
    }
}

/// The state for metrics and dashboards.
struct Watched {
    state: State,
    began: Instant,
    last_snapshot: Instant,
    last_counters: Instant,
}

impl Watched {
    fn new(name: &str) -> Watched {
        let began = Instant::now();
        let state = State::new(name, 0.0);
        Watched { state, began, last_snapshot: began, last_counters: began }
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

/// The thread's state.
pub struct LogThread {
    watch: Arc<Watch>,
    live_log: Arc<LiveLog>,
    exporter: Option<Arc<Exporter>>,
    follower: Follower,
    grouping: Grouping,
    /// The state is kept while anybody is interested.
    watched: Option<Watched>,
}

impl LogThread {
    /// Starts the thread.
    pub fn start(
        directory: Directory,
        watch: Arc<Watch>,
        live_log: Arc<LiveLog>,
        exporter: Option<Arc<Exporter>>,
    ) -> std::io::Result<()> {
        let grouping = Grouping::with_limit(MAX_OPEN);
        let follower = Follower::waiting(directory);
        let mut reader = LogThread { watch, live_log, exporter, follower, grouping, watched: None };
        let run = move || {
            loop {
                reader.turn();
            }
        };
        threads::start("log", run)
    }

    /// Reads what is new, or a part of it, and sleeps if there is no more.
    fn turn(&mut self) {
        let is_live = self.live_log.is_wanted();
        if !self.watch.is_wanted() {
            self.watched = None;
        } else if self.watched.is_none() {
            self.follower.look_again();
            self.watched = Some(Watched::new(&self.follower.directory().path().display().to_string()));
        }
        let mut has_more = false;
        if is_live || self.watched.is_some() || self.exporter.is_some() {
            has_more = self.read(is_live);
            if is_live {
                self.live_log.begun();
            }
            self.tend();
        } else {
            // The next one who is interested begins at the log's end.
            self.follower = Follower::waiting(self.follower.directory().clone());
        }
        if !has_more {
            thread::sleep(if is_live { LIVE_PAUSE } else { PAUSE });
        }
    }

    fn read(&mut self, is_live: bool) -> bool {
        let LogThread { watch, live_log, exporter, follower, grouping, watched } = self;
        let events = watched.as_mut().map(|watched| {
            let now = watched.now();
            Events { watch, state: &mut watched.state, now }
        });
        let live_log = is_live.then_some(&**live_log);
        let mut reading =
            Reading { grouping, needs: Needs { events, live_log, exporter: exporter.as_deref() } };
        follower.read(Some(Instant::now() + BUDGET), &mut reading).unwrap_or_else(|fault| {
            if let Some(events) = &mut reading.needs.events {
                events.state.set_status(Status::Waiting(fault.what));
            }
            false
        })
    }

    /// Does what is due each second, and each few seconds.
    fn tend(&mut self) {
        let Some(watched) = &mut self.watched else { return };
        if watched.last_counters.elapsed() >= COUNTERS {
            watched.last_counters = Instant::now();
            self.watch.with_series(|_| ());
        }
        if watched.last_snapshot.elapsed() >= SNAPSHOT {
            watched.last_snapshot = Instant::now();
            self.watch.show(watched.now(), &watched.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_inspect::log_line::Filter;
    use std::path::Path;
    use std::task::{Context, Waker};

    const HIT: [(Tag, &str); 8] = [
        (Tag::Begin, "req 1 rxreq"),
        (Tag::Timestamp, "Start: 100.0 0.0 0.0"),
        (Tag::ReqStart, "192.0.2.1 5000 a0"),
        (Tag::ReqURL, "/a"),
        (Tag::Hit, "3 10.0 10.0 0.0"),
        (Tag::RespStatus, "200"),
        (Tag::Timestamp, "Process: 100.25 0.25 0.25"),
        (Tag::End, ""),
    ];

    #[tokio::test(start_paused = true)]
    async fn a_stream_waits_until_the_log_is_read_for_it() {
        let is_begun = |subscription: &mut crate::live_log::Subscription| {
            std::pin::pin!(subscription.begun()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        let live_log = LiveLog::default();
        assert!(!live_log.is_wanted());
        let mut first = live_log.subscribe(Filter::default());
        assert!(live_log.is_wanted() && !is_begun(&mut first));
        live_log.begun();
        assert!(is_begun(&mut first));
        // The reader has a place in the log.
        let mut second = live_log.subscribe(Filter::default());
        assert!(is_begun(&mut second));
        drop((first, second));
        assert!(!live_log.is_wanted());
        let mut third = live_log.subscribe(Filter::default());
        assert!(!is_begun(&mut third));
        // It does not wait for ever.
        third.begun().await;
    }

    #[test]
    fn each_consumer_gets_what_it_needs_of_one_reading() {
        let watch = Watch::new(Directory::at(Path::new("/nonexistent")));
        let live_log = LiveLog::default();
        let mut stream = live_log.subscribe(Filter::default());
        let (mut state, mut grouping) = (State::new("n", 0.0), Grouping::default());
        let events = Events { watch: &watch, state: &mut state, now: 1.0 };
        let needs = Needs { events: Some(events), live_log: Some(&live_log), exporter: None };
        let mut reading = Reading { grouping: &mut grouping, needs };
        let mut read = |vxid: u64| {
            for (tag, text) in HIT {
                reading.record(Record { tag, vxid, is_backend: false, text: text.as_bytes() });
                // Sessions, and records of transactions that have not begun, are left out.
                for (vxid, tag, text) in [(1, Tag::Begin, "sess 0 HTTP/1"), (99, Tag::ReqURL, "/x")] {
                    reading.record(Record { tag, vxid, is_backend: false, text: text.as_bytes() });
                }
            }
        };
        read(2);
        read(3);
        reading.gap(4);
        let latencies = watch.latencies();
        assert_eq!(latencies.responses[2], 2);
        assert_eq!(latencies.requests["hit"].counts.iter().sum::<u64>(), 2);
        assert_eq!((watch.overruns(), state.overruns()), (4, 4));
        let line = stream.lines.try_recv().expect("a line");
        assert!(String::from_utf8_lossy(&line).contains("\"client\":\"192.0.2.1\""), "{line:?}");
        assert!(stream.lines.try_recv().is_ok() && stream.lines.try_recv().is_err());
    }
}
