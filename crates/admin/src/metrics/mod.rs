//! The exposition of all counters for Prometheus.
//!
//! The names of metrics follow from those of the counters, which are defined in tables: set and counter, with
//! `lacquer_` before them and `_total` behind a counter. Help and type come from the same tables, through the shared memory.
//! [`series`] keeps the names of VCL programs out of the labels, so that a reload changes no series.

mod exposition;
mod family;
mod latency;
mod messages;
mod negotiation;
mod otlp;
mod series;

pub use exposition::{Exported, Own, expose};
pub use latency::{LIMITS, Latencies};
pub use negotiation::Format;
pub use series::Series;
