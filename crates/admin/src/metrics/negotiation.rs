//! The choice of the format by the field `Accept`.

/// A format of Prometheus, or that of OpenTelemetry, which no client chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Version 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus's own messages, each behind its length. They contain native histograms too.
    Messages,
    /// The metrics in a message of OTLP, with the times at which counting began and ends, in nanoseconds since the epoch.
    Otlp { began: u64, now: u64 },
}

const MESSAGES: &str = "application/vnd.google.protobuf";
const OPEN_METRICS: &str = "application/openmetrics-text";

impl Format {
    /// Returns the format that a client prefers. Text is the default.
    pub fn of(accept: &str) -> Format {
        let mut best = (0.0, Format::Text);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1.0, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.trim() {
                    "q" => quality = value.trim().parse::<f64>().unwrap_or(0.0),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            let format = match media.as_str() {
                OPEN_METRICS if version.is_none_or(|version| version == "1.0.0") => Format::OpenMetrics,
                MESSAGES => Format::Messages,
                "text/plain" | "text/*" | "*/*" => Format::Text,
                _ => continue,
            };
            if quality > best.0 {
                best = (quality, format);
            }
        }
        best.1
    }

    pub fn media(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Messages => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Format::Otlp { .. } => "application/x-protobuf",
        }
    }

    /// Returns whether the format consists of messages.
    pub fn has_messages(self) -> bool {
        matches!(self, Format::Messages | Format::Otlp { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_format_is_chosen() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (native, Format::Messages),
            (prometheus, Format::OpenMetrics),
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text; version=\"1.0.0\"; q=0.1, text/plain; q=0.9", Format::Text),
            ("application/openmetrics-text;version=0.0.1", Format::Text),
            ("application/openmetrics-text;q=x", Format::Text),
            ("application/openmetrics-text;q=NaN", Format::Text),
        ] {
            assert_eq!(Format::of(accept), format, "{accept}");
        }
    }
}
