//! The front table never returns an object that the index would not return.

use super::*;

fn get(w: &World, front: &mut FrontTable, key: u64, request: &Request) -> Outcome {
    with_args(w.now.get(), request, |_| {}, |args| outcome(&front.lookup(&w.cache, &digest(key), args, None)))
}

fn is_local(w: &World, front: &mut FrontTable, key: u64) -> bool {
    with_args(
        w.now.get(),
        &Request::default(),
        |_| {},
        |args| match front.lookup(&w.cache, &digest(key), args, None) {
            Lookup::Hit(object) => object.is_local(),
            _ => false,
        },
    )
}

#[test]
fn changes_of_the_index_end_hits_in_the_front_table() {
    let w = World::new(None);
    let mut front = FrontTable::new(64);
    let plain = Request::default();
    let object = w.fill(1, 10.0, |_| {});
    let x = object.vxid();
    for _ in 0..3 {
        assert_eq!(get(&w, &mut front, 1, &plain), Outcome::Hit(x));
    }
    assert!(is_local(&w, &mut front, 1), "a hot object is served from the front");
    assert_eq!(object.hits(), 4);
    drop(object);

    // Soft purge, hard purge.
    w.tick(1.0);
    let soft = Purge::Soft { ttl: 0.0, grace: Some(0.0), keep: Some(0.0) };
    assert_eq!(w.cache.purge(1, soft, w.now.get()), 1);
    w.tick(0.1);
    assert_eq!(get(&w, &mut front, 1, &plain), Outcome::Miss(Some(x)));
    w.fill(1, 10.0, |_| {});
    assert_eq!((0..3).map(|_| is_local(&w, &mut front, 1)).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(w.cache.purge(1, Purge::Hard, w.now.get()), 2);
    assert_eq!(get(&w, &mut front, 1, &plain), Outcome::Miss(None));

    // Expiry by time alone.
    w.fill(1, 10.0, |_| {});
    assert_eq!((0..3).map(|_| is_local(&w, &mut front, 1)).collect::<Vec<_>>(), [false, false, true]);
    w.tick(10.1);
    assert!(matches!(get(&w, &mut front, 1, &plain), Outcome::Miss(Some(_))));

    // A ban on the request.
    w.fill(1, 10.0, |_| {});
    assert_eq!((0..3).map(|_| is_local(&w, &mut front, 1)).collect::<Vec<_>>(), [false, false, true]);
    w.cache.ban(&["req.http.kill", "==", "yes"], w.now.get());
    assert!(matches!(get(&w, &mut front, 1, &plain), Outcome::Hit(_)));
    let kill = Request(String::new(), "kill: yes".into());
    w.cache.ban(&["req.http.kill", "==", "yes"], w.now.get());
    assert_eq!(get(&w, &mut front, 1, &kill), Outcome::Miss(None));

    // A newer object.
    w.fill(1, 10.0, |_| {});
    assert!((0..3).any(|_| is_local(&w, &mut front, 1)));
    let newer = w.fill(1, 10.0, |_| {});
    assert_eq!(get(&w, &mut front, 1, &plain), Outcome::Hit(newer.vxid()));
}

/// Random changes by others; after each, front and index must agree.
#[test]
fn the_front_table_agrees_with_the_index() {
    for seed in 1..=if cfg!(miri) { 1 } else { 4 } {
        println!("seed {seed}");
        let w = World::new(Some(4 << 20));
        let mut fronts = [FrontTable::new(16), FrontTable::new(64)];
        let mut random = Random(seed);
        let mut local = 0;
        for _ in 0..rounds(20_000) {
            let key = random.below(20);
            match random.below(200) {
                0..8 => drop(w.fill(key, random.below(30) as f32, |s| s.timers.grace = 3.0)),
                8..12 => drop(w.cache.purge(key, Purge::Hard, w.now.get())),
                12..14 => {
                    let soft = Purge::Soft { ttl: 1.0, grace: Some(1.0), keep: Some(0.0) };
                    w.cache.purge(key, soft, w.now.get());
                }
                14 => {
                    let url = format!("/{}", random.below(20));
                    w.cache.ban(&["req.url", "==", &url], w.now.get());
                }
                15 => {
                    w.cache.nuke_one(0, false, &mut |_| {});
                }
                16..20 => drop(w.expire()),
                20..40 => w.tick(0.5),
                _ => {}
            }
            let request = Request(format!("/{key}"), String::new());
            let front = &mut fronts[random.index(2)];
            let (got, is_local) = with_args(
                w.now.get(),
                &request,
                |_| {},
                |args| {
                    let found = front.lookup(&w.cache, &digest(key), args, None);
                    let is_local = matches!(&found, Lookup::Hit(o) if o.is_local());
                    (outcome(&found), is_local)
                },
            );
            let want = with_args(
                w.now.get(),
                &request,
                |_| {},
                |args| outcome(&w.cache.lookup(&digest(key), args, None)),
            );
            assert_eq!(got, want);
            local += u64::from(is_local);
        }
        assert!(cfg!(miri) || local > 2_000, "only {local} hits from the front");
        drop(fronts);
        w.tick(1000.0);
        w.expire();
        assert_eq!(w.stat("n_object"), 0, "the front tables have dropped their objects");
    }
}

/// Other threads purge and fill while this thread looks up. An object that it finds is newer than the last purge that
/// ended before the lookup.
#[test]
fn purges_of_other_threads_take_effect_at_once() {
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};
    let w = World::new(None);
    let cache = Arc::clone(&w.cache);
    let (purged_to, hits) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (cache, purged_to, hits) = (&cache, &purged_to, &hits);
        scope.spawn(move || {
            let mut front = FrontTable::new(16);
            while purged_to.load(Ordering::Acquire) < u64::MAX {
                let least = purged_to.load(Ordering::Acquire);
                let found = with_args(
                    T0,
                    &Request::default(),
                    |_| {},
                    |args| front.lookup(cache, &digest(1), args, None),
                );
                if let Lookup::Hit(object) = found {
                    assert!(object.vxid() > least || least == u64::MAX, "{} after {least}", object.vxid());
                    hits.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let deadline = Instant::now() + Duration::from_mins(1);
        let counted = || hits.load(Ordering::Relaxed);
        w.fill(1, 100.0, |_| {});
        // The other thread may begin late.
        while counted() == 0 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let (before, mut round) = (counted(), 0);
        while round < rounds(300) || counted() == before && Instant::now() < deadline {
            w.fill(1, 100.0, |_| {});
            std::thread::sleep(Duration::from_micros(100));
            let last = w.vxid.get();
            cache.purge(1, Purge::Hard, T0);
            purged_to.store(last, Ordering::Release);
            round += 1;
        }
        let after = counted();
        purged_to.store(u64::MAX, Ordering::Release);
        assert!(before > 0 && after > before, "{before} hits, and {after} after the purges");
    });
}
