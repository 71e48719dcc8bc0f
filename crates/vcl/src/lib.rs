//! The VCL language: text in, checked [`program::Program`] or diagnostics out.
//!
//! A pure crate: it reads files only through the caller's loader, so that the manager, the
//! `lacquer check` command and the tests see the same language.
#![forbid(unsafe_code)]

pub mod program;
pub mod signature;
pub mod types;
pub mod variables_table;
