//! Bans and their lurker: one scenario with Varnish's counts, and a model.

use super::*;
use crate::bans::{LurkerParams, Verdict};

const EAGER: LurkerParams = LurkerParams { sleep: 0.01, age: 0.0, batch: 8, cutoff: 0 };

fn ban(w: &World, text: &str) {
    w.tick(0.01);
    let words: Vec<_> = text.split(' ').collect();
    w.cache.ban(&words, w.now.get());
}

fn lurk(w: &World, params: LurkerParams) -> f64 {
    w.tick(0.01);
    let mut log = |text: &str| w.log.borrow_mut().push(text.to_owned());
    w.cache.lurk(w.now.get(), params, &mut |_| {}, &mut log)
}

fn get(w: &World, key: u64, request: &str) -> Outcome {
    let request = Request(format!("/{key}"), request.to_owned());
    with_args(w.now.get(), &request, |_| {}, |args| outcome(&w.cache.lookup(&digest(key), args, None)))
}

#[track_caller]
fn expect(w: &World, counts: &[(&str, u64)]) {
    for (name, value) in counts {
        assert_eq!(w.stat(name), *value, "{name}");
    }
}

/// The counts are those of Varnish's case c00049.
#[test]
fn the_lurker_counts_as_varnish_does() {
    let w = World::new(None);
    let heads: [&[u8]; 8] = [
        b"Foo: bar1",
        b"Foo: bar2",
        b"Foo: bar3",
        b"Foo: bar4",
        b"Foo: bar5",
        b"Foo: bar6",
        b"Foo: bar7",
        b"Foo: bar8",
    ];
    let foo = |key: u64| {
        w.fill(key, 120.0, |s| s.head = heads[key as usize - 1]);
    };
    foo(1);
    foo(2);
    ban(&w, "obj.http.foo == bar1");
    foo(3);
    ban(&w, "obj.http.foo == bar2 && obj.http.foo != foof");
    foo(4);
    ban(&w, "req.http.kill == yes");
    foo(5);
    ban(&w, "obj.http.foo == bar5");
    foo(6);
    ban(&w, "obj.http.foo == bar6");
    foo(7);
    expect(&w, &[("bans", 6), ("bans_completed", 1), ("bans_req", 1), ("bans_obj", 4), ("bans_added", 6)]);
    assert_eq!(lurk(&w, LurkerParams { sleep: 0.0, ..EAGER }), 49.62);
    expect(&w, &[("bans", 6), ("bans_deleted", 0), ("bans_tested", 0), ("bans_lurker_tested", 0)]);

    lurk(&w, EAGER);
    expect(&w, &[("bans", 4), ("bans_completed", 3), ("bans_req", 1), ("bans_obj", 3)]);
    expect(&w, &[("bans_deleted", 2), ("bans_tested", 0), ("bans_tests_tested", 0)]);
    expect(&w, &[("bans_lurker_tested", 10), ("bans_lurker_tests_tested", 11)]);
    expect(&w, &[("bans_lurker_obj_killed", 4), ("bans_dups", 0), ("n_object", 3)]);

    assert!(matches!(get(&w, 3, ""), Outcome::Hit(_)));
    lurk(&w, EAGER);
    expect(&w, &[("bans", 4), ("bans_tested", 1), ("bans_tests_tested", 1), ("bans_obj_killed", 0)]);
    expect(&w, &[("bans_deleted", 2), ("bans_lurker_tested", 10)]);

    assert_eq!(get(&w, 4, "kill: yes"), Outcome::Miss(None));
    lurk(&w, EAGER);
    expect(&w, &[("bans", 1), ("bans_completed", 1), ("bans_req", 0), ("bans_obj", 1)]);
    expect(&w, &[("bans_deleted", 5), ("bans_tested", 2), ("bans_tests_tested", 2)]);
    expect(&w, &[("bans_obj_killed", 1), ("bans_lurker_tested", 10), ("n_object", 2)]);

    // Beyond the cutoff, objects are removed without a check.
    foo(8);
    for i in 1..=5 {
        ban(&w, &format!("obj.http.nomatch == {i}"));
    }
    let patient = LurkerParams { age: 60.0, cutoff: 4, ..EAGER };
    assert!(lurk(&w, patient) < 60.0);
    expect(&w, &[("bans", 6), ("n_object", 3)]);
    lurk(&w, LurkerParams { cutoff: 4, ..EAGER });
    expect(&w, &[("bans", 1), ("bans_lurker_obj_killed_cutoff", 3), ("n_object", 0)]);
    expect(&w, &[("bans_lurker_tested", 10), ("bans_added", 11), ("bans_deleted", 10)]);
    assert!(w.log.borrow().iter().any(|t| t == "1001 banned by lurker"));
    assert!(w.log.borrow().iter().any(|t| t == "1008 killed for lurker cutoff"));
}

#[test]
#[cfg_attr(miri, ignore = "calls PCRE2")]
fn conditions_of_all_kinds_are_evaluated() {
    let cases: &[(&[&str], bool)] = &[
        (&["req.url", "==", "/1"], true),
        (&["req.url", "!=", "/1"], false),
        (&["req.url", "~", "^/[0-9]$"], true),
        (&["req.url", "!~", "^/[0-9]$"], false),
        (&["req.http.none", "==", "x"], false),
        (&["req.http.none", "!=", "x"], true),
        (&["req.http.none", "!~", "x"], false),
        (&["obj.http.Foo", "==", "bar"], true),
        (&["obj.http.foo", "~", "BAR"], false),
        (&["obj.http.foo", "~", "(?i)BAR"], true),
        (&["obj.status", "==", "200"], true),
        (&["obj.status", "!=", "200"], false),
        (&["obj.ttl", ">", "1m"], true),
        (&["obj.ttl", ">", "1h"], false),
        (&["obj.ttl", ">=", "100s"], false),
        (&["obj.age", ">", "5s"], true),
        (&["obj.age", "<", "5s"], false),
        (&["obj.grace", "==", "10s"], true),
        (&["obj.grace", "<=", "9s"], false),
        (&["obj.keep", "!=", "0s"], false),
        (&["obj.status", "==", "200", "&&", "req.url", "==", "/2"], false),
    ];
    for (words, hits) in cases {
        let w = World::new(None);
        w.fill(1, 100.0, |s| s.timers.grace = 10.0);
        w.tick(10.0);
        w.cache.ban(words, w.now.get());
        let got = get(&w, 1, "");
        assert_eq!(got == Outcome::Miss(None), *hits, "{words:?}");
        assert_eq!(w.stat("bans_obj_killed"), u64::from(*hits));
    }
}

#[test]
#[cfg_attr(miri, ignore = "calls PCRE2")]
fn duplicates_are_completed_and_the_list_shows_them() {
    let w = World::new(None);
    ban(&w, "obj.http.Host ~ \"Foo\"");
    ban(&w, "obj.ttl > 1d");
    ban(&w, "obj.ttl > 1d");
    ban(&w, "obj.grace != 10s && req.url ~ a");
    ban(&w, "obj.grace != 10s && req.url ~ a");
    w.fill(1, 10.0, |_| {});
    expect(&w, &[("bans_dups", 1), ("bans_completed", 2)]);
    let text = text_of(&w);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "Present bans:");
    assert_eq!(lines[1], "1700000000.050000     1 -  obj.grace != 10s && req.url ~ a");
    assert_eq!(lines[2], "1700000000.040000     0 C  ");
    assert_eq!(lines[3], "1700000000.030000     0 -  obj.ttl > 1d");
    assert_eq!(lines[5], "1700000000.010000     0 -  obj.http.Host ~ \"Foo\"");
    assert_eq!(lines[6], "1700000000.000000     0 C  ");
    let json = w.cache.bans().json(false);
    let last = "  {\n    \"time\": 1700000000.000000,\n    \"refs\": 0,\n    \"completed\": true,\n    \
                \"spec\": \"\"\n  }";
    assert!(json.ends_with(last), "{json}");
    assert!(json.contains(r#""spec": "obj.http.Host ~ \"Foo\"""#), "{json}");
}

/// Header fields and URLs may contain bytes that are not UTF-8, and a ban may have to name them.
#[test]
#[cfg_attr(miri, ignore = "calls PCRE2")]
fn bytes_that_are_not_utf8_are_banned_and_listed() {
    let cases: [[&[u8]; 3]; 2] = [[b"obj.http.Foo", b"==", b"caf\xe9"], [b"obj.http.Foo", b"~", b"f\xe9$"]];
    for words in cases {
        let w = World::new(None);
        w.fill(1, 120.0, |s| s.head = b"Foo: caf\xe9");
        w.fill(2, 120.0, |s| s.head = "Foo: caf\u{fffd}".as_bytes());
        w.tick(0.01);
        w.cache.ban(&words, w.now.get());
        assert_eq!(get(&w, 1, ""), Outcome::Miss(None));
        assert!(matches!(get(&w, 2, ""), Outcome::Hit(_)));
        let listed = words.join(&b' ');
        let text = w.cache.bans().text(false);
        assert!(text.windows(listed.len()).any(|part| part == listed), "{text:?}");
        assert!(w.cache.bans().json(false).contains("\u{fffd}"));
    }
}

/// Looks up with a time slice that ends after `groups` groups of bans.
fn get_within(w: &World, key: u64, groups: u32) -> Outcome {
    let request = Request(format!("/{key}"), String::new());
    let asked = Cell::new(0);
    let pause = || asked.replace(asked.get() + 1) >= groups;
    with_args(
        w.now.get(),
        &request,
        |args| args.pause = &pause,
        |args| outcome(&w.cache.lookup(&digest(key), args, None)),
    )
}

#[test]
#[cfg_attr(miri, ignore = "takes a thousand bans")]
fn many_bans_are_tested_in_slices() {
    let w = World::new(None);
    for key in 1..=3 {
        w.fill(key, 1e6, |s| s.head = b"Foo: bar");
    }
    (0..1000).for_each(|i| ban(&w, &format!("obj.http.foo == {i}")));
    assert_eq!(get_within(&w, 1, 0), Outcome::Unfinished, "nothing is tested without a time slice");
    expect(&w, &[("bans_tests_tested", 0), ("bans_tested", 0)]);
    assert_eq!(get_within(&w, 1, 1), Outcome::Unfinished);
    expect(&w, &[("bans_tests_tested", 64), ("bans_tested", 0)]);
    let turns = (0..100).take_while(|_| get_within(&w, 1, 2) == Outcome::Unfinished).count();
    assert!(turns < 8, "{turns} slices, although each continues where the last one stopped");
    expect(&w, &[("bans_tests_tested", 1000), ("bans_tested", 1)]);
    // A ban and a purge between two time slices.
    assert_eq!(get_within(&w, 2, 3), Outcome::Unfinished);
    assert_eq!(get_within(&w, 3, 3), Outcome::Unfinished);
    ban(&w, "obj.http.foo == bar");
    w.cache.purge(3, Purge::Hard, w.now.get());
    assert_eq!(get_within(&w, 3, 1), Outcome::Miss(None));
    assert_eq!(get_within(&w, 2, 100), Outcome::Miss(None));
    expect(&w, &[("bans_obj_killed", 1), ("n_object", 1)]);
    assert_eq!(get_within(&w, 1, 0), Outcome::Miss(None), "a short list needs no time slice");
    lurk(&w, EAGER);
    expect(&w, &[("bans", 1), ("bans_deleted", 1001)]);
}

#[test]
#[cfg_attr(miri, ignore = "calls PCRE2")]
fn a_condition_that_exceeds_the_match_limit_bans() {
    let w = World::new(None);
    w.fill(1, 1e6, |s| s.head = b"Foo: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab");
    ban(&w, "obj.http.foo !~ ^(a+)+$");
    assert_eq!(get(&w, 1, ""), Outcome::Miss(None));
}

/// An object is served exactly as long as no newer ban hits it, for any request.
#[test]
fn bans_agree_with_a_model() {
    for seed in 1..=if cfg!(miri) { 1 } else { 8 } {
        println!("seed {seed}");
        run_model(seed);
    }
}

/// A ban: the value of the object's header, and perhaps that of the request's header.
#[derive(Clone, Copy)]
struct Wanted {
    foo: u64,
    kill: Option<u64>,
}

struct Known {
    key: u64,
    foo: u64,
    pending: Vec<Wanted>,
}

const FOO: [&[u8]; 6] = [b"Foo: 0", b"Foo: 1", b"Foo: 2", b"Foo: 3", b"Foo: 4", b"Foo: 5"];

fn run_model(seed: u64) {
    let w = World::new(None);
    let mut random = Random(seed);
    let mut known: Vec<Known> = Vec::new();
    for step in 0..rounds(3000) as u64 {
        match random.below(10) {
            0..3 => {
                let foo = random.below(6);
                w.fill(step, 1e6, |s| s.head = FOO[foo as usize]);
                known.push(Known { key: step, foo, pending: Vec::new() });
            }
            3 => {
                let foo = random.below(6);
                let kill = (random.below(2) == 0).then(|| random.below(3));
                let request = kill.map_or(String::new(), |k| format!(" && req.http.kill == {k}"));
                ban(&w, &format!("obj.http.foo == {foo}{request}"));
                for k in &mut known {
                    k.pending.push(Wanted { foo, kill });
                }
            }
            4 => {
                lurk(&w, EAGER);
                let lurker_kills = |k: &Known| k.pending.iter().any(|b| b.kill.is_none() && b.foo == k.foo);
                known.retain(|k| !lurker_kills(k));
            }
            _ if !known.is_empty() => {
                let at = random.index(known.len());
                let kill = random.below(4);
                let k = &mut known[at];
                let hit = k.pending.iter().any(|b| b.foo == k.foo && b.kill.is_none_or(|x| x == kill));
                let got = get(&w, k.key, &format!("kill: {kill}"));
                if hit {
                    assert_eq!(got, Outcome::Miss(None));
                    known.swap_remove(at);
                } else {
                    assert!(matches!(got, Outcome::Hit(_)));
                    k.pending.clear();
                }
            }
            _ => {}
        }
        assert_eq!(w.stat("n_object"), known.len() as u64);
        let refs: i64 = text_of(&w).lines().skip(1).map(refs).sum();
        assert_eq!(refs, known.len() as i64, "every object refers to one ban");
    }
}

fn text_of(w: &World) -> String {
    String::from_utf8(w.cache.bans().text(false)).expect("it is UTF-8")
}

fn refs(line: &str) -> i64 {
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a count")
}

/// An object that a fetch validates is checked again when the origin confirms it.
#[test]
fn banned_and_purged_objects_are_not_confirmed() {
    let w = World::new(None);
    let fill = |key| w.fill(key, 120.0, |s| s.head = b"Foo: bar");
    let recheck =
        |object: &Object| w.cache.recheck(object, &Request("/1".to_owned(), String::new()), &|| false);
    let object = fill(1);
    assert_eq!(recheck(&object), Verdict::Clear);
    ban(&w, "req.url == /2");
    assert_eq!(recheck(&object), Verdict::Clear, "the ban is for another page");
    ban(&w, "req.url == /1");
    assert_eq!(recheck(&object), Verdict::Banned);
    assert_eq!(get(&w, 1, ""), Outcome::Miss(None));
    let object = fill(1);
    assert_eq!(recheck(&object), Verdict::Clear, "the bans are older");
    w.cache.kill(&object);
    assert_eq!(recheck(&object), Verdict::Banned);
}

/// Publishes an object whose body arrives afterwards. Returns it as requests get it before and after its end, when it is
/// moved into one span.
fn fill_slowly(w: &World, key: u64) -> [Arc<Object>; 2] {
    let Lookup::Miss { busy, .. } = w.lookup(key) else { unreachable!("it is not there yet") };
    let (early, mut writer) = w.begin(&w.spec(120.0));
    busy.publish(&early);
    w.write(&mut writer, b"hello");
    let late = w.cache.finish(Arc::clone(&early), writer);
    assert!(!Arc::ptr_eq(&early, &late), "it is moved");
    [early, late]
}

/// A fetch may validate an object that was moved since it was found. The ban that other objects refer to must stay.
#[test]
fn moved_objects_are_counted_once() {
    let w = World::new(None);
    ban(&w, "obj.http.Foo == none");
    let other = w.fill(2, 120.0, |s| s.head = b"Foo: other");
    let [early, late] = fill_slowly(&w, 1);
    ban(&w, "req.url == /none");
    let request = Request("/1".to_owned(), String::new());
    for object in [&late, &early] {
        assert_eq!(w.cache.recheck(object, &request, &|| false), Verdict::Clear);
    }
    let counts: Vec<i64> = text_of(&w).lines().skip(1).map(refs).collect();
    assert_eq!(counts, [1, 1, 0]);
    ban(&w, "obj.http.Foo == other");
    w.tick(100.0);
    lurk(&w, EAGER);
    assert_eq!(get(&w, 2, ""), Outcome::Miss(None), "{} is banned", other.vxid());
}

/// The lurker skips an object that a lookup advances meanwhile, and the lookup may not have tested all bans.
#[test]
#[cfg_attr(miri, ignore = "takes hundreds of bans")]
fn a_lookup_in_slices_during_a_pass_leaves_no_ban_untested() {
    let w = World::new(None);
    w.fill(1, 1e6, |s| s.head = b"Foo: bar");
    (0..200).for_each(|i| ban(&w, &format!("obj.http.foo == {i}")));
    ban(&w, "obj.http.foo == bar");
    w.tick(0.01);
    let mut has_begun = false;
    let mut pace = |_: f64| {
        if !std::mem::replace(&mut has_begun, true) {
            assert_eq!(get_within(&w, 1, 1), Outcome::Unfinished);
        }
    };
    w.cache.lurk(w.now.get(), EAGER, &mut pace, &mut |_| {});
    assert!(has_begun);
    assert_eq!(get(&w, 1, ""), Outcome::Miss(None));
    lurk(&w, EAGER);
    expect(&w, &[("bans", 1), ("n_object", 0)]);
}

/// Threads, another process or a clock that was set back may bring bans whose times are not in the order of the list.
#[test]
fn the_lurker_tests_a_later_ban_behind_an_earlier_one() {
    for between in [None, Some(["req.http.kill", "==", "yes"])] {
        let w = World::new(None);
        w.fill(1, 1000.0, |s| s.head = b"Foo: bar1");
        let now = w.now.get();
        w.cache.ban(&["obj.http.foo", "==", "bar1"], now + 2.0);
        if let Some(words) = between {
            w.cache.ban(&words, now);
        }
        w.cache.ban(&["obj.http.none", "==", "x"], now);
        let patient = LurkerParams { age: 60.0, ..EAGER };
        for age in [61.0, 63.0] {
            w.now.set(now + age);
            lurk(&w, patient);
        }
        assert_eq!(get(&w, 1, ""), Outcome::Miss(None), "{between:?}");
    }
}
