//! Deliveries from a store whose bodies are in a file and are read late, in parts, or not at all. Clients receive the
//! same bytes as from memory, or a response without an end.

use std::pin::pin;
use std::task::Poll;

use lacquer_cache::BodyState;
use lacquer_testing::slow_store::{Faults, SlowStore};

use super::*;

pub(super) const GOOD: Faults = Faults { short: 0, errors: 0 };
const SHORT: Faults = Faults { short: 60, errors: 0 };

pub(super) struct SlowWorld {
    world: World,
    pub store: SlowStore,
}

fn stevedore(size: u64, store: &SlowStore) -> Stevedore {
    let arena = Arena::anonymous(Some(size)).expect("memory");
    Stevedore::new("slow", Kind::File, 0, arena).with_device(Arc::new(store.clone()))
}

impl SlowWorld {
    pub fn new(size: u64, seed: u64, faults: Faults) -> SlowWorld {
        let store = SlowStore::new(seed, faults).expect("a file");
        SlowWorld { world: World::over(stevedore(size, &store)), store }
    }

    fn cache(&self) -> &Cache {
        &self.world.0
    }

    /// Returns an object that was written through a writer and is in the index. The store has not written it to the
    /// file yet.
    fn publish(&self, key: u8, body: &[u8]) -> Arc<Object> {
        let Lookup::Miss { busy, .. } = self.world.lookup(key) else { panic!("the key is new") };
        let (object, writer) = self.world.begin(0);
        busy.publish(&object);
        self.cache().finish(object, write(writer, body))
    }

    /// Returns an object whose body is only in the file.
    pub fn settled(&self, key: u8, body: &[u8]) -> Arc<Object> {
        let object = self.publish(key, body);
        self.store.run();
        assert!(!object.is_ready(0) || body.is_empty());
        assert!(matches!(object.read(0, 1), Read::Pending) || body.is_empty());
        object
    }

    fn used(&self) -> u64 {
        self.cache().stevedores()[0].used_space()
    }
}

/// Runs `work` to completion, while the store performs one operation after each poll.
pub(super) async fn beside<T>(store: &SlowStore, work: impl Future<Output = T>) -> T {
    let (mut work, mut idle) = (pin!(work), 0);
    std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending => {
            idle = if store.step() { 0 } else { idle + 1 };
            assert!(idle < 1000, "a reader waits although the store is idle");
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

/// Sends bytes to a client that receives `most` at a time, and ends the response as a protocol would.
pub(super) async fn send_range(
    object: Arc<Object>,
    from: u64,
    to: u64,
    most: u64,
) -> (Result<(), SendError>, Recorder) {
    let mut through = pipeline(Vec::new(), recorder(most));
    let sent = send_stored(&mut through, &object, from, to, Behind::More).await;
    let sent = through.finish(sent).await;
    (sent, client(through))
}

#[test]
fn many_readers_of_a_slow_body_get_the_same_bytes_as_from_memory() {
    let mut random = Random(21);
    for seed in 0..rounds(60) as u64 {
        let slow = SlowWorld::new(32 << 20, seed, if seed % 2 == 0 { SHORT } else { GOOD });
        let memory = World::new();
        let body = random_bytes(&mut random, 1, 1_500_000);
        // In some worlds, the store writes while clients read.
        let object = if seed % 3 == 0 { slow.publish(1, &body) } else { slow.settled(1, &body) };
        let resident = memory.complete(&body);
        let len = body.len() as u64;
        let ranges: Vec<(u64, u64, u64)> = (0..=random.below(20))
            .map(|_| {
                let from = random.below(len + 1);
                (from, from + random.below(len + 10), 1 + random.below(100_000))
            })
            .collect();
        let readers = async {
            let tasks = ranges.iter().map(|&(from, to, most)| {
                tokio::task::spawn_local(send_range(object.clone(), from, to, most))
            });
            for (task, &(from, to, most)) in tasks.collect::<Vec<_>>().into_iter().zip(&ranges) {
                let (sent, got) = task.await.expect("no panic");
                let (_, wanted) = send_range(resident.clone(), from, to, most).await;
                assert!(sent.is_ok() && got.ended, "seed {seed}: {sent:?}");
                assert!(got.bytes == wanted.bytes, "seed {seed}: {from} to {to} of {len}");
            }
        };
        run(beside(&slow.store, readers));
        slow.store.run();
        assert!(slow.used() < 12 << 20, "{} bytes in memory", slow.used());
        slow.cache().kill(&object);
        drop(object);
        assert_eq!((slow.used(), slow.store.objects()), (0, 0), "all storage is freed");
    }
}

/// Filters, parts and includes do not depend on where a body is stored.
#[test]
fn filters_ranges_and_includes_read_slow_bodies() {
    let mut random = Random(22);
    for seed in 0..rounds(20) as u64 {
        let slow = SlowWorld::new(32 << 20, seed, SHORT);
        let body = random_bytes(&mut random, 300_000, 600_000);
        let mut packing = pipeline(vec![Box::new(Gzip::new(1))], recorder(1000));
        let plain = slow.settled(1, &body);
        run(beside(&slow.store, send_stored(&mut packing, &plain, 0, u64::MAX, Behind::More)))
            .expect("it is complete");
        run(packing.end()).expect("there is an end");
        let packed = slow.settled(2, &client(packing).bytes);

        let mut unpacking = pipeline(vec![Box::new(Gunzip::for_delivery())], recorder(1000));
        run(beside(&slow.store, send_stored(&mut unpacking, &packed, 0, u64::MAX, Behind::More)))
            .expect("it is complete");
        run(unpacking.end()).expect("its checksum is right");
        assert!(client(unpacking).bytes == body, "seed {seed}");

        let high = body.len() as u64;
        let parts = Multipart::new(vec![(5, high / 2), (high / 3, high - 1)], high, Some(b"text/plain"), 1);
        let source = Source::Object(lacquer_cache::ObjRef::shared(plain.clone()));
        let mut several = pipeline(Vec::new(), recorder(50_000));
        run(beside(&slow.store, send_parts(&source, &parts, &mut several))).expect("it is complete");
        let got = client(several).bytes;
        assert_eq!(got.len() as u64, parts.length());
        let first = parts.part_head(0);
        assert!(got[first.len()..].starts_with(&body[5..=(high / 2) as usize]), "seed {seed}");

        slow.cache().stevedores()[0].return_free_pages();
        let mut page = pipeline(Vec::new(), recorder(u64::MAX >> 1));
        run(page.write(&splice::HEADER)).expect("the sink accepts everything");
        let mut include = Box::new(EsiInclude::new(page, true, Checksum::default(), true));
        assert!(run(beside(&slow.store, include.prepare(Some(&packed), true, false))), "seed {seed}");
        let mut inner = BodyPipeline::new(Vec::new(), 1 << 15, BodySink::Include(include));
        run(beside(&slow.store, send_stored(&mut inner, &packed, 0, u64::MAX, Behind::More)))
            .expect("it is complete");
        let BodySink::Include(mut include) = inner.into_sink() else { unreachable!() };
        include.close();
        let (mut page, sum, sent) = include.into_parts();
        sent.expect("nothing failed");
        run(page.write(&splice::trailer(sum))).expect("the sink accepts everything");
        let mut unpacking = pipeline(vec![Box::new(Gunzip::for_delivery())], recorder(u64::MAX >> 1));
        run(unpacking.write(&client(page).bytes)).expect("it is gzip");
        run(unpacking.end()).expect("its checksum is right");
        assert!(client(unpacking).bytes == body, "seed {seed}");
    }
}

/// A client receives correct bytes up to the failure, and no end. The object is removed for others.
#[test]
fn a_failed_read_truncates_the_response() {
    let (mut random, mut failed, mut whole) = (Random(23), 0, 0);
    for seed in 0..rounds(100) as u64 {
        let slow = SlowWorld::new(32 << 20, seed, GOOD);
        let body = random_bytes(&mut random, 200_000, 1_000_000);
        let object = slow.settled(1, &body);
        slow.store.set_faults(Faults { short: 30, errors: 10 });
        let reader = send_range(object.clone(), 0, u64::MAX, 40_000);
        let (sent, got) = run(beside(&slow.store, reader));
        assert!(body.starts_with(&got.bytes), "seed {seed}: a wrong byte");
        if sent.is_ok() {
            assert!(got.ended && got.bytes.len() == body.len(), "seed {seed}");
            whole += 1;
            continue;
        }
        failed += 1;
        assert!(matches!(sent, Err(SendError::Source)), "seed {seed}: {sent:?}");
        assert!(!got.ended && got.bytes.len() < body.len());
        assert_eq!((object.state(), slow.store.counts().failed), (BodyState::Failed, 1));
        let again = run(send_range(object.clone(), 0, u64::MAX, 40_000));
        assert!(again.0.is_err() && !again.1.ended, "a failed body is not waited for");
        slow.cache().fail(&object);
        assert!(matches!(slow.world.lookup(1), Lookup::Miss { .. }));
        drop(object);
        // A part that is read ahead may still be on its way.
        slow.store.run();
        assert_eq!((slow.used(), slow.store.objects()), (0, 0));
    }
    assert!(rounds(100) < 100 || failed > 20 && whole > 20, "{failed} failed, {whole} did not");
}

/// Half a compressed include makes the rest of a gzip stream unreadable, so the including response fails too. Without
/// any of its bytes, and where it is not compressed, the response continues.
#[test]
fn a_gzip_stream_fails_with_half_an_include() {
    let mut random = Random(25);
    for (is_packed, expected_failure) in [(true, true), (false, false)] {
        let slow = SlowWorld::new(32 << 20, 1, GOOD);
        let body = random_bytes(&mut random, 400_000, 600_000);
        let stored = if is_packed {
            let mut packing = pipeline(vec![Box::new(Gzip::new(1))], recorder(1000));
            run(packing.write(&body)).expect("it takes all");
            run(packing.end()).expect("there is an end");
            client(packing).bytes
        } else {
            body
        };
        let object = slow.settled(1, &stored);
        for fails_at_once in [false, true] {
            slow.store.set_faults(GOOD);
            let page = pipeline(Vec::new(), recorder(u64::MAX >> 1));
            let mut include = Box::new(EsiInclude::new(page, true, Checksum::default(), false));
            assert!(run(beside(&slow.store, include.prepare(Some(&object), is_packed, false))));
            slow.cache().stevedores()[0].return_free_pages();
            let mut inner = BodyPipeline::new(Vec::new(), 1 << 15, BodySink::Include(include));
            if !fails_at_once {
                run(beside(&slow.store, send_stored(&mut inner, &object, 0, 100_000, Behind::More)))
                    .expect("it is there");
            }
            let BodySink::Include(mut include) = inner.into_sink() else { unreachable!() };
            include.stop(SendError::Source);
            let (_, _, sent) = include.into_parts();
            assert_eq!(sent.is_err(), expected_failure && !fails_at_once, "{is_packed} {fails_at_once}");
        }
    }
}

/// The memory of a read belongs to the read: the object may be dropped before the read completes, and its space may
/// be reused.
#[test]
fn an_object_may_be_dropped_while_it_is_read() {
    let mut random = Random(24);
    for seed in 0..rounds(50) as u64 {
        let slow = SlowWorld::new(32 << 20, seed, SHORT);
        let body = random_bytes(&mut random, 300_000, 500_000);
        let object = slow.settled(1, &body);
        {
            let mut readers: Vec<_> =
                (0..3).map(|i| Box::pin(send_range(object.clone(), i * 140_000, u64::MAX, 10_000))).collect();
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(readers.iter_mut().all(|reader| reader.as_mut().poll(&mut cx).is_pending()));
            assert_eq!(slow.store.pending(), 3);
            if seed % 2 == 0 {
                slow.store.step();
            }
        }
        slow.cache().kill(&object);
        drop(object);
        assert_eq!(slow.store.objects(), 0, "its space is free");
        let other = slow.publish(2, &random_bytes(&mut random, 300_000, 500_000));
        slow.store.run();
        assert!(slow.store.counts().unwanted >= 2, "{:?}", slow.store.counts());
        let (sent, _) = run(beside(&slow.store, send_range(other.clone(), 0, u64::MAX, 10_000)));
        sent.expect("the new object is whole");
        slow.cache().kill(&other);
        drop(other);
        assert_eq!(slow.used(), 0, "no read kept its memory");
    }
}

/// Reads complete on a separate thread, as those of a real device may.
#[test]
fn readers_are_woken_from_another_thread() {
    let slow = SlowWorld::new(32 << 20, 1, SHORT);
    let body = Random(25).bytes(3_000_000);
    let object = slow.settled(1, &body);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                if !slow.store.step() {
                    std::thread::yield_now();
                }
            }
        });
        let reader = |from| {
            let object = object.clone();
            move || run(send_range(object, from, u64::MAX, 30_000))
        };
        let readers: Vec<_> = (0..4).map(|i| scope.spawn(reader(i * 700_000))).collect();
        for (i, reader) in readers.into_iter().enumerate() {
            let (sent, got) = reader.join().expect("no panic");
            sent.expect("nothing fails");
            assert!(got.ended && got.bytes == body[i * 700_000..]);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A store whose memory is full of other objects evicts them for the parts that are read.
#[test]
fn reads_make_room_in_a_full_memory() {
    let slow = SlowWorld::new(2 << 20, 1, GOOD);
    let body = Random(26).bytes(1_000_000);
    let object = slow.settled(1, &body);
    let spec = |vxid| ObjectSpec {
        vxid,
        t_origin: NOW,
        timers: Timers { ttl: 100.0, grace: 0.0, keep: 0.0 },
        flags: 0,
        last_modified: 0.0,
        vary: b"",
        head: b"head",
        extra: b"",
    };
    let (stevedore, mut ignore) = (&slow.cache().stevedores()[0], |_: &str| {});
    for key in 2..=255 {
        let Lookup::Miss { busy, .. } = slow.world.lookup(key) else { panic!("the key is new") };
        let nuke = &mut Nuke::new(0, &mut ignore);
        let Ok(small) = slow.cache().create(stevedore, &spec(key.into()), &[key; 2000], nuke) else { break };
        busy.publish(&small);
    }
    let mut fillers = Vec::new();
    while let Ok((filler, mut writer)) = slow.cache().begin(
        stevedore,
        &spec(1000),
        None,
        ChunkSizes { first: 4096, max: 4096 },
        &mut Nuke::new(0, &mut ignore),
    ) {
        while writer.write(&[1; 4096]).is_ok() {}
        fillers.push((filler, writer));
    }
    assert!(stevedore.longest_free() == 0, "{} bytes are free", stevedore.longest_free());
    let before = slow.cache().stats().n_lru_nuked.load(std::sync::atomic::Ordering::Relaxed);
    let (sent, got) = run(beside(&slow.store, send_range(object, 0, u64::MAX, 30_000)));
    sent.expect("room was made");
    assert!(got.bytes == body);
    assert!(slow.cache().stats().n_lru_nuked.load(std::sync::atomic::Ordering::Relaxed) > before);
}

/// Slow clients hold the parts that they read. Other readers wait for memory, and receive whole bodies once there is
/// memory again.
#[test]
fn slow_clients_delay_others_and_fail_no_body() {
    let slow = SlowWorld::new(4 << 20, 1, GOOD);
    let bodies: Vec<Vec<u8>> = (0..32).map(|seed| Random(100 + seed).bytes(400_000)).collect();
    let objects: Vec<_> = (1..).zip(&bodies).map(|(key, body)| slow.settled(key, body)).collect();
    let mut held = Vec::new();
    let last = objects.last().expect("there are many");
    let first_byte = async |object: &Arc<Object>| {
        object.more(0).await;
        let Read::Mapped(chunk) = object.read(0, u64::MAX) else { panic!("it was waited for") };
        drop(chunk);
    };
    for object in &objects[..31] {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut wait = Box::pin(first_byte(object));
        let is_waiting = wait.as_mut().poll(&mut cx).is_pending();
        assert!(is_waiting && slow.store.pending() <= 1);
        drop(wait);
        slow.store.run();
        if let Read::Mapped(chunk) = object.read(0, u64::MAX) {
            held.push(chunk);
        }
    }
    assert!(held.len() >= 8 && slow.used() < 3 << 20, "{} parts, {} bytes", held.len(), slow.used());
    let reader = send_range(last.clone(), 0, u64::MAX, 30_000);
    let releases = async {
        let mut reader = pin!(reader);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(
            reader.as_mut().poll(&mut cx).is_pending() && slow.store.pending() == 0,
            "it waits for memory"
        );
        held.truncate(held.len() - 2);
        reader.await
    };
    let (sent, got) = run(beside(&slow.store, releases));
    sent.expect("memory came");
    assert!(got.ended && got.bytes == bodies[31]);
    assert!(objects.iter().all(|object| object.state() == BodyState::Complete), "a body failed");
}

/// Readers that need several parts at once do not wait for each other.
#[test]
fn scans_of_packed_includes_do_not_wait_for_each_other() {
    let slow = SlowWorld::new(1 << 20, 1, GOOD);
    let packed = |seed| {
        let mut packing = pipeline(vec![Box::new(Gzip::new(1))], recorder(1000));
        run(packing.write(&Random(seed).bytes(300_000))).expect("it takes all");
        run(packing.end()).expect("there is an end");
        client(packing).bytes
    };
    let objects: Vec<_> = (1..9).map(|key| slow.settled(key, &packed(key.into()))).collect();
    let scans = async {
        let tasks: Vec<_> = objects
            .iter()
            .map(|object| {
                let object = object.clone();
                tokio::task::spawn_local(async move {
                    let page = pipeline(Vec::new(), recorder(u64::MAX >> 1));
                    let mut include = EsiInclude::new(page, true, Checksum::default(), true);
                    include.prepare(Some(&object), true, false).await
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await.expect("no panic"));
        }
    };
    run(beside(&slow.store, scans));
}

/// A body that failed while nobody read it is not found by lookups, and is removed from the index.
#[test]
fn a_body_that_failed_unseen_is_not_found() {
    for len in [2000, 400_000] {
        let slow = SlowWorld::new(8 << 20, 1, GOOD);
        let object = slow.settled(1, &Random(5).bytes(len));
        let mut front = FrontTable::new(16);
        for _ in 0..4 {
            assert!(matches!(slow.world.lookup_by(&mut front, 1), Lookup::Hit(_)));
        }
        slow.store.set_faults(Faults { short: 0, errors: 100 });
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(pin!(object.more(0)).poll(&mut cx).is_pending());
        slow.store.run();
        assert_eq!(object.state(), BodyState::Failed);
        assert!(matches!(slow.world.lookup_by(&mut front, 1), Lookup::Miss { stale: None, .. }));
        assert!(matches!(slow.world.lookup(1), Lookup::Miss { stale: None, .. }));
        assert!(!slow.cache().kill(&object), "it has left the index");
    }
}

#[test]
fn stored_objects_are_recovered_and_damaged_ones_are_refused() {
    type Damage = fn(&mut Vec<u8>, &mut Vec<u8>);
    let cases: [(&str, Damage, bool); 7] = [
        ("nothing", |_, _| {}, true),
        ("the version of the descriptor", |descriptor, _| descriptor[0] += 1, false),
        ("the length of the descriptor", |descriptor, _| descriptor.truncate(20), false),
        ("the packed head", |_, head| *head.last_mut().expect("not empty") ^= 1, false),
        ("the time of the last change", |_, head| head[..8].fill(0xff), false),
        ("the length of Vary", |_, head| head[8..12].fill(0xff), false),
        ("all of the head", |_, head| head.clear(), false),
    ];
    for (what, damage, is_found) in cases {
        let body = Random(27).bytes(400_000);
        let before = SlowWorld::new(8 << 20, 3, SHORT);
        let _large = before.settled(1, &body);
        let _small = before.settled(2, b"small");
        let gone = before.settled(3, b"gone");
        before.cache().kill(&gone);
        drop(gone);
        let _unwritten = before.publish(4, &body);
        let store = before.store.restart(damage).expect("the file is open");
        drop(before);
        let world = World::over(stevedore(8 << 20, &store));
        let recovery = world.0.recover().expect("the file can be read");
        assert_eq!((recovery.indexed, recovery.refused), if is_found { (2, 0) } else { (0, 2) }, "{what}");
        for key in [3, 4] {
            assert!(
                matches!(world.lookup(key), Lookup::Miss { .. }),
                "dropped and unwritten objects are not recovered"
            );
        }
        let Lookup::Hit(object) = world.lookup(1) else {
            assert!(!is_found, "{what}");
            assert_eq!(
                (store.objects(), world.0.stevedores()[0].used_space()),
                (0, 0),
                "refused objects are freed"
            );
            continue;
        };
        assert_eq!(
            (object.head(), object.body_len(), object.state()),
            (&b"head"[..], 400_000, BodyState::Complete)
        );
        let (sent, got) = run(beside(&store, send_range(object.to_shared(), 0, u64::MAX, 70_000)));
        sent.expect("it is whole");
        assert!(got.ended && got.bytes == body);
    }
}
