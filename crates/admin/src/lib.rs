//! The admin listener: HTTP for operators, with a dashboard, metrics, REST and events, in a process of its own.
//!
//! The manager starts the process ([`run`]), which confines itself and then serves the sockets that it has inherited. It
//! reads the counters and the log in shared memory like any other reader, and sends commands to the manager. Traffic never
//! waits for it: what it cannot read in time is overwritten, and counted.
//!
//! `otlp` sends spans and metrics to a collector of OpenTelemetry, if one was named.
//!
//! `routes_table` lists all requests. `guard` decides who may send one, `api` turns it into management commands or
//! reads, and `server` bounds what clients can occupy. The modules without sockets are functions over values.
#![forbid(unsafe_code)]

mod api;
mod attribute;
mod body;
mod connections;
mod events;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guard;
mod health;
mod limits;
mod lists;
mod live_log;
mod log_reader;
mod manager_link;
mod metrics;
mod openapi;
mod otlp;
mod page;
mod percent;
mod process;
mod protobuf;
mod reply;
mod request;
mod routes_table;
mod server;
mod stall;
mod threads;
mod watch;

pub use openapi::document as openapi;
pub use process::run;
