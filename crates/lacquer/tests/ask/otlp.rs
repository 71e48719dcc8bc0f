//! Traces and metrics for a collector of OpenTelemetry.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use lacquer_testing::admin::AdminPort;
use lacquer_testing::client::{Client, Response};
use lacquer_testing::collector::{Collector, Received, Span};
use lacquer_testing::daemon::{Daemon, until, vcl};
use lacquer_testing::recorder::{Recorder, ok};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// The trace of requests that are not part of a test.
const PROBE: &str = "ffffffffffffffffffffffffffffffff";
const PARENT: &str = "00f067aa0ba902b7";

const SUBS: &str = "sub vcl_recv { if (req.url ~ \"pipe\") { return (pipe); } }
    sub vcl_backend_response {
        set beresp.do_esi = bereq.url == \"/esi\";
        if (bereq.url == \"/retry\" && bereq.retries == 0) { return (retry); }
    }";

/// A daemon whose spans and metrics go to a collector, and its origin.
struct Traced {
    daemon: Daemon,
    origin: Recorder,
    collector: Collector,
}

fn start(rate: &str) -> Traced {
    let origin = Recorder::start(|head| {
        ok(if head.contains(" /esi ") { "<esi:include src=\"/part\"/>" } else { "hello" })
    });
    let collector = Collector::start();
    let daemon =
        Daemon::start(&vcl(origin.address, SUBS), &["-w", &collector.option(), "-p", "trace_rate=1"]);
    let mut traced = Traced { daemon, origin, collector };
    // The log is read from its end at the time when the process begins.
    let is_traced = || {
        traced.ask("/probe", &format!("traceparent: 00-{PROBE}-{PARENT}-01\r\n"));
        std::thread::sleep(std::time::Duration::from_millis(100));
        !traced.collector.received().spans.is_empty()
    };
    assert!(until(is_traced), "{}", traced.daemon.stderr());
    traced.daemon.ok(&format!("param.set trace_rate {rate}"));
    traced.origin.take();
    traced
}

fn ask(address: SocketAddr, path: &str, fields: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: example.org\r\n{fields}\r\n");
    Client::connect(address).and_then(|mut client| client.ask(&request)).expect("a response")
}

impl Traced {
    fn ask(&self, path: &str, fields: &str) -> Response {
        ask(self.daemon.address, path, fields)
    }

    fn received(&self) -> Received {
        let mut received = self.collector.received();
        received.spans.retain(|span| span.trace != PROBE);
        received
    }

    /// Waits for this number of spans of the daemon's requests and fetches.
    fn transactions(&self, count: usize) -> Vec<Span> {
        let of = |received: Received| -> Vec<Span> {
            received.spans.into_iter().filter(|span| span.attributes.contains_key("lacquer.vxid")).collect()
        };
        let is_complete = until(|| of(self.received()).len() >= count);
        let received = self.received();
        assert!(is_complete && received.faults.is_empty(), "{received:#?}\n{}", self.daemon.stderr());
        of(received)
    }

    /// Returns the values of a header in the requests to the origin.
    fn sent(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}: ");
        let requests = self.origin.take();
        requests
            .iter()
            .flat_map(|head| head.lines())
            .filter_map(|line| line.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect()
    }
}

fn attribute<'s>(span: &'s Span, name: &str) -> &'s str {
    span.attributes.get(name).map_or("", String::as_str)
}

#[test]
fn a_miss_and_a_hit_are_traces_that_continue_those_of_client_and_origin() {
    let traced = start("1");
    let fields = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: a=b,c=d\r\ntracestate: e=f\r\n");
    assert_eq!(traced.ask("/page?a=b", &fields).status, 200);
    let all = traced.transactions(2);
    assert!(all.iter().all(|span| span.trace == TRACE), "{all:#?}");
    let request = all.iter().find(|span| span.kind == 2).expect("a span of the request");
    let fetch = all.iter().find(|span| span.kind == 3).expect("a span of the fetch");
    assert_eq!((request.parent.as_str(), &fetch.parent), (PARENT, &request.id));
    assert_eq!((request.name.as_str(), fetch.name.as_str()), ("GET", "GET"));
    let address = traced.origin.address;
    for (span, name, value) in [
        (request, "url.path", "/page"),
        (request, "url.query", "a=b"),
        (request, "http.response.status_code", "200"),
        (request, "lacquer.handling", "miss"),
        (request, "client.address", "127.0.0.1"),
        (fetch, "http.response.status_code", "200"),
        (fetch, "network.peer.port", &address.port().to_string()),
        (fetch, "url.full", "http://example.org/page?a=b"),
    ] {
        assert_eq!(attribute(span, name), value, "{name}: {span:#?}");
    }
    let received = traced.received();
    let below = |above: &Span| -> Vec<String> {
        received
            .spans
            .iter()
            .filter(|span| span.parent == above.id && span.kind == 1)
            .map(|span| span.name.clone())
            .collect()
    };
    for (span, names) in [
        (request, &["vcl_recv", "vcl_hash", "vcl_miss", "vcl_deliver", "deliver"][..]),
        (
            fetch,
            &["vcl_backend_fetch", "connect", "wait for response", "vcl_backend_response", "response body"],
        ),
    ] {
        let found = below(span);
        assert!(names.iter().all(|name| found.iter().any(|other| other == name)), "{names:?}: {found:?}");
    }
    assert_eq!(received.resource["service.name"], "lacquer");
    let text = received.text();
    assert!(text.starts_with(&format!("trace {TRACE}\n  GET (server)")), "{text}");

    let heads = traced.origin.take();
    assert!(heads[0].contains(&format!("traceparent: 00-{TRACE}-{}-01\r\n", fetch.id)), "{heads:?}");
    assert!(heads[0].contains("tracestate: a=b,c=d\r\ntracestate: e=f\r\n"), "{heads:?}");

    // A hit without a context has a trace of its own.
    traced.ask("/page?a=b", "");
    let all = traced.transactions(3);
    let hit = all.iter().find(|span| span.trace != TRACE).expect("a trace of the hit");
    assert_eq!((hit.parent.as_str(), attribute(hit, "lacquer.handling")), ("", "hit"));
}

#[test]
fn includes_retries_and_pipes_are_in_the_trace_of_their_request() {
    let traced = start("1");
    for (path, kinds) in [("/esi", [2, 3, 1, 3]), ("/retry", [2, 3, 3, 0]), ("/pipe", [2, 3, 0, 0])] {
        let before = traced.received().spans.len();
        let count = kinds.iter().filter(|kind| **kind != 0).count();
        traced.ask(path, "Connection: close\r\n");
        let is_new = || traced.received().spans.split_off(before);
        let of = |spans: Vec<Span>| -> Vec<Span> {
            spans.into_iter().filter(|span| span.attributes.contains_key("lacquer.vxid")).collect()
        };
        assert!(until(|| of(is_new()).len() == count), "{path}: {:#?}", is_new());
        let spans = of(is_new());
        assert!(spans.iter().all(|span| span.trace == spans[0].trace), "{path}: {spans:#?}");
        let mut found: Vec<u64> = spans.iter().map(|span| span.kind).collect();
        let mut kinds: Vec<u64> = kinds.into_iter().filter(|kind| *kind != 0).collect();
        found.sort_unstable();
        kinds.sort_unstable();
        assert_eq!(found, kinds, "{path}: {spans:#?}");
        // Each span but the first one is below another one of the trace, and every request to the origin names its span.
        let roots = spans.iter().filter(|span| span.parent.is_empty()).count();
        assert_eq!(roots, 1, "{path}: {spans:#?}");
        let mut sent = traced.sent("traceparent");
        let fetches = spans.iter().filter(|span| span.kind == 3);
        let mut expected: Vec<String> =
            fetches.map(|span| format!("00-{}-{}-01", span.trace, span.id)).collect();
        sent.sort();
        expected.sort();
        assert_eq!(sent, expected, "{path}");
    }
}

#[test]
fn the_parameters_decide_which_requests_are_traced() {
    let mut traced = start("0");
    let sampled = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let unsampled = format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n");
    let mut count = 0;
    for (at, (params, fields, is_traced)) in [
        ("trace_rate 0", &sampled, false),
        ("trace_follow on", &sampled, true),
        ("trace_follow on", &unsampled, false),
        ("trace_follow on", &String::new(), false),
        ("trace_rate 1", &unsampled, false),
        ("trace_follow off", &unsampled, true),
    ]
    .into_iter()
    .enumerate()
    {
        traced.daemon.ok(&format!("param.set {params}"));
        traced.ask(&format!("/{at}"), fields);
        if is_traced {
            count += 2;
            traced.transactions(count);
        } else {
            // Without spans, the context of the client is passed on as it is.
            let expected: Vec<String> = fields
                .strip_prefix("traceparent: ")
                .map(|value| value.trim().to_owned())
                .into_iter()
                .collect();
            assert_eq!(traced.sent("traceparent"), expected, "{params} {fields}");
        }
        traced.origin.take();
    }
    assert_eq!(traced.transactions(count).len(), count);
}

#[test]
fn metrics_have_the_values_of_the_counters() {
    let collector = Collector::start();
    let origin = Recorder::start(|_| ok("hello"));
    let option = format!("{},interval=1", collector.option());
    let daemon =
        Daemon::start(&vcl(origin.address, ""), &["-w", &option, "-w", "127.0.0.1:0", "-p", "trace_rate=1"]);
    for path in ["/a", "/a", "/b"] {
        ask(daemon.address, path, "");
    }
    let has_all = |metrics: &BTreeMap<String, lacquer_testing::collector::Metric>| {
        let value = |name: &str, labels: &str| metrics.get(name)?.points.get(labels).copied();
        value("lacquer_main_cache_hit", "") == Some(1.0)
            && value("lacquer_vbe_req", "backend=default") == Some(2.0)
            && metrics
                .get("lacquer_request_duration_seconds")
                .is_some_and(|metric| metric.kind == "histogram")
    };
    assert!(until(|| has_all(&collector.received().metrics)), "{:#?}", collector.received());
    let received = collector.received();
    assert!(received.faults.is_empty(), "{:?}", received.faults);
    let hits = &received.metrics["lacquer_main_cache_hit"];
    assert_eq!((hits.kind.as_str(), hits.is_monotonic), ("sum", true));
    assert_eq!(received.metrics["lacquer_main_n_object"].kind, "gauge");
    // Collectors for Prometheus rename gauges with the unit "1".
    for (name, metric) in &received.metrics {
        assert_eq!(metric.unit, if metric.kind == "histogram" { "s" } else { "" }, "{name}");
    }
    // The counts of the exporter are metrics too.
    let port = AdminPort::of(&daemon.directory()).expect("the daemon publishes its listener");
    let text = port.ask("GET", "/metrics", "").expect("a response");
    let text = String::from_utf8_lossy(&text.body).into_owned();
    assert!(text.contains("lacquer_otlp_spans_total{outcome=\"dropped\"} 0\n"), "{text}");
}
