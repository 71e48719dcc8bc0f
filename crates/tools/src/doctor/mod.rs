//! Decides what of a machine's settings limits a cache: functions over facts that the caller has read.

mod facts;
mod kernel;
mod report;
mod service;
#[cfg(test)]
mod tests;

pub use facts::{Facts, Finding, Grade, Origin, Remedy, Secret, Store};
pub use kernel::FILES;
pub use report::{json, sysctl_file, text};

/// Examines all settings.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    let mut findings = kernel::examine(facts);
    findings.extend(service::examine(facts));
    findings
}
