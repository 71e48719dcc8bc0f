//! The screen of `lacquer top`: a running daemon, live.
//!
//! A snapshot of the daemon's state (`lacquer_live`) is drawn ([`draw`]), or printed as text ([`panel`]). All but [`screen`]
//! are functions over values.
#![forbid(unsafe_code)]

pub mod draw;
pub mod panel;
pub mod screen;
pub mod table;
#[cfg(test)]
mod tests;
pub mod units;
pub mod view;
