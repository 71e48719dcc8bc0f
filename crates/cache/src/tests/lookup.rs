//! Lookup, waiting and purging, case by case.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::shard::DeferredWork;
use crate::slab::{NONE, key_of};
use crate::waiter::WaitingList;

#[test]
fn an_object_is_fresh_then_in_grace_then_kept_then_expired() {
    let w = World::new(None);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(None));
    let object = w.fill(1, 10.0, |s| (s.timers.grace, s.timers.keep) = (10.0, 10.0));
    let x = object.vxid();
    drop(object);
    w.tick(9.0);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Hit(x));
    let short = |a: &mut LookupArgs<'_>| a.limits.ttl = 5.0;
    assert_eq!(outcome(&w.lookup_with(1, short)), Outcome::Miss(None), "fresh but too old for req.ttl");
    w.tick(2.0);
    let first = w.lookup(1);
    assert_eq!(outcome(&first), Outcome::Grace(x, true));
    assert_eq!(outcome(&w.lookup(1)), Outcome::Grace(x, false), "one background fetch");
    assert_eq!(outcome(&w.lookup_with(1, |a| a.limits.grace = 0.0)), Outcome::Wait);
    drop(first);
    assert_eq!(outcome(&w.lookup_with(1, |a| a.limits.grace = 0.0)), Outcome::Miss(Some(x)));
    w.tick(10.0);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(Some(x)), "kept for a conditional fetch");
    assert!(w.expire() > w.now.get());
    w.tick(10.0);
    assert_eq!(w.expire(), f64::INFINITY);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(None));
    assert_eq!((w.stat("n_expired"), w.stat("n_object"), w.stat("n_objectcore")), (1, 0, 0));
    assert_eq!(w.stat("n_objecthead"), 0);
    assert_eq!(w.cache.stevedores()[0].used_space(), 0);
}

#[test]
fn grace_is_extended_at_the_expense_of_keep() {
    let w = World::new(None);
    let object = w.fill(1, 10.0, |s| (s.timers.grace, s.timers.keep) = (2.0, 30.0));
    let x = object.vxid();
    w.tick(15.0);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(Some(x)));
    assert!(w.cache.extend_grace(&object, 12.0));
    assert_eq!(object.timers(), Timers { ttl: 10.0, grace: 12.0, keep: 20.0 });
    assert_eq!(outcome(&w.lookup(1)), Outcome::Grace(x, true));
    for (grace, expected) in [(3.0, 12.0), (-1.0, 12.0), (99.0, 32.0)] {
        assert_eq!(w.cache.extend_grace(&object, grace), expected > 12.0);
        assert_eq!(object.timers(), Timers { ttl: 10.0, grace: expected, keep: 32.0 - expected }, "{grace}");
    }
    w.tick(28.0);
    assert_eq!(w.expire(), f64::INFINITY, "it is removed when it would have been");
    assert!(!w.cache.extend_grace(&object, 99.0));
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(None));
}

#[test]
fn markers_cause_misses_and_passes() {
    let w = World::new(None);
    let hfm = w.fill(1, 10.0, |s| s.flags = flag::HFM);
    let one = w.lookup(1);
    let two = w.lookup(1);
    assert_eq!(outcome(&one), Outcome::HitMiss(hfm.vxid()));
    assert_eq!(
        outcome(&two),
        Outcome::HitMiss(hfm.vxid()),
        "requests do not wait for an uncacheable response"
    );
    let hfp = w.fill(2, 10.0, |s| s.flags = flag::HFM | flag::HFP);
    assert_eq!(outcome(&w.lookup(2)), Outcome::HitPass(hfp.vxid()));
    drop((one, two));
    w.tick(11.0);
    let lookup = w.lookup(1);
    assert!(matches!(lookup, Lookup::HitMiss { stale: None, .. }));
    assert_eq!(outcome(&w.lookup(2)), Outcome::HitMiss(hfp.vxid()), "expired markers are hit-for-miss");
}

#[test]
fn the_newest_matching_variant_is_found() {
    let w = World::new(None);
    let a = w.fill(1, 10.0, |s| s.vary = b"a").vxid();
    let b = w.fill(1, 10.0, |s| s.vary = b"b").vxid();
    let newer_a = w.fill(1, 10.0, |s| s.vary = b"a");
    let ask = |what: &'static [u8]| {
        outcome(&w.lookup_with(1, |args| {
            args.vary = match what {
                b"a" => &|v| v == b"a",
                b"b" => &|v| v == b"b",
                _ => &|_| false,
            }
        }))
    };
    assert_eq!(ask(b"a"), Outcome::Hit(newer_a.vxid()));
    assert_eq!(ask(b"b"), Outcome::Hit(b));
    assert_eq!(ask(b"c"), Outcome::Miss(None));
    assert_eq!(
        outcome(&w.lookup_with(1, |args| {
            args.vary = &|_| false;
            args.ignore_vary = true;
        })),
        Outcome::Hit(newer_a.vxid())
    );
    w.cache.kill(&newer_a);
    assert_eq!(ask(b"a"), Outcome::Hit(a));

    let Lookup::Miss { busy, .. } = w.lookup(2) else { unreachable!() };
    busy.predict_vary(b"a");
    assert_eq!(outcome(&w.lookup_with(2, |args| args.vary = &|v| v == b"b")), Outcome::Miss(None));
    assert_eq!(outcome(&w.lookup_with(2, |args| args.vary = &|v| v == b"a")), Outcome::Wait);
    assert_eq!(outcome(&w.lookup_with(2, |args| args.ignore_busy = true)), Outcome::Miss(None));
}

fn is_ready(wait: &mut Wait) -> Option<Resumed> {
    match pin!(wait).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(resumed) => Some(resumed),
        Poll::Pending => None,
    }
}

fn queue(w: &World, n: usize) -> Vec<Wait> {
    let wait = |_| match w.lookup(1) {
        Lookup::Wait(wait) => wait,
        other => unreachable!("{other:?}"),
    };
    (0..n).map(wait).collect()
}

#[test]
fn waiting_requests_are_woken_in_waves() {
    let w = World::new(None);
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!() };
    let mut waiting = queue(&w, 20);
    assert!(waiting.iter_mut().all(|q| is_ready(q).is_none()));
    busy.publish(&w.object(10.0, |_| {}, b""));
    let mut waves = Vec::new();
    while !waiting.is_empty() {
        let ready: Vec<_> = waiting.iter_mut().filter_map(is_ready).collect();
        assert!(!ready.is_empty(), "each wave wakes a request");
        waiting.drain(..ready.len());
        waves.push(ready.len());
        for resumed in ready {
            let found = with_args(
                w.now.get(),
                &Request::default(),
                |_| {},
                |args| w.cache.lookup(&digest(1), args, Some(resumed)),
            );
            assert!(matches!(found, Lookup::Hit(_)));
        }
    }
    assert_eq!(waves, [3, 9, 8]);
    assert_eq!((w.stat("busy_sleep"), w.stat("busy_wakeup")), (20, 20));
}

#[test]
fn a_request_that_gives_up_wakes_others() {
    let w = World::new(None);
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!() };
    let mut waiting = queue(&w, 5);
    // A fetch without a result.
    drop(busy);
    assert_eq!(w.stat("busy_wakeup"), 3);
    // One woken request is dropped before it is polled, another after it was polled: both wake others.
    drop(waiting.remove(0));
    assert_eq!(w.stat("busy_wakeup"), 5);
    let resumed = is_ready(&mut waiting[0]);
    assert!(resumed.is_some());
    drop(resumed);
    // A request that is dropped while it waits is not woken.
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!() };
    let mut more = queue(&w, 2);
    drop(more.remove(0));
    busy.release();
    assert!(is_ready(&mut more[0]).is_some());
}

#[test]
fn purges_affect_all_variants() {
    let w = World::new(None);
    for vary in [b"a", b"b"] {
        w.fill(1, 100.0, |s| (s.vary, s.timers.grace) = (vary, 100.0));
    }
    let x = w.vxid.get();
    let busy = w.lookup_with(1, |a| a.always_miss = true);
    w.tick(1.0);
    let soft = Purge::Soft { ttl: 0.0, grace: Some(50.0), keep: None };
    assert_eq!(w.cache.purge(1, soft, w.now.get()), 2);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Grace(x, false));
    w.tick(51.0);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Wait, "grace was shortened");
    assert_eq!(w.cache.purge(1, Purge::Hard, w.now.get()), 2);
    assert_eq!(w.cache.purge(1, Purge::Hard, w.now.get()), 0);
    assert_eq!((w.stat("n_purges"), w.stat("n_obj_purged")), (2, 2));
    drop(busy);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(None));
}

#[test]
fn streamed_objects_are_found_early_and_compacted_at_the_end() {
    let w = World::new(None);
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!() };
    let spec = ObjectSpec { vxid: 7, flags: flag::GZIPED, last_modified: 5.5, vary: b"vary", ..w.spec(10.0) };
    let (object, mut writer) = w.begin(&spec);
    busy.publish(&object);
    let Lookup::Hit(reader) = w.lookup(1) else { unreachable!() };
    assert_eq!(reader.state(), BodyState::Fetching);
    w.write(&mut writer, b"hello");
    assert_eq!(reader.chunk_at(1).expect("there").bytes(), b"ello");
    object.set_extra(b"esi");
    let object = w.cache.finish(object, writer);
    assert!(object.stored().is_whole());
    assert_eq!(reader.state(), BodyState::Complete);
    for object in [&*object, &*reader] {
        assert_eq!(object.head(), b"Foo: bar");
        assert_eq!(object.vary(), Some(b"vary".as_slice()));
        assert_eq!(object.extra(), b"esi");
        assert_eq!(object.last_modified(), 5.5);
        assert_eq!(object.chunk_at(0).expect("there").bytes(), b"hello");
    }
    // The same for an object that is not published.
    let mut log = |_: &str| {};
    let mut nuke = Nuke::new(0, &mut log);
    let (s0, sizes) = (&w.cache.stevedores()[0], ChunkSizes { first: 16 << 10, max: 1 << 20 });
    let (unseen, mut writer) = w.cache.begin(s0, &spec, Some(5), sizes, &mut nuke).expect("room");
    writer.write(b"hello").expect("room");
    let unseen = w.cache.finish(unseen, writer);
    assert!(unseen.stored().is_whole());
    drop(unseen);
    // Both forms identify the object.
    w.cache.supersede(&reader);
    assert_eq!(w.stat("n_superseded"), 1);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(None));
    drop((reader, object));
    assert_eq!(s0.used_space(), 0);
}

#[test]
fn expiry_logs_as_varnish_does() {
    let w = World::new(None);
    w.cache.set_trace(true);
    let object = w.fill(1, 10.0, |_| {});
    let x = object.vxid();
    assert_eq!(w.expire(), w.now.get() + 10.0);
    let soft = Purge::Soft { ttl: 5.0, grace: None, keep: None };
    assert_eq!(w.cache.purge(1, soft, w.now.get()), 1);
    assert_eq!(w.expire(), w.now.get() + 5.0);
    w.cache.kill(&object);
    w.tick(1.0);
    w.expire();
    w.fill(2, 1.0, |_| {});
    w.tick(2.0);
    w.expire();
    let log = w.log.borrow().join("\n");
    for text in ["EXP_When p=0x", "EXP_Inspect p=0x", "EXP_Rearm p=0x"] {
        assert!(log.contains(text), "{text} in {log}");
    }
    assert!(log.contains(&format!("EXP_Removed x={x} t=4 h=0")), "{log}");
    assert!(log.contains(&format!("EXP_Expired x={} t=-1 h=0", x + 1)), "{log}");
}

/// A request leaves after its turn has come, and before it was woken.
#[test]
fn a_request_that_leaves_while_it_is_woken_wakes_others() {
    let w = World::new(None);
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!() };
    let mut waiting = queue(&w, 5);
    let (key, mut deferred) = (key_of(&digest(1)), DeferredWork::default());
    w.cache.rush_some(&mut w.cache.shard(&key).lock(), &key, NONE, 1, &mut deferred);
    drop(waiting.remove(0));
    deferred.run();
    let ready: Vec<_> = waiting.iter_mut().filter_map(is_ready).collect();
    assert_eq!(ready.len(), 3);
    drop((ready, busy));
}

#[test]
fn requests_that_leave_the_waiting_list_are_neither_searched_for_nor_woken() {
    let w = World::new(None);
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!() };
    let mut waiting = queue(&w, 200);
    let key = key_of(&digest(1));
    let entries = || w.cache.shard(&key).lock().waiting.get(&key).map_or(0, WaitingList::entries);
    drop(waiting.drain(..100));
    assert_eq!(entries(), 200);
    drop(waiting.drain(..1));
    assert_eq!(entries(), 99, "most of them had left");
    drop(waiting.drain(..20));
    assert_eq!(entries(), 99);
    let mut deferred = DeferredWork::default();
    w.cache.rush_some(&mut w.cache.shard(&key).lock(), &key, NONE, 2, &mut deferred);
    deferred.run();
    assert_eq!(w.stat("busy_wakeup"), 2);
    let ready: Vec<_> = waiting.iter_mut().filter_map(is_ready).collect();
    assert_eq!((ready.len(), entries()), (2, 77));
    assert!(busy.is_awaited());
    drop(waiting);
    assert!(!busy.is_awaited());
    assert_eq!(entries(), 0);
}

#[test]
fn markers_of_requests_at_the_same_time_do_not_pile_up() {
    let w = World::new(None);
    w.fill(1, 100.0, |s| s.flags = flag::HFM);
    let spec = || ObjectSpec { flags: flag::HFM, ..w.spec(100.0) };
    for _ in 0..20 {
        w.tick(0.1);
        let busy = |_| match w.lookup(1) {
            Lookup::HitMiss { busy, .. } => busy,
            other => unreachable!("{other:?}"),
        };
        let mut fetches: Vec<_> = (0..4).map(busy).collect();
        let streamed: Vec<_> = fetches
            .drain(..2)
            .map(|busy| {
                let (object, writer) = w.begin(&spec());
                busy.publish(&object);
                (object, writer)
            })
            .collect();
        for busy in fetches {
            busy.publish(&w.object(100.0, |s| s.flags = flag::HFM, b"body"));
        }
        for (object, writer) in streamed {
            w.cache.finish(object, writer);
        }
    }
    assert_eq!(w.stat("n_objectcore"), 1);
    // Markers of other variants stay.
    for vary in [b"a", b"b"] {
        w.fill(2, 100.0, |s| (s.flags, s.vary) = (flag::HFM, vary));
    }
    assert_eq!(w.stat("n_objectcore"), 3);
}

#[test]
fn objects_expire_in_a_worker_that_has_run_for_years() {
    let w = World::new(None);
    for days in [500.0, 1500.0] {
        w.tick(days * 86_400.0);
        w.fill(1, 10.0, |_| {});
        assert_eq!(w.expire(), w.now.get() + 10.0);
        w.tick(11.0);
        assert_eq!(w.expire(), f64::INFINITY);
    }
    assert_eq!((w.stat("n_expired"), w.stat("n_object")), (2, 0));
}

/// Looks up a variant of the first key.
fn ask(w: &World, variant: &[u8], resumed: Option<Resumed>) -> Lookup {
    let matches = |vary: &[u8]| vary == variant;
    let lookup = |args: &LookupArgs<'_>| w.cache.lookup(&digest(1), args, resumed);
    with_args(w.now.get(), &Request::default(), |args| args.vary = &matches, lookup)
}

/// Begins the fetch of a variant.
fn begin_variant(w: &World, variant: &[u8], resumed: Option<Resumed>) -> Busy {
    match ask(w, variant, resumed) {
        Lookup::Miss { busy, .. } => {
            busy.predict_vary(variant);
            busy
        }
        other => unreachable!("{other:?}"),
    }
}

/// Makes requests wait for a variant.
fn queue_for(w: &World, variant: &[u8], n: usize) -> Vec<Wait> {
    let wait = |_| match ask(w, variant, None) {
        Lookup::Wait(wait) => wait,
        other => unreachable!("{other:?}"),
    };
    (0..n).map(wait).collect()
}

/// Removes the requests that were woken.
fn take_woken(waiting: &mut Vec<Wait>) -> Vec<Resumed> {
    let mut woken = Vec::new();
    waiting.retain_mut(|wait| match is_ready(wait) {
        Some(resumed) => {
            woken.push(resumed);
            false
        }
        None => true,
    });
    woken
}

/// Lets requests look up as they are woken, until all that wait for a variant have got it.
#[track_caller]
fn serve(w: &World, variant: &[u8], waiting: &mut Vec<Wait>, (other, others): (&[u8], &mut Vec<Wait>)) {
    while !waiting.is_empty() {
        let woken = take_woken(waiting);
        assert!(!woken.is_empty(), "{} wait for the fetch of another variant", waiting.len());
        for resumed in woken {
            assert!(matches!(ask(w, variant, Some(resumed)), Lookup::Hit(_)));
        }
        for resumed in take_woken(others) {
            let Lookup::Wait(wait) = ask(w, other, Some(resumed)) else { unreachable!() };
            others.push(wait);
        }
    }
}

#[test]
fn a_variant_serves_its_requests_although_others_wait_for_another_variant() {
    let w = World::new(None);
    let hangs = begin_variant(&w, b"x", None);
    let mut others = queue_for(&w, b"x", 10);
    let fetch = begin_variant(&w, b"y", None);
    let mut waiting = queue_for(&w, b"y", 20);
    fetch.publish(&w.object(10.0, |spec| spec.vary = b"y", b""));
    serve(&w, b"y", &mut waiting, (b"x", &mut others));
    assert_eq!(others.len(), 10);
    hangs.publish(&w.object(10.0, |spec| spec.vary = b"x", b""));
    serve(&w, b"x", &mut others, (b"y", &mut waiting));
}

/// Lets the fetch of a variant fail, and one of the requests that waited for it fetch, in another slot.
fn fetch_again(w: &World, variant: &[u8], fetch: Busy, waiting: &mut Vec<Wait>, is_first_lost: bool) -> Busy {
    drop(fetch);
    // Takes the slot.
    let _third = begin_variant(w, b"z", None);
    let mut woken = take_woken(waiting).into_iter();
    if is_first_lost {
        drop(woken.next());
    }
    let next = woken.next();
    assert!(next.is_some());
    let fetch = begin_variant(w, variant, next);
    for resumed in woken {
        let Lookup::Wait(wait) = ask(w, variant, Some(resumed)) else { unreachable!() };
        waiting.push(wait);
    }
    fetch
}

#[test]
fn a_variant_that_is_fetched_again_serves_those_that_waited_for_the_first_fetch() {
    for is_first_lost in [false, true] {
        let w = World::new(None);
        let mut hangs = begin_variant(&w, b"x", None);
        let mut others = queue_for(&w, b"x", 100);
        let mut fetch = begin_variant(&w, b"y", None);
        let mut waiting = queue_for(&w, b"y", 40);
        for _ in 0..3 {
            fetch = fetch_again(&w, b"y", fetch, &mut waiting, is_first_lost);
            hangs = fetch_again(&w, b"x", hangs, &mut others, is_first_lost);
        }
        fetch.publish(&w.object(10.0, |spec| spec.vary = b"y", b""));
        serve(&w, b"y", &mut waiting, (b"x", &mut others));
        hangs.publish(&w.object(10.0, |spec| spec.vary = b"x", b""));
        serve(&w, b"x", &mut others, (b"y", &mut waiting));
    }
}

/// A cache in front of this one has sent an object that is older than its lifetime.
#[test]
fn all_who_wait_get_an_object_that_arrives_in_grace() {
    let w = World::new(None);
    let Lookup::Miss { busy, .. } = w.lookup(1) else { unreachable!() };
    let mut waiting = queue(&w, 20);
    let stale = |spec: &mut ObjectSpec<'_>| {
        spec.t_origin -= 100.0;
        spec.timers.grace = 1000.0;
    };
    busy.publish(&w.object(10.0, stale, b""));
    let mut refreshes = Vec::new();
    while !waiting.is_empty() {
        let woken = take_woken(&mut waiting);
        assert!(!woken.is_empty(), "{} wait for another fetch", waiting.len());
        for resumed in woken {
            let Lookup::Grace { busy, .. } = ask(&w, b"", Some(resumed)) else { unreachable!() };
            refreshes.extend(busy);
        }
    }
    assert_eq!(refreshes.len(), 1);
}
