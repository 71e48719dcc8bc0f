//! The tools for VCL texts, which the daemon does not need: they are functions from texts to texts.
#![forbid(unsafe_code)]

mod braces;
mod diagnose;
pub mod doctor;
pub mod editor;
mod format;
pub mod manual;
mod offline;
pub mod report;
pub mod settings;
pub mod site;
mod upgrade;

pub use diagnose::diagnose;
pub use format::format;
pub use offline::Offline;
pub use upgrade::{MARK, SUBROUTINES, Upgraded, upgrade};
