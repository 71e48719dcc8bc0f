//! Objects that are sent from the memory into which they were read.

use lacquer_storage::Read;

use super::disks::{DiskWorld, Memory};
use super::*;
use crate::disk::DiskObject;

/// The number of objects on the disk, and the length of each.
const OBJECTS: u64 = 40;
const LENGTH: usize = 100_000;

fn body(key: u64) -> Vec<u8> {
    Random(key + 1).bytes(LENGTH)
}

/// A cache whose memory is full of objects that nobody can find, and whose disk contains others.
struct Lenders {
    disk: DiskWorld,
    device: Memory,
    fillers: Vec<Arc<Object>>,
}

impl Lenders {
    fn new() -> Self {
        let mut this = Self::with_free_memory();
        let filler = vec![0; 1 << 20];
        this.fillers = (0..61).map(|_| this.disk.world.object(1000.0, |_| {}, &filler)).collect();
        this
    }

    fn with_free_memory() -> Self {
        let device = Memory::with_store(64 << 20);
        let mut disk = DiskWorld::new(&device);
        for key in 0..OBJECTS {
            let tag = disk.world.cache.tag(format!("tag{key}").as_bytes());
            let head: &'static str = format!("Foo: bar\nxkey: tag{key}").leak();
            let object = disk.world.object(1000.0, |spec| spec.head = head.as_bytes(), &body(key));
            drop(disk.busy(key).publish_tagged(&object, vec![tag]));
            disk.settle();
            disk.evict(&object);
        }
        assert_eq!(disk.store.objects(), OBJECTS);
        Self { disk, device, fillers: Vec::new() }
    }

    fn read(&self, key: u64) -> Box<DiskObject> {
        self.disk.read(key).expect("it is on the disk")
    }

    fn lend(&self, busy: Busy, found: Box<DiskObject>) -> Result<ObjRef, (Busy, Option<Box<DiskObject>>)> {
        let mut log = |_: &str| {};
        busy.lend_from_disk(found, self.disk.world.now.get(), Limits::NONE, &mut Nuke::new(50, &mut log))
    }

    /// Reads an object. Returns it if it is lent. Otherwise publishes it.
    fn request(&self, key: u64) -> Option<ObjRef> {
        match self.lend(self.disk.busy(key), self.read(key)) {
            Ok(object) => Some(object),
            Err((busy, found)) => {
                drop(busy);
                assert!(self.disk.publish_read(key, found.expect("there is room for its head")));
                None
            }
        }
    }

    fn is_in_memory(&self, key: u64) -> bool {
        matches!(self.disk.world.lookup(key), Lookup::Hit(_))
    }
}

/// Returns the bytes of a part of a body.
fn bytes(object: &Object, from: u64, to: u64) -> Vec<u8> {
    let mut all = Vec::new();
    while from + (all.len() as u64) < to {
        match object.read(from + all.len() as u64, to) {
            Read::Mapped(chunk) => {
                assert!(chunk.file_range().is_none(), "it is in no file");
                all.extend_from_slice(chunk.bytes());
            }
            Read::Pending => panic!("all of it was read"),
            Read::Missing => break,
        }
    }
    all
}

#[test]
fn a_single_request_uses_the_memory_of_its_read() {
    let w = Lenders::new();
    let before = w.disk.world.stat("n_object");
    for key in 0..OBJECTS {
        let object = w.request(key).expect("it was not requested before");
        assert_eq!(
            (object.body_len(), object.hits(), object.state()),
            (LENGTH as u64, 1, BodyState::Complete)
        );
        assert_eq!(bytes(&object, 0, u64::MAX), body(key));
        assert!(object.head().ends_with(format!("tag{key}").as_bytes()));
        for (from, to) in [(0, 1), (16_375, 16_377), (16_376, 16_376), (50_000, 99_999), (99_999, 100_001)] {
            let end = LENGTH.min(to as usize);
            assert_eq!(bytes(&object, from, to), body(key)[from as usize..end.max(from as usize)]);
        }
        assert!(matches!(object.read(LENGTH as u64, u64::MAX), Read::Missing));
        assert!(!w.is_in_memory(key), "it belongs to the request");
    }
    assert_eq!((w.disk.world.stat("n_object"), w.disk.world.stat("n_objectcore")), (before, 0));
}

#[test]
fn an_object_that_is_requested_again_moves_to_memory() {
    let w = Lenders::new();
    for key in 0..5 {
        assert!(w.request(key).is_some() && w.request(key).is_none() && w.is_in_memory(key));
    }
    assert_eq!(w.fillers.len(), 61);
}

#[test]
fn objects_move_to_memory_while_it_is_free() {
    let w = Lenders::with_free_memory();
    assert!((0..OBJECTS).all(|key| w.request(key).is_none() && w.is_in_memory(key)));
}

#[test]
fn an_object_that_others_wait_for_moves_to_memory() {
    let w = Lenders::new();
    let Lookup::Miss { busy, .. } = w.disk.world.lookup(1) else { panic!("it is on the disk alone") };
    let waiting = w.disk.world.lookup(1);
    assert!(matches!(waiting, Lookup::Wait(_)));
    let (busy, found) = w.lend(busy, w.read(1)).expect_err("another request waits");
    let mut log = |_: &str| {};
    let awaited = busy.publish_from_disk(*found.expect("it is sound"), &mut Nuke::new(50, &mut log));
    drop(awaited.expect("there is room"));
    assert!(w.is_in_memory(1));
}

#[test]
fn only_fresh_objects_that_no_ban_may_concern_are_lent() {
    let w = Lenders::new();
    w.disk.world.tick(2000.0);
    assert!(w.disk.read(1).is_none(), "it has expired");
    w.disk.world.tick(-2000.0);
    w.disk.world.cache.ban(&["obj.http.foo", "==", "other"], T0);
    let (_, found) = w.lend(w.disk.busy(1), w.read(1)).expect_err("a ban is to be tested");
    assert!(found.is_some());
}

#[test]
fn objects_that_are_purged_after_the_read_are_not_lent() {
    let w = Lenders::new();
    let [by_key, by_tag, soft] = [1, 2, 3].map(|key| (key, w.read(key)));
    w.disk.world.cache.purge(1, Purge::Hard, T0);
    w.disk.world.cache.purge_tags(&[2], Purge::Hard, T0);
    w.disk.world.cache.purge(3, Purge::Soft { ttl: 100.0, grace: None, keep: None }, T0);
    for (key, found) in [by_key, by_tag, soft] {
        let (_busy, found) = w.lend(w.disk.busy(key), found).expect_err("it was purged");
        assert!(found.is_none());
    }
}

#[test]
fn a_damaged_object_is_not_lent_and_leaves_the_store() {
    let w = Lenders::new();
    w.device.change(|bytes| {
        let pattern = &body(1)[60_000..60_100];
        let at = bytes.windows(100).position(|window| window == pattern).expect("it is on the disk");
        bytes[at] ^= 1;
    });
    let (busy, found) = w.lend(w.disk.busy(1), w.read(1)).expect_err("it is damaged");
    drop(busy);
    assert!(!w.disk.publish_read(1, found.expect("another attempt finds it damaged, too")));
    assert!(w.disk.read(1).is_none());
}

#[test]
fn each_response_has_memory_of_its_own() {
    let w = Lenders::new();
    let lent: Vec<ObjRef> = (0..OBJECTS).filter_map(|key| w.request(key)).collect();
    assert_eq!(lent.len() as u64, OBJECTS);
    for (key, object) in (0..).zip(&lent) {
        assert_eq!(bytes(object, 0, u64::MAX), body(key));
    }
    // A purge, and the reuse of all segments, do not change what is being sent.
    w.disk.world.cache.purge(0, Purge::Hard, T0);
    w.device.change(|bytes| bytes.fill(0));
    assert_eq!(bytes(&lent[0], 0, u64::MAX), body(0));
}
