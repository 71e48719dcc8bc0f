//! Spans and metrics for a collector of OpenTelemetry, by its protocol OTLP over HTTP with messages of Protocol Buffers.
//!
//! Transactions that the worker has traced become spans ([`traced`]), which a thread sends from a queue of limited size
//! ([`queue`], [`exporter`]); another one sends metrics. Data for which the queue has no room is
//! dropped and counted; traffic and the listener never wait.
//!
//! The messages are written without the crate `opentelemetry-otlp`, which would add 0.9 MB to the daemon.

mod exporter;
mod post;
mod queue;
mod span;
pub mod traced;

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lacquer_cli::admin::Collector;
use lacquer_cli::link;

pub use exporter::Exporter;
use post::Target;

use crate::threads;

/// Starts the threads that send.
pub fn start(collector: Collector) -> std::io::Result<Arc<Exporter>> {
    send(Exporter::new(Target::new(collector)?))
}

fn send(exporter: Exporter) -> std::io::Result<Arc<Exporter>> {
    let exporter = Arc::new(exporter);
    let own = Arc::clone(&exporter);
    threads::start("otlp-spans", move || own.send_spans())?;
    if exporter.interval().is_some() {
        let own = Arc::clone(&exporter);
        threads::start("otlp-metrics", move || own.send_metrics())?;
    }
    Ok(exporter)
}

/// Takes the addresses of the collector from the manager, each time that it has found others.
pub fn follow_addresses(mut manager: UnixStream, exporter: Arc<Exporter>) -> std::io::Result<()> {
    let run = move || {
        while let Ok(addresses) = link::receive::<Vec<SocketAddr>>(&mut manager) {
            exporter.set_addresses(addresses);
        }
    };
    threads::start("addresses", run)
}

/// Returns the time in nanoseconds since the epoch.
pub fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
