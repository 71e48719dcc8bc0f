//! The command line.

pub mod named;
pub mod said;
