//! The live view of a running daemon: what `lacquer top` shows.
//!
//! [`source`] reads the counters and the log in shared memory. [`state`] collects them, and [`snapshot`] is what it shows
//! at a moment: values without a terminal, which are drawn ([`draw`]), printed as text ([`panel`]) or as JSON. All but
//! [`source`] and [`screen`] are functions over values, with `now` as an argument.
//!
//! Clients decide which URLs the log contains, so all tables are bounded, and every text is escaped before it is kept.
#![forbid(unsafe_code)]

pub mod draw;
pub mod event;
pub mod figures;
pub mod histogram;
pub mod history;
pub mod panel;
pub mod recent;
pub mod screen;
pub mod sketch;
pub mod slowest;
pub mod snapshot;
pub mod source;
pub mod state;
pub mod table;
#[cfg(test)]
mod tests;
pub mod units;
pub mod view;
