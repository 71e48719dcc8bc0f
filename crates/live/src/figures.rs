//! The counters that the view shows, taken from all counters of a daemon. Those that a daemon does not have are zero.

use std::collections::BTreeMap;

use lacquer_inspect::counters::Set;
use lacquer_inspect::page::short;

use crate::event::is_pool_of_sessions;

/// Maximum number of origins and of storages. The other origins are only counted.
const MAX_SETS: usize = 20_000;

/// All counters of a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The age of the worker in seconds; `None` if no worker runs.
    pub uptime: Option<u64>,
    pub sums: Sums,
    pub gauges: Gauges,
    /// By the name of the VCL, a dot and the name of the backend.
    pub origins: BTreeMap<String, OriginSums>,
    pub origin_counts: OriginCounts,
    pub storages: BTreeMap<String, Storage>,
}

/// Sums since the worker began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub requests: u64,
    pub hits: u64,
    pub misses: u64,
    pub passes: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub fetches: u64,
    pub failed_fetches: u64,
    pub evictions: u64,
    pub expired: u64,
    pub connections: u64,
    /// Connections and requests that were refused.
    pub refused: u64,
}

/// Present values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    pub objects: u64,
    pub connections: u64,
    pub pipes: u64,
    /// Requests that wait for an origin. Varnish has no such counter.
    pub waiting: u64,
    /// Connections to origins that are in use.
    pub origin_connections: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OriginSums {
    pub requests: u64,
    /// Attempts to connect that failed.
    pub failures: u64,
    /// Fetches that were not attempted: the origin is sick, busy, or has just failed.
    pub skipped: u64,
    pub bytes: u64,
    /// Connections in use.
    pub connections: u64,
    pub health: HealthFigures,
}

/// The numbers of all origins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OriginCounts {
    pub all: u64,
    pub sick: u64,
}

/// The counters of the health of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HealthFigures {
    /// The latest probes, one bit each; all bits without a probe.
    pub probes: u64,
    /// 1 while fetches use the origin, and 0 while it is sick. Varnish has no such counter.
    pub healthy: Option<u64>,
    /// 1 if an operator has set the origin healthy, 2 if sick.
    pub set_by_operator: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Storage {
    pub kind: StorageKind,
    /// Used and free bytes of memory or a file, or segments of a disk. No free ones: there is no limit.
    pub used: u64,
    pub free: u64,
    pub objects: u64,
    /// Requests for space, or operations on the disk, that failed.
    pub failures: u64,
    pub evictions: u64,
    pub state: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageKind {
    #[default]
    Memory,
    File,
    Disk,
}

impl Sums {
    /// Returns what was added since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Sums) -> Sums {
        let less = u64::saturating_sub;
        Sums {
            requests: less(self.requests, earlier.requests),
            hits: less(self.hits, earlier.hits),
            misses: less(self.misses, earlier.misses),
            passes: less(self.passes, earlier.passes),
            bytes_out: less(self.bytes_out, earlier.bytes_out),
            bytes_in: less(self.bytes_in, earlier.bytes_in),
            fetches: less(self.fetches, earlier.fetches),
            failed_fetches: less(self.failed_fetches, earlier.failed_fetches),
            evictions: less(self.evictions, earlier.evictions),
            expired: less(self.expired, earlier.expired),
            connections: less(self.connections, earlier.connections),
            refused: less(self.refused, earlier.refused),
        }
    }

    /// Returns the part that the cache served of all lookups and passes.
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.hits, self.hits.saturating_add(self.misses).saturating_add(self.passes))
    }
}

/// Returns a part of a whole; `None` if the whole is nothing.
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Storage {
    /// Returns the part that is in use; `None` if there is no limit.
    pub fn fill(&self) -> Option<f64> {
        (self.free > 0 || self.kind != StorageKind::Memory)
            .then(|| ratio(self.used, self.used.saturating_add(self.free)))
            .flatten()
    }
}

impl StorageKind {
    pub fn name(self) -> &'static str {
        match self {
            StorageKind::Memory => "memory",
            StorageKind::File => "file",
            StorageKind::Disk => "disk",
        }
    }
}

impl Figures {
    /// Takes the names and values of counters.
    pub fn of<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> Figures {
        let mut figures = Figures::default();
        for (name, value) in counters {
            let Some((set, field)) = name.rsplit_once('.') else { continue };
            figures.counter(set, field, value);
        }
        figures
    }

    /// Takes sets of counters.
    pub fn of_sets(mut sets: Vec<Set>) -> Figures {
        // Of two sets with the same name, the younger one counts. If there are too many, the first names do.
        sets.reverse();
        sets.sort_by(|a, b| a.ident.cmp(&b.ident));
        sets.dedup_by(|next, kept| next.ident == kept.ident);
        let mut figures = Figures::default();
        for set in &sets {
            for (element, value) in set.counters() {
                figures.counter(&set.ident, &element.name, value);
            }
        }
        figures
    }

    /// Takes a counter of a set.
    fn counter(&mut self, set: &str, field: &str, value: u64) {
        let (kind, ident) = set.split_once('.').unwrap_or((set, ""));
        match kind {
            "MAIN" => self.main(field, value),
            "VBE" => self.origin(ident, field, value),
            "SMA" | "SMU" => self.storage(ident, StorageKind::Memory, field, value),
            "SMF" => self.storage(ident, StorageKind::File, field, value),
            "DISK" => self.storage(ident, StorageKind::Disk, field, value),
            "MEMPOOL" if field == "live" && is_pool_of_sessions(ident) => {
                add(&mut self.gauges.connections, value);
            }
            _ => {}
        }
    }

    fn main(&mut self, field: &str, value: u64) {
        let (sums, gauges) = (&mut self.sums, &mut self.gauges);
        let place = match field {
            "uptime" => {
                self.uptime = Some(value);
                return;
            }
            "client_req" => &mut sums.requests,
            "cache_hit" => &mut sums.hits,
            "cache_miss" => &mut sums.misses,
            "s_pass" => &mut sums.passes,
            "s_resp_hdrbytes" | "s_resp_bodybytes" | "s_pipe_out" => &mut sums.bytes_out,
            "s_req_hdrbytes" | "s_req_bodybytes" | "s_pipe_in" => &mut sums.bytes_in,
            "backend_req" => &mut sums.fetches,
            // It contains those of the backend_* counters.
            "fetch_failed" => &mut sums.failed_fetches,
            "n_lru_nuked" => &mut sums.evictions,
            "n_expired" => &mut sums.expired,
            "sess_conn" => &mut sums.connections,
            "sess_dropped" | "req_dropped" | "client_conn_limited" | "client_req_limited" | "sess_fail" => {
                &mut sums.refused
            }
            "n_object" => &mut gauges.objects,
            "n_pipe" => &mut gauges.pipes,
            "n_waiting" => &mut gauges.waiting,
            _ => return,
        };
        add(place, value);
    }

    fn origin(&mut self, ident: &str, field: &str, value: u64) {
        match field {
            // Each origin has one.
            "happy" => self.origin_counts.all += 1,
            "healthy" if value == 0 => self.origin_counts.sick += 1,
            "conn" => add(&mut self.gauges.origin_connections, value),
            _ => {}
        }
        let Some(origin) = entry(&mut self.origins, ident) else { return };
        let place = match field {
            "req" => &mut origin.requests,
            "beresp_hdrbytes" | "beresp_bodybytes" => &mut origin.bytes,
            "conn" => &mut origin.connections,
            "happy" => &mut origin.health.probes,
            "healthy" => origin.health.healthy.get_or_insert_default(),
            "set_health" => &mut origin.health.set_by_operator,
            "unhealthy" | "busy" | "helddown" => &mut origin.skipped,
            // `fail` is their sum, or not counted.
            field if field.starts_with("fail_") => &mut origin.failures,
            _ => return,
        };
        add(place, value);
    }

    fn storage(&mut self, ident: &str, kind: StorageKind, field: &str, value: u64) {
        // A disk and the memory before it have the same name.
        let name = if kind == StorageKind::Disk { format!("{ident} (disk)") } else { ident.to_owned() };
        let Some(storage) = entry(&mut self.storages, &name) else { return };
        storage.kind = kind;
        let place = match field {
            "g_bytes" | "g_segments" => &mut storage.used,
            "g_space" | "g_segments_free" => &mut storage.free,
            "g_alloc" | "g_objects" => &mut storage.objects,
            "c_fail" | "c_errors" | "c_damaged" => &mut storage.failures,
            "c_evicted" => &mut storage.evictions,
            "g_state" => &mut storage.state,
            _ => return,
        };
        add(place, value);
    }
}

/// Returns the set with a name, which the daemon has chosen; `None` if there are too many.
fn entry<'a, T: Default>(all: &'a mut BTreeMap<String, T>, name: &str) -> Option<&'a mut T> {
    let name = short(name.as_bytes());
    if all.len() >= MAX_SETS && !all.contains_key(&name) {
        return None;
    }
    Some(all.entry(name).or_default())
}

fn add(to: &mut u64, value: u64) {
    *to = to.saturating_add(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let found = Figures::of([
            ("MAIN.uptime", 9),
            ("MAIN.client_req", 10),
            ("MAIN.cache_hit", 6),
            ("MAIN.cache_miss", 1),
            ("MAIN.s_pass", 1),
            ("MAIN.s_resp_hdrbytes", 5),
            ("MAIN.s_resp_bodybytes", u64::MAX),
            ("MEMPOOL.sess0.live", 3),
            ("MEMPOOL.sess1.live", 4),
            ("MEMPOOL.busyobj.live", 50),
            ("VBE.boot.a.b(1.2.3.4:80).req", 7),
            ("VBE.boot.a.b(1.2.3.4:80).conn", 2),
            ("VBE.boot.a.b(1.2.3.4:80).fail_other", 2),
            ("VBE.boot.a.b(1.2.3.4:80).fail", 2),
            ("SMA.s0.g_bytes", 25),
            ("SMA.s0.g_space", 75),
            ("SMA.Transient.g_bytes", 9),
            ("DISK.s0.g_segments", 1),
            ("DISK.s0.g_segments_free", 3),
            ("nonsense", 1),
            ("VBE.x", 1),
        ]);
        assert_eq!((found.uptime, found.sums.requests, found.sums.bytes_out), (Some(9), 10, u64::MAX));
        assert_eq!((found.gauges.connections, found.gauges.origin_connections), (7, 2));
        assert_eq!(found.sums.hit_ratio(), Some(0.75));
        let origin = &found.origins["boot.a.b(1.2.3.4:80)"];
        assert_eq!((origin.requests, origin.failures), (7, 2));
        let fill = |name: &str| found.storages[name].fill();
        assert_eq!((fill("s0"), fill("Transient"), fill("s0 (disk)")), (Some(0.25), None, Some(0.25)));
        assert_eq!(Figures::of([]), Figures::default());
        assert_eq!(Sums::default().hit_ratio(), None);
    }

    #[test]
    fn names_are_escaped_and_bounded() {
        let names: Vec<String> = (0..MAX_SETS + 10)
            .flat_map(|n| ["happy", "healthy", "conn"].map(|field| format!("VBE.v\x1b[2J.{n}.{field}")))
            .collect();
        let value = |name: &str| u64::from(!name.ends_with("9.healthy"));
        let found = Figures::of(names.iter().map(|name| (name.as_str(), value(name))));
        assert_eq!(found.origins.len(), MAX_SETS);
        let all = MAX_SETS as u64 + 10;
        assert_eq!(found.origin_counts, OriginCounts { all, sick: all / 10 });
        assert_eq!(found.gauges.origin_connections, all);
        assert!(found.origins.keys().all(|name| !name.contains('\x1b')));
    }
}
