//! Bodies on a device, with loads that the tests complete.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::*;

const PARTS: Parts<'_> = Parts { head: &[b"head"], extra: b"extra" };
const SIZES: ChunkSizes = ChunkSizes { first: 16 << 10, max: 64 << 10 };

type Queue<T> = Arc<Mutex<Vec<T>>>;

fn take<T>(queue: &Queue<T>) -> Vec<T> {
    std::mem::take(&mut queue.lock().unwrap_or_else(PoisonError::into_inner))
}

fn put<T>(queue: &Queue<T>, item: T) {
    queue.lock().unwrap_or_else(PoisonError::into_inner).push(item);
}

/// A device that records commits and loads.
#[derive(Clone, Debug, Default)]
struct ManualDevice {
    commits: Queue<(Committed, Vec<u8>)>,
    loads: Queue<Load>,
}

impl Device for ManualDevice {
    fn commit(&self, object: Committed, descriptor: &[u8]) {
        put(&self.commits, (object, descriptor.to_vec()));
    }

    fn recover(&self, _found: &mut dyn FnMut(Recovered)) -> io::Result<()> {
        Err(io::ErrorKind::InvalidData.into())
    }
}

impl Extent for ManualDevice {
    fn load(&self, load: Load) {
        put(&self.loads, load);
    }
}

fn stevedores(device: &ManualDevice) -> [Stevedore; 2] {
    let stevedore = |index| {
        let arena = Arena::anonymous(Some(4 << 20)).expect("memory");
        Stevedore::new("s", Kind::Malloc, index, arena)
    };
    [stevedore(0), stevedore(1).with_device(Arc::new(device.clone()))]
}

fn stored(stevedore: &Stevedore, body: &[u8]) -> Stored {
    let (stored, mut writer) = stevedore.begin(PARTS, None, SIZES, Layout::Pieces).expect("room");
    let mut rest = body;
    while !rest.is_empty() {
        rest = &rest[writer.write(rest).expect("room")..];
    }
    writer.finish();
    stored
}

fn body(len: usize) -> Vec<u8> {
    let mut bytes = (0..251).collect::<Vec<u8>>().repeat(len / 251 + 1);
    bytes.truncate(len);
    bytes
}

/// Fills the memory with objects.
fn filled(stevedore: &Stevedore) -> Vec<Stored> {
    let mut objects = Vec::new();
    for len in [20_000, 200] {
        while let Ok(object) = stevedore.complete(PARTS, &body(len)) {
            objects.push(object);
        }
    }
    objects
}

/// Creates an object whose body is only on the device. Also returns the device and the store.
fn settled(len: usize) -> (Stored, ManualDevice, Stevedore) {
    let device = ManualDevice::default();
    let [_, stevedore] = stevedores(&device);
    let stored = stored(&stevedore, &body(len));
    stevedore.commit(&stored, b"descriptor");
    for (object, descriptor) in take(&device.commits) {
        assert_eq!(descriptor, b"descriptor");
        let writing = object.open().expect("it exists");
        assert_eq!((writing.head(), writing.extra()), (&b"head"[..], &b"extra"[..]));
        writing.settle(Box::new(device.clone()));
    }
    (stored, device, stevedore)
}

fn poll(stored: &Stored, at: u64) -> Poll<BodyState> {
    stored.wait(at).poll(&Context::from_waker(Waker::noop()))
}

/// Bytes are in memory, or will come from the origin, or will never be there.
#[test]
fn reads_in_memory_are_pending_only_during_a_fetch() {
    let [memory, _] = stevedores(&ManualDevice::default());
    memory.recover(&mut |_, _| panic!("a store in memory recovers nothing")).expect("nothing can fail");
    let whole = memory.complete(PARTS, b"0123").expect("room");
    let streamed = stored(&memory, b"0123");
    let (coming, mut writer) = memory.begin(PARTS, None, SIZES, Layout::Apart).expect("room");
    writer.write(b"0123").expect("room");
    for (object, last) in [(&whole, "missing"), (&streamed, "missing"), (&coming, "pending")] {
        let read = |from, to| match object.read(from, to) {
            Read::Mapped(chunk) => String::from_utf8_lossy(chunk.bytes()).into_owned(),
            Read::Pending => "pending".to_owned(),
            Read::Missing => "missing".to_owned(),
        };
        assert_eq!([read(0, 9), read(1, 3), read(3, 4)], ["0123", "12", "3"]);
        assert_eq!([read(2, 2), read(2, 1)], ["missing", "missing"], "empty ranges are missing");
        assert_eq!([read(4, 9), read(u64::MAX - 1, u64::MAX)], [last, last]);
        assert!(object.is_ready(3));
        assert_eq!(object.is_ready(4), last == "missing");
    }
    writer.fail();
    assert!(matches!(coming.read(4, 9), Read::Missing) && coming.is_ready(4));
}

#[test]
fn a_load_may_deliver_its_bytes_in_parts() {
    let (stored, device, stevedore) = settled(300_000);
    assert!(stevedore.used_space() < 1000, "{} bytes in memory", stevedore.used_space());
    assert_eq!((stored.head(), stored.extra(), stored.body_len()), (&b"head"[..], &b"extra"[..], 300_000));
    assert!(matches!(stored.read(1000, 2000), Read::Pending));
    assert!(matches!(stored.read(1000, 1000), Read::Missing), "nobody waits for an empty range");
    assert!(
        poll(&stored, 1000).is_pending()
            && poll(&stored, 1000).is_pending()
            && poll(&stored, 1001).is_pending()
    );
    let mut loads = take(&device.loads);
    assert_eq!(loads.len(), 1, "bytes that are being loaded are requested once");
    let mut load = loads.remove(0);
    let all = body(300_000);
    let mut at = 1000;
    for n in [1, 5000, 0, 30_000] {
        assert_eq!(load.position(), at as u64);
        load.window()[..n].copy_from_slice(&all[at..at + n]);
        load.advance(n);
        at += n;
    }
    assert!(!stored.is_ready(1000), "bytes become visible at the end of the load");
    load.finish();
    assert_eq!(poll(&stored, 1000), Poll::Ready(BodyState::Complete));
    let Read::Mapped(chunk) = stored.read(2000, u64::MAX) else { panic!("the bytes are loaded") };
    assert!(chunk.bytes() == &all[2000..at], "{} bytes", chunk.len());
    assert!(!stored.is_ready(at as u64), "a short load provides only its bytes");
    assert!(stored.is_ready(300_000), "reads after the end need not wait");
    assert!(poll(&stored, at as u64).is_pending());
    assert_eq!(take(&device.loads)[0].position(), at as u64);
}

#[test]
fn a_load_without_bytes_fails_the_body() {
    let ends: [fn(Load); 4] = [Load::fail, drop, Load::finish, |mut load| {
        load.advance(7);
        load.fail();
    }];
    for end in ends {
        let (stored, device, stevedore) = settled(300_000);
        assert!(poll(&stored, 0).is_pending());
        take(&device.loads).into_iter().for_each(end);
        assert_eq!(poll(&stored, 0), Poll::Ready(BodyState::Failed));
        assert!(matches!(stored.read(0, 1), Read::Missing));
        assert_eq!((stored.state(), take(&device.loads).len()), (BodyState::Failed, 0));
        drop(stored);
        assert_eq!(stevedore.used_space(), 0);
    }
}

/// A load takes no more bytes than were requested, and owns its memory.
#[test]
fn a_load_outlives_its_object() {
    let (stored, device, stevedore) = settled(5000);
    assert!(poll(&stored, 4000).is_pending());
    let mut load = take(&device.loads).remove(0);
    assert_eq!(load.window().len(), 1000);
    load.advance(usize::MAX);
    assert!(load.window().is_empty() && load.is_wanted());
    drop(stored);
    assert!(!load.is_wanted());
    load.window().fill(1);
    load.finish();
    assert_eq!(stevedore.used_space(), 0);
}

/// Of any number of parts that were read, few stay in memory.
#[test]
fn parts_that_were_read_are_dropped() {
    let len = if cfg!(miri) { 600_000 } else { 30 << 20 };
    let (stored, device, stevedore) = settled_large(len);
    let mut at = 0;
    while at < len {
        assert!(poll(&stored, at).is_pending());
        for mut load in take(&device.loads) {
            let n = load.window().len();
            load.advance(n);
            load.finish();
        }
        let Read::Mapped(chunk) = stored.read(at, len) else { panic!("the bytes are loaded") };
        at += chunk.len() as u64;
        assert!(stevedore.used_space() < 600 << 10, "{} bytes in memory", stevedore.used_space());
    }
    stored.drop_body();
    assert!(stevedore.used_space() < 1000);
}

/// Creates an object whose body is longer than the memory.
fn settled_large(len: u64) -> (Stored, ManualDevice, Stevedore) {
    let device = ManualDevice::default();
    let arena = Arena::anonymous(Some(4 << 20)).expect("memory");
    let stored = Stored::on_device(&arena, PARTS, len, Box::new(device.clone())).expect("room");
    (stored, device, Stevedore::new("s", Kind::Malloc, 0, arena))
}

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll_with(wait: &mut Wait<'_>, count: &Arc<Count>) -> Poll<BodyState> {
    wait.poll(&Context::from_waker(&Waker::from(count.clone())))
}

/// Completes all loads. Returns false if there are none.
fn complete(device: &ManualDevice) -> bool {
    let loads = take(&device.loads);
    let are_there = !loads.is_empty();
    for mut load in loads {
        let n = load.window().len();
        load.advance(n);
        load.finish();
    }
    are_there
}

/// If nothing can be evicted, a reader waits for memory, and the body does not fail.
#[test]
fn a_reader_without_memory_waits_for_it() {
    let (stored, device, stevedore) = settled(300_000);
    let mut others = filled(&stevedore);
    let (mut wait, woken) = (stored.wait(0), Arc::new(Count::default()));
    assert!(poll_with(&mut wait, &woken).is_pending());
    assert_eq!((stored.state(), take(&device.loads).len()), (BodyState::Complete, 0));
    assert_eq!(woken.get(), 0);
    others.clear();
    assert_eq!(woken.get(), 1, "memory was freed");
    assert!(poll_with(&mut wait, &woken).is_pending());
    complete(&device);
    assert_eq!(poll_with(&mut wait, &woken), Poll::Ready(BodyState::Complete));
}

/// Slow readers hold parts in at most half of the memory. The next reader waits until one of them is done, and no body
/// fails.
#[test]
fn slow_readers_hold_half_of_the_memory() {
    let (large, device, stevedore) = settled_large(30 << 20);
    let arena = large.arena();
    let mut held = Vec::new();
    for at in (0..).map(|i| i * (256 << 10)) {
        assert!(poll(&large, at).is_pending());
        if !complete(&device) {
            break;
        }
        let Read::Mapped(chunk) = large.read(at, u64::MAX) else { panic!("it came") };
        held.push(chunk);
    }
    let used = stevedore.used_space();
    assert!((1 << 20..=(2 << 20) + 1000).contains(&used), "{used} bytes are held in {} parts", held.len());
    let other = Stored::on_device(arena, PARTS, 5000, Box::new(device.clone())).expect("room");
    let (mut wait, woken) = (other.wait(0), Arc::new(Count::default()));
    assert!(poll_with(&mut wait, &woken).is_pending() && take(&device.loads).is_empty());
    assert!(stevedore.complete(PARTS, &body(100_000)).is_ok(), "there is room for others");
    held.clear();
    assert!(woken.get() > 0);
    assert!(poll_with(&mut wait, &woken).is_pending());
    complete(&device);
    assert_eq!(poll_with(&mut wait, &woken), Poll::Ready(BodyState::Complete));
    assert_eq!(large.state(), BodyState::Complete);
}

/// A part that a reader waits for stays in memory, however many other readers need memory. Once the reader has it, the
/// part is dropped for them.
#[test]
fn a_part_that_is_awaited_stays() {
    let (large, device, _stevedore) = settled_large(30 << 20);
    let mut wait = large.wait(0);
    assert!(wait.poll(&Context::from_waker(Waker::noop())).is_pending());
    complete(&device);
    let mut held = Vec::new();
    let woken = Arc::new(Count::default());
    let mut at = 0;
    let mut other = loop {
        at += 256 << 10;
        let mut other = large.wait(at);
        assert!(poll_with(&mut other, &woken).is_pending());
        if !complete(&device) {
            break other;
        }
        let Read::Mapped(chunk) = large.read(at, u64::MAX) else { panic!("it came") };
        held.push(chunk);
    };
    assert!(large.is_ready(0), "it is still there");
    let before = woken.get();
    drop(wait);
    assert!(woken.get() > before);
    assert!(poll_with(&mut other, &woken).is_pending());
    assert_eq!((take(&device.loads).len(), large.is_ready(0)), (1, false));
}

/// Fills the memory for parts with chunks that readers hold.
fn hold_all<'s>(large: &'s Stored, device: &ManualDevice) -> Vec<Chunk<'s>> {
    let mut held = Vec::new();
    for at in (0..).map(|i| i * (256 << 10)) {
        assert!(poll(large, at).is_pending());
        if !complete(device) {
            break;
        }
        let Read::Mapped(chunk) = large.read(at, u64::MAX) else { panic!("it came") };
        held.push(chunk);
    }
    held
}

/// Returns objects that have no part in memory.
fn unread(many: u64, beside: &Stored, device: &ManualDevice) -> Vec<Stored> {
    let one = |_| Stored::on_device(beside.arena(), PARTS, 200_000, Box::new(device.clone()));
    (0..many).map(|number| one(number).expect("room")).collect()
}

/// Freed memory wakes the reader that waits longest, and no other before that reader has its part. A reader that comes
/// later does not overtake it.
#[test]
fn readers_get_freed_memory_in_the_order_of_their_arrival() {
    let (large, device, _stevedore) = settled_large(30 << 20);
    let mut held = hold_all(&large, &device);
    let objects = unread(10, &large, &device);
    let counts: Vec<Arc<Count>> = objects.iter().map(|_| Arc::default()).collect();
    let mut waits: Vec<_> = objects.iter().map(|object| object.wait(0)).collect();
    for (wait, count) in waits[..9].iter_mut().zip(&counts) {
        assert!(poll_with(wait, count).is_pending());
    }
    let woken = || counts.iter().map(|count| count.get()).collect::<Vec<_>>();
    drop(held.pop());
    assert_eq!(woken(), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(poll_with(&mut waits[9], &counts[9]).is_pending());
    assert_eq!(take(&device.loads).len(), 0, "the first has its turn");
    assert!(poll_with(&mut waits[0], &counts[0]).is_pending());
    assert_eq!(device.loads.lock().unwrap_or_else(PoisonError::into_inner).len(), 1);
    assert_eq!(woken(), [1, 1, 0, 0, 0, 0, 0, 0, 0, 0], "there may be memory for another");
    assert!(poll_with(&mut waits[1], &counts[1]).is_pending());
    assert_eq!(woken(), [1, 1, 0, 0, 0, 0, 0, 0, 0, 0], "there was none");
    complete(&device);
    drop(held);
    let mut turn = 0;
    while let Some(wait) = waits.get_mut(turn) {
        assert!(counts[turn].get() > 0, "reader {turn} is not woken");
        let polled = poll_with(wait, &counts[turn]);
        assert!(turn == 0 || polled.is_pending());
        complete(&device);
        turn += 1;
    }
}

/// A reader that leaves after it was woken passes its turn on.
#[test]
fn a_reader_that_leaves_passes_its_turn_on() {
    let (large, device, _stevedore) = settled_large(30 << 20);
    let mut held = hold_all(&large, &device);
    let objects = unread(3, &large, &device);
    let counts: Vec<Arc<Count>> = objects.iter().map(|_| Arc::default()).collect();
    let mut waits: Vec<_> = objects.iter().map(|object| Some(object.wait(0))).collect();
    for (wait, count) in waits.iter_mut().flatten().zip(&counts) {
        assert!(poll_with(wait, count).is_pending());
    }
    waits[1] = None;
    drop(held.pop());
    let woken = || counts.iter().map(|count| count.get()).collect::<Vec<_>>();
    assert_eq!(woken(), [1, 0, 0]);
    waits[0] = None;
    assert_eq!(woken(), [1, 0, 1]);
    let last = waits[2].as_mut().expect("it waits");
    assert!(poll_with(last, &counts[2]).is_pending() && complete(&device));
    assert!(poll_with(last, &counts[2]).is_ready());
}

/// A poll evicts few objects, however many can be evicted without effect. The reader then continues at once.
#[test]
fn a_poll_evicts_few_objects() {
    let (stored, device, stevedore) = settled(300_000);
    let mut others = filled(&stevedore);
    let evicted = Arc::new(AtomicUsize::new(0));
    let count = evicted.clone();
    stevedore.on_full(move || count.fetch_add(1, Ordering::Relaxed) < 100);
    let (mut wait, woken) = (stored.wait(0), Arc::new(Count::default()));
    for polls in 1..=3 {
        assert!(poll_with(&mut wait, &woken).is_pending());
        assert_eq!((evicted.load(Ordering::Relaxed), woken.get()), (32 * polls, polls));
    }
    assert!(poll_with(&mut wait, &woken).is_pending());
    assert_eq!((evicted.load(Ordering::Relaxed), woken.get()), (101, 3), "nothing more can be evicted");
    others.clear();
    assert!(poll_with(&mut wait, &woken).is_pending());
    complete(&device);
    assert_eq!(poll_with(&mut wait, &woken), Poll::Ready(BodyState::Complete));
}

/// Two objects share one body. Either object may be dropped first.
#[test]
fn a_body_is_shared_by_two_objects() {
    let [stevedore, other] = stevedores(&ManualDevice::default());
    for old_goes_first in [true, false] {
        let old = stored(&stevedore, &body(200_000));
        let used = stevedore.used_space();
        let parts = Parts { head: &[b"another"], extra: b"" };
        let new = stevedore.share(parts, &old).expect("room").expect("it is in memory");
        assert!(stevedore.used_space() < used + 1000, "nothing is copied");
        assert!(other.share(parts, &old).expect("room").is_none(), "another arena");
        let kept = if old_goes_first {
            drop(old);
            new
        } else {
            drop(new);
            old
        };
        assert_eq!(
            crate::test_reader::read_all(&kept, Waker::noop(), || ()),
            (body(200_000), BodyState::Complete)
        );
        drop(kept);
        assert_eq!(stevedore.used_space(), 0);
    }
}

/// A body that is incomplete or not in memory is not shared.
#[test]
fn only_a_body_in_memory_is_shared() {
    let (on_device, device, with_device) = settled(200_000);
    assert!(with_device.share(PARTS, &on_device).expect("room").is_none());
    assert!(poll(&on_device, 0).is_pending());
    complete(&device);
    assert!(with_device.share(PARTS, &on_device).expect("room").is_none(), "a part of it is in memory");
    let [memory, _] = stevedores(&device);
    let (coming, mut writer) = memory.begin(PARTS, None, SIZES, Layout::Apart).expect("room");
    writer.write(b"0123").expect("room");
    assert!(memory.share(PARTS, &coming).expect("room").is_none(), "more comes");
    writer.finish();
    let used = memory.used_space();
    assert!(memory.share(PARTS, &coming).expect("room").is_some());
    coming.drop_body();
    assert!(memory.share(PARTS, &coming).expect("room").is_none(), "the body was dropped");
    assert!(memory.share(PARTS, &memory.complete(PARTS, b"0123").expect("room")).expect("room").is_none());
    assert!(memory.used_space() <= used);
}

#[test]
fn only_complete_objects_are_committed_and_only_once_settled() {
    let device = ManualDevice::default();
    let [memory, stevedore] = stevedores(&device);
    memory.commit(&stored(&memory, b"0123"), b"");
    let (coming, _writer) = stevedore.begin(PARTS, None, SIZES, Layout::Pieces).expect("room");
    stevedore.commit(&coming, b"");
    assert_eq!(take(&device.commits).len(), 0);
    let small = stevedore.complete(PARTS, b"0123").expect("room");
    stevedore.commit(&small, b"");
    let (object, _) = take(&device.commits).remove(0);
    object.open().expect("it exists").settle(Box::new(device.clone()));
    assert!(matches!(small.read(0, 4), Read::Mapped(_)), "it shares a span with its head");
    stevedore.commit(&small, b"");
    assert_eq!(take(&device.commits).len(), 0, "it is on the device");
    stevedore.commit(&stored(&stevedore, b"0123"), b"");
    assert!(take(&device.commits).remove(0).0.open().is_none(), "it was dropped before it was written");
    assert!(stevedore.recover(&mut |_, _| {}).is_err(), "an error of the device is returned");
}

/// A device that has the first bytes of a body in memory of its own.
#[derive(Debug)]
struct Lender {
    bytes: Vec<u8>,
    rest: ManualDevice,
}

impl Extent for Lender {
    fn load(&self, load: Load) {
        self.rest.load(load);
    }

    /// Returns bytes up to a multiple of 1000.
    fn bytes_at(&self, offset: u64) -> Option<&[u8]> {
        let from = offset as usize;
        let to = (from / 1000 + 1) * 1000;
        self.bytes.get(from..to.min(self.bytes.len())).filter(|bytes| !bytes.is_empty())
    }
}

#[test]
fn bytes_in_memory_of_the_device_are_read_there() {
    let device = ManualDevice::default();
    let arena = Arena::anonymous(Some(4 << 20)).expect("memory");
    let whole = body(3500);
    let lender = Lender { bytes: whole[..2500].to_vec(), rest: device.clone() };
    let stored = Stored::on_device(&arena, PARTS, 3500, Box::new(lender)).expect("room");
    let used = arena.used();
    for (from, to, expected) in [(0, 3500, 0..1000), (999, 3500, 999..1000), (1000, 1500, 1000..1500)] {
        let Read::Mapped(chunk) = stored.read(from, to) else { panic!("it is in memory") };
        assert_eq!(chunk.bytes(), &whole[expected]);
        assert!(chunk.file_range().is_none());
        assert!(stored.is_ready(from));
    }
    assert_eq!(arena.used(), used, "nothing is copied");
    assert!(take(&device.loads).is_empty());
    // The rest is loaded as for other bodies.
    assert!(matches!(stored.read(2500, 3500), Read::Pending));
    assert!(poll(&stored, 2500).is_pending());
    let mut load = take(&device.loads).pop().expect("it is requested");
    load.window().copy_from_slice(&whole[2500..]);
    load.advance(1000);
    load.finish();
    let Read::Mapped(chunk) = stored.read(2500, 3500) else { panic!("it was loaded") };
    assert_eq!(chunk.bytes(), &whole[2500..]);
    assert!(matches!(stored.read(3500, 4000), Read::Missing));
}
