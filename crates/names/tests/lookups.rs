//! Names against a server that changes its mind, is slow, or lies.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lacquer_names::{Answer, Listener, Name, Names, Refresh, Settings};
use lacquer_testing::dns::{NameServer, Reply};
use lacquer_testing::until;

const PATIENCE: Duration = Duration::from_secs(30);

fn names(server: &NameServer) -> Names {
    let settings = Settings {
        servers: server.address.to_string(),
        retry: Duration::from_secs(1),
        ..Settings::default()
    };
    Names::new(move || settings.clone())
}

fn known(names: &Names, host: &str) -> Arc<Name> {
    let name = names.watch(host, Refresh::default()).expect("a thread");
    assert!(name.wait_until(Instant::now() + PATIENCE), "{host} is looked up");
    name
}

/// Returns a name whose addresses of both families are known.
fn known_whole(names: &Names, host: &str) -> Arc<Name> {
    let name = known(names, host);
    let both = || [true, false].iter().all(|v4| name.answer().addresses.iter().any(|ip| ip.is_ipv4() == *v4));
    assert!(until(both), "{host} has addresses of both families");
    name
}

/// Calls a function, with its number, until it takes less than this time. A busy machine may need several attempts, but
/// what waits for a silent server takes too long each time. Returns the result of the last attempt.
fn within<T>(limit: Duration, attempt: impl Fn(usize) -> (Duration, T)) -> T {
    let mut times = Vec::new();
    for number in 0..10 {
        let (took, result) = attempt(number);
        if took < limit {
            return result;
        }
        times.push(took);
    }
    panic!("none of {times:?} is less than {limit:?}");
}

fn parsed(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn a_changed_address_is_used_within_a_second_of_the_end_of_its_ttl() {
    let server = NameServer::start();
    let names = names(&server);
    let (host, name) = within(Duration::from_secs(3), |number| {
        let host = format!("moving{number}.example");
        server.addresses(&host, 1, &["10.0.0.1"]);
        let name = known(&names, &host);
        assert_eq!(name.answer().addresses, parsed(&["10.0.0.1"]));
        server.addresses(&host, 1, &["10.0.0.2", "fd00::1", "10.0.0.3"]);
        let start = Instant::now();
        assert!(
            until(|| name.answer().addresses == parsed(&["10.0.0.2", "10.0.0.3", "fd00::1"])),
            "the change is seen"
        );
        (start.elapsed(), (host, name))
    });
    server.set(&host, Reply::Alias(60, "target.example".into(), parsed(&["10.0.0.9"])));
    assert!(until(|| name.answer().addresses == parsed(&["10.0.0.9"])), "an alias is followed");
}

#[test]
fn failures_keep_the_last_addresses() {
    let server = NameServer::start();
    let names = names(&server);
    let name = known(&names, "late.example");
    assert_eq!(name.answer().failure.as_deref(), Some("the name does not exist"));
    server.addresses("late.example", 1, &["10.0.0.1"]);
    assert!(until(|| name.answer().failure.is_none()), "it exists");
    for reply in [Reply::Code(3), Reply::Code(2), Reply::Addresses(1, vec![]), Reply::Code(5)] {
        server.set("late.example", reply.clone());
        assert!(until(|| name.answer().failure.is_some()), "the failure is seen");
        assert_eq!(name.answer().addresses, parsed(&["10.0.0.1"]), "{reply:?}");
        server.addresses("late.example", 1, &["10.0.0.1"]);
        assert!(until(|| name.answer().failure.is_none()), "it is back");
    }
}

#[test]
fn an_absent_family_is_not_asked_for_until_its_negative_answer_expires() {
    let server = NameServer::start();
    server.set("plain.example", Reply::WithNegative(1, parsed(&["10.0.0.1"]), 3600));
    server.addresses("unknown.example", 1, &["10.0.0.1"]);
    let names = names(&server);
    let (plain, unknown) = (known(&names, "plain.example"), known(&names, "unknown.example"));
    assert!(until(|| server.queries_by_family("plain.example").0 > 3), "it is looked up again");
    assert_eq!(server.queries_by_family("plain.example").1, 1);
    assert_eq!(plain.answer().addresses, parsed(&["10.0.0.1"]));
    assert!(
        until(|| server.queries_by_family("unknown.example").1 > 2),
        "the time of the absence is not known"
    );
    assert_eq!(unknown.answer().failure, None);
}

#[test]
fn a_new_family_is_found_when_its_negative_answer_expires() {
    let server = NameServer::start();
    let names = names(&server);
    within(Duration::from_secs(7), |number| {
        let host = format!("gains{number}.example");
        server.set(&host, Reply::WithNegative(1, parsed(&["fd00::1"]), 3));
        let start = Instant::now();
        let gains = known(&names, &host);
        server.set(&host, Reply::WithNegative(1, parsed(&["10.0.0.2", "fd00::1"]), 3));
        let both = parsed(&["10.0.0.2", "fd00::1"]);
        assert!(until(|| gains.answer().addresses == both), "the new family is found");
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(3), "it is asked for too early: {took:?}");
        (took, ())
    });
}

#[test]
fn a_name_that_changes_its_family_is_found_at_once() {
    let server = NameServer::start();
    let names = names(&server);
    let (host, name) = within(Duration::from_secs(3), |number| {
        let host = format!("turns{number}.example");
        server.set(&host, Reply::WithNegative(1, parsed(&["10.0.0.1"]), 3600));
        let name = known(&names, &host);
        assert!(until(|| server.queries_by_family(&host).0 > 1));
        server.set(&host, Reply::WithNegative(1, parsed(&["fd00::1"]), 3600));
        let start = Instant::now();
        assert!(until(|| name.answer().addresses == parsed(&["fd00::1"])));
        (start.elapsed(), (host, name))
    });
    let before = server.queries_by_family(&host);
    assert!(until(|| server.queries_by_family(&host).1 > before.1 + 2));
    assert_eq!(server.queries_by_family(&host).0, before.0, "now the other family is absent");
    server.set(&host, Reply::Code(3));
    assert!(until(|| name.answer().failure.is_some()));
    assert_eq!(name.answer().addresses, parsed(&["fd00::1"]));
    server.set(&host, Reply::WithNegative(1, parsed(&["10.0.0.3"]), 3600));
    assert!(until(|| name.answer().addresses == parsed(&["10.0.0.3"])), "all is asked for after a failure");
}

/// A server cannot hide a record type for longer than the settings allow, nor lose addresses by failing for one.
#[test]
fn absences_are_limited_and_failures_of_one_family_lose_nothing() {
    let server = NameServer::start();
    let settings = Settings {
        servers: server.address.to_string(),
        ttl: (Duration::from_secs(1), Duration::from_secs(2)),
        retry: Duration::from_secs(1),
        ..Settings::default()
    };
    let names = Names::new(move || settings.clone());
    server.set("hidden.example", Reply::WithNegative(1, parsed(&["10.0.0.1"]), u32::MAX));
    server.set("half.example", Reply::Addresses(1, parsed(&["10.0.0.1", "fd00::1"])));
    let (hidden, half) = (known(&names, "hidden.example"), known_whole(&names, "half.example"));
    server.set("hidden.example", Reply::Addresses(1, parsed(&["10.0.0.1", "fd00::9"])));
    server.set("half.example", Reply::OrCode(1, parsed(&["10.0.0.2"]), 2));
    assert!(until(|| hidden.answer().addresses == parsed(&["10.0.0.1", "fd00::9"])));
    assert!(until(|| half.answer().addresses == parsed(&["10.0.0.2", "fd00::1"])), "{:?}", half.answer());
    assert_eq!(half.answer().failure, None);
    server.set("half.example", Reply::WithNegative(1, parsed(&["10.0.0.2"]), 1));
    assert!(until(|| half.answer().addresses == parsed(&["10.0.0.2"])), "the absence is certain");
}

/// The first lookup ends with the addresses of one family. The other one may never come.
#[test]
fn a_server_that_answers_for_one_family_delays_no_first_lookup() {
    let server = NameServer::start();
    let names = names(&server);
    let host = within(Duration::from_secs(2), |number| {
        let hosts =
            [(format!("four{number}.example"), "10.0.0.1"), (format!("six{number}.example"), "fd00::1")];
        for (host, address) in &hosts {
            server.set(host, Reply::OrSilence(3600, parsed(&[address])));
        }
        let start = Instant::now();
        for (host, address) in &hosts {
            assert_eq!(known(&names, host).answer().addresses, parsed(&[address]));
        }
        let [(host, _), _] = hosts;
        (start.elapsed(), host)
    });
    assert_eq!(server.queries_by_family(&host).0, 1);
}

/// A family that servers do not answer for is asked for once, not at each refresh, and its addresses are kept.
#[test]
fn a_silent_family_is_asked_for_rarely() {
    let server = NameServer::start();
    let names = names(&server);
    within(Duration::from_secs(3), |number| {
        let hosts = ["only", "both"].map(|kind| format!("{kind}{number}.example"));
        server.set(&hosts[0], Reply::OrSilence(1, parsed(&["10.0.0.1"])));
        server.addresses(&hosts[1], 1, &["10.0.0.1", "fd00::1"]);
        let (only, both) = (known(&names, &hosts[0]), known_whole(&names, &hosts[1]));
        server.set(&hosts[1], Reply::OrSilence(1, parsed(&["10.0.0.2"])));
        let answer = || both.answer();
        assert!(until(|| answer().addresses == parsed(&["10.0.0.2", "fd00::1"])), "{:?}", answer());
        std::thread::sleep(Duration::from_secs(4));
        let seen = hosts.each_ref().map(|host| server.queries_by_family(host));
        server.set(&hosts[0], Reply::OrSilence(1, parsed(&["10.0.0.3"])));
        let start = Instant::now();
        assert!(until(|| only.answer().addresses == parsed(&["10.0.0.3"])), "{:?}", only.answer());
        let took = start.elapsed();
        std::thread::sleep(Duration::from_secs(4));
        for (host, before) in hosts.iter().zip(seen) {
            let after = server.queries_by_family(host);
            assert!(after.0 > before.0 + 2, "{host} is looked up");
            assert_eq!(after.1, before.1, "{host}: the family is left alone for a while");
            assert!(after.1 < 6, "{after:?}");
        }
        assert_eq!((only.answer().failure, both.answer().failure), (None, None));
        (took, ())
    });
}

/// Hundreds of names with a silent family neither delay a changed address nor the first lookups of others.
#[test]
fn silent_families_delay_no_other_name() {
    let server = NameServer::start();
    let names = names(&server);
    within(Duration::from_secs(4), |number| {
        let hosts: Vec<String> = (0..300).map(|n| format!("n{n}x{number}.example")).collect();
        let set = |address: &str| {
            for host in &hosts {
                server.set(host, Reply::OrSilence(1, parsed(&[address])));
            }
        };
        set("10.0.0.1");
        let watch = |host: &String| names.watch(host, Refresh::default()).expect("a thread");
        let all: Vec<_> = hosts.iter().map(watch).collect();
        let start = Instant::now();
        for name in &all {
            assert!(name.wait_until(Instant::now() + PATIENCE));
        }
        let mut slowest = start.elapsed();
        for round in 0..3 {
            std::thread::sleep(Duration::from_millis(1500));
            let address = format!("10.0.1.{round}");
            set(&address);
            let changed = Instant::now();
            assert!(until(|| all.iter().all(|name| name.answer().addresses == parsed(&[&address]))));
            slowest = slowest.max(changed.elapsed());
        }
        (slowest, ())
    });
}

/// The preferred family comes first, and a name that does not exist is asked for once.
#[test]
fn a_first_lookup_asks_for_the_preferred_family() {
    let server = NameServer::start();
    server.addresses("both.example", 60, &["10.0.0.1", "fd00::1"]);
    server.set("both6.example", Reply::OrCode(60, parsed(&["fd00::1"]), 2));
    for (prefer_ipv6, host, queries) in [(false, "none4.example", (1, 0)), (true, "none6.example", (0, 1))] {
        let settings = Settings {
            servers: server.address.to_string(),
            retry: Duration::from_mins(1),
            prefer_ipv6,
            ..Settings::default()
        };
        let names = Names::new(move || settings.clone());
        assert_eq!(known(&names, host).answer().failure.as_deref(), Some("the name does not exist"));
        assert_eq!(server.queries_by_family(host), queries);
        known_whole(&names, "both.example");
        assert_eq!(known(&names, "both6.example").answer().addresses, parsed(&["fd00::1"]));
    }
}

/// Each query waits alone on its socket, and a socket has a new port after some queries.
#[test]
fn ports_of_queries_change() {
    let server = NameServer::start();
    let names = names(&server);
    // A query that a busy machine answers late is sent again from its port.
    let mut repeated = 0;
    for n in 0..200 {
        let host = format!("n{n}.example");
        server.addresses(&host, 60, &["10.0.0.1"]);
        known(&names, &host);
    }
    let ports = server.ports();
    for n in 0..200 {
        let host = format!("n{n}.example");
        let (v4, v6) = server.queries_by_family(&host);
        repeated += server.queries(&host) - v4 - v6;
    }
    assert!(ports.len() >= 8, "{ports:?}");
    assert!(ports.values().all(|queries| *queries <= 32 + repeated), "{ports:?}, {repeated} repeated");
}

#[test]
fn a_truncated_answer_is_asked_for_over_tcp() {
    let server = NameServer::start();
    let many: Vec<IpAddr> = (0..100u8).map(|n| IpAddr::from([10, 0, 1, n])).collect();
    server.set("large.example", Reply::Truncated(60, many.clone()));
    let names = names(&server);
    assert_eq!(known(&names, "large.example").answer().addresses, many[..lacquer_names::LONGEST_ANSWER]);
}

/// An attacker who does not see the queries, and a server whose messages are broken.
#[test]
fn lies_and_junk_are_not_believed() {
    let server = NameServer::start();
    let bad = parsed(&["10.6.6.6"]);
    let loops: [&[u8]; 4] = [
        // A record whose name points to itself, to its own pointer's end, beyond the message, and forward.
        &[0xc0, 0x1f, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 6, 6, 6],
        &[1, b'a', 0xc0, 0x1f, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 6, 6, 6],
        &[0xff, 0xff, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 6, 6, 6],
        &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0xff, 0xff, 10, 6],
    ];
    let mut replies = vec![
        Reply::WrongId(bad.clone()),
        Reply::WrongQuestion(bad.clone()),
        Reply::ForgedSource(bad.clone()),
        Reply::Silence,
        Reply::Addresses(60, parsed(&["0.0.0.0", "::", "224.0.0.1"])),
    ];
    replies.extend(loops.iter().map(|bytes| Reply::Bytes(bytes.to_vec())));
    for (n, reply) in replies.iter().enumerate() {
        server.set(&format!("lie{n}.example"), reply.clone());
    }
    server.set(
        "slow.example",
        Reply::Slow(Duration::from_millis(500), Box::new(Reply::Addresses(9, bad.clone()))),
    );
    let names = names(&server);
    let asked: Vec<_> = (0..replies.len())
        .map(|n| names.watch(&format!("lie{n}.example"), Refresh::default()).unwrap())
        .collect();
    assert_eq!(known(&names, "slow.example").answer().addresses, bad, "others do not delay it");
    for (name, reply) in asked.iter().zip(&replies) {
        assert!(name.wait_until(Instant::now() + PATIENCE), "{reply:?}");
        assert_eq!(name.answer().addresses, [] as [IpAddr; 0], "{reply:?}");
        assert!(name.answer().failure.is_some(), "{reply:?}");
    }
}

#[test]
fn static_names_need_no_server() {
    within(Duration::from_secs(1), |_| {
        let names = Names::new(|| Settings { servers: "127.0.0.1:1".to_owned(), ..Settings::default() });
        let start = Instant::now();
        assert!(known(&names, "LOCALHOST").answer().addresses.contains(&IpAddr::from([127, 0, 0, 1])));
        (start.elapsed(), ())
    });
}

/// Records each change.
#[derive(Default)]
struct Recorder(Mutex<Vec<Answer>>);

impl Listener for Recorder {
    fn changed(&self, answer: &Answer) {
        self.0.lock().unwrap().push(answer.clone());
    }
}

#[test]
fn listeners_hear_of_changes_only_and_unused_names_are_left_alone() {
    let server = NameServer::start();
    server.addresses("steady.example", 1, &["10.0.0.1"]);
    let names = names(&server);
    let name = known(&names, "steady.example");
    let recorder = Arc::new(Recorder::default());
    name.listen(&(recorder.clone() as Arc<dyn Listener>));
    let before = server.queries("steady.example");
    assert!(until(|| server.queries("steady.example") > before + 2), "it is looked up again");
    assert_eq!(recorder.0.lock().unwrap().len(), 1);
    assert!(
        Arc::ptr_eq(&name, &names.watch("Steady.example", Refresh::default()).unwrap()),
        "one name for all users"
    );
    drop(name);
    // A query that was on its way may come late.
    let (deadline, mut after, mut since) = (Instant::now() + PATIENCE, before, Instant::now());
    while since.elapsed() < Duration::from_millis(1500) {
        let now = server.queries("steady.example");
        if now != after {
            (after, since) = (now, Instant::now());
        }
        assert!(Instant::now() < deadline, "a name without users is looked up");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(server.queries("steady.example"), after);
}

/// A process whose name service is dead continues with the answers of the one before it.
#[test]
fn answers_of_another_process_are_used_until_a_lookup_succeeds() {
    let server = NameServer::start();
    server.addresses("a.example", 60, &["10.0.0.1", "fd00::1"]);
    server.set("_http._tcp.example", Reply::Services(60, vec![(10, 5, 81, "b.example".to_owned())]));
    let first = names(&server);
    let _a = known_whole(&first, "a.example");
    let service = first.watch_service("_http._tcp.example", Refresh::default()).expect("a thread");
    let _missing = known(&first, "missing.example");
    assert!(service.wait_until(Instant::now() + PATIENCE));
    assert!(until(|| first.known(0).is_some_and(|(changes, _)| changes == 3)), "all answers have come");
    let (changes, text) = first.known(0).expect("a text");
    assert!(first.known(changes).is_none(), "nothing has changed since");
    let lines = |names: &Names| {
        let (_, text) = names.known(0).expect("a text");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };

    for reply in [Reply::Silence, Reply::Code(2)] {
        server.set("a.example", reply.clone());
        server.set("_http._tcp.example", reply.clone());
        let next = names(&server);
        next.take_known(&text);
        assert_eq!(lines(&next), lines(&first), "without a user");
        let recorder = Arc::new(Recorder::default());
        let a = next.watch("A.example", Refresh::default()).expect("a thread");
        a.listen(&(recorder.clone() as Arc<dyn Listener>));
        assert_eq!(recorder.0.lock().unwrap()[0].addresses, parsed(&["10.0.0.1", "fd00::1"]), "{reply:?}");
        assert!(a.is_usable());
        let other = next.watch("missing.example", Refresh::default()).expect("a thread");
        assert!(other.answer().addresses.is_empty());
        let service = next.watch_service("_http._tcp.example", Refresh::default()).expect("a thread");
        assert_eq!(service.answer().places[0].port, 81);
        assert_eq!(lines(&next), lines(&first), "with users");
        if !matches!(reply, Reply::Silence) {
            assert!(a.wait_until(Instant::now() + PATIENCE));
            assert!(a.answer().failure.is_some());
            assert_eq!(a.answer().addresses, parsed(&["10.0.0.1", "fd00::1"]), "{reply:?}");
            server.addresses("a.example", 60, &["10.0.0.2"]);
            assert!(until(|| a.answer().addresses == parsed(&["10.0.0.2"])), "a lookup replaces them");
        }
    }
}

#[test]
fn services_have_places_by_priority() {
    let server = NameServer::start();
    let place = |priority, weight, port, host: &str| (priority, weight, port, host.to_owned());
    let places = vec![place(20, 1, 80, "b.example"), place(10, 5, 81, "A.example"), place(30, 0, 1, "")];
    server.set("_http._tcp.example", Reply::Services(1, places));
    let names = names(&server);
    let name = names.watch_service("_http._tcp.example", Refresh::default()).expect("a thread");
    assert!(name.wait_until(Instant::now() + PATIENCE));
    let found: Vec<_> = name.answer().places.into_iter().map(|place| (place.host, place.port)).collect();
    assert_eq!(found, [("a.example".to_owned(), 81), ("b.example".to_owned(), 80)]);
    server.set("_http._tcp.example", Reply::Code(3));
    assert!(until(|| name.answer().failure.is_some()));
    assert_eq!(name.answer().places.len(), 2, "the last places are kept");
}
