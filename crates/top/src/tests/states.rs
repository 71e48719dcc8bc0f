//! Snapshots after counters and events.

use super::*;
use lacquer_live::snapshot::{Health, Origin, Status};

#[test]
fn rates_follow_from_counters() {
    let snapshot = busy("/run/x", &["a/1"]);
    let traffic = &snapshot.traffic;
    assert_eq!((traffic.ten_seconds.seconds, traffic.ten_seconds.sums.requests), (4.0, 150));
    assert_eq!(traffic.ten_seconds.rate(150), Some(37.5));
    assert_eq!((traffic.start.seconds, traffic.start.sums.requests), (104.0, 250));
    assert_eq!(traffic.start.sums.hit_ratio(), Some(200.0 / 250.0));
    assert_eq!(traffic.each_second, [25, 50]);
    let resources = &snapshot.resources;
    assert_eq!((resources.objects, resources.connections.gauges.connections), (42, 17));
    assert_eq!(resources.storages[0].1.fill(), Some(0.75));
    assert_eq!(resources.evictions_per_second, Some(3.75));
}

#[test]
fn lists_are_of_the_last_minute() {
    let mut state = State::new("x", 0.0);
    for _ in 0..3 {
        state.event(1.0, request("h/old", "miss", 9.0));
    }
    for (url, how, wait) in
        [("h/a", "hit", 0.001), ("h/a", "graced-hit", 0.001), ("h/b", "pass", 2.0), ("h/c", "synth", 0.1)]
    {
        state.event(55.0, request(url, how, wait));
    }
    let first = |state: &State, now| {
        let urls = state.snapshot(now, 0.0).urls;
        let text =
            |list: &[lacquer_live::sketch::Frequent]| list.first().map(|url| (url.text.clone(), url.count));
        (text(&urls.busiest), text(&urls.missed), urls.slowest.first().map(|slow| slow.text.clone()))
    };
    let url = |text: &str, count| Some((text.to_owned(), count));
    assert_eq!(first(&state, 56.0), (url("h/old", 3), url("h/old", 3), Some("h/old".into())));
    assert_eq!(first(&state, 75.0), (url("h/a", 2), url("h/b", 1), Some("h/b".into())));
    assert_eq!(first(&state, 200.0), (None, None, None));
    let latency = state.snapshot(75.0, 0.0).latency;
    assert_eq!((latency.hits.count(), latency.misses.count()), (2, 1));
    assert_eq!(latency.misses.percentile(0.99), Some(2.0));
}

#[test]
fn origins_join_counters_log_and_probes() {
    let state = busy_state("x", &[]);
    let snapshot = state.snapshot(5.0, 0.0);
    let of =
        |name: &str| snapshot.origins.iter().find(|origin| origin.name == name).expect("it is known").clone();
    let default = of("boot.default");
    assert_eq!((default.per_second, default.fetches, default.errors), (Some(18.75), 2, 1));
    let health = |origin: &Origin| origin.sums.health.health();
    assert_eq!((health(&default), health(&of("boot.other"))), (Health::Sick, Health::Unknown));
    assert!((default.mean().expect("it responded") - 0.2).abs() < 1e-9);
    assert_eq!((of("boot.other").errors, of("boot.other").mean()), (1, None));
}

#[test]
fn the_health_of_an_origin_is_that_of_its_own_counters() {
    let mut state = State::new("x", 0.0);
    let of_default = |vcl: &str, healthy, set| {
        [("happy", u64::MAX), ("healthy", healthy), ("set_health", set)]
            .map(|(field, value)| (format!("VBE.{vcl}.default.{field}"), value))
    };
    let mut counters: Vec<(String, u64)> =
        [of_default("boot", 0, 2), of_default("open", 0, 0), of_default("new", 1, 0)].concat();
    // A daemon without these counters: the latest probe decides.
    counters.extend([("VBE.old.bad.happy".to_owned(), 2), ("VBE.old.good.happy".to_owned(), u64::MAX)]);
    counters.push(("MAIN.uptime".to_owned(), 1));
    state.counters(1.0, Figures::of(counters.iter().map(|(name, value)| (name.as_str(), *value))));
    let json = state.snapshot(1.0, 0.0).json();
    let of = |name: &str| {
        let all = json["origins"].as_array().expect("a list");
        let origin = all.iter().find(|origin| origin["name"] == name).expect("it is known");
        (origin["health"].as_str().unwrap_or("none").to_owned(), origin["set_by_operator"] == true)
    };
    assert_eq!(of("boot.default"), ("sick".to_owned(), true));
    assert_eq!(of("open.default"), ("sick".to_owned(), false), "its circuit breaker is open");
    assert_eq!(of("new.default"), ("healthy".to_owned(), false));
    assert_eq!((of("old.bad").0, of("old.good").0), ("sick".to_owned(), "healthy".to_owned()));
    let text = crate::panel::text(&state.snapshot(1.0, 0.0));
    assert!(text.contains("sick (set)"), "{text}");
}

#[test]
fn a_filter_keeps_what_matches() {
    let mut state = busy_state("x", &["a.example/News/1", "b.example/2"]);
    state.set_filter(Some("NEWS".into()));
    state.event(4.0, request("b.example/2", "hit", 0.1));
    state.event(4.0, request("a.example/news/3", "hit", 0.1));
    let snapshot = state.snapshot(5.0, 0.0);
    let urls: Vec<&str> = snapshot.urls.busiest.iter().map(|url| url.text.as_str()).collect();
    assert_eq!(urls, ["a.example/News/1", "a.example/news/3"]);
    assert_eq!((snapshot.traffic.matching.requests, snapshot.latency.hits.count()), (1, 1));
    assert_eq!(snapshot.traffic.matching_ratio, Some(1.0));
    let rewritten = |asked: &str| match request("b.example/2", "hit", 0.1) {
        Event::Request(seen) => Event::Request(Seen { asked: Some(asked.to_owned()), ..seen }),
        fetch @ Event::Fetch(_) => fetch,
    };
    state.event(5.0, rewritten("b.example/news"));
    state.event(5.0, rewritten("b.example/other"));
    assert_eq!(state.snapshot(5.0, 0.0).traffic.matching.requests, 2);
    state.set_filter(Some("example/news".into()));
    assert_eq!(state.snapshot(5.0, 0.0).urls.busiest.len(), 3);
    state.set_filter(Some("\x1b[2J".into()));
    assert!(!crate::panel::text(&state.snapshot(5.0, 0.0)).contains('\x1b'));
    state.set_filter(Some(String::new()));
    assert_eq!(state.filter(), None);
}

#[test]
fn a_worker_that_starts_again_begins_new_rates() {
    let mut state = busy_state("x", &[]);
    state.counters(6.0, Figures::of([("MAIN.uptime", 1), ("MAIN.client_req", 4)]));
    state.counters(8.0, Figures::of([("MAIN.uptime", 3), ("MAIN.client_req", 10)]));
    let traffic = state.snapshot(8.0, 0.0).traffic;
    assert_eq!((traffic.minute.sums.requests, traffic.minute.seconds), (6, 2.0));
    // No worker at all.
    state.counters(9.0, Figures::of([("MGT.uptime", 9)]));
    state.set_status(Status::Waiting("gone\x1b[2J".into()));
    state.lost(2);
    let snapshot = state.snapshot(9.0, 0.0);
    let json = snapshot.json();
    assert_eq!((&json["status"], &json["log_overruns"]), (&"waiting".into(), &2.into()));
    assert!(json["reason"].as_str().is_some_and(|why| why == "gone\\x1b[2J"), "{json}");
    let text = crate::panel::text(&snapshot);
    assert!(text.contains("Waiting: gone") && text.contains("too fast 2 times"), "{text}");
}

#[test]
fn millions_of_urls_and_origins_keep_memory_bounded() {
    let mut state = State::new("x", 0.0);
    for number in 0..120_000_u32 {
        let now = f64::from(number) / 1200.0;
        state.event(now, request(&format!("h/{number}"), "miss", f64::from(number % 977) / 1000.0));
        if number % 3 == 0 {
            state.event(now, request("h/often", "hit", 0.0));
        }
        if number % 10 == 0 {
            state.event(now, fetch(&format!("boot.{number}"), Some(200), 0.1));
        }
    }
    let snapshot = state.snapshot(100.0, 0.0);
    assert_eq!(snapshot.urls.busiest[0].text, "h/often");
    assert!(snapshot.urls.busiest.len() <= 100 && snapshot.urls.slowest.len() <= 100);
    assert!(snapshot.origins.len() <= 6000, "{}", snapshot.origins.len());
    assert_eq!(snapshot.urls.slowest[0].seconds, 0.976);
}

#[test]
fn json_has_all_parts() {
    let json = busy("/run/x", &["a/1", "a/1"]).json();
    assert_eq!(json["busiest"][0]["url"], "a/1");
    assert_eq!(json["busiest"][0]["requests"], 4);
    assert_eq!(json["missed"][0]["requests"], 2);
    assert_eq!(json["latency"]["hits"]["count"], 2);
    assert_eq!(json["latency"]["histogram"].as_array().map(Vec::len), Some(7));
    assert_eq!(json["traffic"]["since_start"]["requests"], 250);
    assert_eq!(json["traffic"]["in_log"]["hit_ratio"], 0.5);
    assert_eq!(json["storage"]["stores"][0]["fill"], 0.75);
    assert_eq!(json["connections"]["open"], 17);
    assert_eq!(json["origins"][0]["health"], "sick");
}
