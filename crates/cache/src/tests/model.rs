//! Index, expiry and purging compared with a list that is searched linearly.

use super::*;

#[derive(Clone, Debug)]
struct Known {
    key: u64,
    vxid: u64,
    origin: f64,
    ttl: f64,
    grace: f64,
    keep: f64,
    vary: Option<u8>,
    marker: u32,
}

impl Known {
    fn end(&self) -> f64 {
        self.origin + self.ttl + self.grace + self.keep
    }
}

/// The rules of lookup in a simple form: newest object first.
fn expected(known: &[Known], now: f64, key: u64, vary: u8, busy: bool) -> Outcome {
    let of_key = known.iter().rev().filter(|k| k.key == key && k.ttl > 0.0);
    let mine: Vec<_> = of_key.filter(|k| k.vary.is_none_or(|v| v == vary)).collect();
    if let Some(fresh) = mine.iter().find(|k| k.origin + k.ttl > now) {
        return match fresh.marker {
            0 => Outcome::Hit(fresh.vxid),
            flag::HFM => Outcome::HitMiss(fresh.vxid),
            _ => Outcome::HitPass(fresh.vxid),
        };
    }
    let mut stale: Option<&Known> = None;
    for k in mine {
        if stale.is_none_or(|s| k.origin > s.origin) {
            stale = Some(k);
        }
    }
    match stale {
        Some(k) if k.marker != 0 => Outcome::HitMiss(k.vxid),
        Some(k) if k.origin + k.ttl + k.grace >= now => Outcome::Grace(k.vxid, !busy),
        _ if busy => Outcome::Wait,
        _ => Outcome::Miss(stale.map(|k| k.vxid)),
    }
}

fn lookup(w: &World, key: u64, vary: u8) -> Lookup {
    w.lookup_with(key, |args| {
        args.vary = match vary {
            0 => &|v| v == [0],
            1 => &|v| v == [1],
            _ => &|v| v == [2],
        };
    })
}

#[test]
fn the_index_agrees_with_a_model() {
    for seed in 1..=if cfg!(miri) { 1 } else { 8 } {
        println!("seed {seed}");
        run(seed);
    }
}

fn run(seed: u64) {
    let w = World::new(None);
    let mut random = Random(seed);
    let mut known: Vec<Known> = Vec::new();
    let mut busy: Vec<(u64, Busy)> = Vec::new();
    let mut expired = 0;
    for _ in 0..rounds(5000) {
        let key = random.below(30);
        match random.below(10) {
            0..5 => {
                let vary = random.below(3) as u8;
                let is_busy = busy.iter().any(|(k, _)| *k == key);
                let found = lookup(&w, key, vary);
                assert_eq!(outcome(&found), expected(&known, w.now.get(), key, vary, is_busy));
                match found {
                    Lookup::Miss { busy: b, .. } | Lookup::Grace { busy: Some(b), .. } => {
                        busy.push((key, b));
                    }
                    _ => {}
                }
            }
            5..8 if !busy.is_empty() => {
                let at = random.index(busy.len());
                let (key, token) = busy.swap_remove(at);
                publish(&w, &mut random, &mut known, key, token);
            }
            8 if random.below(4) == 0 => {
                let n = w.cache.purge(key, Purge::Hard, w.now.get());
                let before = known.len();
                known.retain(|k| k.key != key);
                assert_eq!(n, before - known.len());
            }
            8 if !busy.is_empty() => {
                drop(busy.swap_remove(random.index(busy.len())));
            }
            _ => {
                w.tick(random.below(100) as f64 / 10.0);
                let next = w.expire();
                let before = known.len();
                known.retain(|k| k.end() > w.now.get());
                expired += before - known.len();
                let want = known.iter().map(Known::end).fold(f64::INFINITY, f64::min);
                assert!(next == want || (next - want).abs() < 0.02, "{next} is not {want}");
            }
        }
        assert_eq!(w.stat("n_object"), known.len() as u64);
        assert_eq!(w.stat("n_objectcore"), (known.len() + busy.len()) as u64);
        assert_eq!(w.stat("n_expired"), expired as u64);
    }
}

fn publish(w: &World, random: &mut Random, known: &mut Vec<Known>, key: u64, token: Busy) {
    let small = |random: &mut Random| random.below(20) as f32;
    let timers = Timers { ttl: small(random), grace: small(random), keep: small(random) };
    let vary = (random.below(2) == 0).then(|| random.below(3) as u8);
    let marker = [0, 0, 0, flag::HFM, flag::HFM | flag::HFP][random.index(5)];
    let object = w.object(
        0.0,
        |s| {
            s.timers = timers;
            s.vary = vary.map_or(&[], |v| &[[0], [1], [2]][usize::from(v)]);
            s.flags = marker;
        },
        b"x",
    );
    token.publish(&object);
    let new = Known {
        key,
        vxid: object.vxid(),
        origin: object.t_origin(),
        ttl: timers.ttl.into(),
        grace: timers.grace.into(),
        keep: timers.keep.into(),
        vary,
        marker,
    };
    // A marker replaces those that no lookup finds any more.
    let is_hidden = |k: &Known| {
        let ends_before = k.origin + k.ttl <= new.origin + new.ttl && k.end() <= new.end();
        k.key == key && k.vary == vary && k.marker != 0 && marker != 0 && new.ttl > 0.0 && ends_before
    };
    known.retain(|k| !is_hidden(k));
    known.push(new);
}
