//! The live state of a running daemon: traffic, latency, URLs and origins, from its counters and its log.
//!
//! [`source`] reads the counters and the log in shared memory. [`state`] collects them, and [`snapshot`] is the content at a
//! moment: values, also as JSON. All but [`source`] are functions over values, with `now` as an argument.
//!
//! Clients decide which URLs the log contains, so all tables are bounded, and every text is escaped before it is kept.
#![forbid(unsafe_code)]

pub mod event;
pub mod figures;
pub mod histogram;
pub mod history;
pub mod recent;
pub mod sketch;
pub mod slowest;
pub mod snapshot;
pub mod source;
pub mod state;
pub mod width;
