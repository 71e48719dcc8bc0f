//! VCL in the manager: the catalogue of programs and labels, the commands on it, and the way to the
//! compiler's front end.

pub mod catalogue;
mod commands;
mod compilation;
pub mod compile;
mod list;

pub use catalogue::Catalogue;
pub use compilation::Compilation;
