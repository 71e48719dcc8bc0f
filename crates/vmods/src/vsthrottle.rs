//! Module vsthrottle: token buckets, by key and by limits, shared by all requests.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use lacquer_sources::clock::Instant;
use lacquer_vcl_runtime::{Args, Ctx, Event, Value};
use sha2::{Digest, Sha256};

use crate::support::{CallResult, DONE, Table, WithEvents};

pub(crate) static MODULE: WithEvents = WithEvents {
    table: Table {
        name: "vsthrottle",
        functions: &[
            ("is_denied", is_denied),
            ("return_token", return_token),
            ("remaining", remaining),
            ("blocked", blocked),
            ("remove_bucket", remove_bucket),
        ],
        objects: &[],
        suspends: &[],
    },
    event: |_, event| {
        store().count_program(event);
        Ok(())
    },
};

/// Identifies a bucket by a digest of key and limits: a client that chooses long keys would otherwise fill the memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key([u8; 32]);

impl Key {
    fn new(name: &[u8], limit: i64, period: f64, block: f64) -> Key {
        let mut digest = Sha256::new();
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update(limit.to_le_bytes());
        digest.update(period.to_bits().to_le_bytes());
        digest.update(block.to_bits().to_le_bytes());
        Key(digest.finalize().into())
    }
}

struct Bucket {
    tokens: i64,
    capacity: i64,
    period: f64,
    last_used: f64,
    blocked_until: f64,
}

impl Bucket {
    fn new(limit: i64, period: f64, now: f64) -> Self {
        Bucket { tokens: limit, capacity: limit, period, last_used: now, blocked_until: 0.0 }
    }

    fn refill(&mut self, now: f64) {
        let gained = ((now - self.last_used) / self.period * self.capacity as f64) as i64;
        self.tokens = self.tokens.saturating_add(gained).min(self.capacity);
    }

    /// Takes a token. Returns whether the caller must be denied.
    fn take(&mut self, block: f64, now: f64) -> bool {
        self.refill(now);
        let is_blocked = block > 0.0 && now < self.blocked_until;
        if is_blocked {
            self.last_used = now;
        }
        let mut denied = true;
        if self.tokens > 0 {
            self.tokens -= 1;
            self.last_used = now;
            denied = is_blocked;
        } else if block > 0.0 && !is_blocked {
            self.blocked_until = now + block;
        }
        if block > 0.0 && !denied {
            self.blocked_until = 0.0;
        }
        denied
    }

    fn is_stale(&self, now: f64) -> bool {
        now - self.last_used > self.period && now > self.blocked_until
    }
}

#[derive(Default)]
struct Shard {
    buckets: HashMap<Key, Bucket>,
    calls: u32,
}

/// Number of calls after which stale buckets are removed.
const SWEEP_AFTER: u32 = 1000;
const SHARDS: usize = 16;

struct Store {
    hasher: RandomState,
    start: Instant,
    shards: [Mutex<Shard>; SHARDS],
    /// The number of loaded programs that import the module.
    programs: Mutex<usize>,
}

impl Store {
    fn new() -> Store {
        Store {
            hasher: RandomState::new(),
            start: Instant::now(),
            shards: std::array::from_fn(|_| Mutex::default()),
            programs: Mutex::default(),
        }
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the programs that import the module. The end of the last one frees all buckets.
    fn count_program(&self, event: Event) {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Load => *programs += 1,
            Event::Discard => {
                *programs = programs.saturating_sub(1);
                if *programs == 0 {
                    for shard in &self.shards {
                        *shard.lock().unwrap_or_else(PoisonError::into_inner) = Shard::default();
                    }
                }
            }
            Event::Initialized | Event::Warm | Event::Cold => {}
        }
    }
}

fn store() -> &'static Store {
    static STORE: OnceLock<Store> = OnceLock::new();
    STORE.get_or_init(Store::new)
}

/// Runs `act` on the key's shard. Returns `None` without a key.
fn with_shard<T>(args: &Args<'_>, act: impl FnOnce(&mut Shard, Key, f64) -> T) -> Option<T> {
    let key = Key::new(args.str(0)?, args.int(1), args.real(2), args.real(3));
    let store = store();
    let now = store.start.elapsed().as_secs_f64();
    Some(act(&mut store.shard(&key), key, now))
}

/// Runs `act` on the key's bucket, and removes stale buckets now and then.
fn with_bucket<T>(args: &Args<'_>, act: impl FnOnce(&mut Bucket, f64) -> T) -> Option<T> {
    with_shard(args, |shard, key, now| {
        let bucket = Bucket::new(args.int(1), args.real(2), now);
        let result = act(shard.buckets.entry(key).or_insert(bucket), now);
        shard.calls += 1;
        if shard.calls >= SWEEP_AFTER {
            shard.calls = 0;
            shard.buckets.retain(|_, bucket| !bucket.is_stale(now));
        }
        result
    })
}

fn is_denied<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let denied = with_bucket(args, |bucket, now| bucket.take(args.real(3), now));
    Ok(Value::Bool(denied.unwrap_or(true)))
}

fn return_token<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    with_bucket(args, |bucket, _| bucket.tokens += 1);
    DONE
}

fn remaining<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let tokens = with_bucket(args, |bucket, now| {
        bucket.refill(now);
        bucket.tokens
    });
    Ok(Value::Int(tokens.unwrap_or(-1)))
}

fn blocked<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let left = with_bucket(args, |bucket, now| (bucket.blocked_until - now).max(0.0));
    Ok(Value::Duration(left.unwrap_or(-1.0)))
}

fn remove_bucket<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    with_shard(args, |shard, key, _| shard.buckets.remove(&key));
    DONE
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The text of a client must not determine the memory that its bucket needs.
    #[test]
    fn keys_are_short_and_differ_in_each_part() {
        assert_eq!(size_of::<Key>(), 32);
        let keys = [
            Key::new(b"k", 1, 2.0, 3.0),
            Key::new(b"l", 1, 2.0, 3.0),
            Key::new(b"", 1, 2.0, 3.0),
            Key::new(b"k\x01", 1, 2.0, 3.0),
            Key::new(b"k", 2, 2.0, 3.0),
            Key::new(b"k", 1, 3.0, 3.0),
            Key::new(b"k", 1, 3.0, 2.0),
            Key::new(b"k", 1, 2.0, 2.0),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert!(Key::new(b"k", 1, 2.0, 3.0) == keys[0]);
    }

    #[test]
    fn buckets_live_as_long_as_programs_that_import_the_module() {
        let store = Store::new();
        let fill = || {
            for i in 0..100 {
                let key = Key::new(b"k", i, 1.0, 0.0);
                store.shard(&key).buckets.insert(key, Bucket::new(i, 1.0, 0.0));
            }
        };
        let count = || -> usize {
            store.shards.iter().map(|shard| shard.lock().expect("no test panics").buckets.len()).sum()
        };
        for _ in 0..2 {
            store.count_program(Event::Load);
            fill();
            for event in [Event::Warm, Event::Load, Event::Initialized, Event::Cold, Event::Discard] {
                store.count_program(event);
            }
            assert_eq!(count(), 100, "one program is left");
            store.count_program(Event::Discard);
            assert_eq!(count(), 0);
        }
    }

    #[test]
    fn buckets_empty_refill_and_block() {
        let mut bucket = Bucket::new(2, 10.0, 0.0);
        assert_eq!(
            [bucket.take(0.0, 0.0), bucket.take(0.0, 0.0), bucket.take(0.0, 0.0)],
            [false, false, true]
        );
        assert!(!bucket.take(0.0, 5.0), "half a period brings half the tokens");
        assert!(bucket.take(0.0, 5.0));
        let mut bucket = Bucket::new(1, 1.0, 0.0);
        assert!(!bucket.take(5.0, 0.0));
        assert!(bucket.take(5.0, 0.5), "empty: blocked from here");
        assert!(bucket.take(5.0, 3.0), "full again, but blocked");
        assert!(!bucket.take(5.0, 7.0));
        assert!(bucket.is_stale(9.0));
    }
}
