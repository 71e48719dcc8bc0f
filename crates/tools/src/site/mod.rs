//! The rules of `lacquer run` for a site, and the VCL that they mean.
//!
//! Values come from users. Each is parsed into a type that contains no character with a meaning in VCL, or into a
//! pattern whose quotes are escapes of the pattern; a control character is refused. VCL is written from these types
//! only, so that no value can become code.

mod backend;
mod cookies;
mod errors;
mod network;
mod pattern;
mod rule;
mod rules;
mod servers;
#[cfg(test)]
mod tests;
mod text;
mod wrong;

pub use rules::{RULES, Site};
pub use wrong::Wrong;
