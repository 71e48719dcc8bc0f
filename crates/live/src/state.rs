//! The state of the daemon: the events of the log and the counters of the last minute, in bounded memory.

use std::collections::BTreeMap;

use crate::event::{Class, Event, Seen, SeenFetch};
use crate::figures::{Figures, OriginCounts, OriginSums, Sums, ratio};
use crate::histogram::Histogram;
use crate::history::History;
use crate::recent::Recent;
use crate::sketch::{Sketch, Tally, most_frequent};
use crate::slowest::Slowest;
use crate::snapshot::{
    Connections, Daemon, Latency, Origin, Period, Resources, Snapshot, Status, Traffic, Urls, rates,
};

/// Number of URLs that each list keeps for each ten seconds.
const KEPT_URLS: usize = 500;
/// Number of URLs that a snapshot has.
const SHOWN_URLS: usize = 100;
const KEPT_ORIGINS: usize = 1000;
/// Seconds between two kept values of counters.
const SPACING: f64 = 1.0;
const ORIGIN_SPACING: f64 = 10.0;

/// The reports of the log of ten seconds.
#[derive(Clone, Debug)]
struct Seconds {
    busiest: Sketch,
    missed: Sketch,
    slowest: Slowest,
    hits: Histogram,
    misses: Histogram,
    /// The requests that the filter accepts.
    matching: Tally,
    /// Those that needed an origin.
    missing: u64,
}

impl Seconds {
    fn new() -> Seconds {
        Seconds {
            busiest: Sketch::new(KEPT_URLS),
            missed: Sketch::new(KEPT_URLS),
            slowest: Slowest::new(SHOWN_URLS),
            hits: Histogram::default(),
            misses: Histogram::default(),
            matching: Tally::default(),
            missing: 0,
        }
    }
}

/// The fetches from an origin in ten seconds.
#[derive(Clone, Copy, Debug, Default)]
struct OriginSeen {
    fetches: u64,
    errors: u64,
    responses: u64,
    seconds: f64,
}

/// The state of the daemon.
#[derive(Clone, Debug)]
pub struct State {
    daemon: Daemon,
    filter: Option<String>,
    log: Recent<Seconds>,
    fetches: Recent<BTreeMap<String, OriginSeen>>,
    sums: History<Sums>,
    origins: History<BTreeMap<String, OriginSums>>,
    figures: Option<Figures>,
}

impl State {
    /// `name` names the daemon, `now` is the present time on any clock in seconds.
    pub fn new(name: &str, now: f64) -> State {
        let name = lacquer_inspect::page::short(name.as_bytes());
        State {
            daemon: Daemon { name, began: now, ..Daemon::default() },
            filter: None,
            log: Recent::default(),
            fetches: Recent::default(),
            sums: History::new(SPACING),
            origins: History::new(ORIGIN_SPACING),
            figures: None,
        }
    }

    pub fn event(&mut self, now: f64, event: Event) {
        match event {
            Event::Request(seen) => self.request(now, &seen),
            Event::Fetch(seen) => self.fetch(now, seen),
        }
    }

    fn request(&mut self, now: f64, seen: &Seen) {
        let asked = seen.asked.as_deref();
        if self.filter.as_deref().is_some_and(|filter| !accepts(filter, &seen.url, asked)) {
            return;
        }
        let class = Class::of(seen.how);
        let hits = u64::from(class == Class::Hit);
        let tally = Tally { requests: 1, hits, bytes: seen.bytes, seconds: seen.wait };
        let log = self.log.at(now, Seconds::new);
        log.matching.add(&tally);
        log.busiest.add(&seen.url, asked, &tally);
        log.slowest.add(&seen.url, asked, (seen.wait, seen.status, seen.how));
        match class {
            Class::Hit => log.hits.add(seen.wait),
            Class::Miss => {
                log.misses.add(seen.wait);
                log.missed.add(&seen.url, asked, &tally);
                log.missing += 1;
            }
            Class::Neither => {}
        }
    }

    fn fetch(&mut self, now: f64, seen: SeenFetch) {
        let all = self.fetches.at(now, BTreeMap::new);
        if all.len() >= KEPT_ORIGINS && !all.contains_key(&seen.origin) {
            return;
        }
        let origin = all.entry(seen.origin).or_default();
        origin.fetches += 1;
        match seen.status {
            Some(status) => {
                origin.responses += 1;
                origin.seconds += seen.wait;
                origin.errors += u64::from(status >= 500);
            }
            None => origin.errors += 1,
        }
    }

    /// Adds the counters of a moment.
    pub fn counters(&mut self, now: f64, figures: Figures) {
        let is_younger = |old: &Figures| figures.uptime < old.uptime;
        if self.figures.as_ref().is_some_and(is_younger) {
            // The worker started again.
            self.sums.clear();
            self.origins.clear();
        }
        if figures.uptime.is_some() {
            self.sums.add(now, figures.sums);
            self.origins.add(now, figures.origins.clone());
        }
        self.figures = Some(figures);
    }

    /// Reports that records of the log were overwritten before they were read, so many times.
    pub fn lost(&mut self, times: u64) {
        self.daemon.overruns = self.daemon.overruns.saturating_add(times);
    }

    /// Returns the number of times that records of the log were overwritten before they were read.
    pub fn overruns(&self) -> u64 {
        self.daemon.overruns
    }

    pub fn set_status(&mut self, status: Status) {
        self.daemon.status = status;
    }

    pub fn status(&self) -> &Status {
        &self.daemon.status
    }

    /// Counts only requests whose host and URL contain a text, without regard to case: those of the page that the cache looked
    /// up, or those that the client sent. What was counted before and does not match is forgotten.
    pub fn set_filter(&mut self, filter: Option<String>) {
        self.filter = filter.filter(|text| !text.is_empty()).map(|text| text.to_lowercase());
        let filter = self.filter.clone();
        let is_kept = |text: &str, asked: Option<&str>| {
            filter.as_deref().is_none_or(|filter| accepts(filter, text, asked))
        };
        for seconds in self.log.all_mut() {
            seconds.busiest.retain(&is_kept);
            seconds.missed.retain(&is_kept);
            seconds.slowest.retain(&is_kept);
            // These do not say which URL they belong to.
            (seconds.hits, seconds.misses) = Default::default();
            (seconds.matching, seconds.missing) = Default::default();
        }
    }

    pub fn filter(&self) -> Option<&str> {
        self.filter.as_deref()
    }

    /// Returns what is shown now. `time` is the time of day, in seconds since the epoch.
    pub fn snapshot(&self, now: f64, time: f64) -> Snapshot {
        let origins = self.origins(now);
        Snapshot {
            time,
            watched: (now - self.daemon.began).max(0.0),
            daemon: Daemon {
                uptime: self.figures.as_ref().and_then(|figures| figures.uptime),
                ..self.daemon.clone()
            },
            filter: self.filter.clone(),
            traffic: self.traffic(now),
            latency: self.latency(now),
            urls: self.urls(now),
            origin_counts: self.origin_counts(&origins),
            origins,
            resources: self.resources(),
        }
    }

    fn traffic(&self, now: f64) -> Traffic {
        let present = self.sums.present().copied().unwrap_or_default();
        let since = |seconds| {
            self.sums.before(seconds).map_or_else(Period::default, |(elapsed, before)| Period {
                seconds: elapsed,
                sums: present.since(before),
            })
        };
        let uptime = self.figures.as_ref().and_then(|figures| figures.uptime).unwrap_or(0) as f64;
        let mut matching = Tally::default();
        let mut missing = 0_u64;
        for seconds in self.log.all(now) {
            matching.add(&seconds.matching);
            missing = missing.saturating_add(seconds.missing);
        }
        let samples: Vec<(f64, u64)> = self.sums.all().map(|(at, sums)| (*at, sums.requests)).collect();
        Traffic {
            ten_seconds: since(10.0),
            minute: since(60.0),
            start: Period { seconds: uptime, sums: present },
            matching,
            matching_ratio: ratio(matching.hits, matching.hits.saturating_add(missing)),
            each_second: rates(&samples),
        }
    }

    fn latency(&self, now: f64) -> Latency {
        let mut latency = Latency::default();
        for seconds in self.log.all(now) {
            latency.hits.merge(&seconds.hits);
            latency.misses.merge(&seconds.misses);
        }
        latency
    }

    fn urls(&self, now: f64) -> Urls {
        let mut slowest = Slowest::new(SHOWN_URLS);
        for seconds in self.log.all(now) {
            slowest.merge(&seconds.slowest);
        }
        Urls {
            busiest: most_frequent(self.log.all(now).map(|seconds| &seconds.busiest), SHOWN_URLS),
            missed: most_frequent(self.log.all(now).map(|seconds| &seconds.missed), SHOWN_URLS),
            slowest: slowest.all().to_vec(),
        }
    }

    /// Returns the numbers of all origins, also of those that are too many to be kept.
    fn origin_counts(&self, kept: &[Origin]) -> OriginCounts {
        let counted = self.figures.as_ref().map(|figures| figures.origin_counts).unwrap_or_default();
        let sick = kept.iter().filter(|origin| origin.is_sick()).count();
        OriginCounts { all: counted.all.max(kept.len() as u64), sick: counted.sick.max(sick as u64) }
    }

    /// Returns the origins that counters or the log know: first those that are sick, then those with errors, then the others,
    /// each the busiest first.
    fn origins(&self, now: f64) -> Vec<Origin> {
        let mut all: BTreeMap<&str, Origin> = BTreeMap::new();
        let before = self.origins.before(60.0);
        for (name, sums) in self.origins.present().into_iter().flatten() {
            let origin = all.entry(name).or_default();
            let earlier = before.and_then(|(_, all)| all.get(name)).copied().unwrap_or(*sums);
            let elapsed = before.map_or(0.0, |(elapsed, _)| elapsed);
            let requests = sums.requests.saturating_sub(earlier.requests);
            origin.per_second = (elapsed > 0.0).then(|| requests as f64 / elapsed);
            origin.sums = *sums;
        }
        for (name, seen) in self.fetches.all(now).flatten() {
            let origin = all.entry(name).or_default();
            origin.fetches += seen.fetches;
            origin.errors += seen.errors;
            origin.responses += seen.responses;
            origin.seconds += seen.seconds;
        }
        let mut all: Vec<Origin> =
            all.into_iter().map(|(name, origin)| Origin { name: name.to_owned(), ..origin }).collect();
        all.sort_by(|a, b| {
            let rate = |origin: &Origin| origin.per_second.unwrap_or(0.0);
            let trouble = |origin: &Origin| (origin.is_sick(), origin.errors > 0);
            trouble(b)
                .cmp(&trouble(a))
                .then_with(|| rate(b).total_cmp(&rate(a)))
                .then_with(|| b.fetches.cmp(&a.fetches))
                .then_with(|| a.name.cmp(&b.name))
        });
        all
    }

    fn resources(&self) -> Resources {
        let Some(figures) = &self.figures else { return Resources::default() };
        let per_second = |seconds: f64, field: fn(&Sums) -> u64| {
            let (elapsed, before) = self.sums.before(seconds)?;
            let added = field(&figures.sums).saturating_sub(field(before));
            (elapsed > 0.0).then(|| added as f64 / elapsed)
        };
        Resources {
            objects: figures.gauges.objects,
            storages: figures.storages.iter().map(|(name, storage)| (name.clone(), *storage)).collect(),
            evictions: figures.sums.evictions,
            evictions_per_second: per_second(10.0, |sums| sums.evictions),
            expired_per_second: per_second(10.0, |sums| sums.expired),
            connections: Connections {
                gauges: figures.gauges,
                per_second: per_second(10.0, |sums| sums.connections),
                accepted: figures.sums.connections,
                refused: figures.sums.refused,
            },
        }
    }
}

/// Returns whether the host and URL of a page, or what was asked for, contain a text of lower case.
fn accepts(filter: &str, url: &str, asked: Option<&str>) -> bool {
    [Some(url), asked].into_iter().flatten().any(|text| text.to_lowercase().contains(filter))
}
