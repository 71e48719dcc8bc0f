//! Spans and metrics for a collector of OpenTelemetry, by its protocol OTLP over HTTP with messages of Protocol Buffers.
//!
//! One thread reads the log and makes spans of the transactions that the worker has traced ([`traced`]). Another one sends
//! them from a queue of limited size ([`queue`], [`exporter`]). What the collector does not take in time is dropped and
//! counted; traffic and the listener never wait.
//!
//! The messages are written without the crate `opentelemetry-otlp`, which would add 0.9 MB to the daemon.

mod exporter;
mod post;
mod queue;
mod span;
mod traced;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lacquer_cli::admin::Collector;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::ring::{LogReader, Record};

pub use exporter::Exporter;
use traced::Traced;

const PAUSE: Duration = Duration::from_millis(100);
/// Number of pauses between two looks whether the worker is another one.
const ROUNDS: u32 = 10;
/// Bytes of the log that are read at a time.
const PIECE: u64 = 1 << 20;

/// Starts the threads.
pub fn start(collector: Collector, directory: Directory) -> std::io::Result<Arc<Exporter>> {
    let exporter = Arc::new(Exporter::new(collector));
    let own = Arc::clone(&exporter);
    thread::Builder::new().name("otlp-send".to_owned()).spawn(move || own.run())?;
    let own = Arc::clone(&exporter);
    thread::Builder::new().name("otlp-read".to_owned()).spawn(move || {
        loop {
            follow(&own, &directory);
            thread::sleep(PAUSE);
        }
    })?;
    Ok(exporter)
}

/// Reads the log until it cannot be read.
fn follow(exporter: &Exporter, directory: &Directory) {
    let Ok(mut reader) = LogReader::at_end(directory) else { return };
    let (mut traced, mut round, mut missed) = (Traced::default(), 0, reader.missed);
    loop {
        let mut each = |record: Record| {
            for span in traced.add(record) {
                exporter.add(&span);
            }
        };
        let Ok(has_more) = reader.read_some(PIECE, &mut each) else { return };
        if reader.missed > missed {
            exporter.add_overruns(reader.missed - missed);
            missed = reader.missed;
            // The ends of transactions in progress may be among what was overwritten.
            traced = Traced::default();
        }
        if !has_more {
            round += 1;
            if round % ROUNDS == 0 && reader.reopen(directory) {
                traced = Traced::default();
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Returns the time in nanoseconds since the epoch.
pub fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
