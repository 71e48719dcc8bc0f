//! Records that clients, origins and damaged logs produce.

use super::*;
use lacquer_testing::Random;

const HOSTILE: [&[u8]; 10] = [
    b"\x1b[2J\x1b]0;owned\x07",
    b"\x9b31m\x90q\x9c",
    "\u{9b}31m\u{202e}gpj.exe".as_bytes(),
    b"\xff\xfe\x80\xc3(\xe2\x82",
    "日本語🦀ｗｉｄｅ".as_bytes(),
    "e\u{301}\u{301}\u{301}\u{fe0f}\u{200d}".as_bytes(),
    b"",
    b"\r\n\t\x08\x7f\0",
    b"-1 99999999999999999999 nan inf",
    b"host:\x1b]8;;http://evil\x1b\\",
];

fn assert_is_harmless(text: &str) {
    for c in text.chars() {
        assert!(!c.is_control() && lacquer_live::width::char_width(c) > 0, "{c:?} in {text:?}");
    }
}

fn check(event: &Event) {
    match event {
        Event::Request(seen) => {
            assert_is_harmless(&seen.url);
            assert!(seen.wait.is_finite() && seen.wait >= 0.0);
        }
        Event::Fetch(seen) => {
            assert_is_harmless(&seen.origin);
            assert!(seen.wait.is_finite() && seen.wait >= 0.0);
        }
    }
}

#[test]
fn a_request_and_its_fetch_are_parsed() {
    let mut collector = Collector::default();
    let of_session = collect(&mut collector, 1, &[(Tag::Begin, b"sess 0 HTTP/1"), (Tag::End, b"")]);
    assert_eq!(of_session, []);
    let events = collect(
        &mut collector,
        3,
        &[
            (Tag::Begin, b"bereq 2 fetch"),
            (Tag::VCL_use, b"boot via label"),
            (Tag::BackendOpen, b"26 default 127.0.0.1 80 127.0.0.1 5000 connect"),
            (Tag::BerespStatus, b"502"),
            (Tag::Timestamp, b"Beresp: 1795766659.4 0.3 0.25"),
            (Tag::End, b""),
        ],
    );
    assert_eq!(events, [fetch("boot.default", Some(502), 0.25)]);
    let events = collect(
        &mut collector,
        5,
        &[
            (Tag::Begin, b"bereq 2 pass"),
            (Tag::VCL_use, b"boot"),
            (Tag::FetchError, b"backend dead: fail errno 111 (Connection refused)"),
            (Tag::BerespStatus, b"503"),
            (Tag::End, b""),
        ],
    );
    assert_eq!(events, [fetch("boot.dead", None, 0.0)]);
    let events = collect(
        &mut collector,
        2,
        &[
            (Tag::Begin, b"req 1 rxreq"),
            (Tag::Timestamp, b"Start: 1795766659.0 0.0 0.0"),
            (Tag::ReqMethod, b"GET"),
            (Tag::ReqURL, b"/a"),
            (Tag::ReqHeader, b"Host: h"),
            (Tag::ReqHeader, b"Cookie: not kept"),
            (Tag::VCL_call, b"MISS"),
            (Tag::RespStatus, b"200"),
            (Tag::Timestamp, b"Process: 1795766659.5 0.5 0.0"),
            (Tag::Timestamp, b"Resp: 1795766669.5 10.5 10.0"),
            (Tag::ReqAcct, b"1 2 3 4 5 100"),
            (Tag::End, b""),
        ],
    );
    assert_eq!(events, [request("h/a", "miss", 0.5)]);
    // Counters have the health of origins.
    assert_eq!(
        collector.add(&record(Tag::Backend_health, 0, b"default Went sick -------- 2 3 8 0.0 0.0")),
        None
    );
}

#[test]
fn the_host_ends_where_the_url_begins() {
    let rewritten: [(&[u8], &[u8], &str); 4] = [
        (b"Host: c", b"minute/x", "c minute/x"),
        (b"Host: c", b"", "c "),
        (b"Host: c/d", b"/x", "c/d /x"),
        (b"Host: c", b"/y", "c/y"),
    ];
    for (host, url, shown) in rewritten {
        let records: [(Tag, &[u8]); 9] = [
            (Tag::Begin, b"req 1 rxreq"),
            (Tag::ReqMethod, b"GET"),
            (Tag::ReqURL, b"/minute/x"),
            (Tag::ReqHeader, b"Host: c"),
            (Tag::ReqURL, url),
            (Tag::ReqHeader, host),
            (Tag::VCL_call, b"HASH"),
            (Tag::VCL_call, b"MISS"),
            (Tag::End, b""),
        ];
        let events = collect(&mut Collector::default(), 2, &records);
        let [Event::Request(seen)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((seen.url.as_str(), seen.asked.as_deref()), (shown, Some("c/minute/x")));
    }
}

#[test]
fn nothing_that_a_terminal_interprets_is_kept() {
    for text in HOSTILE {
        for other in HOSTILE {
            let mut collector = Collector::default();
            let joined = [b"backend ".as_slice(), text, b": fail"].concat();
            let host = [b"Host: ".as_slice(), other].concat();
            let events = [
                collect(
                    &mut collector,
                    7,
                    &[
                        (Tag::Begin, b"req 1 rxreq"),
                        (Tag::ReqMethod, text),
                        (Tag::ReqURL, text),
                        (Tag::ReqHeader, &host),
                        (Tag::Timestamp, text),
                        (Tag::Hit, text),
                        (Tag::RespStatus, text),
                        (Tag::ReqAcct, text),
                        (Tag::End, b""),
                    ],
                ),
                collect(
                    &mut collector,
                    8,
                    &[
                        (Tag::Begin, b"bereq 1 fetch"),
                        (Tag::VCL_use, other),
                        (Tag::FetchError, &joined),
                        (Tag::BackendOpen, text),
                        (Tag::Timestamp, b"Beresp: nan inf -inf"),
                        (Tag::End, b""),
                    ],
                ),
            ];
            events.iter().flatten().for_each(check);
            let mut state = State::new("name", 0.0);
            for event in events.into_iter().flatten() {
                state.event(1.0, event);
            }
            let snapshot = state.snapshot(2.0, 0.0);
            for line in crate::panel::text(&snapshot).lines() {
                assert!(!line.contains(char::is_control), "{line:?}");
            }
            let json = snapshot.json().to_string();
            assert!(!json.contains(|c: char| c.is_control()), "{json:?}");
        }
    }
}

#[test]
fn random_records_and_endless_transactions_keep_memory_bounded() {
    let mut random = Random(21);
    let mut collector = Collector::default();
    let tags = [
        Tag::Begin,
        Tag::End,
        Tag::ReqURL,
        Tag::ReqHeader,
        Tag::Timestamp,
        Tag::VCL_call,
        Tag::BackendOpen,
        Tag::Backend_health,
        Tag::ReqAcct,
        Tag::FetchError,
    ];
    for _ in 0..50_000 {
        let tag = tags[random.below(tags.len() as u64) as usize];
        let text: Vec<u8> = match random.below(3) {
            0 => HOSTILE[random.below(10) as usize].to_vec(),
            1 => b"req 1 rxreq".to_vec(),
            _ => (0..random.below(30)).map(|_| random.number() as u8).collect(),
        };
        if let Some(event) = collector.add(&record(tag, random.below(20), &text)) {
            check(&event);
        }
    }
    // Transactions that never end.
    for vxid in 100..60_000 {
        assert_eq!(collector.add(&record(Tag::Begin, vxid, b"req 1 rxreq")), None);
    }
    assert!(collector.add(&record(Tag::End, 100, b"")).is_none(), "the oldest one was forgotten");
    assert!(collector.add(&record(Tag::End, 59_999, b"")).is_some());
}
