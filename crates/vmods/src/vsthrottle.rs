//! Module vsthrottle: token buckets, by key and by limits, shared by all requests.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, OnceLock, PoisonError};

use lacquer_sources::clock::Instant;
use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::support::{CallResult, DONE, Table};

pub(crate) static MODULE: Table = Table {
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
};

/// Identifies a bucket by key and limits. Durations are stored as bits, for exact comparison.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    name: Vec<u8>,
    limit: i64,
    period: u64,
    block: u64,
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
}

fn store() -> &'static Store {
    static STORE: OnceLock<Store> = OnceLock::new();
    STORE.get_or_init(|| Store {
        hasher: RandomState::new(),
        start: Instant::now(),
        shards: std::array::from_fn(|_| Mutex::default()),
    })
}

fn key(args: &Args<'_>) -> Option<Key> {
    let bits = |i: usize| args.real(i).to_bits();
    Some(Key { name: args.str(0)?.to_vec(), limit: args.int(1), period: bits(2), block: bits(3) })
}

/// Runs `act` on the key's shard. Returns `None` without a key.
fn with_shard<T>(args: &Args<'_>, act: impl FnOnce(&mut Shard, Key, f64) -> T) -> Option<T> {
    let key = key(args)?;
    let store = store();
    let now = store.start.elapsed().as_secs_f64();
    let shard = &store.shards[store.hasher.hash_one(&key) as usize % SHARDS];
    Some(act(&mut shard.lock().unwrap_or_else(PoisonError::into_inner), key, now))
}

fn with_bucket<T>(args: &Args<'_>, act: impl FnOnce(&mut Bucket, f64) -> T) -> Option<T> {
    with_shard(args, |shard, key, now| {
        let bucket = Bucket::new(args.int(1), args.real(2), now);
        act(shard.buckets.entry(key).or_insert(bucket), now)
    })
}

fn is_denied<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let denied = with_bucket(args, |bucket, now| bucket.take(args.real(3), now));
    with_shard(args, |shard, _, now| {
        shard.calls += 1;
        if shard.calls >= SWEEP_AFTER {
            shard.calls = 0;
            shard.buckets.retain(|_, bucket| !bucket.is_stale(now));
        }
    });
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
    use super::Bucket;

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
