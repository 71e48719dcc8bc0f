//! Common parts of the tests: a host in memory, functions that build programs, and a small module.
#![allow(dead_code)]

pub mod build;
pub mod host;
pub mod interpreter;
pub mod module;
