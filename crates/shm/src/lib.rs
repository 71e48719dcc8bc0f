//! Shared memory in the formats of Varnish 7.3 to 8.0, written so that the unmodified tools of 7.7 read it:
//! the segment index (`vsm`), the counters (`vsc`) and the log (`vsl`).
//!
//! Only writers live here; the readers are Varnish's own. Nothing in this crate reads a clock or opens a
//! socket. All `unsafe` is in `mapping` and `vsl::room`.
#![deny(unsafe_code)]

mod mapping;
mod sync;
pub mod vsc;
pub mod vsl;
pub mod vsm;

pub use vsc::{Counter, Main, Mgt, Segment};
pub use vsl::{Log, Tag, TxLog, Vxid};
pub use vsm::VsmDir;
