//! Invalidations as values: the calls of listeners, and equal effects in another cache that receives them later.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{OnceLock, Weak, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;

use super::*;
use crate::bans::{LurkerParams, Verdict};
use crate::invalidation::{Hold, Ticket};
use crate::locks::Mutex;

/// Records the invalidations that it receives.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(Invalidation, Arrival)>>>);

impl InvalidationListener for Recorder {
    fn invalidated(&self, event: &Invalidation, arrival: Arrival, _ticket: &mut Ticket) {
        self.0.lock().push((event.clone(), arrival));
    }
}

impl Recorder {
    fn take(&self) -> Vec<(Invalidation, Arrival)> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Rebuilds an invalidation from the plain values that a journal would contain.
fn read_back(event: &Invalidation) -> Invalidation {
    let action = match event.action() {
        Action::PurgeKey { digest, purge } => Action::PurgeKey { digest: *digest, purge: *purge },
        Action::PurgeTags { tags, purge } => Action::PurgeTags { tags: tags.clone(), purge: *purge },
        Action::Ban(conditions) => {
            Action::Ban(BanSpec::from_words(conditions.words()).expect("the words of a ban are valid"))
        }
    };
    Invalidation::new(action, event.when(), event.why(), event.from())
}

const KEYS: u64 = if cfg!(miri) { 3 } else { 12 };
const HEADS: [&[u8]; 3] = [b"Foo: 0", b"Foo: 1", b"Foo: 2"];
const VARY: [&[u8]; 2] = [b"0", b"1"];

/// Two caches with the same objects. Users request invalidations from the first one; the second one receives its
/// records.
struct Pair {
    here: World,
    there: World,
    recorders: [Recorder; 2],
    random: Random,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let recorders = [Recorder::default(), Recorder::default()];
        let world = |recorder: &Recorder| World::with_listeners(None, vec![Box::new(recorder.clone())]);
        let (here, there) = (world(&recorders[0]), world(&recorders[1]));
        Self { here, there, recorders, random: Random(seed) }
    }

    fn worlds(&self) -> [&World; 2] {
        [&self.here, &self.there]
    }

    fn tick(&mut self) {
        let seconds = self.random.below(30) as f64 / 10.0;
        self.worlds().into_iter().for_each(|w| w.tick(seconds));
    }

    fn publish(&mut self) {
        let random = &mut self.random;
        let key = random.below(KEYS);
        let tags = words(&[random.below(4), random.below(6), random.below(9)]);
        let timer = |random: &mut Random| random.below(30) as f32;
        let timers = Timers { ttl: timer(random), grace: timer(random), keep: timer(random) };
        let (head, vary) = (random.one(&HEADS), random.one(&[b"", VARY[0], VARY[1]]));
        for w in self.worlds() {
            let Lookup::Miss { busy, .. } = w.lookup_with(key, |a| a.always_miss = true) else {
                unreachable!("always_miss misses");
            };
            let object = w.object(0.0, |s| (s.timers, s.head, s.vary) = (timers, head, vary), b"body");
            drop(busy.publish_tagged(&object, tags.iter().map(|word| w.cache.tag(word)).collect()));
        }
    }

    fn purge(&mut self) -> Purge {
        let random = &mut self.random;
        let some = |random: &mut Random| (random.below(2) == 0).then(|| random.below(20) as f64);
        match random.below(3) {
            0 => Purge::Hard,
            _ => Purge::Soft { ttl: random.below(10) as f64, grace: some(random), keep: some(random) },
        }
    }

    /// Returns a random ban. Whether a `lasting` one hits an object does not depend on a request or on a soft purge.
    fn ban(&mut self, lasting: bool) -> String {
        let n = self.random.below(3);
        match self.random.below(if lasting { 2 } else { 6 }) {
            0 => format!("obj.http.foo == {n} && obj.age > {n}s"),
            1 => format!("obj.age > {}s", 10 * (n + 1)),
            2 => format!("obj.ttl > {}s && obj.http.foo != {n}", 10 * (n + 1)),
            3 => format!("obj.grace < {}s && obj.keep >= {n}m", 5 * (n + 1)),
            4 => format!("req.http.kill == {n} && req.url != /{n}"),
            _ if cfg!(miri) => format!("req.url == /{n}"),
            _ => format!("req.url ~ ^/1?{n}$ && obj.http.foo ~ [{n}1]"),
        }
    }

    /// Requests a random invalidation from the first cache.
    fn invalidate(&mut self, lasting: bool) {
        let now = self.here.now.get();
        match self.random.below(4) {
            0 => {
                let (key, purge) = (self.random.below(KEYS), self.purge());
                self.here.cache.purge(key, purge, now);
            }
            1 => {
                let (tags, purge) = ([self.random.below(6), self.random.below(9)], self.purge());
                self.here.cache.purge_tags(&tags, purge, now);
            }
            _ => {
                let text = self.ban(lasting);
                self.here.cache.ban(&text.split(' ').collect::<Vec<_>>(), now);
            }
        }
    }

    /// Passes the invalidations that the first cache's listener recorded to the second cache.
    fn send(&self) {
        let sent = self.recorders[0].take();
        for (event, arrival) in &sent {
            assert_eq!((&read_back(event), *arrival), (event, Arrival::Local));
            self.there.cache.invalidate(read_back(event), Arrival::Peer).finish(&self.there.cache);
        }
        let events = |list: Vec<(Invalidation, Arrival)>| list.into_iter().map(|(event, _)| event);
        let received = self.recorders[1].take();
        assert!(received.iter().all(|(_, arrival)| *arrival == Arrival::Peer));
        assert!(events(received).eq(events(sent)));
    }

    /// Looks up all keys in both caches. Returns the number of hits.
    fn compare(&self) -> usize {
        for w in self.worlds() {
            w.expire();
        }
        let mut hits = 0;
        for n in 0..KEYS * 6 {
            let [here, there] = self.worlds().map(|w| get(w, n / 6, n / 3 % 2, n % 3));
            assert_eq!(here, there, "key {}", n / 6);
            hits += usize::from(matches!(here, Outcome::Hit(_)));
        }
        hits
    }
}

fn get(w: &World, key: u64, vary: u64, kill: u64) -> Outcome {
    let request = Request(format!("/{key}"), format!("kill: {kill}"));
    let matches = |spec: &[u8]| spec == VARY[vary as usize];
    with_args(
        w.now.get(),
        &request,
        |args| args.vary = &matches,
        |args| outcome(&w.cache.lookup(&digest(key), args, None)),
    )
}

/// Removes all objects that bans without conditions on the request hit.
fn lurk(w: &World) {
    let eager = LurkerParams { sleep: 0.01, age: 0.0, batch: 8, cutoff: 0 };
    w.cache.lurk(w.now.get(), eager, &mut |_| {}, &mut |_| {});
}

/// With `lasting` bans, objects of the first cache are banned and expire between two invalidations. Otherwise bans
/// are tested in both caches after the last one, and the ban lists are equal at the end too.
fn run(seed: u64, lasting: bool) {
    let mut pair = Pair::new(seed);
    let mut hits = 0;
    for _ in 0..rounds(200) {
        (0..pair.random.below(20)).for_each(|_| pair.publish());
        for _ in 0..pair.random.below(6) {
            pair.tick();
            pair.invalidate(lasting);
            if lasting {
                for key in 0..KEYS {
                    get(&pair.here, key, key % 2, 0);
                }
                pair.here.expire();
                lurk(&pair.here);
            }
        }
        pair.tick();
        pair.send();
        hits += pair.compare();
        let [here, there] = pair.worlds();
        if !lasting {
            assert_eq!(here.stat("n_object"), there.stat("n_object"));
            assert_eq!(here.cache.bans().text(false), there.cache.bans().text(false));
        }
        pair.worlds().into_iter().for_each(lurk);
    }
    if !cfg!(miri) {
        let names = ["n_obj_purged", "bans_obj_killed", "bans_lurker_obj_killed"];
        let counts = names.map(|name| pair.there.stat(name));
        assert!(counts.iter().all(|&n| n > 20) && hits > 500, "{names:?}: {counts:?}, {hits} hits");
    }
}

#[test]
fn records_have_the_same_effect_in_another_cache() {
    for seed in 1..=if cfg!(miri) { 1 } else { 8 } {
        println!("seed {seed}");
        run(seed, false);
        run(seed, true);
    }
}

/// Looks up an object when it receives an invalidation.
#[derive(Clone, Default)]
struct Witness {
    cache: Arc<OnceLock<Weak<Cache>>>,
    seen: Arc<Mutex<Vec<Outcome>>>,
}

impl InvalidationListener for Witness {
    fn invalidated(&self, event: &Invalidation, _arrival: Arrival, _ticket: &mut Ticket) {
        let cache = self.cache.get().and_then(Weak::upgrade).expect("there is a cache");
        let found =
            with_args(event.when(), &Request::default(), |_| {}, |a| cache.lookup(&digest(1), a, None));
        self.seen.lock().push(outcome(&found));
    }
}

/// A listener that looks up the object would deadlock if a lock were held.
#[test]
fn listeners_are_called_before_the_effect_and_without_a_lock() {
    let witness = Witness::default();
    let w = World::with_listeners(None, vec![Box::new(witness.clone())]);
    witness.cache.set(Arc::downgrade(&w.cache)).expect("the cell is empty");
    let ban = BanSpec::from_cli(&["obj.http.foo", "==", "bar"]).expect("the ban is valid");
    let actions = [
        (Action::PurgeKey { digest: digest(1), purge: Purge::Hard }, 1),
        (Action::PurgeTags { tags: words(&[3, 4]), purge: Purge::Hard }, 1),
        (Action::PurgeTags { tags: words(&[5]), purge: Purge::Hard }, 0),
        (Action::Ban(ban), 0),
        (Action::PurgeKey { digest: digest(1), purge: Purge::Soft { ttl: 0.0, grace: None, keep: None } }, 1),
    ];
    for (action, total) in actions {
        let Lookup::Miss { busy, .. } = w.lookup_with(1, |a| a.always_miss = true) else {
            unreachable!("always_miss misses");
        };
        let object = w.object(10.0, |_| {}, b"body");
        drop(busy.publish_tagged(&object, vec![w.cache.tag(b"tag4")]));
        let is_missed = total == 0 && !matches!(action, Action::Ban(_));
        let event = Invalidation::new(action, w.now.get(), Reason::PurgeAction, Source::Management);
        assert_eq!(w.cache.invalidate(event, Arrival::Local).finish(&w.cache), total);
        assert_eq!(witness.seen.lock().pop(), Some(Outcome::Hit(object.vxid())));
        assert_eq!(matches!(outcome(&w.lookup(1)), Outcome::Hit(_)), is_missed);
        w.cache.kill(&object);
    }
    assert_eq!(witness.seen.lock().len(), 0, "each is received once");
}

/// A purge in steps reaches listeners when it begins, not at each step.
#[test]
fn a_purge_in_steps_is_recorded_once() {
    let recorder = Recorder::default();
    let w = World::with_listeners(None, vec![Box::new(recorder.clone())]);
    (0..200).for_each(|_| drop(w.fill(1, 10.0, |_| {})));
    let action = Action::PurgeKey { digest: digest(1), purge: Purge::Hard };
    let event = Invalidation::new(action, w.now.get(), Reason::PurgeModule, Source::Request { vxid: 7 });
    let mut purging = w.cache.invalidate(event.clone(), Arrival::Journal);
    assert_eq!(purging.step(&w.cache, &|| true), None);
    assert_eq!(recorder.take(), [(event, Arrival::Journal)]);
    assert_eq!(purging.finish(&w.cache), 200);
    assert_eq!((recorder.take().len(), w.stat("n_purges"), w.stat("n_obj_purged")), (0, 1, 200));
}

/// A journal whose events are written by another thread.
struct Journal {
    queue: Mutex<mpsc::Sender<(Invalidation, Hold)>>,
}

impl InvalidationListener for Journal {
    fn invalidated(&self, event: &Invalidation, arrival: Arrival, ticket: &mut Ticket) {
        if arrival != Arrival::Journal {
            // If there is no writer, nothing is recorded, and the dropped hold delays nobody.
            let _ = self.queue.lock().send((event.clone(), ticket.hold()));
        }
    }
}

impl Journal {
    fn new() -> (Self, mpsc::Receiver<(Invalidation, Hold)>) {
        let (sender, receiver) = mpsc::channel();
        (Self { queue: Mutex::new(sender) }, receiver)
    }
}

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn some_invalidations() -> [Action; 3] {
    [
        Action::PurgeKey { digest: digest(1), purge: Purge::Hard },
        Action::PurgeTags { tags: words(&[3, 4]), purge: Purge::Hard },
        Action::Ban(BanSpec::from_cli(&["obj.http.foo", "==", "bar"]).expect("a good ban")),
    ]
}

/// Requests an invalidation and completes it. Returns its ticket.
fn ticket_of(w: &World, action: Action, arrival: Arrival) -> Ticket {
    let event = Invalidation::new(action, w.now.get(), Reason::PurgeAction, Source::Management);
    let mut purging = w.cache.invalidate(event, arrival);
    let ticket = purging.ticket();
    purging.finish(&w.cache);
    ticket
}

#[test]
fn without_a_journal_tickets_are_ready_at_once() {
    let recorder = Recorder::default();
    for w in [World::new(None), World::with_listeners(None, vec![Box::new(recorder.clone())])] {
        for action in some_invalidations() {
            let ticket = ticket_of(&w, action, Arrival::Local);
            assert!(ticket.is_recorded());
            ticket.wait();
        }
    }
    let (journal, _writer) = Journal::new();
    let w = World::with_listeners(None, vec![Box::new(journal)]);
    for action in some_invalidations() {
        assert!(ticket_of(&w, action, Arrival::Journal).is_recorded(), "it came from the journal");
    }
}

/// The effect does not wait for the journals. The ticket waits until the last one has written its record.
#[test]
fn tickets_wait_for_all_journals() {
    let ((one, first), (other, second)) = (Journal::new(), Journal::new());
    let recorder = Recorder::default();
    let w = World::with_listeners(None, vec![Box::new(one), Box::new(recorder.clone()), Box::new(other)]);
    for action in some_invalidations() {
        w.fill(1, 10.0, |_| {});
        let mut ticket = pin!(ticket_of(&w, action.clone(), Arrival::Local));
        if matches!(action, Action::PurgeKey { .. }) {
            assert!(matches!(outcome(&w.lookup(1)), Outcome::Miss(_)), "it is purged");
        }
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut is_ready = || ticket.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        for (journal, last) in [(&first, false), (&second, true)] {
            let (event, hold) = journal.try_recv().expect("it was received before the effect");
            assert_eq!(event.action(), &action);
            assert!(!is_ready());
            drop(hold);
            assert_eq!((is_ready(), count.0.load(Ordering::Relaxed)), (last, usize::from(last)));
        }
    }
}

/// A thread that blocks on a ticket continues when the record is written, and when the writer is lost.
#[test]
fn threads_wait_for_the_journal() {
    let (journal, queue) = Journal::new();
    let w = World::with_listeners(None, vec![Box::new(journal)]);
    let written = Arc::new(Mutex::new(Vec::new()));
    let pages = written.clone();
    let writer = thread::spawn(move || {
        for (event, hold) in queue.iter().take(some_invalidations().len()) {
            thread::yield_now();
            pages.lock().push(event);
            drop(hold);
        }
    });
    for (number, action) in some_invalidations().into_iter().enumerate() {
        ticket_of(&w, action, Arrival::Local).wait();
        assert_eq!(written.lock().len(), number + 1);
    }
    writer.join().expect("it does not panic");
    for action in some_invalidations() {
        ticket_of(&w, action, Arrival::Local).wait();
    }
}

/// A handover to another process waits for them.
#[test]
fn purges_are_in_progress_until_their_end() {
    let w = World::new(None);
    let fill = |key| w.fill(key, 1000.0, |_| {});
    let begin = |key| {
        let action = Action::PurgeKey { digest: digest(key), purge: Purge::Hard };
        let event = Invalidation::new(action, T0, Reason::PurgeModule, Source::Request { vxid: 1 });
        w.cache.invalidate(event, Arrival::Local)
    };
    (0..100).for_each(|_| drop(fill(1)));
    assert!(w.cache.invalidations_so_far().have_ended());
    let mut purging = begin(1);
    assert_eq!(purging.step(&w.cache, &|| true), None);
    let mut earlier = w.cache.invalidations_so_far();
    assert!(!earlier.have_ended());
    let later = begin(2);
    assert!(purging.step(&w.cache, &|| false).is_some());
    assert!(earlier.have_ended(), "the later one is not waited for");
    let mut earlier = w.cache.invalidations_so_far();
    assert!(!earlier.have_ended());
    drop(later);
    assert!(earlier.have_ended());
    w.cache.ban(&["obj.status", "==", "200"], T0);
    assert!(w.cache.invalidations_so_far().have_ended());
}

/// Publishes an object with these tags that has the body of another one, which a 304 has confirmed.
fn confirm(w: &World, key: u64, stale: &Object, tags: &[u64]) -> Option<Arc<Object>> {
    let Lookup::Miss { busy, .. } = w.lookup_with(key, |a| a.always_miss = true) else {
        unreachable!("always_miss misses");
    };
    let object = w.object(10.0, |_| {}, b"body");
    let tags = words(tags).iter().map(|word| w.cache.tag(word)).collect();
    busy.publish_confirmed(&object, tags, stale).ok().map(|_| object)
}

#[test]
fn an_object_that_a_purge_in_steps_has_not_reached_is_not_replaced() {
    let w = World::new(None);
    let publish = |key| {
        let Lookup::Miss { busy, .. } = w.lookup(key) else { unreachable!("it is not there yet") };
        let object = w.object(10.0, |_| {}, b"body");
        drop(busy.publish_tagged(&object, vec![w.cache.tag(b"tag1")]));
        object
    };
    let objects: Vec<_> = (0..200).map(publish).collect();
    let action = Action::PurgeTags { tags: words(&[1]), purge: Purge::Hard };
    let event = Invalidation::new(action, w.now.get(), Reason::Tags, Source::Management);
    let mut purging = w.cache.invalidate(event, Arrival::Local);
    assert_eq!(purging.step(&w.cache, &|| true), None);
    let mut left = 0;
    for (key, object) in (0..).zip(&objects) {
        left += usize::from(matches!(w.lookup(key), Lookup::Hit(_)));
        assert!(confirm(&w, key, object, &[1]).is_none());
        assert!(confirm(&w, key, object, &[2]).is_none(), "the origin has changed its tags");
    }
    assert_eq!(left, 136);
    assert_eq!(purging.finish(&w.cache), 200);
    assert!((0..200).all(|key| outcome(&w.lookup(key)) == Outcome::Miss(None)));
    assert_eq!(w.cache.tag_stats().read(), [0; 3]);
    let later = publish(1);
    assert!(confirm(&w, 1, &later, &[1]).is_some(), "the purge has ended");
}

#[test]
fn a_variant_that_a_purge_of_its_key_has_not_reached_is_not_replaced() {
    let w = World::new(None);
    let objects: Vec<_> = (0..200).map(|_| w.fill(1, 1000.0, |_| {})).collect();
    let action = Action::PurgeKey { digest: digest(1), purge: Purge::Hard };
    let event = Invalidation::new(action, w.now.get(), Reason::PurgeModule, Source::Request { vxid: 1 });
    let mut purging = w.cache.invalidate(event, Arrival::Local);
    assert!(objects.iter().all(|object| confirm(&w, 1, object, &[]).is_none()), "before the first step");
    assert_eq!(purging.step(&w.cache, &|| true), None);
    assert!(objects.iter().all(|object| confirm(&w, 1, object, &[]).is_none()), "after the first step");
    let other = w.fill(2, 10.0, |_| {});
    assert!(confirm(&w, 2, &other, &[]).is_some(), "it has another key");
    assert_eq!(purging.finish(&w.cache), 200);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(None));
    let later = w.fill(1, 10.0, |_| {});
    assert!(confirm(&w, 1, &later, &[]).is_some(), "the purge has ended");
}

#[test]
fn a_confirmed_object_is_tested_against_the_bans_after_the_check() {
    let w = World::new(None);
    let stale = w.fill(1, 10.0, |_| {});
    let confirmed = confirm(&w, 1, &stale, &[]).expect("the object is there");
    w.cache.kill(&stale);
    assert_eq!(outcome(&w.lookup(1)), Outcome::Hit(confirmed.vxid()));
    assert!(confirm(&w, 1, &stale, &[]).is_none(), "it has left the cache");
    let request = Request("/1".to_owned(), String::new());
    assert_eq!(w.cache.recheck(&confirmed, &request, &|| false), Verdict::Clear);
    w.tick(1.0);
    w.cache.ban(&["obj.http.foo", "==", "bar"], w.now.get());
    assert!(confirm(&w, 1, &confirmed, &[]).is_some());
    assert_eq!(outcome(&w.lookup(1)), Outcome::Miss(None));
    assert_eq!(w.stat("bans_obj_killed"), 2);
}
