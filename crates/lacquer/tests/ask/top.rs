//! `lacquer top`, with a real daemon: as JSON, as text, on a terminal, and when the daemon ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{program, signal, until};
use serde_json::Value;

use crate::{Ran, Site, lacquer};

/// Runs a command while clients send requests.
fn during_traffic(site: &Site, words: &[&str]) -> Ran {
    let is_over = Arc::new(AtomicBool::new(false));
    let (address, over) = (site.daemon.address, Arc::clone(&is_over));
    let clients = thread::spawn(move || {
        while !over.load(Relaxed) {
            for path in ["/minute/a", "/minute/a", "/minute/a", "/cookie/b", "/error", "/minute/%1b"] {
                let _ = get(address, path);
            }
            // The daemon may refuse these.
            for line in ["GET /\x1b[2Jx HTTP/1.1", "GET /\u{202e}\u{9b}é HTTP/1.1"] {
                if let Ok(mut client) = Client::connect(address) {
                    let _ = client.ask(&format!("{line}\r\nHost: a\r\nConnection: close\r\n\r\n"));
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let ran = site.run(words);
    is_over.store(true, Relaxed);
    clients.join().expect("they end");
    ran
}

#[test]
fn one_snapshot_has_the_traffic_of_its_interval() {
    let site = Site::start("", &[]);
    // A slow machine needs longer for some requests.
    let (ran, json) = ["2", "8", "30"]
        .into_iter()
        .map(|seconds| {
            let ran = during_traffic(&site, &["top", "--once", "--json", "--interval", seconds]);
            let json = ran.json();
            (ran, json)
        })
        .find(|(_, json)| json["traffic"]["in_log"]["requests"].as_u64() >= Some(30))
        .expect("30 requests are answered within 30 seconds");
    assert_eq!(ran.out.lines().count(), 1);
    assert!(!ran.out.contains(|c: char| c != '\n' && c.is_control()), "{}", ran.out);
    assert_eq!(json["status"], "running", "{json:#}");
    let first = &json["busiest"][0];
    assert!(first["url"].as_str().is_some_and(|url| url.ends_with("/minute/a")), "{json:#}");
    assert!(first["requests"].as_u64() >= Some(3) && first["hit_ratio"].as_f64() > Some(0.5), "{json:#}");
    let has = |list: &str, url: &str| {
        let is_it = |row: &Value| row["url"].as_str().is_some_and(|text| text.ends_with(url));
        json[list].as_array().is_some_and(|rows| rows.iter().any(is_it))
    };
    assert!(has("missed", "/cookie/b") && has("slowest", "/error"), "{json:#}");
    assert!(json["traffic"]["last_10_seconds"]["requests_per_second"].as_f64() > Some(0.0), "{json:#}");
    assert!(json["traffic"]["since_start"]["hit_ratio"].as_f64() > Some(0.0), "{json:#}");
    assert!(json["latency"]["hits"]["p99"].as_f64() > Some(0.0), "{json:#}");
    assert!(json["latency"]["misses"]["count"].as_u64() > Some(0), "{json:#}");
    let origin = &json["origins"][0];
    assert!(origin["name"].as_str().is_some_and(|name| name.contains('.')), "{json:#}");
    assert!(origin["last_minute"]["errors"].as_u64() > Some(0), "{json:#}");
    assert!(json["storage"]["objects"].as_u64() > Some(0), "{json:#}");
    assert!(json["connections"]["accepted"].as_u64() > Some(0), "{json:#}");
}

#[test]
fn one_snapshot_is_a_page_of_text() {
    let site = Site::start("", &[]);
    let texts = ["Traffic", "requests/s", "/minute/a", "Latency", "p99", "Origins", "filter /minute/"];
    let mut ran = None;
    // A slow machine needs longer for some requests.
    for seconds in ["2", "8", "30"] {
        let now = during_traffic(&site, &["top", "--once", "--interval", seconds, "--url", "/MINUTE/"]);
        let has_all = texts.iter().all(|text| now.out.contains(text));
        ran = Some(now);
        if has_all {
            break;
        }
    }
    let ran = ran.expect("it ran");
    for text in texts {
        assert!(ran.out.contains(text), "{text}: {}", ran.out);
    }
    assert!(!ran.out.contains("/cookie/b"), "{}", ran.out);
    assert!(!ran.out.contains(|c: char| c != '\n' && c.is_control()), "{}", ran.out);
}

/// `lacquer top --json` that runs, and its lines.
struct Watch {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Watch {
    fn start(site: &Site) -> Watch {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lacquer"))
            .args(["top", "--json", "--interval", "0.2", "-n"])
            .arg(site.daemon.directory())
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Watch { child, lines }
    }

    /// Reads lines until one is as expected.
    fn until(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("it writes");
            let json: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if is_it(&json) {
                return json;
            }
            assert!(Instant::now() < end, "{what}: {json:#}");
        }
    }
}

#[test]
fn a_daemon_may_start_again_and_end_while_it_is_watched() {
    let mut site = Site::start("", &[]);
    let mut watch = Watch::start(&site);
    watch.until("it runs", |json| json["status"] == "running");
    let worker = site.daemon.worker();
    signal(worker, "-KILL");
    let address = site.daemon.address;
    let is_seen = |json: &Value| {
        let _ = get(address, "/minute/again");
        json["status"] == "running" && json["busiest"].to_string().contains("/minute/again")
    };
    watch.until("the next worker is read", is_seen);
    signal(site.daemon.manager(), "-INT");
    assert!(site.daemon.end().is_some(), "the daemon ends");
    let last = watch.until("it has ended", |json| json["status"] == "waiting");
    assert!(last["reason"].as_str().is_some_and(|why| !why.is_empty()), "{last:#}");
    // The reader goes.
    drop(watch.lines);
    assert!(watch.child.wait().expect("it ends").success());
}

#[test]
fn mistakes_have_clear_errors() {
    let site = Site::start("", &[]);
    let directory = site.daemon.directory();
    let name = directory.to_str().expect("text");
    for (words, why) in [
        (&["top", "-n", name][..], "not a terminal"),
        (&["top", "--once", "--interval", "0", "-n", name], "--interval needs"),
        (&["top", "--once", "-n", "/nonexistent"], "no daemon runs"),
        (&["top", "file", "-n", name], "accepts no argument"),
    ] {
        let ran = lacquer(words);
        assert!(ran.code == Some(2) && ran.err.contains(why) && ran.out.is_empty(), "{words:?}: {ran:?}");
    }
}

#[test]
fn the_screen_ends_with_q_and_restores_the_terminal() {
    let site = Site::start("", &[]);
    let top = format!("{} top -n {}", env!("CARGO_BIN_EXE_lacquer"), site.daemon.directory().display());
    // `script` provides a terminal.
    let mut script = Command::new("script")
        .args(["-qec", &format!("stty cols 80 rows 24; exec {top}"), "/dev/null"])
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is installed");
    let mut keys = script.stdin.take().expect("it is a pipe");
    let mut out = script.stdout.take().expect("it is a pipe");
    let shown = Arc::new(Mutex::new(String::new()));
    let written = Arc::clone(&shown);
    let reader = thread::spawn(move || {
        let mut part = [0; 4096];
        let mut all = Vec::new();
        while let Ok(length @ 1..) = out.read(&mut part) {
            all.extend(&part[..length]);
            *written.lock().expect("it is whole") = String::from_utf8_lossy(&all).into_owned();
        }
    });
    let now = || shown.lock().expect("it is whole").clone();
    let is_drawn = || ["Traffic", "Latency", "requests/s"].iter().all(|text| now().contains(text));
    assert!(until(is_drawn), "{:?}", now());
    // Each key changes the screen.
    for key in ["\t", "?", "?", "/mi\r", "p"] {
        let before = now().len();
        keys.write_all(key.as_bytes()).and_then(|()| keys.flush()).expect("it reads");
        assert!(until(|| now().len() > before), "{key:?}: {:?}", now());
    }
    keys.write_all(b"q").and_then(|()| keys.flush()).expect("it reads");
    let has_ended = until(|| script.try_wait().expect("it is a child").is_some());
    assert!(has_ended, "{:?}", now());
    reader.join().expect("the output ends");
    let status = script.wait().expect("it ends");
    let shown = now();
    assert!(status.success(), "{shown}");
    for text in ["\x1b[?1049h", "Traffic", "Latency", "requests/s", "\x1b[?1049l"] {
        assert!(shown.contains(text), "{text:?}: {shown:?}");
    }
    assert!(!shown.contains("\x1b[38;") && !shown.contains("\x1b[31m"), "{shown:?}");
}

#[test]
fn the_daemon_does_not_contain_the_screen() {
    let contains = |file: &std::path::Path| {
        Command::new("grep").args(["-qa", "ratatui"]).arg(file).status().expect("grep runs").success()
    };
    assert!(contains(env!("CARGO_BIN_EXE_lacquer").as_ref()));
    assert!(!contains(&program()));
}
