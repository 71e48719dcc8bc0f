//! The content of the view at a moment, as values and as JSON.

use lacquer_inspect::page::plain;
use serde_json::{Value, json};

use crate::figures::{Gauges, HealthFigures, OriginCounts, OriginSums, Storage, StorageKind, Sums, ratio};
use crate::histogram::{Histogram, LIMITS};
use crate::sketch::{Frequent, Tally};
use crate::slowest::Slow;

/// Everything that is shown.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The time of day, in seconds since the epoch.
    pub time: f64,
    /// For how many seconds the daemon was watched.
    pub watched: f64,
    pub daemon: Daemon,
    pub filter: Option<String>,
    pub traffic: Traffic,
    pub latency: Latency,
    pub urls: Urls,
    /// Those in trouble are first, and then the busiest.
    pub origins: Vec<Origin>,
    pub origin_counts: OriginCounts,
    pub resources: Resources,
}

#[derive(Clone, Debug, Default)]
pub struct Daemon {
    pub name: String,
    pub status: Status,
    /// When watching began.
    pub began: f64,
    /// The age of the worker in seconds.
    pub uptime: Option<u64>,
    /// How often records of the log were overwritten before they were read.
    pub overruns: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Status {
    #[default]
    Running,
    /// It cannot be read now, and why.
    Waiting(String),
}

#[derive(Clone, Debug, Default)]
pub struct Traffic {
    pub ten_seconds: Period,
    pub minute: Period,
    pub start: Period,
    /// The requests of the last minute in the log that the filter accepts.
    pub matching: Tally,
    pub matching_ratio: Option<f64>,
    /// Requests in each second of the last minute.
    pub each_second: Vec<u64>,
}

/// The increase of the sums within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Period {
    pub seconds: f64,
    pub sums: Sums,
}

#[derive(Clone, Debug, Default)]
pub struct Latency {
    pub hits: Histogram,
    pub misses: Histogram,
}

/// Lists of the last minute.
#[derive(Clone, Debug, Default)]
pub struct Urls {
    pub busiest: Vec<Frequent>,
    pub missed: Vec<Frequent>,
    pub slowest: Vec<Slow>,
}

#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub name: String,
    pub sums: OriginSums,
    pub per_second: Option<f64>,
    /// Of the last minute, from the log: fetches, those that failed or had a status of 500 or above, and responses with
    /// the sum of the times until they began.
    pub fetches: u64,
    pub errors: u64,
    pub responses: u64,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    Healthy,
    Sick,
    /// There are no counters of it, or no probe has ended yet.
    #[default]
    Unknown,
}

#[derive(Clone, Debug, Default)]
pub struct Resources {
    pub objects: u64,
    pub storages: Vec<(String, Storage)>,
    pub evictions: u64,
    pub evictions_per_second: Option<f64>,
    pub expired_per_second: Option<f64>,
    pub connections: Connections,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Connections {
    pub gauges: Gauges,
    pub per_second: Option<f64>,
    pub accepted: u64,
    pub refused: u64,
}

impl Period {
    /// Returns a sum for each second; `None` if no time has passed.
    pub fn rate(&self, sum: u64) -> Option<f64> {
        (self.seconds > 0.0).then(|| sum as f64 / self.seconds)
    }

    fn json(&self) -> Value {
        let sums = &self.sums;
        json!({
            "seconds": self.seconds, "requests": sums.requests, "requests_per_second": self.rate(sums.requests),
            "hits": sums.hits, "misses": sums.misses, "passes": sums.passes, "hit_ratio": sums.hit_ratio(),
            "bytes_out": sums.bytes_out, "bytes_out_per_second": self.rate(sums.bytes_out),
            "bytes_in": sums.bytes_in, "fetches": sums.fetches, "failed_fetches": sums.failed_fetches,
        })
    }
}

impl Origin {
    /// Returns the mean time until a response began.
    pub fn mean(&self) -> Option<f64> {
        (self.responses > 0).then(|| self.seconds / self.responses as f64)
    }

    pub fn is_sick(&self) -> bool {
        self.sums.health.health() == Health::Sick
    }

    /// Returns whether it is sick, or fetches of the last minute have failed.
    pub fn is_in_trouble(&self) -> bool {
        self.is_sick() || self.errors > 0
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "requests": self.sums.requests, "requests_per_second": self.per_second,
            "bytes": self.sums.bytes, "connections": self.sums.connections, "failures": self.sums.failures,
            "skipped": self.sums.skipped, "health": self.sums.health.health().name(),
            "set_by_operator": self.sums.health.is_set_by_operator(),
            "last_minute": {"fetches": self.fetches, "errors": self.errors, "mean_seconds": self.mean()},
        })
    }
}

impl HealthFigures {
    /// Returns whether fetches use the origin: by its probe, its circuit breaker, and the operator. Without that counter, the
    /// latest probe decides.
    pub fn health(&self) -> Health {
        match (self.healthy, self.probes) {
            (Some(0), _) => Health::Sick,
            (Some(_), _) | (None, u64::MAX) => Health::Healthy,
            (None, 0) => Health::Unknown,
            (None, probes) if probes & 1 == 1 => Health::Healthy,
            (None, _) => Health::Sick,
        }
    }

    pub fn is_set_by_operator(&self) -> bool {
        self.set_by_operator > 0
    }
}

impl Health {
    /// Returns a name; `None` if the health is not known.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Health::Healthy => Some("healthy"),
            Health::Sick => Some("sick"),
            Health::Unknown => None,
        }
    }
}

impl Frequent {
    /// Returns the part of hits among the requests that were counted since the URL is in the list.
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.tally.hits, self.tally.requests)
    }

    pub fn mean(&self) -> Option<f64> {
        (self.tally.requests > 0).then(|| self.tally.seconds / self.tally.requests as f64)
    }

    fn json(&self) -> Value {
        json!({
            "url": self.text, "asked": self.asked, "requests": self.count, "error": self.error, "hit_ratio": self.hit_ratio(),
            "bytes": self.tally.bytes, "mean_seconds": self.mean(),
        })
    }
}

/// Returns the state of a disk in words.
pub fn disk_state(storage: &Storage) -> Option<&'static str> {
    (storage.kind == StorageKind::Disk).then_some(match storage.state {
        0 => "reads its index",
        1 => "works",
        2 => "does not respond",
        _ => "has failed",
    })
}

/// Returns what was added in each second between samples of a counter, the oldest first.
pub fn rates(samples: &[(f64, u64)]) -> Vec<u64> {
    let pairs = samples.iter().zip(samples.iter().skip(1));
    let rate = |((from, before), (to, after)): (&(f64, u64), &(f64, u64))| {
        let elapsed = (to - from).max(0.1);
        (after.saturating_sub(*before) as f64 / elapsed).round() as u64
    };
    pairs.map(rate).collect()
}

impl Snapshot {
    pub fn json(&self) -> Value {
        let (status, reason) = match &self.daemon.status {
            Status::Running => ("running", None),
            Status::Waiting(why) => ("waiting", Some(plain(why.as_bytes()))),
        };
        let traffic = &self.traffic;
        let all = |list: &[Frequent]| list.iter().map(Frequent::json).collect::<Value>();
        let slow = |slow: &Slow| {
            json!({
                "url": slow.text, "asked": slow.asked, "seconds": slow.seconds, "status": slow.status,
                "handling": slow.how,
            })
        };
        json!({
            "time": self.time, "daemon": self.daemon.name, "status": status, "reason": reason,
            "uptime": self.daemon.uptime, "watched": self.watched, "log_overruns": self.daemon.overruns,
            "filter": self.filter,
            "traffic": {
                "last_10_seconds": traffic.ten_seconds.json(), "last_minute": traffic.minute.json(),
                "since_start": traffic.start.json(),
                "in_log": {
                    "requests": traffic.matching.requests, "hits": traffic.matching.hits,
                    "bytes": traffic.matching.bytes, "hit_ratio": traffic.matching_ratio,
                },
            },
            "latency": self.latency.json(),
            "busiest": all(&self.urls.busiest), "missed": all(&self.urls.missed),
            "slowest": self.urls.slowest.iter().map(slow).collect::<Value>(),
            "origins": self.origins.iter().map(Origin::json).collect::<Value>(),
            "origin_counts": {"all": self.origin_counts.all, "sick": self.origin_counts.sick},
            "storage": self.resources.storage_json(),
            "connections": self.resources.connections.json(),
        })
    }
}

impl Latency {
    fn json(&self) -> Value {
        let summary = |all: &Histogram| {
            json!({
                "count": all.count(), "p50": all.percentile(0.5), "p95": all.percentile(0.95),
                "p99": all.percentile(0.99), "max": all.max(),
            })
        };
        let limits = LIMITS.into_iter().map(Some).chain([None]);
        let rows = limits.zip(self.hits.rows().into_iter().zip(self.misses.rows()));
        let row = |(limit, (hits, misses))| json!({"up_to": limit, "hits": hits, "misses": misses});
        json!({
            "hits": summary(&self.hits), "misses": summary(&self.misses),
            "histogram": rows.map(row).collect::<Value>(),
        })
    }
}

impl Resources {
    fn storage_json(&self) -> Value {
        let one = |(name, storage): &(String, Storage)| {
            json!({
                "name": name, "kind": storage.kind.name(), "used": storage.used, "free": storage.free,
                "fill": storage.fill(), "objects": storage.objects, "failures": storage.failures,
                "evictions": storage.evictions, "state": disk_state(storage),
            })
        };
        json!({
            "objects": self.objects, "evictions": self.evictions,
            "evictions_per_second": self.evictions_per_second, "expired_per_second": self.expired_per_second,
            "stores": self.storages.iter().map(one).collect::<Value>(),
        })
    }
}

impl Connections {
    fn json(&self) -> Value {
        json!({
            "open": self.gauges.connections, "per_second": self.per_second, "accepted": self.accepted,
            "refused": self.refused, "pipes": self.gauges.pipes, "waiting": self.gauges.waiting,
            "to_origins": self.gauges.origin_connections,
        })
    }
}
