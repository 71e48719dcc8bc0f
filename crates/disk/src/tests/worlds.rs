//! Seeded worlds: random objects, purges, purges by tags, bans and cuts of power, checked against what was answered.
//!
//! `DISK_SEEDS=100000 cargo test -p lacquer-disk worlds` runs more of them, `DISK_SEEDS=5000..10000` others, `DISK_SEED=n`
//! one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lacquer_testing::Random;

use super::device::SimulatedDevice;
use super::fetch::FetchedMemory;
use super::ledger::{Ledger, Purged};
use super::owner::{Flag, Uses, tags};
use crate::blocks::BLOCK;
use crate::health::{Event, Reason};
use crate::journal::Ban;
use crate::layout::Layout;
use crate::part_stream::PartStream;
use crate::read::StoredBody;
use crate::record::{Key, Meta, Parts};
use crate::state::{Content, Phase};
use crate::store::{Options, Store};
use crate::writer::Writer;

const KEYS: u64 = 12;
/// The tags of most objects, all tags of objects, and all tags that are purged.
const TAGS: [u64; 3] = [12, 60, 120];
const NOW: f64 = 1000.0;

fn layout(segments: u64) -> Layout {
    Layout { id: 0x1234_5678, journal: 64 << 10, segment: 256 << 10, segments, created: 1.0, version: 1 }
}

/// An object whose bytes follow from its key, variant and version.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    key: u64,
    variant: u32,
    version: u64,
    ban: u32,
    expires: u32,
    descriptor: Vec<u8>,
    /// Its beginning is the list of the tags, after their number.
    head: Vec<u8>,
    body: Vec<u8>,
    /// It was written while it was fetched.
    is_streamed: bool,
}

fn key(number: u64) -> Key {
    let mut key = [0; 24];
    // Two keys share each fingerprint.
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..16].copy_from_slice(&(number / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

impl Sample {
    fn new(key: u64, variant: u32, version: u64, ban: u32, expires: u32) -> Self {
        let mut random = Random(version);
        let len = match random.below(8) {
            0 => 0,
            1 | 2 => random.index(120_000),
            3 => random.index(40_000),
            4 => 100_000 + random.index(20_000),
            5 if random.below(2) == 0 => 200_000 + random.index(500_000),
            _ => random.index(3000),
        };
        let descriptor = version.to_le_bytes().to_vec();
        let count = random.below(4).saturating_sub(1);
        let mut head = vec![count as u8];
        let all = TAGS[usize::from(random.below(3) == 0)];
        head.extend((0..count).map(|_| random.below(all) as u8));
        let rest = random.index(600);
        head.extend(random.bytes(rest));
        Self {
            key,
            variant,
            version,
            ban,
            expires,
            descriptor,
            head,
            body: random.bytes(len),
            is_streamed: false,
        }
    }
}

impl Content for Sample {
    fn parts(&self) -> Parts<'_> {
        let Self { variant, expires, ban, .. } = *self;
        Parts {
            meta: Meta { key: key(self.key), variant, expires, ban },
            descriptor: &self.descriptor,
            head: &self.head,
            extra: b"extra",
            body_len: self.body.len() as u64,
        }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let rest = &self.body[from as usize..];
        let n = rest.len().min(window.len()).min(1 + self.version as usize % 5000);
        window[..n].copy_from_slice(&rest[..n]);
        n
    }
}

struct World {
    seed: u64,
    random: Random,
    device: SimulatedDevice,
    store: Arc<Store>,
    writer: Writer,
    ledger: Ledger<Sample>,
    is_flipped: bool,
    /// Whether a bit of the journal has changed since the last start.
    has_flipped_journal: bool,
    flips: u64,
    /// Starts at which records of the journal were lost, or damaged groups had a copy.
    cleared: u64,
    mended: u64,
    /// Whether reads have failed since the last start.
    has_failing_reads: bool,
    failures: u64,
    found: u64,
    starts: u64,
    moved: u64,
    evicted: u64,
    /// Purges by tags that no object has.
    unrecorded: u64,
    /// Reads of large objects.
    large: u64,
    /// Bodies that are being sent.
    held: Vec<(StoredBody, Vec<u8>)>,
    /// Bodies that are being fetched.
    streams: Vec<Fetched>,
    streamed: u64,
}

/// A body that is written while it is fetched.
struct Fetched {
    sample: Sample,
    stream: Arc<PartStream>,
    memory: Arc<FetchedMemory>,
    pushed: u64,
}

fn open(device: &SimulatedDevice) -> (Arc<Store>, Writer) {
    let store =
        Store::open(Box::new(device.clone()), Options::default(), || NOW).expect("the superblock is sound");
    store.set_owner(Box::new(Uses));
    let writer = Writer::new(Arc::clone(&store));
    (store, writer)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let layout = layout(if random.below(6) == 0 { 12 } else { 4 + random.below(4) });
        let device = SimulatedDevice::new(layout.size(), seed);
        layout.create(&device).expect("the device works");
        let (store, writer) = open(&device);
        store.recover();
        let (ledger, is_flipped) = (Ledger::default(), false);
        Self {
            seed,
            random,
            device,
            store,
            writer,
            ledger,
            is_flipped,
            has_flipped_journal: false,
            flips: 0,
            cleared: 0,
            mended: 0,
            has_failing_reads: false,
            failures: 0,
            found: 0,
            starts: 0,
            moved: 0,
            evicted: 0,
            unrecorded: 0,
            large: 0,
            held: Vec::new(),
            streams: Vec::new(),
            streamed: 0,
        }
    }

    fn run(&mut self) {
        let steps = 60 + self.random.below(600);
        for _ in 0..steps {
            self.step();
            self.ledger.collect(self.device.is_off());
            if self.store.phase() == Phase::Failed {
                let is_excused = self.device.is_off() || self.has_failing_reads;
                assert!(is_excused, "seed {}: the store failed on a working device", self.seed);
                self.restart();
            }
        }
        self.restart();
        self.check_all();
    }

    fn step(&mut self) {
        let number = self.random.below(KEYS);
        match self.random.below(100) {
            0..40 => self.commit(number),
            40..44 => self.stream(number),
            44..48 => self.purge_tag(),
            48..53 => self.purge(number),
            53..55 => self.ban(),
            55..72 => (0..=self.random.below(4)).for_each(|_| {
                self.writer.step();
            }),
            72..77 => self.writer.flush(),
            77..83 => {
                self.store.journal_step();
            }
            83 => {
                if self.store.mark_journal().is_err() {
                    self.store.fail(Vec::new(), Reason::Write);
                }
            }
            84..95 => self.look_up(number),
            95 if self.random.below(3) == 0 => self.device.cut_after(self.random.below(12)),
            96 if self.random.below(3) == 0 => self.restart(),
            97 if self.random.below(3) == 0 => {
                self.writer.close();
                let _ = self.store.mark_journal();
            }
            96 | 97 => self.end_responses(),
            98 if self.random.below(8) == 0 => self.fail_reads(),
            98 if self.random.below(8) == 0 => {
                self.is_flipped = true;
                let layout = *self.store.layout();
                let at = layout.data() + self.random.below(layout.size() - layout.data());
                self.device.flip(at, self.random.below(8) as u8);
            }
            98 if !self.has_flipped_journal && self.random.below(2) == 0 => self.flip_journal(),
            99 if self.random.below(20) == 0 => self.lose_journal(),
            _ => (0..20).for_each(|_| {
                self.writer.step();
            }),
        }
    }

    /// Changes a bit of the journal, which the next start may need.
    fn flip_journal(&mut self) {
        self.has_flipped_journal = true;
        self.flips += 1;
        let layout = *self.store.layout();
        let half = layout.journal_half(self.random.below(2));
        // Most groups are near the beginning.
        let len = layout.journal >> (2 * self.random.below(3));
        self.device.flip(half + self.random.below(len), self.random.below(8) as u8);
    }

    /// Damages the journal from some block to its end after a mark, and kills the process: what was answered is in the
    /// part before the damage, or all objects are dropped.
    fn lose_journal(&mut self) {
        while self.store.journal_step() {}
        if self.store.mark_journal().is_err() || self.device.is_off() || self.store.phase() != Phase::Working
        {
            return;
        }
        self.has_flipped_journal = true;
        self.flips += 1;
        let layout = *self.store.layout();
        let blocks = layout.journal / BLOCK;
        let first = [self.random.below(blocks), self.random.below(6)][self.random.index(2)];
        for half in (0..2).filter(|_| self.random.below(4) > 0).collect::<Vec<_>>() {
            (first..blocks)
                .for_each(|block| self.device.flip(layout.journal_half(half) + block * BLOCK + 20, 0));
        }
        self.restart();
    }

    fn fail_reads(&mut self) {
        self.has_failing_reads = true;
        self.device.fail_reads([0, 5, 50, 300, 1000][self.random.index(5)]);
    }

    fn commit(&mut self, number: u64) {
        self.ledger.version += 1;
        let version = self.ledger.version;
        let variant = self.random.below(2) as u32;
        let expires = if self.random.below(6) == 0 { 500 } else { 5000 };
        let sample = Sample::new(number, variant, version, self.ledger.ban, expires);
        self.ledger.objects.insert(version, sample.clone());
        drop(self.store.commit(Box::new(sample)));
    }

    /// Begins a fetch, or continues one, which may fail.
    fn stream(&mut self, number: u64) {
        if self.streams.len() < 2 && self.random.below(2) == 0 {
            self.ledger.version += 1;
            let mut sample = Sample::new(number, 0, self.ledger.version, self.ledger.ban, 5000);
            let len = 1 + self.random.index(400_000);
            sample.body = Random(sample.version).bytes(len);
            let memory = Arc::new(FetchedMemory::new(sample.body.clone()));
            let meta = sample.parts().meta;
            if let Some(stream) = self.store.begin_stream(meta, Box::new(Arc::clone(&memory))) {
                self.streams.push(Fetched { sample, stream, memory, pushed: 0 });
            }
            return;
        }
        if self.streams.is_empty() {
            return;
        }
        let at = self.random.index(self.streams.len());
        let Fetched { sample, stream, memory, pushed } = &mut self.streams[at];
        let part = self.store.part_len().min(sample.body.len() as u64 - *pushed);
        if part > 0 && !stream.is_stopped() {
            stream.push(part);
            *pushed += part;
        }
        // The bytes that were written can be read.
        let written = memory.count();
        let (from, mut window) = (self.random.below(written + 1), vec![0; self.random.index(60_000)]);
        match stream.read(from, &mut window) {
            Some(n) => {
                assert_eq!(&window[..n], &sample.body[from as usize..from as usize + n], "wrong bytes");
            }
            None => assert!(self.is_flipped || self.has_failing_reads || self.device.is_off()),
        }
        let is_whole = *pushed == sample.body.len() as u64;
        if self.random.below(12) == 0 || is_whole && self.random.below(2) == 0 {
            let Fetched { mut sample, stream, .. } = self.streams.swap_remove(at);
            if is_whole && self.random.below(8) > 0 {
                // It is newer than what was committed meanwhile, and purges have removed it from the index of the cache.
                self.ledger.version += 1;
                sample.version = self.ledger.version;
                sample.is_streamed = true;
                sample.descriptor = sample.version.to_le_bytes().to_vec();
                self.ledger.objects.insert(sample.version, sample.clone());
                drop(self.store.commit_streamed(Box::new(sample), &stream));
                self.streamed += 1;
            }
        }
    }

    fn purge(&mut self, number: u64) {
        let answered = Arc::new(AtomicBool::new(false));
        let hold = Flag(Arc::clone(&answered));
        drop(self.store.purge(&key(number), Some(Box::new(hold))));
        self.note_purge(Purged::Key(number), answered);
    }

    fn purge_tag(&mut self) {
        let answered = Arc::new(AtomicBool::new(false));
        let hold = Flag(Arc::clone(&answered));
        let tag = (self.random.number() % TAGS[self.random.index(3)]) as u8;
        self.store.purge_tags([&[tag][..]].into_iter(), Some(Box::new(hold)));
        self.unrecorded +=
            u64::from(answered.load(Ordering::Relaxed) && self.store.phase() == Phase::Working);
        self.note_purge(Purged::Tag(tag), answered);
    }

    fn note_purge(&mut self, purged: Purged, answered: Arc<AtomicBool>) {
        let version = self.ledger.version;
        self.ledger.purged.insert(purged, version);
        self.ledger.purges.push((purged, version, answered));
    }

    fn ban(&mut self) {
        let answered = Arc::new(AtomicBool::new(false));
        let hold = Flag(Arc::clone(&answered));
        self.ledger.ban += 1;
        let number = self.ledger.ban;
        let words = ["obj.status", "==", &number.to_string()].map(Vec::from).to_vec();
        self.store.ban(Ban { number, time: 1.0, words }, Some(Box::new(hold)));
        self.ledger.bans.push((number, answered));
    }

    fn look_up(&mut self, number: u64) {
        for candidate in self.store.candidates(&key(number), NOW) {
            let (seed, is_flipped) = (self.seed, self.is_flipped);
            let Some(loaded) = self.store.load(&candidate, &key(number)) else {
                // It has another key, or was removed because of a purge by a tag.
                let is_other = self.store.load(&candidate, &key(number ^ 1)).is_some()
                    || !self.store.is_alive(&candidate, &[]);
                let is_excused = is_other || is_flipped || self.has_failing_reads || self.device.is_off();
                assert!(is_excused, "seed {seed}: an object in the index cannot be read");
                continue;
            };
            if self.store.phase() == Phase::Failed {
                // The read of an earlier candidate has failed, and took the device out.
                assert!(self.has_failing_reads || self.device.is_off(), "seed {seed}");
                return;
            }
            assert!(self.store.is_alive(&candidate, loaded.tags()), "seed {seed}: it is in the store");
            let version = loaded.fields().descriptor.try_into().map(u64::from_le_bytes).expect("eight bytes");
            let sample = self.ledger.objects.get(&version).expect("the object was committed");
            assert_eq!(sample.key, number, "seed {seed}: another's object");
            assert_eq!(loaded.fields().head, sample.head, "seed {seed}");
            assert_eq!(loaded.fields().extra, b"extra");
            assert_eq!(loaded.variant(), sample.variant);
            assert_eq!(sample.expires, 5000, "seed {seed}: an expired object");
            assert!(loaded.ban() <= sample.ban, "seed {seed}: bans were left out");
            let mut body = Vec::new();
            let is_sound = loaded.read_present(|piece| body.extend_from_slice(piece));
            if is_sound {
                assert_eq!(body, sample.body[..loaded.present() as usize], "seed {seed}: wrong bytes");
            }
            let stored = loaded.body();
            let from = self.random.below(sample.body.len() as u64 + 1);
            let mut window = vec![0; self.random.index(60_000)];
            match stored.read(from, &mut window) {
                Some(n) => {
                    let end = (from as usize + window.len()).min(sample.body.len());
                    let is_large = sample.body.len() > 200_000 || sample.is_streamed;
                    assert!(n == end - from as usize || (n > 0 && is_large), "seed {seed}: {n} bytes");
                    let expected = &sample.body[from as usize..from as usize + n];
                    assert_eq!(&window[..n], expected, "seed {seed}: wrong bytes");
                    self.large += u64::from(is_large);
                }
                None => {
                    let is_excused = is_flipped || self.has_failing_reads || self.device.is_off();
                    assert!(is_excused, "seed {seed}: a body cannot be read");
                }
            }
            let causes = tags(&sample.head).iter().map(|&tag| Purged::Tag(tag));
            for cause in causes.chain([Purged::Key(number)]) {
                let purged = self.ledger.purged.get(&cause).copied().unwrap_or(0);
                assert!(version > purged, "seed {seed}: version {version} of {number} was purged: {cause:?}");
            }
            if self.random.below(4) == 0 {
                self.store.hit(&candidate);
            }
            self.found += 1;
            if self.random.below(10) == 0 && self.held.len() < 2 {
                self.held.push((stored, sample.body.clone()));
            }
        }
    }

    /// Bodies can be read to their end, whatever happens to their objects meanwhile.
    fn end_responses(&mut self) {
        for (stored, body) in std::mem::take(&mut self.held) {
            let (mut window, mut at) = (vec![0; body.len()], 0);
            let is_read = loop {
                match stored.read(at as u64, &mut window[at..]) {
                    Some(0) => break at == body.len(),
                    Some(n) => at += n,
                    None => break false,
                }
            };
            assert!(
                is_read || self.is_flipped || self.has_failing_reads || self.device.is_off(),
                "seed {}: a response is cut off",
                self.seed
            );
            assert!(!is_read || window == body, "seed {}: wrong bytes", self.seed);
        }
    }

    fn restart(&mut self) {
        self.held.clear();
        self.streams.clear();
        self.ledger.collect(self.device.is_off());
        let (has_failed, was_off) = (self.store.phase() == Phase::Failed, self.device.is_off());
        self.has_failing_reads = false;
        self.starts += 1;
        self.moved += self.store.stats().moved.load(Ordering::Relaxed);
        self.evicted += self.store.stats().evicted.load(Ordering::Relaxed);
        self.device = self.device.restart();
        let (store, writer) = open(&self.device);
        let is_renewed = store.layout().id != self.store.layout().id;
        // A cut of power may come before the contents are invalid, or after that.
        assert!(
            if has_failed { is_renewed || was_off } else { !is_renewed || self.has_flipped_journal },
            "seed {}: {is_renewed}",
            self.seed
        );
        let (events, _) = store.take_events();
        self.cleared += u64::from(events.iter().any(|event| matches!(event, Event::Cleared(_))));
        self.mended += u64::from(events.iter().any(|event| matches!(event, Event::Mended { .. })));
        self.has_flipped_journal = false;
        if is_renewed {
            // The next start finds nothing, not even bans.
            self.failures += 1;
            self.ledger.recorded_bans.clear();
        }
        (self.store, self.writer) = (store, writer);
        let ledger = &mut self.ledger;
        // A purge that was not answered may be lost.
        ledger.purged = ledger.purged_for_ever.clone();
        ledger.purges.clear();
        ledger.bans.clear();
        let past = self.store.past().clone();
        // The numbers of bans that were lost are used again.
        ledger.objects.values_mut().for_each(|sample| sample.ban = sample.ban.min(past.last_ban));
        let known: BTreeSet<u32> = past.bans.iter().map(|ban| ban.number).collect();
        let seed = self.seed;
        if !self.is_flipped {
            let last = ledger.recorded_bans.last().copied().unwrap_or(0);
            assert!(past.last_ban >= last, "seed {seed}: ban {last} was forgotten");
        }
        if self.random.below(2) == 0 {
            // Purges while the index is being read.
            let number = self.random.below(KEYS);
            self.purge(number);
            self.purge_tag();
            self.store.journal_step();
        }
        if self.random.below(12) == 0 {
            self.fail_reads();
        }
        self.store.recover();
        self.device.fail_reads(0);
        self.check_bans(&known);
        self.ledger.ban = past.last_ban;
        self.check_all();
    }

    /// All recorded bans that objects still need are known.
    fn check_bans(&self, known: &BTreeSet<u32>) {
        if self.is_flipped {
            return;
        }
        let oldest = self.store.oldest_ban();
        for &number in self.ledger.recorded_bans.range(oldest.saturating_add(1)..) {
            assert!(known.contains(&number), "seed {}: ban {number} is needed", self.seed);
        }
    }

    fn check_all(&mut self) {
        for number in 0..KEYS {
            self.look_up(number);
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    if let Ok(seed) = std::env::var("DISK_SEED") {
        return number(&seed)..number(&seed) + 1;
    }
    match std::env::var("DISK_SEEDS").as_deref().map(|text| text.split_once("..").ok_or(text)) {
        Ok(Ok((from, to))) => number(from)..number(to),
        Ok(Err(count)) => 0..number(count),
        Err(_) => 0..250,
    }
}

#[test]
fn worlds_keep_their_promises() {
    let (mut found, mut starts, mut moved, mut evicted, mut large, mut failures) = (0, 0, 0, 0, 0, 0);
    let (mut streamed, mut flips, mut cleared, mut mended, mut unrecorded) = (0, 0, 0, 0, 0);
    let seeds = seeds();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let mut world = World::new(seed);
        world.run();
        found += world.found;
        starts += world.starts;
        moved += world.moved;
        evicted += world.evicted;
        large += world.large;
        streamed += world.streamed;
        unrecorded += world.unrecorded;
        failures += world.failures;
        flips += world.flips;
        cleared += world.cleared;
        mended += world.mended;
    }
    println!(
        "{count} worlds, {starts} starts, {found} objects read, {moved} moved, {evicted} evicted, \
         {large} reads of large objects, {streamed} written while they were fetched, {failures} failures of reads, \
         {flips} changes of the journal, of which {mended} had a copy and {cleared} lost records, {unrecorded} purges by \
         tags of no object"
    );
    let is_rich = found > count * 20
        && starts > count * 2
        && moved > count
        && evicted > count / 2
        && large > count / 4
        && streamed > count / 2
        && unrecorded > count / 2
        && failures > count / 100
        && flips > count / 4
        && mended > count / 100;
    assert!(count < 100 || is_rich, "the worlds are empty");
}
