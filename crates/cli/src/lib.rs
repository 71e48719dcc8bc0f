//! The management protocol, and the messages between manager and worker. The protocol consists of words, frames,
//! authentication, the table of commands, name patterns and JSON replies. All of it is pure, except reading and
//! writing whole messages, and the lock of a running daemon.

#![forbid(unsafe_code)]

pub mod access_log;
pub mod admin;
pub mod auth;
pub mod check;
pub mod collector;
pub mod columns;
pub mod command_table;
pub mod frame;
pub mod glob;
pub mod help;
pub mod human;
pub mod json;
pub mod link;
pub mod peer;
pub mod pid_file;
pub mod status;

pub use lacquer_params::tokenize;
