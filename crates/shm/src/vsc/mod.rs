//! Counters in Varnish's format ("VSC"): every set is one segment of class `Stat`. It begins with a head
//! that refers to its description, a segment of class `StatDoc` that contains JSON.
//!
//! The tables define the sets and their documentation.

mod desc;
mod main_table;
mod segment;
mod sets_table;

pub use crate::mapping::{Counter, CounterSet, LocalCounter, LocalSet};
pub use desc::{CounterDesc, Format, Level, Semantics, SetDesc};
pub use main_table::{LocalMain, Main};
pub use segment::Segment;
pub use sets_table::{
    Disk, Lck, LocalDisk, LocalLck, LocalMempool, LocalMgt, LocalSelector, LocalSma, LocalSmf, LocalSmu,
    LocalVbe, LocalVcp, LocalWaiter, LocalXkey, Mempool, Mgt, Selector, Sma, Smf, Smu, Vbe, Vcp, Waiter,
    Xkey,
};

/// The descriptions of all sets, for the documentation and for tests.
pub static SETS: [&SetDesc; 13] = [
    Main::DESC,
    Mgt::DESC,
    Mempool::DESC,
    Sma::DESC,
    Smf::DESC,
    Smu::DESC,
    Vbe::DESC,
    Lck::DESC,
    Vcp::DESC,
    Waiter::DESC,
    Disk::DESC,
    Xkey::DESC,
    Selector::DESC,
];
