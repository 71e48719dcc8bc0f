//! The panels as tables, and all of them as plain text.

use std::fmt::Write as _;

use lacquer_inspect::page::{WIDTH, plain};

use crate::table::ColumnKind::{Flexible, Label, Number};
use crate::table::{Cell, Column, Look, Row, Table, clip};
use crate::units::{bytes, duration, number, percent};
use lacquer_live::figures::{HealthFigures, Storage, StorageKind, Sums};
use lacquer_live::histogram::{Histogram, LIMITS};
use lacquer_live::sketch::Frequent;
use lacquer_live::snapshot::{Period, Snapshot, Status, disk_state};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    Traffic,
    Latency,
    Busiest,
    Missed,
    Slowest,
    Origins,
    Storage,
    Connections,
}

impl Panel {
    pub const ALL: [Panel; 8] = [
        Panel::Traffic,
        Panel::Latency,
        Panel::Busiest,
        Panel::Missed,
        Panel::Slowest,
        Panel::Origins,
        Panel::Storage,
        Panel::Connections,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Panel::Traffic => "Traffic",
            Panel::Latency => "Latency",
            Panel::Busiest => "Busiest URLs",
            Panel::Missed => "Most missed URLs",
            Panel::Slowest => "Slowest URLs",
            Panel::Origins => "Origins",
            Panel::Storage => "Storage",
            Panel::Connections => "Connections",
        }
    }

    /// Returns the panel so many places behind this one.
    #[must_use]
    pub fn step(self, places: usize) -> Panel {
        let at = Panel::ALL.iter().position(|panel| *panel == self).unwrap_or(0);
        Panel::ALL[(at + places) % Panel::ALL.len()]
    }

    /// Returns the tables of the panel, one below the other.
    pub fn tables(self, of: &Snapshot) -> Vec<Table> {
        match self {
            Panel::Traffic => vec![traffic(of)],
            Panel::Latency => latency(of),
            Panel::Busiest => vec![busiest(of)],
            Panel::Missed => vec![missed(of)],
            Panel::Slowest => vec![slowest(of)],
            Panel::Origins => vec![origins(of)],
            Panel::Storage => vec![evictions(of), storages(of)],
            Panel::Connections => vec![connections(of)],
        }
    }

    /// Returns the lines of the panel, none of them wider than `room`.
    pub fn lines(self, of: &Snapshot, room: usize) -> Vec<(Look, String)> {
        self.tables(of).iter().flat_map(|table| table.lines(room)).collect()
    }
}

/// Returns the line that names the daemon and its state.
pub fn heading(of: &Snapshot) -> String {
    let mut line = format!("lacquer top {}", of.daemon.name);
    if let Some(uptime) = of.daemon.uptime {
        let _ = write!(line, ", up {}", duration(Some(uptime as f64)));
    }
    if let Some(filter) = &of.filter {
        let _ = write!(line, ", filter {}", plain(filter.as_bytes()));
    }
    if of.daemon.overruns > 0 {
        let times = if of.daemon.overruns == 1 { "time" } else { "times" };
        let _ = write!(line, ", the log was too fast {} {times}", of.daemon.overruns);
    }
    line
}

/// Returns why nothing new is shown.
pub fn trouble(of: &Snapshot) -> Option<String> {
    match &of.daemon.status {
        Status::Running => None,
        Status::Waiting(why) => Some(plain(format!("Waiting: {why}").as_bytes())),
    }
}

/// Returns everything as plain text.
pub fn text(of: &Snapshot) -> String {
    let mut out = clip(&heading(of), WIDTH) + "\n";
    if let Some(trouble) = trouble(of) {
        lacquer_inspect::page::wrap(&mut out, "", &trouble);
    }
    for panel in Panel::ALL {
        let _ = writeln!(out, "\n{}", panel.title());
        let lines = panel.lines(of, WIDTH - 2);
        for (_, line) in lines.iter().take(MAX_LINES) {
            let _ = writeln!(out, "  {line}");
        }
        if lines.iter().all(|(look, _)| *look == Look::Title) {
            out.push_str("  none\n");
        }
    }
    out
}

/// Maximum number of lines of a panel in a text.
const MAX_LINES: usize = 21;

/// Returns a table of names and values.
fn facts(rows: Vec<(&str, String)>) -> Table {
    let columns = vec![Column::new("", Label, 0), Column::new("", Number, 0)];
    Table {
        columns,
        rows: rows.into_iter().map(|(name, value)| Row::new(vec![name.into(), value.into()])).collect(),
    }
}

fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

fn traffic(of: &Snapshot) -> Table {
    let traffic = &of.traffic;
    let periods = [&traffic.ten_seconds, &traffic.minute, &traffic.start];
    let columns = vec![
        Column::new("", Label, 0),
        Column::new("10 s", Number, 0),
        Column::new("1 min", Number, 1),
        Column::new("start", Number, 2),
    ];
    let row = |name: &str, value: &dyn Fn(&Period) -> String| {
        let values = periods.into_iter().map(|period| value(period).into());
        Row::new([name.into()].into_iter().chain(values).collect())
    };
    let per_second = |sum: fn(&Sums) -> u64| move |period: &Period| rate(period.rate(sum(&period.sums)));
    let bandwidth = |sum: fn(&Sums) -> u64| {
        move |period: &Period| period.rate(sum(&period.sums)).map_or_else(|| "-".to_owned(), bytes)
    };
    let mut rows = vec![
        row("requests/s", &per_second(|sums| sums.requests)),
        row("hit ratio", &|period| percent(period.sums.hit_ratio())),
        row("sent/s", &bandwidth(|sums| sums.bytes_out)),
        row("received/s", &bandwidth(|sums| sums.bytes_in)),
        row("misses/s", &per_second(|sums| sums.misses)),
        row("passes/s", &per_second(|sums| sums.passes)),
        row("fetches/s", &per_second(|sums| sums.fetches)),
        row("failed/s", &per_second(|sums| sums.failed_fetches)),
    ];
    if of.filter.is_some() {
        let matching = number(traffic.matching.requests as f64);
        rows.push(Row::new(vec!["matching".into(), "".into(), matching.into()]));
        let ratio = percent(traffic.matching_ratio);
        rows.push(Row::new(vec!["their hits".into(), "".into(), ratio.into()]));
    }
    Table { columns, rows }
}

fn latency(of: &Snapshot) -> Vec<Table> {
    let (hits, misses) = (&of.latency.hits, &of.latency.misses);
    let columns = || {
        vec![
            Column::new("", Label, 0),
            Column::new("hits", Number, 0),
            Column::new("misses", Number, 0),
            Column::new("", Flexible, 1),
        ]
    };
    let row = |name: &str, value: &dyn Fn(&Histogram) -> String| {
        Row::new(vec![name.into(), value(hits).into(), value(misses).into(), Cell::Bar(0.0)])
    };
    let mut rows = vec![
        row("p50", &|all| duration(all.percentile(0.5))),
        row("p95", &|all| duration(all.percentile(0.95))),
        row("p99", &|all| duration(all.percentile(0.99))),
        row("max", &|all| duration(all.max())),
    ];
    let counts: Vec<(u64, u64)> = hits.rows().into_iter().zip(misses.rows()).collect();
    let most = counts.iter().map(|(hits, misses)| hits + misses).max().unwrap_or(0);
    let names = LIMITS.iter().map(|limit| format!("<{}", name_of(*limit)));
    let names = names.chain([format!(">{}", name_of(LIMITS[LIMITS.len() - 1]))]);
    for (name, (hits, misses)) in names.zip(&counts) {
        let part = (hits + misses) as f64 / most.max(1) as f64;
        let count = |count: u64| Cell::from(number(count as f64));
        rows.push(Row::new(vec![name.into(), count(*hits), count(*misses), Cell::Bar(part)]));
    }
    vec![Table { columns: columns(), rows }]
}

/// Returns a limit of the histogram: a whole number of milliseconds or seconds, or a part of a millisecond.
fn name_of(limit: f64) -> String {
    if limit >= 1.0 { format!("{limit}s") } else { format!("{}ms", (limit * 1e4).round() / 10.0) }
}

/// The columns of a list of URLs.
fn url_columns(first: &'static str, second: &'static str) -> Vec<Column> {
    vec![
        Column::new(first, Number, 0),
        Column::new(second, Number, 1),
        Column::new("mean", Number, 2),
        Column::new("bytes", Number, 3),
        Column::new("URL", Flexible, 0),
    ]
}

fn url_row(of: &Frequent, second: String) -> Row {
    let count = number(of.count as f64);
    let sent = bytes(of.tally.bytes as f64);
    Row::new(vec![
        count.into(),
        second.into(),
        duration(of.mean()).into(),
        sent.into(),
        of.text.clone().into(),
    ])
}

fn busiest(of: &Snapshot) -> Table {
    let rows = of.urls.busiest.iter().map(|url| url_row(url, percent(url.hit_ratio()))).collect();
    Table { columns: url_columns("1 min", "hits"), rows }
}

fn missed(of: &Snapshot) -> Table {
    let all: u64 = of.latency.misses.count();
    let part = |url: &Frequent| percent(lacquer_live::figures::ratio(url.count.min(all), all));
    Table {
        columns: url_columns("1 min", "of all"),
        rows: of.urls.missed.iter().map(|url| url_row(url, part(url))).collect(),
    }
}

fn slowest(of: &Snapshot) -> Table {
    let columns = vec![
        Column::new("time", Number, 0),
        Column::new("status", Number, 2),
        Column::new("", Label, 1),
        Column::new("URL", Flexible, 0),
    ];
    let row = |slow: &lacquer_live::slowest::Slow| Row {
        cells: vec![
            duration(Some(slow.seconds)).into(),
            slow.status.to_string().into(),
            slow.how.into(),
            slow.text.clone().into(),
        ],
        look: if slow.status >= 500 { Look::Bad } else { Look::Normal },
    };
    Table { columns, rows: of.urls.slowest.iter().map(row).collect() }
}

fn origins(of: &Snapshot) -> Table {
    let columns = vec![
        Column::new("origin", Flexible, 0),
        Column::new("req/s", Number, 1),
        Column::new("errors", Number, 2),
        Column::new("mean", Number, 4),
        Column::new("requests", Number, 6),
        Column::new("failures", Number, 5),
        Column::new("open", Number, 5),
        Column::new("health", Label, 3),
    ];
    let row = |origin: &lacquer_live::snapshot::Origin| Row {
        cells: vec![
            origin.name.clone().into(),
            rate(origin.per_second).into(),
            number(origin.errors as f64).into(),
            duration(origin.mean()).into(),
            number(origin.sums.requests as f64).into(),
            number(origin.sums.failures.saturating_add(origin.sums.skipped) as f64).into(),
            number(origin.sums.connections as f64).into(),
            health(&origin.sums.health).into(),
        ],
        look: if origin.is_in_trouble() { Look::Bad } else { Look::Normal },
    };
    Table { columns, rows: of.origins.iter().map(row).collect() }
}

fn health(of: &HealthFigures) -> String {
    let name = of.health().name().unwrap_or("-");
    if of.is_set_by_operator() { format!("{name} (set)") } else { name.to_owned() }
}

fn evictions(of: &Snapshot) -> Table {
    let resources = &of.resources;
    facts(vec![
        ("objects", number(resources.objects as f64)),
        ("evictions/s", rate(resources.evictions_per_second)),
        ("evictions", number(resources.evictions as f64)),
        ("expired/s", rate(resources.expired_per_second)),
    ])
}

fn storages(of: &Snapshot) -> Table {
    let columns = vec![
        Column::new("store", Label, 0),
        Column::new("fill", Number, 0),
        Column::new("used", Number, 1),
        Column::new("free", Number, 2),
        Column::new("failures", Number, 3),
        Column::new("", Flexible, 4),
    ];
    let row = |(name, storage): &(String, Storage)| {
        let is_disk = storage.kind == StorageKind::Disk;
        let size = |value: u64| if is_disk { number(value as f64) } else { bytes(value as f64) };
        let free = if storage.fill().is_some() { size(storage.free) } else { "-".to_owned() };
        let end = match disk_state(storage) {
            Some("works") => "segments".into(),
            Some(state) => state.into(),
            None => Cell::Bar(storage.fill().unwrap_or(0.0)),
        };
        Row {
            cells: vec![
                clip(name, 24).into(),
                percent(storage.fill()).into(),
                size(storage.used).into(),
                free.into(),
                number(storage.failures as f64).into(),
                end,
            ],
            look: if is_disk && storage.state > 1 { Look::Bad } else { Look::Normal },
        }
    };
    Table { columns, rows: of.resources.storages.iter().map(row).collect() }
}

fn connections(of: &Snapshot) -> Table {
    let connections = &of.resources.connections;
    let gauges = &connections.gauges;
    let count = |value: u64| number(value as f64);
    facts(vec![
        ("open", count(gauges.connections)),
        ("new/s", rate(connections.per_second)),
        ("refused", count(connections.refused)),
        ("pipes", count(gauges.pipes)),
        ("waiting", count(gauges.waiting)),
        ("to origins", count(gauges.origin_connections)),
    ])
}
