//! The command line.

pub mod named;
pub mod raw_args;
