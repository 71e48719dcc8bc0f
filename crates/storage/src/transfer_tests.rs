//! Bodies that move to a device while they are written, and deliveries that read ahead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::*;

const PARTS: Parts<'_> = Parts { head: &[b"head"], extra: b"" };
const SIZES: ChunkSizes = ChunkSizes { first: 16 << 10, max: 64 << 10 };
const LOAD: u64 = 8 * 16_376;

/// A device whose loads wait until the test completes them.
#[derive(Clone, Debug, Default)]
struct Loads(Arc<Mutex<Vec<Load>>>);

impl Extent for Loads {
    fn load(&self, load: Load) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(load);
    }
}

impl Loads {
    fn take(&self) -> Vec<Load> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Completes the loads. Returns their ranges.
    fn complete(&self) -> Vec<(u64, u64)> {
        self.take().into_iter().map(complete).collect()
    }
}

/// The length after which the bytes repeat.
const PERIOD: usize = 251 * 256;

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..PERIOD as u64).map(byte).collect());

fn byte(at: u64) -> u8 {
    (at * 7 + at / 251) as u8
}

/// Fills a window with the bytes from a position on. Copies, because loops are slow under Miri.
fn fill(mut from: u64, mut window: &mut [u8]) {
    while !window.is_empty() {
        let rest = &BYTES[(from % PERIOD as u64) as usize..];
        let (first, next) = window.split_at_mut(rest.len().min(window.len()));
        first.copy_from_slice(&rest[..first.len()]);
        from += first.len() as u64;
        window = next;
    }
}

fn complete(mut load: Load) -> (u64, u64) {
    let from = load.position();
    let window = load.window();
    fill(from, window);
    let len = window.len();
    load.advance(len);
    load.finish();
    (from, from + len as u64)
}

fn stevedore() -> Stevedore {
    Stevedore::new("s", Kind::Disk, 0, Arena::anonymous(Some(4 << 20)).expect("memory"))
}

/// Begins an object that moves to a device.
fn begin(stevedore: &Stevedore) -> (Stored, BodyWriter, Loads, Transfer) {
    let (stored, writer) = stevedore.begin(PARTS, None, SIZES, Layout::Pieces).expect("room");
    let loads = Loads::default();
    assert!(writer.move_to(Box::new(loads.clone())));
    assert!(!writer.move_to(Box::new(loads.clone())), "once");
    let transfer = writer.transfer();
    (stored, writer, loads, transfer)
}

fn write(writer: &mut BodyWriter, len: u64) {
    let mut bytes = vec![0; len as usize];
    fill(writer.len(), &mut bytes);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        rest = &rest[writer.write(rest).expect("room")..];
    }
}

fn poll(stored: &Stored, at: u64) -> Poll<BodyState> {
    stored.wait(at).poll(&Context::from_waker(Waker::noop()))
}

/// Reads a byte, which may have to be loaded.
fn read(stored: &Stored, loads: &Loads, at: u64) -> Option<u8> {
    for _ in 0..3 {
        match stored.read(at, u64::MAX) {
            Read::Mapped(chunk) => return Some(chunk.bytes()[0]),
            Read::Missing => return None,
            Read::Pending => {
                let _wait = stored.wait(at).poll(&Context::from_waker(Waker::noop()));
                loads.complete();
            }
        }
    }
    None
}

#[test]
fn each_byte_is_in_memory_or_on_the_device() {
    let stevedore = stevedore();
    let (stored, mut writer, loads, transfer) = begin(&stevedore);
    for round in 1..if cfg!(miri) { 8 } else { 40 } {
        write(&mut writer, 100_000);
        let mut window = vec![0; 1000];
        let from = writer.moved();
        let n = transfer.read(from, &mut window);
        assert!(n > 0 && (from..).zip(&window[..n]).all(|(at, &found)| found == byte(at)));
        transfer.advance(writer.len() - 50_000, 200_000);
        assert_eq!(writer.moved(), writer.len() - 50_000);
        for at in [0, 1, writer.len() / 3, writer.moved() - 1, writer.moved(), writer.len() - 1] {
            assert_eq!(read(&stored, &loads, at), Some(byte(at)), "{at} in round {round}");
        }
        assert!(poll(&stored, writer.len()).is_pending(), "it will come");
        assert!(!stored.is_ready(u64::MAX));
        assert!(stevedore.used_space() < 600_000, "{} bytes in memory", stevedore.used_space());
    }
    let len = writer.len();
    transfer.advance(len, 0);
    writer.finish();
    assert_eq!((stored.state(), stored.body_len()), (BodyState::Complete, len));
    assert!(stevedore.used_space() < 500_000, "{}", stevedore.used_space());
    assert_eq!(read(&stored, &loads, 0), Some(0));
    assert_eq!(read(&stored, &loads, len - 1), Some(byte(len - 1)));
    assert_eq!(read(&stored, &loads, len), None);
    assert!(poll(&stored, u64::MAX).is_ready());
}

#[test]
fn the_rest_of_a_body_stays_in_memory_when_the_device_stops() {
    let stevedore = stevedore();
    let (stored, mut writer, loads, transfer) = begin(&stevedore);
    write(&mut writer, 300_000);
    transfer.advance(100_000, 0);
    transfer.stop();
    assert!(writer.poll_moved(1, &Context::from_waker(Waker::noop())).is_ready(), "nothing to wait for");
    write(&mut writer, 100_000);
    writer.finish();
    for at in [0, 99_999, 100_000, 399_999] {
        assert_eq!(read(&stored, &loads, at), Some(byte(at)));
    }
}

#[test]
fn a_part_that_is_lost_fails_the_body_for_good() {
    let stevedore = stevedore();
    let (stored, mut writer, loads, transfer) = begin(&stevedore);
    write(&mut writer, 300_000);
    transfer.advance(200_000, 0);
    assert!(poll(&stored, 0).is_pending());
    loads.take().into_iter().for_each(Load::fail);
    assert!(writer.has_failed() && poll(&stored, 0).is_ready());
    assert!(writer.poll_moved(1, &Context::from_waker(Waker::noop())).is_ready());
    writer.finish();
    assert_eq!(stored.state(), BodyState::Failed);
    assert!(matches!(stored.read(0, 1), Read::Missing));
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_writer_waits_until_the_device_has_enough() {
    let stevedore = stevedore();
    let (stored, mut writer, _loads, transfer) = begin(&stevedore);
    let count = Arc::<Wakes>::default();
    let waker = Waker::from(Arc::clone(&count));
    let cx = Context::from_waker(&waker);
    write(&mut writer, 100_000);
    assert!(writer.poll_moved(100_001, &cx).is_ready());
    assert!(writer.poll_moved(100_000, &cx).is_pending());
    transfer.advance(1, 0);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(writer.poll_moved(100_000, &cx).is_ready());
    assert!(writer.poll_moved(10, &cx).is_pending());
    transfer.stop();
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
    // The object is gone: nothing to do.
    drop((stored, writer));
    transfer.advance(5, 0);
    transfer.stop();
    assert_eq!(transfer.read(0, &mut [0; 9]), 0);
}

/// Creates an object whose body is on a device.
fn on_device(stevedore: &Stevedore, len: u64) -> (Stored, Loads) {
    let loads = Loads::default();
    let stored = stevedore.on_device(PARTS, len, Box::new(loads.clone())).expect("room");
    (stored, loads)
}

#[test]
fn the_next_parts_are_loaded_while_one_is_sent() {
    let stevedore = stevedore();
    let (stored, loads) = on_device(&stevedore, 10 * LOAD);
    assert!(stored.begin_delivery(0, u64::MAX).is_some_and(|_| true));
    let delivery = stored.begin_delivery(0, 4 * LOAD + 5).expect("it is on a device");
    let mut wait = stored.wait(0);
    assert!(wait.poll(&Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(loads.complete(), [(0, LOAD)]);
    drop(wait);
    let mut asked = Vec::new();
    let mut at = 0;
    while at < 4 * LOAD + 5 {
        delivery.advance(at);
        asked.extend(loads.complete());
        let Read::Mapped(chunk) = stored.read(at, 4 * LOAD + 5) else { panic!("{at} is not there") };
        at += chunk.len().min(10_000) as u64;
    }
    assert_eq!(
        asked,
        [(LOAD, 2 * LOAD), (2 * LOAD, 3 * LOAD), (3 * LOAD, 4 * LOAD), (4 * LOAD, 4 * LOAD + 5)]
    );
}

#[test]
fn reading_ahead_is_bounded() {
    let stevedore = stevedore();
    let (stored, loads) = on_device(&stevedore, 100 * LOAD);
    let deliveries: Vec<Delivery<'_>> =
        (0..3).map(|_| stored.begin_delivery(0, u64::MAX).expect("it is on a device")).collect();
    for _ in 0..10 {
        for delivery in &deliveries {
            delivery.advance(0);
        }
    }
    let ranges: Vec<_> = loads.complete();
    assert!(ranges.len() <= 3 && ranges.iter().all(|range| range.1 <= 4 * LOAD), "{ranges:?}");
    // Not without memory to spare.
    let mut objects = Vec::new();
    while let Ok(object) = stevedore.complete(PARTS, &vec![7; 20_000]) {
        objects.push(object);
    }
    for delivery in &deliveries {
        delivery.advance(3 * LOAD);
    }
    assert!(loads.complete().is_empty());
}

#[test]
fn a_range_loads_no_more_than_it_needs() {
    let stevedore = stevedore();
    let (stored, loads) = on_device(&stevedore, 10 * LOAD);
    let delivery = stored.begin_delivery(50_000, 50_100).expect("it is on a device");
    assert!(poll(&stored, 50_000).is_pending());
    assert_eq!(loads.complete(), [(50_000, 50_100)]);
    delivery.advance(50_000);
    assert_eq!(loads.complete(), []);
    drop(delivery);
    assert!(poll(&stored, 200_000).is_pending());
    assert_eq!(loads.complete(), [(200_000, 200_000 + LOAD)], "a reader without a delivery");
}

#[test]
fn only_bytes_on_the_device_are_loaded() {
    let stevedore = stevedore();
    let (stored, mut writer, loads, transfer) = begin(&stevedore);
    write(&mut writer, 400_000);
    transfer.advance(150_000, 0);
    let delivery = stored.begin_delivery(0, u64::MAX).expect("it moves");
    assert!(poll(&stored, 0).is_pending());
    for _ in 0..5 {
        delivery.advance(0);
        for (from, to) in loads.complete() {
            assert!(from < to && to <= 150_000, "{from}..{to}");
        }
    }
    assert!(matches!(stored.read(0, 1), Read::Mapped(_)));
}
