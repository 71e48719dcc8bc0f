//! The gauges of the health of backends.
//!
//! A director passes over a sick backend without any count, and a circuit breaker closes by time. So the health is read
//! periodically, instead of being counted where it changes.

use lacquer_engine::backends::{Origin, OriginLeaf};
use lacquer_engine::named_origin::NamedOrigin;
use lacquer_engine::vcl_table::{Entry, Vcl};
use lacquer_vcl_runtime::AdminHealth;

use crate::process::Process;

/// Sets the gauges of all backends of all programs.
pub fn publish(process: &Process) {
    for entry in process.shared().vcls().entries() {
        if let Entry::Program(vcl) = entry {
            publish_of(&vcl);
        }
    }
}

fn publish_of(vcl: &Vcl) {
    let instance = vcl.loaded.instance();
    for (id, cell) in instance.directors.all() {
        let director = cell.director.as_any();
        let set = match cell.admin() {
            AdminHealth::Auto => 0,
            AdminHealth::Healthy => 1,
            AdminHealth::Sick => 2,
            AdminHealth::Deleted => continue,
        };
        let healthy = || instance.directors.healthy(id, instance).healthy;
        let publish = |origin: &Origin, healthy: bool| {
            origin.count(|c| {
                c.healthy.set(healthy.into());
                c.set_health.set(set);
            });
        };
        if let Some(leaf) = director.downcast_ref::<OriginLeaf>() {
            publish(&leaf.0, healthy());
        } else if let Some(named) = director.downcast_ref::<NamedOrigin>() {
            // Its origins share these counters, and it has none while its host is not resolved.
            publish(named.declared(), healthy());
        }
    }
}
