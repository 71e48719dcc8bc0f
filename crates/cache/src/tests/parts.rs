//! Parts: objects whose bodies were cut short.

use super::*;

/// Fetches an object of which these bytes arrive. It is in the index.
fn cut_off(w: &World, key: u64, bytes: &[u8], vary: &[u8]) -> (Arc<Object>, BodyWriter) {
    let Lookup::Miss { busy, .. } = w.lookup_with(key, |args| args.always_miss = true) else {
        unreachable!("always_miss misses");
    };
    w.vxid.set(w.vxid.get() + 1);
    let spec = ObjectSpec {
        vxid: w.vxid.get(),
        t_origin: w.now.get(),
        timers: Timers { ttl: 100.0, grace: 0.0, keep: 10.0 },
        flags: flag::IMSCAND,
        last_modified: 0.0,
        vary,
        head: b"Foo: bar",
        extra: b"",
    };
    let mut log = |_: &str| {};
    let mut nuke = Nuke::new(50, &mut log);
    let sizes = ChunkSizes { first: 16 << 10, max: 1 << 20 };
    let s0 = &w.cache.stevedores()[0];
    let (object, mut writer) = w.cache.begin(s0, &spec, Some(1 << 20), sizes, &mut nuke).expect("room");
    drop(busy.publish_tagged(&object, vec![w.cache.tag(b"tag7")]));
    w.cache.reserve(s0, &mut writer, &mut nuke).expect("room");
    writer.write(bytes).expect("reserved");
    (object, writer)
}

fn part(w: &World, key: u64) -> Arc<Object> {
    let (object, writer) = cut_off(w, key, b"begin", b"");
    w.cache.keep_part(&object, writer);
    object
}

/// Misses, and returns the VXID of the part that the fetch may complete.
fn found(w: &World, key: u64, vary: &dyn Fn(&[u8]) -> bool) -> Option<u64> {
    match w.lookup(key) {
        Lookup::Miss { busy, stale: None } => busy.parts(vary).first().map(|part| part.vxid()),
        other => panic!("a part is delivered or validated: {other:?}"),
    }
}

#[test]
fn only_fetches_find_a_part() {
    let w = World::new(None);
    let object = part(&w, 1);
    assert_eq!(object.state(), BodyState::Failed);
    assert_eq!(object.chunk_at(0).expect("it is in memory").bytes(), b"begin");
    // The memory for the rest is free.
    assert!(w.cache.stevedores()[0].counters().g_bytes.load(Ordering::Relaxed) < 64 << 10);
    for _ in 0..2 {
        assert_eq!(found(&w, 1, &|_| true), Some(object.vxid()));
    }
    assert_eq!(found(&w, 2, &|_| true), None);
    // A complete object is used instead, whether it came before or later.
    let whole = w.fill(1, 100.0, |_| {});
    assert!(matches!(w.lookup(1), Lookup::Hit(hit) if hit.vxid() == whole.vxid()));
    let newer = part(&w, 1);
    assert!(matches!(w.lookup(1), Lookup::Hit(hit) if hit.vxid() == whole.vxid()));
    w.cache.supersede(&whole);
    for part in [newer, object] {
        assert_eq!(found(&w, 1, &|_| true), Some(part.vxid()));
        w.cache.supersede(&part);
    }
    assert_eq!(found(&w, 1, &|_| true), None);
}

#[test]
fn a_part_is_kept_for_its_variant() {
    let w = World::new(None);
    let parts = [&b"a"[..], b"b", b"a"].map(|vary| {
        let (object, writer) = cut_off(&w, 1, b"begin", vary);
        w.cache.keep_part(&object, writer);
        w.tick(1.0);
        object
    });
    assert_eq!(found(&w, 1, &|spec| spec == b"a"), Some(parts[2].vxid()));
    assert_eq!(found(&w, 1, &|spec| spec == b"b"), Some(parts[1].vxid()));
    assert_eq!(found(&w, 1, &|_| false), None);
    let others = |object| -> Vec<u64> { w.cache.other_parts(object).iter().map(|o| o.vxid()).collect() };
    assert_eq!(others(&parts[2]), [parts[0].vxid()]);
    assert!(others(&parts[1]).is_empty());
    w.cache.supersede(&parts[0]);
    assert!(others(&parts[2]).is_empty());
    assert!(others(&parts[0]).is_empty(), "it has left the index");
}

/// An object that was received in full, and is a part. It has tag 7.
fn range(w: &World, key: u64, bytes: &[u8]) -> Arc<Object> {
    let (object, writer) = cut_off(w, key, bytes, b"");
    object.make_part(b"about it");
    w.cache.finish(object, writer)
}

#[test]
fn a_complete_range_is_no_object_for_lookups() {
    let w = World::new(None);
    let object = range(&w, 1, b"middle");
    assert_eq!((object.state(), object.extra()), (BodyState::Complete, &b"about it"[..]));
    assert_eq!(found(&w, 1, &|_| true), Some(object.vxid()));
    assert_eq!(found(&w, 1, &|_| true), Some(object.vxid()));
}

fn room(log: &mut dyn FnMut(&str)) -> Nuke<'_> {
    Nuke::new(50, log)
}

#[test]
fn bytes_of_a_part_are_copied_for_one_request() {
    let w = World::new(None);
    let (part, mut log) = (part(&w, 1), |_: &str| {});
    let s0 = &w.cache.stevedores()[0];
    let mut copy = |from, length| {
        let wanted = PartCopy { part: &part, from, length, head: b"A: b" };
        w.cache.copy_of_part(s0, wanted, &mut room(&mut log))
    };
    let object = copy(1, 3).expect("room");
    assert_eq!(object.chunk_at(0).expect("it is in memory").bytes(), b"egi");
    assert_eq!((object.head(), object.extra(), object.vary()), (&b"A: b"[..], &b""[..], None));
    assert_eq!((object.hits(), object.timers(), object.vxid()), (1, part.timers(), part.vxid()));
    assert!(object.has_one_reader() && object.slot_id().is_none());
    assert!(copy(0, 5).is_some_and(|object| object.hits() == 2));
    for (from, length) in [(0, 6), (5, 1), (4, 2), (1 << 40, 1), (u64::MAX, 2)] {
        assert!(copy(from, length).is_none(), "{from} {length}");
    }
}

#[test]
fn parts_leave_the_cache_like_objects() {
    let w = World::new(None);
    part(&w, 1);
    w.cache.purge(1, Purge::Hard, T0);
    assert_eq!(found(&w, 1, &|_| true), None);
    part(&w, 2);
    w.cache.purge_tags(&[7], Purge::Hard, T0);
    assert_eq!(found(&w, 2, &|_| true), None);
    // A ban that is newer than the part is found when the part is checked.
    let banned = part(&w, 3);
    w.cache.ban(&["obj.http.Foo", "==", "bar"], T0);
    let verdict = w.cache.recheck(&banned, &Request::default(), &|| false);
    assert_eq!(verdict, crate::bans::Verdict::Banned);
    assert_eq!(found(&w, 3, &|_| true), None);
    // It expires with the time for which a stale object would be kept.
    let expiring = part(&w, 4);
    w.tick(109.0);
    w.expire();
    assert_eq!(found(&w, 4, &|_| true), Some(expiring.vxid()));
    w.tick(2.0);
    w.expire();
    assert_eq!(found(&w, 4, &|_| true), None);
}

#[test]
fn what_has_left_the_cache_does_not_become_a_part() {
    let w = World::new(None);
    let (purged, writer) = cut_off(&w, 1, b"begin", b"");
    w.cache.purge(1, Purge::Hard, T0);
    w.cache.keep_part(&purged, writer);
    assert_eq!(purged.state(), BodyState::Failed);
    assert_eq!(found(&w, 1, &|_| true), None);
}
