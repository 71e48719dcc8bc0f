//! Shared memory in the formats of Varnish 7.3 to 8.0: the segment index, the counters and the log. The
//! modules are `vsm`, `vsc` and `vsl`. The unmodified tools of 7.7 read them.
//!
//! The crate contains only writers; the readers are Varnish's own. It reads no clock and opens no socket. All `unsafe`
//! code is in `mapping` and `vsl::record_buffer`.
#![deny(unsafe_code)]

mod mapping;
mod sync;
pub mod vsc;
pub mod vsl;
pub mod vsm;

pub use vsc::{Counter, Main, Mgt, Segment};
pub use vsl::{Log, Numbering, Tag, TxLog, Vxid};
pub use vsm::VsmDir;
