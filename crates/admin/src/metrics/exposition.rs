//! Writes metrics as text, or as messages.

use std::fmt::Write as _;

use lacquer_cli::access_log::Counts;

use super::family::MessageFamily;
use super::latency::{Buckets, LIMITS, Latencies};
use super::messages::FamilyMessage;
use super::negotiation::Format;
use super::otlp::MetricMessage;
use super::series::{Family, Row, Series};

/// The counts of the admin process itself.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub is_ready: bool,
    pub connections: u64,
    pub streams: u64,
    /// Requests that were refused, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Events that slow clients did not get.
    pub dropped: u64,
    /// The number of times that records of the log were overwritten before they were read.
    pub overruns: u64,
    /// The counts of the access log that `lacquer run` writes, if it does.
    pub access_log: Option<Counts>,
    /// The counts of spans and exports for a collector, if there is one.
    pub exported: Option<Exported>,
}

/// The counts of the exporter for OpenTelemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exported {
    pub sent_spans: u64,
    /// Spans that the collector did not take in time.
    pub dropped_spans: u64,
    /// Spans that the collector refused.
    pub refused_spans: u64,
    /// Points of metrics in exports of which the collector has taken the rest.
    pub refused_points: u64,
    /// Exports that failed, including those that were repeated.
    pub failures: u64,
    pub overruns: u64,
}

/// Returns all metrics in a format.
pub fn expose(series: &Series, latencies: &Latencies, own: &Own, format: Format) -> Vec<u8> {
    let mut writer = Writer { out: String::new(), format, family: None, messages: Vec::new() };
    for (name, family) in series.families() {
        writer.family(name, family);
    }
    writer.latencies(latencies);
    writer.own(own);
    if format == Format::OpenMetrics {
        writer.out.push_str("# EOF\n");
    }
    if format.has_messages() {
        writer.end_family();
        return writer.messages;
    }
    writer.out.into_bytes()
}

struct Writer {
    out: String,
    format: Format,
    /// The family that is being written as a message, and those before it.
    family: Option<Box<dyn MessageFamily>>,
    messages: Vec<u8>,
}

impl Writer {
    /// Writes the head of a metric. Returns the name of its samples.
    fn head(&mut self, name: &str, kind: &str, help: &str) -> String {
        let sample = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        if self.format.has_messages() {
            self.end_family();
            self.family = Some(match self.format {
                // The names of OpenTelemetry have no suffix.
                Format::Otlp { began, now } => Box::new(MetricMessage::new(name, kind, help, [began, now])),
                _ => Box::new(FamilyMessage::new(&sample, kind, help)),
            });
            return sample;
        }
        // OpenMetrics names a counter without its suffix.
        let shown = if self.format == Format::OpenMetrics { name } else { &sample };
        let help = escaped(help, self.format == Format::OpenMetrics);
        let _ = write!(self.out, "# HELP {shown} {help}\n# TYPE {shown} {kind}\n");
        sample
    }

    fn end_family(&mut self) {
        if let Some(family) = self.family.take() {
            family.end(&mut self.messages);
        }
    }

    fn family(&mut self, kind: &str, family: &Family) {
        for (at, element) in family.description.elements.iter().enumerate() {
            let name = format!("lacquer_{}_{}", plain(kind), plain(&element.name));
            let (kind, help) = match element.semantics.as_str() {
                "counter" => ("counter", element.oneliner.clone()),
                "bitmap" => ("gauge", format!("{}: how many of the last 64 were good", element.oneliner)),
                _ => ("gauge", element.oneliner.clone()),
            };
            let sample = self.head(&name, kind, &help);
            for (value, row) in &family.rows {
                self.row(&sample, family.label, value, row, at);
            }
        }
    }

    fn row(&mut self, sample: &str, label: Option<&str>, value: &str, row: &Row, at: usize) {
        let number = row.values.get(at).copied().unwrap_or(0);
        match label {
            Some(label) => self.sample(sample, &[(label, value)], number),
            None => self.sample(sample, &[], number),
        }
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], number: u64) {
        if let Some(family) = &mut self.family {
            return family.sample(labels, number as f64);
        }
        self.line(name, labels, number);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], number: impl std::fmt::Display) {
        self.out.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let _ =
                write!(self.out, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(value, true));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{end} {number}");
    }

    fn latencies(&mut self, latencies: &Latencies) {
        let name = self.head(
            "lacquer_request_duration_seconds",
            "histogram",
            "Time until the response to a client began, by handling; from the log",
        );
        for (how, buckets) in &latencies.requests {
            self.histogram(&name, &[("handling", how)], buckets);
        }
        let name = self.head(
            "lacquer_fetch_duration_seconds",
            "histogram",
            "Time from a request to an origin to the first byte of its response; from the log",
        );
        self.histogram(&name, &[], &latencies.fetches);
        let name =
            self.head("lacquer_fetches_failed", "counter", "Fetches that had no response; from the log");
        self.sample(&name, &[], latencies.failed_fetches);
        let name = self.head(
            "lacquer_responses",
            "counter",
            "Responses to clients by class of status; from the log",
        );
        for (class, count) in latencies.responses.into_iter().enumerate() {
            let class = if class == 0 { "other".to_owned() } else { format!("{class}xx") };
            self.sample(&name, &[("class", &class)], count);
        }
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], buckets: &Buckets) {
        if let Some(family) = &mut self.family {
            return family.histogram(labels, buckets);
        }
        let mut sum = 0;
        let bucket = format!("{name}_bucket");
        for (at, count) in buckets.counts.iter().enumerate() {
            sum += count;
            let limit = LIMITS.get(at).map_or_else(|| "+Inf".to_owned(), |limit| float(*limit));
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", limit.as_str())]).collect();
            self.line(&bucket, &labels, sum);
        }
        self.line(&format!("{name}_sum"), labels, float(buckets.sum));
        self.line(&format!("{name}_count"), labels, buckets.count());
    }

    fn own(&mut self, own: &Own) {
        let name =
            self.head("lacquer_ready", "gauge", "1 while the worker accepts requests and a VCL is in use");
        self.sample(&name, &[], own.is_ready.into());
        let name = self.head("lacquer_admin_connections", "gauge", "Connections of the admin listener");
        self.sample(&name, &[], own.connections);
        let name = self.head("lacquer_admin_streams", "gauge", "Streams of events of the admin listener");
        self.sample(&name, &[], own.streams);
        let name = self.head(
            "lacquer_admin_refused",
            "counter",
            "Requests that the admin listener refused, by reason",
        );
        for (reason, count) in &own.refused {
            self.sample(&name, &[("reason", reason)], *count);
        }
        let name =
            self.head("lacquer_admin_dropped", "counter", "Events that slow readers of a stream did not get");
        self.sample(&name, &[], own.dropped);
        let name = self.head(
            "lacquer_log_overruns",
            "counter",
            "Times that records of the log were overwritten before the histograms counted them",
        );
        self.sample(&name, &[], own.overruns);
        if let Some(counts) = own.access_log {
            let name = self.head(
                "lacquer_access_log_lines",
                "counter",
                "Lines of the access log of lacquer run, by what became of them",
            );
            let outcomes =
                [("written", counts.written), ("dropped", counts.dropped), ("missed", counts.missed)];
            for (outcome, count) in outcomes {
                self.sample(&name, &[("outcome", outcome)], count);
            }
        }
        if let Some(exported) = own.exported {
            self.exported(exported);
        }
    }

    fn exported(&mut self, exported: Exported) {
        let name =
            self.head("lacquer_otlp_spans", "counter", "Spans for the collector, by what became of them");
        let outcomes = [
            ("sent", exported.sent_spans),
            ("dropped", exported.dropped_spans),
            ("refused", exported.refused_spans),
        ];
        for (outcome, count) in outcomes {
            self.sample(&name, &[("outcome", outcome)], count);
        }
        let name = self.head(
            "lacquer_otlp_refused_points",
            "counter",
            "Points of metrics that the collector refused from exports that it took",
        );
        self.sample(&name, &[], exported.refused_points);
        let name = self.head("lacquer_otlp_failures", "counter", "Exports that the collector did not take");
        self.sample(&name, &[], exported.failures);
        let name = self.head(
            "lacquer_otlp_overruns",
            "counter",
            "Times that records of the log were overwritten before spans were made from them",
        );
        self.sample(&name, &[], exported.overruns);
    }
}

/// Returns a number as OpenMetrics requires it: with a fraction.
fn float(value: f64) -> String {
    let text = value.to_string();
    if text.contains(['.', 'e']) || !value.is_finite() { text } else { format!("{text}.0") }
}

/// Returns a name in lower case without the characters that names of metrics do not have.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

fn escaped(text: &str, has_quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if has_quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_inspect::counters::{Description, Element, Set};
    use lacquer_live::event::{Event, Seen};
    use std::sync::Arc;

    fn series() -> Series {
        let element = |name: &str, semantics: &str| Element {
            name: name.to_owned(),
            index: usize::from(semantics == "gauge"),
            semantics: semantics.to_owned(),
            oneliner: "A \"help\" text\\".to_owned(),
        };
        let elements = vec![element("req", "counter"), element("conn", "gauge")];
        let description = Arc::new(Description { elements });
        let set = |ident: &str| Set {
            ident: ident.to_owned(),
            values: vec![7, 2],
            description: Arc::clone(&description),
        };
        let mut series = Series::default();
        series.update(vec![set("MAIN"), set("VBE.boot.a\"\n\\{}")]);
        series
    }

    #[test]
    fn both_formats_have_their_rules() {
        let mut latencies = Latencies::default();
        latencies.add(&Event::Request(Seen { how: "hit", wait: 1.0, status: 200, ..Seen::default() }));
        let text_of =
            |format| String::from_utf8(expose(&series(), &latencies, &Own::default(), format)).expect("text");
        let text = text_of(Format::Text);
        for line in [
            "# HELP lacquer_main_req_total A \"help\" text\\\\\n# TYPE lacquer_main_req_total counter\nlacquer_main_req_total 7\n",
            "lacquer_vbe_req_total{backend=\"a\\\"\\n\\\\{}\"} 7\n",
            "lacquer_vbe_conn{backend=\"a\\\"\\n\\\\{}\"} 2\n",
            "lacquer_request_duration_seconds_bucket{handling=\"hit\",le=\"0.5\"} 0\n",
            "lacquer_request_duration_seconds_bucket{handling=\"hit\",le=\"1.0\"} 1\n",
            "lacquer_request_duration_seconds_bucket{handling=\"hit\",le=\"+Inf\"} 1\n",
            "lacquer_request_duration_seconds_sum{handling=\"hit\"} 1.0\n",
            "lacquer_responses_total{class=\"2xx\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let open = text_of(Format::OpenMetrics);
        assert!(
            open.contains(
                "# HELP lacquer_main_req A \\\"help\\\" text\\\\\n# TYPE lacquer_main_req counter\n"
            ),
            "{open}"
        );
        assert!(
            open.contains("\nlacquer_main_req_total 7\n")
                && open.ends_with("\n# EOF\n")
                && !text.contains("EOF")
        );
        assert_eq!(
            text.lines().filter(|line| !line.starts_with('#')).count(),
            open.lines().filter(|line| !line.starts_with('#')).count()
        );
    }
}
