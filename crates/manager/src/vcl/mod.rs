//! VCL in the manager: the catalogue of programs and labels, the commands that change it, and the calls of the
//! compiler's front end.

pub mod catalogue;
mod commands;
mod compilation;
pub mod compile;
mod list;
mod saved;

pub use catalogue::Catalogue;
pub use compilation::Compilation;
