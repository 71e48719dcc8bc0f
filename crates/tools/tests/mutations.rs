//! Changed texts: each is formatted and upgraded, or has an error. With `FUZZ_SECONDS=n` the test runs for n seconds, with
//! other texts in each run.

use std::time::{Duration, Instant};

use lacquer_testing::Random;
use lacquer_tools::{format, upgrade};

const OLD: &str = "vcl 4.1; # version\nbackend a { .host = \"127.0.0.1\"; .probe = { .url = \"/\"; } }\n\
    director d random { { .backend = a; .weight = 2; } { .backend = { .host = \"b\"; } } }\n\
    acl l +log { ! \"10.0.0.1\"/8; /* in\n it */ (\"host\"); }\n\
    sub vcl_fetch { if (req.url ~ \"a\" \"b\" || !(obj.ttl == 1.5s)) { set req.http.x = {\"y\n\"} now; } # no\n\
    else { error 404 \"x\"; } restart; C{ int i; }C purge; esi; return (hit_for_pass); }\n\
    sub vcl_hit { set obj.ttl = 0s; set obj.ttl = 5m; return (fetch); std.log(\"x\", y=-1); synthetic \"a\" b; }\n\
    sub vcl_miss { set bereq.http.a = req.http.b; if (req.url ~ \"c\") { unset bereq.http.d; } else { error (404) \"x\"; } fetch; }\n\
    sub vcl_pass { call h; pass; } sub h { set bereq.url = \"/\"; }\n";

const NEW: &str = "vcl 4.1; # version\nimport std;backend a { .host = \"127.0.0.1\"; .probe = { .url = \"/\"; } }\n\
    acl l +log { ! \"10.0.0.1\"/8; /* in\n it */ (\"host\"); }\n\
    sub x { if (req.url ~ \"a\" + \"b\" || !(obj.ttl == 1.5s)) { set req.http.x = {\"y\n\"} +\n now; } # no\n\
    else { return (synth(404, \"x\")); }\n\n\n /* a */ std.log(\"x\", // b\n y=-1); call x; return; }\n";

/// A text may end anywhere, also in the middle of a value.
#[test]
fn every_beginning_of_a_text_has_a_result() {
    for text in [OLD, NEW] {
        for (at, _) in text.char_indices() {
            for more in ["", ".", "-", "1", " ", ".probe = .", ".a = -"] {
                let text = [&text[..at], more].concat();
                let _ = (format("x", text.as_bytes()), upgrade("x", text.as_bytes(), None));
            }
        }
    }
    let error = format("x", b"vcl 4.1; backend a { .host = a.").expect_err("it ends in a value");
    assert!(error.pretty().contains("not the end of the text"), "{}", error.pretty());
}

#[test]
fn no_text_breaks_the_tools() {
    let words_of = |text: &'static str| text.split_inclusive([' ', ';', '.', '(', '\n', '{', '}']).collect();
    let seeds: [Vec<&str>; 2] = [OLD, NEW].map(words_of);
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let mut random = Random(if seconds.is_some() { std::process::id().into() } else { 7 });
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let (mut done, mut formatted, mut upgraded) = (0, 0, 0);
    while done < 20_000 || Instant::now() < end {
        done += 1;
        let words = &seeds[done % 2];
        let mut text = words.clone();
        for _ in 0..random.below(4) {
            let (a, b) = (random.index(text.len()), random.index(text.len()));
            match random.below(5) {
                0 | 1 => drop(text.remove(a)),
                2 => text.insert(a, words[b % words.len()]),
                3 => text.swap(a, b),
                _ => drop(text.drain(a.min(b)..a.max(b).min(a.min(b) + 30))),
            }
            if text.is_empty() {
                text.push(";");
            }
        }
        let mut text = text.concat().into_bytes();
        for _ in 0..random.below(2) {
            let at = random.index(text.len());
            let any = random.below(256) as u8;
            text[at] = random.one(&[
                b'"', b'{', b'}', b';', b'\n', b'\n', b' ', b'\t', b'\r', b'#', b'*', b'/', 0, 0xe9, any,
            ]);
        }
        if random.below(8) == 0 {
            text.truncate(random.index(text.len()) + 1);
        }
        let shown = String::from_utf8_lossy(&text).into_owned();
        match format("x", &text) {
            Ok(first) => {
                formatted += 1;
                let again = format("x", &first).map_err(|error| error.pretty());
                assert_eq!(
                    again.as_deref().map(String::from_utf8_lossy),
                    Ok(String::from_utf8_lossy(&first)),
                    "{shown}"
                );
            }
            Err(error) => assert!(!error.pretty().contains("change of its meaning"), "{shown}"),
        }
        match upgrade("x", &text, None) {
            Ok(_) => upgraded += 1,
            Err(error) => assert!(!error.pretty().is_empty(), "{shown}"),
        }
    }
    eprintln!("{done} texts: {formatted} formatted, {upgraded} upgraded");
    assert!(formatted > done / 40 && upgraded > done / 20, "{formatted}, {upgraded} of {done}");
}
