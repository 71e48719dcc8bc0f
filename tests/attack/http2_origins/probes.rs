//! Probes of origins that speak HTTP/2. Each probe ends in its time, and costs little memory whatever the origin sends.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, until};
use lacquer_testing::slots::shared_slot;

use super::origin::Origin;
use super::start;

/// Starts a daemon that probes this path of the origin each 0.2 s, for at most half a second.
fn probing(origin: &Origin, path: &str) -> Daemon {
    let probe = format!(
        "sub vcl_init {{ }} probe p {{ .url = \"{path}\"; .interval = 0.2s; .timeout = 0.5s; .initial = 0; \
         .window = 2; .threshold = 2; }}\n\
         backend probed {{ .host = \"{}\"; .port = \"{}\"; .proto = \"h2\"; .probe = p; }}\n\
         sub vcl_recv {{ set req.backend_hint = probed; return (pass); }}",
        origin.address.ip(),
        origin.address.port()
    );
    start(origin, &probe, &[])
}

/// Probes ask over HTTP/2. One whose response breaks a rule, or does not come, fails.
#[test]
fn probes_speak_http2() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    for (path, text) in [
        ("/ok", "healthy 4---X-RH"),
        ("/empty", "sick 4---X-R-"),
        ("/drop", "Read error"),
        ("/nostatus", "Read error"),
        ("/http1", "Read error"),
    ] {
        let daemon = probing(&origin, path);
        assert!(daemon.logs(text), "{path}: {text}");
    }
}

/// Responses without an end, and floods, fail each probe for a reason, while the service goes on.
#[test]
fn probes_end_in_their_time() {
    let _slot = shared_slot();
    for (path, reasons) in [
        ("/endless", &["Poll error"][..]),
        ("/drip", &["Poll error"]),
        ("/drip-frames", &["Read error"]),
        ("/drip-pings", &["Poll error"]),
        // The window is exceeded only if the probe reads slowly.
        ("/endless-flood", &["Poll error", "Read error"]),
        ("/pings", &["Read error"]),
        ("/settings", &["Read error"]),
    ] {
        let origin = Origin::start(&[]);
        let mut daemon = probing(&origin, path);
        let before = daemon.resident().memory;
        let begun = Instant::now();
        let is_logged = || reasons.iter().any(|reason| daemon.log_has(reason));
        assert!(until(is_logged), "{path}: {reasons:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{path}: {:?}", begun.elapsed());
        // Another probe begins after the end of the first.
        assert!(until(|| origin.counts.connections.load(Ordering::SeqCst) >= 2), "{path}");
        let (sent, after) = (origin.counts.endless.load(Ordering::SeqCst), daemon.resident().memory);
        assert!(after < before + (16 << 20), "{path}: {before} bytes, then {after} after {sent} bytes");
        let refused = get(daemon.address, "/ok").expect("a response");
        assert_eq!(refused.status, 503, "{path}: a sick backend is not asked");
        let state = daemon.ok("backend.list -p");
        assert!(state.contains("sick"), "{path}: {state}");
    }
}
