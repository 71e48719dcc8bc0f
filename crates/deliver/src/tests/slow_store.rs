//! Deliveries from a store whose bodies lie in a file and are read late, in parts, or not at all: clients get what they
//! would get from memory, or a response without an end.

use std::pin::pin;
use std::task::Poll;

use lacquer_cache::BodyState;
use lacquer_testing::slow_store::{Faults, SlowStore};

use super::*;

const GOOD: Faults = Faults { short: 0, errors: 0 };
const SHORT: Faults = Faults { short: 60, errors: 0 };

struct SlowWorld {
    world: World,
    store: SlowStore,
}

fn stevedore(size: u64, store: &SlowStore) -> Stevedore {
    let arena = Arena::anonymous(Some(size)).expect("memory");
    Stevedore::new("slow", Kind::File, 0, arena).with_device(Arc::new(store.clone()))
}

impl SlowWorld {
    fn new(size: u64, seed: u64, faults: Faults) -> SlowWorld {
        let store = SlowStore::new(seed, faults).expect("a file");
        SlowWorld { world: World::over(stevedore(size, &store)), store }
    }

    fn cache(&self) -> &Cache {
        &self.world.0
    }

    /// An object that came through a writer and is in the index. The store has not written it yet.
    fn publish(&self, key: u8, body: &[u8]) -> Arc<Object> {
        let Lookup::Miss { busy, .. } = self.world.lookup(key) else { panic!("the key is new") };
        let (object, writer) = self.world.begin(0);
        busy.publish(&object);
        self.cache().finish(object, write(writer, body))
    }

    /// An object whose body is in the file alone.
    fn settled(&self, key: u8, body: &[u8]) -> Arc<Object> {
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

/// Runs to the end, while the store does one thing after each turn.
async fn beside<T>(store: &SlowStore, work: impl Future<Output = T>) -> T {
    let (mut work, mut idle) = (pin!(work), 0);
    std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending => {
            idle = if store.step() { 0 } else { idle + 1 };
            assert!(idle < 1000, "somebody waits for nothing");
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

/// Sends bytes to a client that takes `most` at a time, and ends the response as a protocol would.
async fn send_range(object: Arc<Object>, from: u64, to: u64, most: u64) -> (Result<(), SendError>, Recorder) {
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
        // In some worlds the store writes while clients read.
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
        assert_eq!((slow.used(), slow.store.objects()), (0, 0), "all of it is free");
    }
}

/// Filters, parts and includes do not notice where a body comes from.
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

        slow.cache().stevedores()[0].give_back();
        let mut page = pipeline(Vec::new(), recorder(u64::MAX >> 1));
        run(page.write(&splice::HEADER)).expect("it takes all");
        let mut include = Box::new(EsiInclude::new(page, true, Checksum::default(), true));
        assert!(run(beside(&slow.store, include.fit(Some(&packed), true, false))), "seed {seed}");
        let mut inner = BodyPipeline::new(Vec::new(), 1 << 15, BodySink::Include(include));
        run(beside(&slow.store, send_stored(&mut inner, &packed, 0, u64::MAX, Behind::More)))
            .expect("it is complete");
        let BodySink::Include(mut include) = inner.into_sink() else { unreachable!() };
        include.close();
        let (mut page, sum, sent) = include.into_parts();
        sent.expect("nothing failed");
        run(page.write(&splice::trailer(sum))).expect("it takes all");
        let mut unpacking = pipeline(vec![Box::new(Gunzip::for_delivery())], recorder(u64::MAX >> 1));
        run(unpacking.write(&client(page).bytes)).expect("it is gzip");
        run(unpacking.end()).expect("its checksum is right");
        assert!(client(unpacking).bytes == body, "seed {seed}");
    }
}

/// A client gets right bytes up to the failure, and no end. The object is of no use to others.
#[test]
fn a_failed_read_ends_the_response_early_and_without_an_end() {
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
        assert!(again.0.is_err() && !again.1.ended, "nobody waits for a body that failed");
        slow.cache().fail(&object);
        assert!(matches!(slow.world.lookup(1), Lookup::Miss { .. }));
        drop(object);
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
            assert!(run(beside(&slow.store, include.fit(Some(&object), is_packed, false))));
            slow.cache().stevedores()[0].give_back();
            let mut inner = BodyPipeline::new(Vec::new(), 1 << 15, BodySink::Include(include));
            if !fails_at_once {
                run(beside(&slow.store, send_stored(&mut inner, &object, 0, 100_000, Behind::More)))
                    .expect("it is there");
            }
            let BodySink::Include(mut include) = inner.into_sink() else { unreachable!() };
            include.broken(SendError::Source);
            let (_, _, sent) = include.into_parts();
            assert_eq!(sent.is_err(), expected_failure && !fails_at_once, "{is_packed} {fails_at_once}");
        }
    }
}

/// The memory of a read belongs to the read: the object may go before the bytes come, and its place may be used again.
#[test]
fn an_object_may_go_while_it_is_read() {
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
        assert_eq!(slow.store.objects(), 0, "its place is free");
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

/// Reads end on a thread of their own, as those of a real device may.
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

#[test]
fn what_a_store_has_from_before_is_found_again_and_what_is_spoiled_is_not() {
    type Spoil = fn(&mut Vec<u8>, &mut Vec<u8>);
    let cases: [(&str, Spoil, bool); 7] = [
        ("nothing", |_, _| {}, true),
        ("the version of the descriptor", |about, _| about[0] += 1, false),
        ("the length of the descriptor", |about, _| about.truncate(20), false),
        ("the packed head", |_, head| *head.last_mut().expect("not empty") ^= 1, false),
        ("the time of the last change", |_, head| head[..8].fill(0xff), false),
        ("the length of Vary", |_, head| head[8..12].fill(0xff), false),
        ("all of the head", |_, head| head.clear(), false),
    ];
    for (what, spoil, is_found) in cases {
        let body = Random(27).bytes(400_000);
        let before = SlowWorld::new(8 << 20, 3, SHORT);
        let _large = before.settled(1, &body);
        let _small = before.settled(2, b"small");
        let gone = before.settled(3, b"gone");
        before.cache().kill(&gone);
        drop(gone);
        let _unwritten = before.publish(4, &body);
        let store = before.store.restart(spoil).expect("the file is open");
        drop(before);
        let world = World::over(stevedore(8 << 20, &store));
        let recovery = world.0.recover().expect("the file can be read");
        assert_eq!((recovery.indexed, recovery.refused), if is_found { (2, 0) } else { (0, 2) }, "{what}");
        for key in [3, 4] {
            assert!(
                matches!(world.lookup(key), Lookup::Miss { .. }),
                "what was dropped or not written is gone"
            );
        }
        let Lookup::Hit(object) = world.lookup(1) else {
            assert!(!is_found, "{what}");
            assert_eq!(
                (store.objects(), world.0.stevedores()[0].used_space()),
                (0, 0),
                "what is refused is freed"
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
