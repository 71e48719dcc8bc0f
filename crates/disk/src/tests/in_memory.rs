//! Objects in memory whose bodies are on the device: they keep segments only while responses use them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::device::SimulatedDevice;
use super::page::{Page, key};
use crate::layout::Layout;
use crate::read::StoredBody;
use crate::record::Key;
use crate::store::{Options, Owner, Store};
use crate::writer::{Step, Writer};

const SEGMENT: u64 = 256 << 10;
const SEGMENTS: u64 = 16;
/// The length of a page, which needs three segments or so. Five fit.
const LEN: u64 = 500_000;

thread_local! {
    /// The time of the store of a test.
    static NOW: Cell<f64> = const { Cell::new(1000.0) };
}

/// An object in memory.
struct InMemory {
    key: Key,
    body: StoredBody,
    is_sent: bool,
    is_hit: bool,
}

/// A cache with enough memory for the heads of all objects.
#[derive(Clone, Default)]
struct Above(Arc<Mutex<Vec<InMemory>>>);

impl Owner for Above {
    fn is_used(&self, key: &Key) -> bool {
        self.0.lock().iter().any(|object| object.key == *key && object.is_hit)
    }

    fn tags(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> bool {
        true
    }

    fn forget(&self, key: &Key) {
        self.0.lock().retain(|object| object.key != *key || object.is_sent);
    }

    fn let_go(&self, key: &Key) -> bool {
        let mut objects = self.0.lock();
        let gone = objects.extract_if(.., |object| object.key == *key && !object.is_sent);
        gone.fold(false, |was_hit, object| was_hit | object.is_hit)
    }

    fn failed(&self, _: bool) {}
}

fn page(number: u64) -> Page {
    Page { number, head: "head", len: LEN }
}

struct World {
    above: Above,
    store: Arc<Store>,
    writer: Writer,
}

impl World {
    fn new() -> World {
        let layout = Layout {
            id: 5,
            journal: 64 << 10,
            segment: SEGMENT,
            segments: SEGMENTS,
            created: 1.0,
            version: 1,
        };
        let device = SimulatedDevice::new(layout.size(), 1);
        layout.create(&device).expect("the device works");
        let open = Store::open(Box::new(device), Options::default(), || NOW.get());
        let (store, above) = (open.expect("there is a store"), Above::default());
        store.set_owner(Box::new(above.clone()));
        store.recover();
        World { above, writer: Writer::new(Arc::clone(&store)), store }
    }

    fn add(&mut self, number: u64, is_sent: bool, is_hit: bool) -> bool {
        self.add_page(page(number), is_sent, is_hit)
    }

    /// Writes a page, and keeps its head in memory. Returns whether there was room.
    fn add_page(&mut self, page: Page, is_sent: bool, is_hit: bool) -> bool {
        let number = page.number;
        drop(self.store.commit(Box::new(page)));
        let end = loop {
            match self.writer.step() {
                Step::More => {}
                end => break end,
            }
        };
        self.writer.flush();
        while self.store.journal_step() {}
        if let Some(body) = self.find(number) {
            self.above.0.lock().push(InMemory { key: key(number), body, is_sent, is_hit });
        }
        end == Step::Idle
    }

    fn find(&self, number: u64) -> Option<StoredBody> {
        let candidate = self.store.candidates(&key(number), 1000.0).into_iter().next()?;
        Some(self.store.load(&candidate, &key(number))?.body())
    }

    /// Returns whether a page can be read from its beginning to its end.
    fn has(&self, number: u64) -> bool {
        self.find(number).is_some_and(|body| is_whole(&body, number))
    }
}

fn is_whole(body: &StoredBody, number: u64) -> bool {
    let (mut at, mut window) = (0, vec![0; 60_000]);
    while let Some(n) = body.read(at, &mut window).filter(|&n| n > 0) {
        assert!(window[..n].iter().all(|&byte| byte == number as u8));
        at += n as u64;
    }
    at == LEN
}

#[test]
fn objects_that_no_response_uses_leave_their_segments_to_new_ones() {
    let mut w = World::new();
    for number in 0..40 {
        assert!(w.add(number, false, false), "there is no room for {number}");
        assert!((number.saturating_sub(3)..=number).all(|number| w.has(number)), "after {number}");
    }
    assert!(w.above.0.lock().len() < 8);
    assert_eq!(w.store.stats().pinned.load(Ordering::Relaxed), 0, "none is passed over");
}

#[test]
fn those_that_were_hit_are_written_again() {
    let mut w = World::new();
    for number in 0..9 {
        assert!(w.add(number, false, number == 2), "there is no room for {number}");
    }
    assert!(w.has(2) && !w.has(1) && !w.has(3));
    assert!(w.store.stats().moved.load(Ordering::Relaxed) > 0);
}

#[test]
fn those_that_are_sent_stay_until_all_is_sent() {
    let mut w = World::new();
    (0..5).for_each(|number| assert!(w.add(number, number < 2, false)));
    for number in 5..40 {
        assert!(w.add(number, false, false), "there is no room for {number}");
        assert!(w.above.0.lock()[..2].iter().zip(0..).all(|(object, number)| is_whole(&object.body, number)));
    }
    // All segments are in use, and then are not.
    assert!((40..80).any(|number| !w.add_page(Page { len: 100_000, ..page(number) }, true, false)));
    w.above.0.lock().iter_mut().for_each(|object| object.is_sent = false);
    assert!(!w.add(80, false, false), "they are looked at once a second");
    NOW.set(1001.0);
    assert!(w.add(81, false, false) && w.has(80) && w.has(81));
}
