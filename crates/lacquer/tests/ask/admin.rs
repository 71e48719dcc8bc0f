//! The admin listener: health, metrics, REST and events of a running daemon.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use lacquer_testing::admin::AdminPort;
use lacquer_testing::client::{Response, get};
use lacquer_testing::daemon::{Daemon, MAX_WAIT, children, has_ended, signal, until, vcl};
use lacquer_testing::dns::NameServer;
use serde_json::Value;

use crate::Site;

fn start(options: &[&str]) -> (Site, AdminPort) {
    let site = Site::start("", &[&["-w", "127.0.0.1:0"], options].concat());
    let port = AdminPort::when_ready(&site.daemon);
    (site, port)
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

fn json(port: &AdminPort, method: &str, path: &str, body: &str) -> (u16, Value) {
    let response = port.ask(method, path, body).expect("a response");
    (response.status, serde_json::from_str(&text(&response)).expect("JSON"))
}

fn metric(port: &AdminPort, name: &str) -> Option<f64> {
    let text = text(&port.ask("GET", "/metrics", "").expect("a response"));
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn health_follows_the_worker() {
    let (mut site, port) = start(&[]);
    let status = |path: &str| port.ask_openly(path).map_or(0, |response| response.status);
    assert_eq!((status("/healthz"), status("/readyz")), (200, 200));
    site.daemon.ok("stop");
    // The answer from before has been forgotten.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(status("/readyz"), 503);
    assert_eq!(status("/healthz"), 200);
    let why = text(&port.ask_openly("/readyz").expect("a response"));
    assert!(why.contains("the worker is stopped"), "{why}");
    site.daemon.ok("start");
    assert!(until(|| status("/readyz") == 200));
}

#[test]
fn not_ready_while_the_worker_drains() {
    let (site, port) = start(&["-p", "drain_timeout=120"]);
    // A request in progress, whose page the origin holds back.
    let mut stream = TcpStream::connect(site.daemon.address).expect("it listens");
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    assert!(until(|| site.origin.requests() == 1));
    signal(site.daemon.manager(), "-TERM");
    let ready = || port.ask_openly("/readyz").map(|response| (response.status, text(&response)));
    assert!(until(|| ready().is_ok_and(|(status, why)| status == 503 && why.contains("draining"))));
    site.gate.open();
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    assert!(rest.starts_with("HTTP/1.1 200"), "{rest}");
}

#[test]
fn the_process_is_started_again_and_confined() {
    let (site, port) = start(&[]);
    let pid = admin_process(site.daemon.manager()).expect("it is a child of the manager");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    assert_eq!(
        (field("NoNewPrivs:"), field("Seccomp:"), field("CapPrm:")),
        (Some("1"), Some("2"), Some("0000000000000000"))
    );
    signal(pid, "-KILL");
    assert!(until(|| admin_process(site.daemon.manager()).is_some_and(|other| other != pid)));
    assert!(until(|| port.ask("GET", "/api/v1/vcl", "").is_ok_and(|response| response.status == 200)));
    assert_eq!(get(site.daemon.address, "/minute").expect("traffic is served").status, 200);
}

#[test]
fn the_process_ends_with_a_killed_manager() {
    let (daemon, pid) = jailed();
    signal(daemon.manager(), "-KILL");
    assert!(until(|| has_ended(pid)));
}

/// Returns the process of the admin listener of a manager.
fn admin_process(manager: u32) -> Option<u32> {
    children(manager).into_iter().find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "lacquer-admin")
    })
}

/// Returns a daemon in its jail, and the process of its admin listener, which serves.
fn jailed() -> (Daemon, u32) {
    let program = vcl(([127, 0, 0, 1], 1).into(), "sub vcl_recv { return (synth(200)); }");
    let daemon = Daemon::start_jailed(&program, &["-w", "127.0.0.1:0"], "exec \"$@\"");
    let port = AdminPort::of(&daemon.directory()).expect("the daemon publishes its listener");
    assert!(until(|| port.ask("GET", "/metrics", "").is_ok_and(|response| response.status == 200)));
    let pid = admin_process(daemon.manager()).expect("it is a child of the manager");
    (daemon, pid)
}

#[test]
fn it_ends_with_a_daemon_in_its_jail() {
    let (mut daemon, pid) = jailed();
    signal(daemon.manager(), "-TERM");
    assert_eq!(daemon.end(), Some(0), "{}", daemon.stderr());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(!daemon.directory().join("_.token").exists(), "the token of a daemon ends with it");
}

#[test]
fn an_upgrade_starts_it_again_with_its_token() {
    let (mut site, port) = start(&[]);
    let manager = site.daemon.manager();
    let before = admin_process(manager).expect("it is a child of the manager");
    signal(manager, "-USR2");
    site.daemon.banner();
    let shown = site.daemon.ok("upgrade.show");
    assert!(shown.starts_with("Upgraded from"), "{shown}");
    assert!(until(|| admin_process(manager).is_some_and(|now| now != before)), "{}", site.daemon.stderr());
    let after = || AdminPort::of(&site.daemon.directory()).filter(|after| after.token == port.token);
    assert!(until(
        || after().is_some_and(|port| port.ask("GET", "/api/v1/vcl", "").is_ok_and(|r| r.status == 200))
    ));
    assert!(!std::path::Path::new(&format!("/proc/{before}")).exists(), "it was waited for");
}

#[test]
fn a_unix_socket_needs_no_token() {
    let folder = lacquer_testing::Folder::new("admin");
    let path = folder.join("socket");
    let argument = path.display().to_string();
    let site = Site::start("", &["-w", &argument]);
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(&path)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    assert!(until(|| ask().is_ok_and(|text| text.starts_with("HTTP/1.1 200"))), "{}", site.daemon.stderr());
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("it exists").permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn metrics_follow_the_counters_and_survive_reloads() {
    let (mut site, port) = start(&[]);
    // The histograms count from the time at which the process begins to read the log.
    let measured = |handling: &str| {
        metric(&port, &format!("lacquer_request_duration_seconds_count{{handling=\"{handling}\"}}"))
    };
    let mut probes = 0;
    assert!(until(|| {
        probes += 1;
        get(site.daemon.address, &format!("/zero/probe{probes}")).expect("a page");
        measured("miss") > Some(0.0)
    }));
    for _ in 0..3 {
        get(site.daemon.address, "/minute").expect("a page");
    }
    let hits = || metric(&port, "lacquer_main_cache_hit_total");
    assert!(until(|| hits() == Some(2.0)), "{:?}", hits());
    assert!(until(|| measured("hit") == Some(2.0)), "{:?}", measured("hit"));
    let names = || -> Vec<String> {
        let text = text(&port.ask("GET", "/metrics", "").expect("a response"));
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let name = |line: &str| line.rsplit_once(' ').map(|(name, _)| name.to_owned());
        series.filter_map(name).filter(|name| name.starts_with("lacquer_vbe")).collect()
    };
    let before = names();
    assert!(before.iter().any(|name| name == "lacquer_vbe_req_total{backend=\"default\"}"), "{before:?}");
    let origin = site.origin.address;
    for number in 0..3 {
        let text = format!(
            "vcl 4.1; backend default {{ .host = \\\"{}\\\"; .port = \\\"{}\\\"; }}",
            origin.ip(),
            origin.port()
        );
        let body = format!("{{\"name\": \"v{number}\", \"text\": \"{text}\", \"use\": true}}");
        let (status, reply) = json(&port, "POST", "/api/v1/vcl", &body);
        assert_eq!(status, 201, "{reply}");
        assert_eq!(names(), before);
    }
    get(site.daemon.address, "/zero/1").expect("a page");
    let requests = || metric(&port, "lacquer_vbe_req_total{backend=\"default\"}");
    let expected = Some(f64::from(probes + 2));
    assert!(until(|| requests() == expected), "{:?}", requests());
    site.daemon.ok("vcl.discard boot v0");
    assert_eq!((names(), requests()), (before, expected));
    let open = port
        .request("GET", "/metrics", "")
        .replace("\r\n\r\n", "\r\nAccept: application/openmetrics-text\r\n\r\n");
    let reply = lacquer_testing::client::Client::connect(port.address)
        .and_then(|mut c| c.ask(&open))
        .expect("a response");
    assert!(
        reply.header("Content-Type").is_some_and(|media| media.starts_with("application/openmetrics-text"))
    );
    assert!(text(&reply).ends_with("# EOF\n"));
}

#[test]
fn the_health_of_a_backend_is_a_gauge() {
    let (mut site, port) = start(&[]);
    let gauges = || {
        let of = |name: &str| metric(&port, &format!("lacquer_vbe_{name}{{backend=\"default\"}}"));
        (of("healthy"), of("set_health"))
    };
    assert!(until(|| gauges() == (Some(1.0), Some(0.0))), "{:?}", gauges());
    for (state, expected) in [("sick", (0.0, 2.0)), ("healthy", (1.0, 1.0)), ("auto", (1.0, 0.0))] {
        site.daemon.ok(&format!("backend.set_health default {state}"));
        assert!(until(|| gauges() == (Some(expected.0), Some(expected.1))), "{state} {:?}", gauges());
    }
}

#[test]
fn the_snapshot_has_the_health_that_an_operator_has_set() {
    let (mut site, port) = start(&[]);
    let is_shown = |health: &str, is_set: bool| {
        let snapshot = json(&port, "GET", "/api/v1/snapshot", "").1;
        let origin = &snapshot["origins"][0];
        origin["name"] == "boot.default" && origin["health"] == health && origin["set_by_operator"] == is_set
    };
    assert!(until(|| is_shown("healthy", false)));
    site.daemon.ok("backend.set_health default sick");
    assert!(until(|| is_shown("sick", true)));
}

#[test]
fn a_backend_without_an_address_is_not_healthy() {
    let names = NameServer::start();
    let servers = format!("dns_servers={}", names.address);
    let text = "vcl 4.1; backend unborn { .host = \"never.example\"; } sub vcl_recv { return (pass); }";
    let daemon = Daemon::start(text, &["-w", "127.0.0.1:0", "-p", &servers]);
    let port = AdminPort::when_ready(&daemon);
    let gauge = || metric(&port, "lacquer_vbe_healthy{backend=\"unborn\"}");
    assert!(until(|| gauge() == Some(0.0)), "{:?}", gauge());
}

#[test]
fn rest_refuses_what_does_not_exist_or_removes_nothing() {
    let (_site, port) = start(&[]);
    let mut stream = TcpStream::connect(port.address).expect("it listens");
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").expect("it reads");
    let mut health = String::new();
    let _ = stream.read_to_string(&mut health);
    assert!(health.starts_with("HTTP/1.0 200"), "{health}");
    for (method, path, body, status) in [
        ("GET", "/api/v1/vcl/nosuch", "", 404),
        ("POST", "/api/v1/vcl/nosuch/use", "", 404),
        ("DELETE", "/api/v1/vcl/nosuch", "", 404),
        ("GET", "/api/v1/params/nosuch", "", 404),
        ("PUT", "/api/v1/params/nosuch", r#"{"value": 1}"#, 404),
        ("PUT", "/api/v1/backends/nosuch/health", r#"{"health": "sick"}"#, 404),
        ("PUT", "/api/v1/params/default_ttl", r#"{"value": 7}"#, 200),
        ("PUT", "/api/v1/params/default_ttl", r#"{"value": 7.5}"#, 200),
        ("PUT", "/api/v1/params/default_ttl", r#"{"value": "many"}"#, 400),
        ("PUT", "/api/v1/params/http_gzip_support", r#"{"value": true}"#, 200),
        // The log shows a byte so, and this would be another URL.
        ("POST", "/api/v1/purge", r#"{"url": "a/b\\xff"}"#, 400),
        ("POST", "/api/v1/purge", r#"{"url": "a/c?a=1#part"}"#, 400),
        ("POST", "/api/v1/purge", r#"{"url": "a/b"}"#, 200),
    ] {
        let (found, reply) = json(&port, method, path, body);
        assert_eq!(found, status, "{path} {body} {reply}");
    }
    let (_, purged) = json(&port, "POST", "/api/v1/purge", r#"{"pattern": "^/b"}"#);
    assert_eq!(purged, serde_json::json!({"ban": "req.url ~ ^/b", "removed": null}));
}

#[test]
fn rest_does_what_the_commands_do() {
    let (mut site, port) = start(&[]);
    let fetch = |path: &str| get(site.daemon.address, path).expect("a page").status;
    let items = |path: &str| json(&port, "GET", path, "").1["items"].as_array().cloned().unwrap_or_default();
    assert_eq!((fetch("/minute/a"), fetch("/minute/a")), (200, 200));
    assert!(until(|| items("/api/v1/log").iter().any(|line| line["handling"] == "hit")));
    assert!(until(|| items("/api/v1/log?misses=1&url=minute").len() == 1));
    assert_eq!(json(&port, "POST", "/api/v1/purge", r#"{"url": "/minute/a"}"#).0, 200);
    fetch("/minute/a");
    let hits = json(&port, "GET", "/api/v1/counters?name=cache_*", "").1;
    assert!(hits["MAIN.cache_hit"]["value"].is_u64() && hits["MAIN.client_req"].is_null(), "{hits}");
    assert_eq!(json(&port, "POST", "/api/v1/purge", r#"{"pattern": "^/minute/"}"#).0, 200);
    assert_eq!(json(&port, "POST", "/api/v1/purge", r#"{"url": "/a", "pattern": "b"}"#).0, 400);
    assert_eq!(json(&port, "POST", "/api/v1/tag", r#"{"tags": ["news"], "soft": true}"#).1["purged"], 0);
    assert_eq!(json(&port, "POST", "/api/v1/tag", r#"{"tags": ["-s"]}"#).0, 400);
    assert_eq!(
        json(&port, "POST", "/api/v1/bans", r#"{"expression": "req.url ~ ^/x && obj.status == 200"}"#).0,
        200
    );
    assert_eq!(json(&port, "POST", "/api/v1/bans", r#"{"expression": "nonsense"}"#).0, 400);
    assert!(items("/api/v1/bans").len() >= 3);
    assert_eq!(items("/api/v1/vcl")[0]["name"], "boot");
    let (status, refused) = json(&port, "POST", "/api/v1/vcl", r#"{"name": "bad", "text": "vcl 4.1; sub"}"#);
    assert!(
        status == 400 && refused["error"].as_str().is_some_and(|why| why.contains("VCL compilation failed")),
        "{status} {refused}"
    );
    let shown = text(&port.ask("GET", "/api/v1/vcl/boot", "").expect("a response"));
    assert!(shown.contains("backend default"), "{shown}");
    assert_eq!(json(&port, "DELETE", "/api/v1/vcl/boot", "").0, 409);
    assert_eq!(json(&port, "PUT", "/api/v1/params/default_ttl", r#"{"value": "77"}"#).0, 200);
    assert!(site.daemon.ok("param.show default_ttl").contains("77.000"));
    assert_eq!(json(&port, "DELETE", "/api/v1/params/default_ttl", "").0, 200);
    assert_eq!(json(&port, "PUT", "/api/v1/params/nothing", r#"{"value": "1"}"#).0, 404);
    assert!(!items("/api/v1/params").is_empty() && !items("/api/v1/storages").is_empty());
    assert_eq!(json(&port, "PUT", "/api/v1/backends/boot.default/health", r#"{"health": "sick"}"#).0, 200);
    assert!(site.daemon.ok("backend.list").contains("sick"));
    assert!(items("/api/v1/backends")[0].to_string().contains("boot.default"));
    assert_eq!(json(&port, "PUT", "/api/v1/backends/boot.default/health", r#"{"health": "auto"}"#).0, 200);
    let (status, why) = json(&port, "POST", "/api/v1/why", r#"{"url": "/minute/b"}"#);
    assert!(
        status == 200 && why["outcome"].as_str().is_some_and(|outcome| outcome.starts_with("miss")),
        "{why}"
    );
    let (status, snapshot) = json(&port, "GET", "/api/v1/snapshot", "");
    assert!(status == 200 && snapshot["traffic"].is_object(), "{snapshot}");
    assert_eq!(port.ask("PATCH", "/api/v1/vcl", "").expect("a response").header("Allow"), Some("GET, POST"));
}

/// Opens a stream of events. Returns a function that returns the content of the next event with a name, or `None` if none
/// arrives in time.
fn events(port: &AdminPort, query: &str) -> impl FnMut(&str) -> Option<Value> + use<> {
    let mut stream = TcpStream::connect(port.address).expect("it listens");
    stream.set_read_timeout(Some(MAX_WAIT)).expect("a socket");
    let request = port.request("GET", &format!("/api/v1/events{query}"), "");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    move |name| {
        let (wanted, deadline) = (format!("event: {name}"), Instant::now() + MAX_WAIT);
        // Other events arrive all the time.
        lines.by_ref().take_while(|_| Instant::now() < deadline).find(|line| *line == wanted)?;
        let data = lines.next()?;
        serde_json::from_str::<Value>(data.strip_prefix("data: ")?).ok()
    }
}

#[test]
fn lists_are_longer_than_replies_of_the_management_port() {
    let (mut site, port) = start(&["-p", "cli_limit=1000"]);
    // Bans that no object is older than have no effect, and are not kept.
    assert_eq!(get(site.daemon.address, "/minute/a").expect("a page").status, 200);
    for number in 0..60 {
        site.daemon.ok(&format!("ban req.url == /nothing/{number}"));
    }
    let (status, all) = json(&port, "GET", "/api/v1/bans", "");
    assert!(status == 200 && all["items"].as_array().is_some_and(|bans| bans.len() >= 60), "{all}");
    assert_eq!(port.ask_openly("/readyz").expect("a response").status, 200);
    let mut next = events(&port, "");
    let mut has_all = || {
        let lists = next("lists").expect("an event");
        lists["ban_count"].as_u64() >= Some(60)
            && lists["bans"].as_array().is_some_and(|bans| bans.len() >= 60)
    };
    assert!(has_all() || has_all());
}

#[test]
fn lists_name_what_is_not_known_of_a_stopped_worker() {
    let (mut site, port) = start(&[]);
    site.daemon.ok("stop");
    let lists = events(&port, "")("lists").expect("an event");
    assert_eq!((&lists["bans"], &lists["ban_count"]), (&Value::Null, &Value::Null), "{lists}");
    assert_eq!(lists["vcls"][0]["name"], "boot", "{lists}");
    assert!(lists["storages"][0]["name"] == "s0" && lists["storages"][0]["ages"].is_null(), "{lists}");
}

#[test]
fn events_arrive_while_they_happen() {
    let (site, port) = start(&[]);
    let mut next = events(&port, "?log=1&url=/minute/here");
    assert!(next("snapshot").is_some_and(|snapshot| snapshot["latency"]["totals"]["hits"].is_array()));
    get(site.daemon.address, "/minute/elsewhere").expect("a page");
    get(site.daemon.address, "/minute/here<script>").expect("a page");
    let line = next("log").expect("an event");
    assert_eq!((line["url"].as_str(), line["status"].as_u64()), (Some("/minute/here<script>"), Some(200)));
}

#[test]
fn the_page_allows_its_own_script_only() {
    let (_site, port) = start(&[]);
    let page = port.ask_openly("/").expect("a response");
    let policy = page.header("Content-Security-Policy").expect("a policy").to_owned();
    assert!(
        policy.contains("default-src 'none'")
            && policy.contains("script-src 'sha256-")
            && !policy.contains("unsafe")
    );
    for (name, value) in
        [("X-Frame-Options", "DENY"), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")]
    {
        assert_eq!(page.header(name), Some(value));
    }
    assert!(!text(&page).contains(&port.token));
}
