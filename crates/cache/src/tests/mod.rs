//! A cache with a storage, a clock that tests advance, and heads that are lines of text.

mod ages;
mod bans;
#[cfg(not(miri))]
mod disk_memory;
#[cfg(not(miri))]
mod disks;
mod front;
mod invalidation;
#[cfg(not(miri))]
mod lent;
mod lookup;
mod memory;
mod model;
mod parts;
mod shard;
mod storage;
mod stress;
mod tags;
#[cfg(not(miri))]
mod take_over;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_flow::lookup::Limits;
use lacquer_storage::{Arena, Kind};
use lacquer_testing::{Random, rounds};

use crate::bans::{BanRequest, BanSpec, HeadReader};
use crate::disk::OpenDisks;
use crate::invalidation::{Action, Arrival, Invalidation, InvalidationListener, Purge, Reason, Source};
use crate::*;

/// Reads heads that are "Name: value" lines. The status is always 200.
struct Lines;

fn line<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    head.split(|&b| b == b'\n').find_map(|line| {
        let (n, v) = line.split_at_checked(line.iter().position(|&b| b == b':')?)?;
        n.eq_ignore_ascii_case(name.as_bytes()).then(|| v[1..].trim_ascii())
    })
}

impl HeadReader for Lines {
    fn header<'a>(&self, head: &'a [u8], name: &str) -> Option<&'a [u8]> {
        line(head, name)
    }

    fn status(&self, _head: &[u8]) -> u16 {
        200
    }

    fn is_sound(&self, head: &[u8]) -> bool {
        head.contains(&b':')
    }

    /// A specification may be "name=value".
    fn vary(&self, vary: &[u8], each: &mut dyn FnMut(&[u8], Option<&[u8]>)) {
        match vary.iter().position(|&b| b == b'=') {
            Some(at) => each(&vary[..at], Some(&vary[at + 1..])),
            None => each(vary, None),
        }
    }

    fn tags(&self, head: &[u8], each: &mut dyn FnMut(&[u8])) {
        let list = line(head, "xkey").unwrap_or_default();
        list.split(|&b| b == b' ').filter(|word| !word.is_empty()).for_each(each);
    }
}

/// A request: a URL and headers as lines.
#[derive(Clone, Debug, Default)]
struct Request(String, String);

impl BanRequest for Request {
    fn url(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        line(self.1.as_bytes(), name)
    }
}

const T0: f64 = 1_700_000_000.0;

struct World {
    cache: Arc<Cache>,
    now: Cell<f64>,
    vxid: Cell<u64>,
    log: RefCell<Vec<String>>,
}

fn digest(n: u64) -> Digest {
    let mut random = Random(n);
    let mut digest = [0; 32];
    for part in digest.chunks_mut(8) {
        part.copy_from_slice(&random.number().to_le_bytes());
    }
    digest
}

/// Returns the words of tags by number.
fn words(numbers: &[u64]) -> Vec<Box<[u8]>> {
    numbers.iter().map(|n| format!("tag{n}").into_bytes().into()).collect()
}

/// Invalidations as users request them.
impl Cache {
    fn purge(&self, key: u64, purge: Purge, when: f64) -> usize {
        self.request(Action::PurgeKey { digest: digest(key), purge }, when, Reason::PurgeModule)
    }

    fn purge_tags(&self, numbers: &[u64], purge: Purge, when: f64) -> usize {
        self.request(Action::PurgeTags { tags: words(numbers), purge }, when, Reason::Tags)
    }

    fn ban(&self, words: &[impl AsRef<[u8]>], when: f64) {
        let conditions = BanSpec::from_cli(words).expect("the ban is valid");
        self.request(Action::Ban(conditions), when, Reason::BanCommand);
    }

    fn request(&self, action: Action, when: f64, why: Reason) -> usize {
        let event = Invalidation::new(action, when, why, Source::Request { vxid: 1 });
        self.invalidate(event, Arrival::Local).finish(self)
    }
}

impl World {
    fn new(size: Option<u64>) -> Self {
        Self::with_listeners(size, Vec::new())
    }

    fn with_listeners(size: Option<u64>, listeners: Vec<Box<dyn InvalidationListener>>) -> Self {
        Self::with_arena(Arena::anonymous(size).expect("memfd"), listeners, T0)
    }

    fn with_arena(arena: Arc<Arena>, listeners: Vec<Box<dyn InvalidationListener>>, now: f64) -> Self {
        Self::with_disks(arena, listeners, OpenDisks::default(), now)
    }

    fn with_disks(
        arena: Arc<Arena>,
        listeners: Vec<Box<dyn InvalidationListener>>,
        disks: OpenDisks,
        now: f64,
    ) -> Self {
        let config = Config {
            stevedores: vec![Stevedore::new("s0", Kind::Malloc, 0, arena)],
            heads: Box::new(Lines),
            hooks: Hooks::default(),
            rush_exponent: 3,
            ban_dups: true,
            invalidation_listeners: listeners,
        };
        Self {
            cache: Cache::with_disks(config, disks, now),
            now: Cell::new(now),
            vxid: Cell::new(1000),
            log: RefCell::default(),
        }
    }

    fn tick(&self, seconds: f64) {
        self.now.set(self.now.get() + seconds);
    }

    fn lookup(&self, key: u64) -> Lookup {
        self.lookup_with(key, |_| {})
    }

    fn lookup_with(&self, key: u64, change: impl FnOnce(&mut LookupArgs<'_>)) -> Lookup {
        with_args(self.now.get(), &Request::default(), change, |args| {
            self.cache.lookup(&digest(key), args, None)
        })
    }

    /// Returns the properties of a new object.
    fn spec(&self, ttl: f32) -> ObjectSpec<'static> {
        self.vxid.set(self.vxid.get() + 1);
        ObjectSpec {
            vxid: self.vxid.get(),
            t_origin: self.now.get(),
            timers: Timers { ttl, grace: 0.0, keep: 0.0 },
            flags: 0,
            last_modified: 0.0,
            vary: b"",
            head: b"Foo: bar",
            extra: b"",
        }
    }

    /// Creates an object whose body is to be written, not yet in the index.
    fn begin(&self, spec: &ObjectSpec<'_>) -> (Arc<Object>, BodyWriter) {
        let sizes = ChunkSizes { first: 16 << 10, max: 1 << 20 };
        let mut log = |_: &str| {};
        let mut nuke = Nuke::new(0, &mut log);
        self.cache.begin(&self.cache.stevedores()[0], spec, None, sizes, &mut nuke).expect("room")
    }

    /// Writes to the body of an object.
    fn write(&self, writer: &mut BodyWriter, bytes: &[u8]) {
        let mut log = |_: &str| {};
        self.cache.reserve(&self.cache.stevedores()[0], writer, &mut Nuke::new(0, &mut log)).expect("room");
        writer.write(bytes).expect("reserved");
    }

    /// Creates an object in storage, not yet in the index.
    fn object(&self, ttl: f32, change: impl FnOnce(&mut ObjectSpec<'_>), body: &[u8]) -> Arc<Object> {
        self.try_object(ttl, change, body).expect("room")
    }

    fn try_object(
        &self,
        ttl: f32,
        change: impl FnOnce(&mut ObjectSpec<'_>),
        body: &[u8],
    ) -> Result<Arc<Object>, Full> {
        let mut spec = self.spec(ttl);
        change(&mut spec);
        let mut log = |text: &str| self.log.borrow_mut().push(text.to_owned());
        let mut nuke = Nuke::new(50, &mut log);
        self.cache.create(&self.cache.stevedores()[0], &spec, body, &mut nuke)
    }

    /// Looks up with a miss, and publishes an object.
    fn fill(&self, key: u64, ttl: f32, change: impl FnOnce(&mut ObjectSpec<'_>)) -> Arc<Object> {
        let Lookup::Miss { busy, .. } = self.lookup_with(key, |a| a.always_miss = true) else {
            unreachable!("always_miss misses");
        };
        let object = self.object(ttl, change, b"body");
        busy.publish(&object);
        object
    }

    fn expire(&self) -> f64 {
        let mut log = |text: std::fmt::Arguments<'_>| self.log.borrow_mut().push(text.to_string());
        self.cache.expire(self.now.get(), usize::MAX, &mut log)
    }

    fn stat(&self, name: &str) -> u64 {
        self.cache.stats().all().find(|(n, _)| *n == name).expect("a counter").1
    }
}

fn with_args<'a, R>(
    t_req: f64,
    request: &'a Request,
    change: impl FnOnce(&mut LookupArgs<'a>),
    run: impl FnOnce(&LookupArgs<'a>) -> R,
) -> R {
    let mut args = LookupArgs {
        t_req,
        limits: Limits::NONE,
        always_miss: false,
        ignore_busy: false,
        ignore_vary: false,
        ban_any_variant: 0,
        vary: &|_| true,
        ban: request,
        pause: &|| false,
        banned: &|_| {},
        mismatches: Cell::new(0),
    };
    change(&mut args);
    run(&args)
}

/// The outcome of a lookup, reduced to VXIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Hit(u64),
    Grace(u64, bool),
    Miss(Option<u64>),
    HitMiss(u64),
    HitPass(u64),
    Wait,
    Unfinished,
}

fn outcome(lookup: &Lookup) -> Outcome {
    match lookup {
        Lookup::Hit(o) => Outcome::Hit(o.vxid()),
        Lookup::Grace { object, busy } => Outcome::Grace(object.vxid(), busy.is_some()),
        Lookup::Miss { stale, .. } => Outcome::Miss(stale.as_ref().map(|o| o.vxid())),
        Lookup::HitMiss { marker, .. } => Outcome::HitMiss(marker.vxid()),
        Lookup::HitPass(o) => Outcome::HitPass(o.vxid()),
        Lookup::Wait(_) => Outcome::Wait,
        Lookup::Unfinished(_) => Outcome::Unfinished,
    }
}
