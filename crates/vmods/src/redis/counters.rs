//! The counters of a database, and their texts.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

/// A counter. The order is that of [`NAMES`].
#[derive(Clone, Copy)]
pub(super) enum Counter {
    Servers,
    Connections,
    ConnectionsFailed,
    DroppedError,
    DroppedHungUp,
    DroppedTtl,
    DroppedSick,
    Blocked,
    Commands,
    CommandsFailed,
    CommandsRetried,
    CommandsError,
    CommandsNoScript,
}

/// The names in JSON and for `counter()`; those without a [`Counter`] are always 0. Configurations that print or
/// compare them shall load.
const NAMES: [(&str, Option<Counter>); 20] = [
    ("servers.total", Some(Counter::Servers)),
    ("servers.failed", None),
    ("connections.total", Some(Counter::Connections)),
    ("connections.failed", Some(Counter::ConnectionsFailed)),
    ("connections.dropped.error", Some(Counter::DroppedError)),
    ("connections.dropped.hung_up", Some(Counter::DroppedHungUp)),
    ("connections.dropped.overflow", None),
    ("connections.dropped.ttl", Some(Counter::DroppedTtl)),
    ("connections.dropped.version", None),
    ("connections.dropped.sick", Some(Counter::DroppedSick)),
    ("workers.blocked", Some(Counter::Blocked)),
    ("commands.total", Some(Counter::Commands)),
    ("commands.failed", Some(Counter::CommandsFailed)),
    ("commands.retried", Some(Counter::CommandsRetried)),
    ("commands.error", Some(Counter::CommandsError)),
    ("commands.noscript", Some(Counter::CommandsNoScript)),
    ("cluster.discoveries.total", None),
    ("cluster.discoveries.failed", None),
    ("cluster.replies.moved", None),
    ("cluster.replies.ask", None),
];

/// The counters of one database.
#[derive(Default)]
pub(super) struct Counters([AtomicU64; 13]);

impl Counters {
    pub(super) fn add(&self, counter: Counter) {
        self.0[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn value(&self, counter: Option<Counter>) -> u64 {
        counter.map_or(0, |counter| self.0[counter as usize].load(Ordering::Relaxed))
    }

    /// Returns a counter by its name.
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, counter)| self.value(*counter))
    }

    /// Returns all counters as a JSON object of objects.
    pub(super) fn json(&self) -> String {
        let mut root = Map::new();
        for (name, counter) in NAMES {
            let mut at = &mut root;
            let mut parts = name.split('.').peekable();
            while let Some(part) = parts.next() {
                if parts.peek().is_none() {
                    at.insert(part.to_owned(), self.value(counter).into());
                    break;
                }
                let inner = at.entry(part).or_insert_with(|| Value::Object(Map::new()));
                let Value::Object(inner) = inner else { break };
                at = inner;
            }
        }
        Value::Object(root).to_string()
    }

    /// Returns all counters in the text format of Prometheus.
    pub(super) fn prometheus(&self, prefix: &str, labels: &str) -> String {
        let mut text = String::new();
        let mut last = String::new();
        for (name, counter) in NAMES {
            let value = self.value(counter);
            let (metric, labels) = match name.strip_prefix("connections.dropped.") {
                Some(reason) => {
                    let separator = if labels.is_empty() { "" } else { "," };
                    ("connections_dropped".to_owned(), format!("{labels}{separator}reason=\"{reason}\""))
                }
                None => (name.replace('.', "_"), labels.to_owned()),
            };
            if metric != last {
                let _ = writeln!(text, "# TYPE {prefix}{metric} counter");
            }
            let _ = writeln!(text, "{prefix}{metric}{{{labels}}} {value}");
            last = metric;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_names_and_texts() {
        let counters = Counters::default();
        counters.add(Counter::DroppedHungUp);
        counters.add(Counter::CommandsNoScript);
        assert_eq!(counters.get("connections.dropped.hung_up"), Some(1));
        assert_eq!(counters.get("cluster.replies.ask"), Some(0));
        assert_eq!(counters.get("commands"), None);
        let parsed: Value = serde_json::from_str(&counters.json()).expect("JSON");
        assert_eq!(parsed["connections"]["dropped"]["hung_up"], 1);
        assert_eq!(parsed["commands"]["noscript"], 1);
        assert_eq!(parsed["cluster"]["discoveries"]["total"], 0);
        let text = counters.prometheus("p_", "name=\"db\"");
        assert!(
            text.starts_with("# TYPE p_servers_total counter\np_servers_total{name=\"db\"} 0\n"),
            "{text}"
        );
        assert!(text.contains("\np_connections_dropped{name=\"db\",reason=\"hung_up\"} 1\n"), "{text}");
        assert_eq!(text.matches("# TYPE p_connections_dropped counter").count(), 1);
        assert!(counters.prometheus("", "").contains("\nconnections_dropped{reason=\"ttl\"} 0\n"));
    }
}
