//! Facts about Varnish that have no counterpart here and that its users rely on all the same: sizes of workspaces that
//! they chose for Varnish's structures, and counters of thread pools that their tools read. Nothing else depends on them.

pub mod pool_counters;
pub mod thread_gauges;
pub mod workspace_costs;
pub mod workspaces;
