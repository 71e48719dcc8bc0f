//! All operations concurrently from several threads: there is no deadlock, and nothing is left at the end.

use super::*;
use crate::bans::LurkerParams;

const THREADS: u64 = 4;
const LONGEST: usize = if cfg!(miri) { 500 } else { 60_000 };
const STEPS: u64 = rounds(6000) as u64;

fn fetch(cache: &Cache, random: &mut Random, busy: Busy, vxid: u64, now: f64) {
    let s0 = &cache.stevedores()[0];
    let spec = ObjectSpec {
        vxid,
        t_origin: now,
        timers: Timers { ttl: 1.0, grace: 1.0, keep: 0.0 },
        flags: if random.below(20) == 0 { flag::HFM } else { 0 },
        last_modified: 0.0,
        vary: b"",
        head: b"Foo: bar",
        extra: b"",
    };
    let mut log = |_: &str| {};
    let mut nuke = Nuke::new(50, &mut log);
    let body = vec![vxid as u8; random.index(LONGEST)];
    if random.below(2) == 0 {
        if let Ok(object) = cache.create(s0, &spec, &body, &mut nuke) {
            busy.publish(&object);
        }
        return;
    }
    let sizes = ChunkSizes { first: 4 << 10, max: 1 << 20 };
    let expected = (random.below(2) == 0).then_some(body.len() as u64);
    let Ok((object, mut writer)) = cache.begin(s0, &spec, expected, sizes, &mut nuke) else { return };
    busy.publish(&object);
    let mut rest = &body[..];
    while !rest.is_empty() {
        let part = rest.len().min(5000);
        if cache.reserve(s0, &mut writer, &mut nuke).is_err() || random.below(100) == 0 {
            writer.fail();
            return cache.fail(&object);
        }
        let n = writer.write(&rest[..part]).expect("reserved");
        rest = &rest[n..];
    }
    let object = cache.finish(object, writer);
    assert_eq!(object.body_len(), body.len() as u64);
}

fn check(object: &Object) {
    let mut at = 0;
    while let Some(chunk) = object.chunk_at(at) {
        assert!(chunk.bytes().iter().all(|&b| b == object.vxid() as u8), "another object's bytes");
        at += chunk.len() as u64;
    }
}

fn client(cache: &Arc<Cache>, thread: u64) {
    let mut random = Random(thread);
    let mut front = FrontTable::new(64);
    for step in 0..STEPS {
        let now = T0 + step as f64 / 1000.0;
        let vxid = 1 + step * THREADS + thread;
        let key = random.below(40);
        let request = Request(format!("/{key}"), String::new());
        let args =
            |run: &mut dyn FnMut(&LookupArgs<'_>) -> Lookup| with_args(now, &request, |_| {}, |a| run(a));
        match args(&mut |a| front.lookup(cache, &digest(key), a, None)) {
            Lookup::Hit(object) => check(&object),
            Lookup::Grace { object, busy } => {
                check(&object);
                if let Some(busy) = busy {
                    fetch(cache, &mut random, busy, vxid, now);
                }
            }
            Lookup::Miss { busy, .. } | Lookup::HitMiss { busy, .. } => {
                if random.below(10) > 0 {
                    fetch(cache, &mut random, busy, vxid, now);
                }
            }
            Lookup::HitPass(_) | Lookup::Wait(_) | Lookup::Unfinished(_) => {}
        }
        match random.below(400) {
            0 => drop(cache.purge(key, Purge::Hard, now)),
            1 => {
                let soft = Purge::Soft { ttl: 0.0, grace: Some(0.5), keep: Some(0.0) };
                cache.purge(key, soft, now);
            }
            2 => cache.ban(&["req.url", "==", "/7"], now),
            3 => cache.ban(&["obj.age", ">", "1s"], now),
            4..8 => {
                let params = LurkerParams { sleep: 0.01, age: 0.0, batch: 8, cutoff: 20 };
                cache.lurk(now, params, &mut |_| {}, &mut |_| {});
            }
            8..30 => drop(cache.expire(now, 10, &mut |_| {})),
            30 => front.sweep(cache),
            _ => {}
        }
    }
}

#[test]
fn concurrent_operations_leave_nothing_behind() {
    let w = World::new(Some(2 << 20));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let cache = &w.cache;
            scope.spawn(move || client(cache, thread));
        }
    });
    println!("{:?}", w.cache.stats());
    w.tick(1000.0);
    w.expire();
    assert_eq!((w.stat("n_object"), w.stat("n_objectcore"), w.stat("n_objecthead")), (0, 0, 0));
    let s0 = &w.cache.stevedores()[0];
    assert_eq!((s0.used_space(), s0.longest_free()), (0, 2 << 20));
    let lines = String::from_utf8(w.cache.bans().text(false)).expect("it is UTF-8");
    assert!(lines.lines().skip(1).all(|l| l.split_whitespace().nth(1) == Some("0")), "{lines}");
}
