//! Deliveries to a sink that records them, of bodies that are complete or still being fetched.

mod slow_clients;
mod slow_store;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use lacquer_cache::bans::{BanRequest, HeadReader};
use lacquer_cache::{
    BodyWriter, Cache, ChunkSizes, Config, Digest, FrontTable, Hooks, Lookup, LookupArgs, Nuke, Object,
    ObjectSpec, Read, Stevedore, Timers, flag,
};
use lacquer_filters::splice::{self, Checksum};
use lacquer_filters::{Filter, Gunzip, Gzip, RangeOf, STEP_MAX};
use lacquer_flow::lookup::Limits;
use lacquer_http::multipart::Multipart;
use lacquer_storage::{Arena, Kind};
use lacquer_testing::{Random, rounds};

use crate::*;

/// Records the bytes that a client would receive.
#[derive(Default)]
struct Recorder {
    bytes: Vec<u8>,
    ended: bool,
    flushes: u32,
    /// The number of writes after which the connection breaks.
    breaks_after: Option<u32>,
    writes: u32,
    longest: usize,
    /// The client reads nothing: all writes wait.
    is_full: bool,
    /// The largest number of bytes of a stored body that it sends at a time.
    most: u64,
    /// The `behind` argument of each stored piece.
    behind: Vec<Behind>,
}

impl Recorder {
    fn take(&mut self, piece: &[u8]) -> Result<(), SendError> {
        assert!(!self.ended, "nothing follows the end");
        self.writes += 1;
        if self.breaks_after.is_some_and(|most| self.writes > most) {
            return Err(SendError::disconnected());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

impl Sink for Recorder {
    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        if self.is_full {
            std::future::pending::<()>().await;
        }
        self.longest = self.longest.max(piece.len());
        self.take(piece)
    }

    async fn write_stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        behind: Behind,
    ) -> Result<u64, SendError> {
        self.behind.push(behind);
        let chunk = match object.read(from, to.min(from + self.most)) {
            Read::Mapped(chunk) => chunk,
            Read::Pending => return Ok(from),
            Read::Missing => return Err(SendError::Source),
        };
        self.take(chunk.bytes())?;
        Ok(from + chunk.len() as u64)
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        self.flushes += 1;
        Ok(())
    }

    async fn wait_for(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        self.check()?;
        object.more(at).await;
        Ok(())
    }

    fn check(&mut self) -> Result<(), SendError> {
        if self.breaks_after == Some(0) { Err(SendError::disconnected()) } else { Ok(()) }
    }

    async fn end_with(&mut self, piece: &[u8]) -> Result<(), SendError> {
        self.take(piece)?;
        self.end().await
    }

    async fn end(&mut self) -> Result<(), SendError> {
        assert!(!self.ended, "the response ends once");
        self.ended = true;
        Ok(())
    }
}

struct NoHeads;

impl HeadReader for NoHeads {
    fn header<'a>(&self, _head: &'a [u8], _name: &str) -> Option<&'a [u8]> {
        None
    }

    fn status(&self, _head: &[u8]) -> u16 {
        200
    }

    fn is_sound(&self, head: &[u8]) -> bool {
        head == b"head"
    }
}

/// A request that no ban tests.
struct NoRequest;

impl BanRequest for NoRequest {
    fn url(&self) -> &[u8] {
        b"/"
    }

    fn header(&self, _name: &str) -> Option<&[u8]> {
        None
    }
}

const NOW: f64 = 1_700_000_000.0;

struct World(Arc<Cache>);

impl World {
    fn new() -> World {
        let arena = Arena::anonymous(Some(32 << 20)).expect("memory");
        World::over(Stevedore::new("s0", Kind::Malloc, 0, arena))
    }

    fn over(stevedore: Stevedore) -> World {
        World(Cache::new(
            Config {
                stevedores: vec![stevedore],
                heads: Box::new(NoHeads),
                hooks: Hooks::default(),
                rush_exponent: 3,
                ban_dups: true,
                invalidation_listeners: Vec::new(),
            },
            NOW,
        ))
    }

    fn lookup(&self, key: u8) -> Lookup {
        self.lookup_by(&mut FrontTable::new(1), key)
    }

    fn lookup_by(&self, front: &mut FrontTable, key: u8) -> Lookup {
        let digest: Digest = [key; 32];
        let args = LookupArgs {
            t_req: NOW,
            limits: Limits::NONE,
            always_miss: false,
            ignore_busy: false,
            ignore_vary: false,
            ban_any_variant: 0,
            vary: &|_| true,
            ban: &NoRequest,
            pause: &|| false,
            banned: &|_| {},
            mismatches: Cell::new(0),
        };
        front.lookup(&self.0, &digest, &args, None)
    }

    fn begin(&self, flags: u32) -> (Arc<Object>, BodyWriter) {
        let spec = ObjectSpec {
            vxid: 1,
            t_origin: NOW,
            timers: Timers { ttl: 100.0, grace: 0.0, keep: 0.0 },
            flags,
            last_modified: 0.0,
            vary: b"",
            head: b"head",
            extra: b"",
        };
        let sizes = ChunkSizes { first: 4 << 10, max: 64 << 10 };
        let mut ignore = |_: &str| {};
        let nuke = &mut Nuke::new(50, &mut ignore);
        self.0.begin(&self.0.stevedores()[0], &spec, None, sizes, nuke).expect("room")
    }

    fn complete(&self, body: &[u8]) -> Arc<Object> {
        let (object, writer) = self.begin(0);
        write(writer, body).finish();
        object
    }
}

fn write(mut writer: BodyWriter, mut bytes: &[u8]) -> BodyWriter {
    while !bytes.is_empty() {
        let n = writer.write(bytes).expect("room");
        bytes = &bytes[n..];
    }
    writer
}

fn random_bytes(random: &mut Random, least: usize, most: u64) -> Vec<u8> {
    let len = least + random.below(most) as usize;
    random.bytes(len)
}

fn runtime() -> tokio::runtime::LocalRuntime {
    let options = tokio::runtime::LocalOptions::default();
    tokio::runtime::Builder::new_current_thread().build_local(options).expect("a runtime")
}

fn run<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

fn client(pipeline: BodyPipeline<Recorder>) -> Recorder {
    match pipeline.into_sink() {
        BodySink::Client(recorder) => recorder,
        BodySink::Include(_) | BodySink::Lent => unreachable!("the sink is the client"),
    }
}

fn pipeline(filters: Vec<Box<dyn Filter>>, sink: Recorder) -> BodyPipeline<Recorder> {
    BodyPipeline::new(filters, 1 << 15, BodySink::Client(sink))
}

fn recorder(most: u64) -> Recorder {
    Recorder { most, ..Recorder::default() }
}

#[test]
fn any_part_of_a_body_is_sent_as_it_is_stored() {
    let (world, mut random) = (World::new(), Random(7));
    for _ in 0..rounds(200) {
        let body = random_bytes(&mut random, 0, 200_000);
        let object = world.complete(&body);
        let from = random.below(body.len() as u64 + 1);
        let to = from + random.below(body.len() as u64 + 10);
        let mut sink = recorder(1 + random.below(100_000));
        run(send_stored(&mut sink, &object, from, to, Behind::More)).expect("it is complete");
        let wanted = &body[from as usize..to.min(body.len() as u64) as usize];
        assert!(sink.bytes == wanted, "{from} to {to} of {}", body.len());
        assert!(!sink.ended && sink.flushes == 0);
    }
}

#[test]
fn a_body_is_sent_while_it_is_fetched_and_its_failure_is_reported() {
    let (world, mut random) = (World::new(), Random(8));
    for round in 0..rounds(100) {
        let body = random_bytes(&mut random, 1, 300_000);
        let fails = round % 3 == 0;
        let flags = if round % 2 == 0 { flag::HFM | flag::PRIVATE } else { 0 };
        let (object, mut writer) = world.begin(flags);
        let mut sink = recorder(u64::MAX >> 1);
        let (sent, fetched) = run(async {
            let reader = send_stored(&mut sink, &object, 0, u64::MAX, Behind::More);
            let fetch = async {
                let mut rest = &body[..];
                while !rest.is_empty() {
                    let n = rest.len().min(1 + random.below(50_000) as usize);
                    writer = write(writer, &rest[..n]);
                    rest = &rest[n..];
                    tokio::task::yield_now().await;
                }
                if fails { writer.fail() } else { writer.finish() }
            };
            tokio::join!(reader, fetch)
        });
        let () = fetched;
        assert_eq!(matches!(sent, Err(SendError::Source)), fails, "{sent:?}");
        assert!(sink.bytes == body && sink.flushes > 0, "bytes are flushed before each wait");
    }
}

#[test]
fn the_output_of_filters_and_parts_does_not_depend_on_piece_sizes() {
    let (world, mut random) = (World::new(), Random(9));
    for _ in 0..rounds(60) {
        let half = random_bytes(&mut random, 1, 100_000);
        let body = [&half[..], &half[..]].concat();
        let object = world.complete(&body);
        // Compressed during delivery.
        let mut packing = pipeline(vec![Box::new(Gzip::new(6))], recorder(1000));
        run(send_stored(&mut packing, &object, 0, u64::MAX, Behind::More)).expect("it is complete");
        run(packing.end()).expect("there is an end");
        let packed = client(packing).bytes;
        // Decompressed, and a range of the result.
        let (low, high) = (random.below(body.len() as u64), body.len() as u64);
        let filters: Vec<Box<dyn Filter>> =
            vec![Box::new(Gunzip::for_delivery()), Box::new(RangeOf::new(low, high))];
        let mut unpacking = pipeline(filters, recorder(1000));
        match run(send_stored(&mut unpacking, &world.complete(&packed), 0, u64::MAX, Behind::More)) {
            Ok(()) | Err(SendError::Enough) => {}
            failed => panic!("{failed:?}"),
        }
        run(unpacking.end()).expect("the stream can be ended");
        let got = client(unpacking);
        assert!(got.ended && got.bytes == body[low as usize..], "from {low}");
        assert!(got.longest <= STEP_MAX, "{} bytes at a time", got.longest);
        // Several ranges.
        let ranges = vec![(0, low), (low, high - 1)];
        let parts = Multipart::new(ranges, high, Some(b"text/plain"), 1);
        let wanted = parts.length();
        for source in [Source::Bytes(body.clone()), Source::Bytes(half.clone())] {
            let mut several = pipeline(Vec::new(), Recorder { most: 1000, ..Recorder::default() });
            let sent = run(send_parts(&source, &parts, &mut several));
            let is_whole = matches!(&source, Source::Bytes(bytes) if bytes.len() == body.len());
            assert_eq!(sent.is_ok(), is_whole, "a range that is not there is a failure");
            assert!(!is_whole || client(several).bytes.len() as u64 == wanted);
        }
    }
}

#[test]
fn a_source_is_sent_with_its_end() {
    let world = World::new();
    let object = world.complete(b"0123456789");
    let sources =
        [Source::Bytes(b"0123456789".to_vec()), Source::Object(lacquer_cache::ObjRef::shared(object))];
    for source in &sources {
        assert!(source.is_complete() && !source.is_empty());
        for (from, to, wanted) in
            [(0, None, "0123456789"), (3, Some(5), "34"), (9, Some(90), "9"), (20, None, "")]
        {
            let mut sink = recorder(4);
            run(source.send(&mut sink, from, to)).expect("the body is complete");
            assert!(sink.ended && sink.bytes == wanted.as_bytes(), "{from} {to:?}");
            assert!(sink.behind.iter().all(|&behind| behind == Behind::End));
        }
    }
    assert!(Source::Bytes(Vec::new()).is_empty());
}

/// Bytes that nothing changes are sent from storage, also into an including response. More bytes may follow them.
#[test]
fn a_pipeline_without_filters_copies_nothing() {
    let (world, mut random) = (World::new(), Random(3));
    for _ in 0..rounds(40) {
        let body = random_bytes(&mut random, 1, 300_000);
        let object = world.complete(&body);
        let mut page = pipeline(Vec::new(), recorder(u64::MAX >> 1));
        run(page.write(b"before ")).expect("it takes all");
        let mut include = Box::new(EsiInclude::new(page, false, Checksum::default(), true));
        assert!(run(include.prepare(Some(&object), false, false)));
        let mut inner = BodyPipeline::new(Vec::new(), 1 << 15, BodySink::Include(include));
        run(send_stored(&mut inner, &object, 0, u64::MAX, Behind::More)).expect("it is complete");
        let BodySink::Include(mut include) = inner.into_sink() else { unreachable!() };
        assert_eq!(include.take_count(), body.len() as u64);
        let (mut page, ..) = include.into_parts();
        run(send_stored(&mut page, &object, 0, u64::MAX, Behind::End)).expect("it is complete");
        run(page.write(b" behind")).expect("it takes all");
        run(page.end()).expect("it ends");
        let sink = client(page);
        assert!(sink.bytes == [b"before ", &body[..], &body[..], b" behind"].concat());
        assert_eq!(sink.writes, 2 + sink.behind.len() as u32, "stored bytes do not come by `write`");
        assert!(sink.behind.iter().all(|&behind| behind == Behind::More) && !sink.behind.is_empty());
    }
}

/// An included body, plain or gzipped, becomes part of the gzip stream around it.
#[test]
fn included_bodies_become_part_of_a_gzip_stream() {
    let world = World::new();
    let (plain, mut packed) = (b"plain ".repeat(1000), Vec::new());
    let mut packing = pipeline(vec![Box::new(Gzip::new(6))], recorder(u64::MAX >> 1));
    run(send_stored(&mut packing, &world.complete(&plain), 0, u64::MAX, Behind::More))
        .expect("it is complete");
    run(packing.end()).expect("there is an end");
    packed.extend(client(packing).bytes);
    for (body, is_packed) in [(&plain, false), (&packed, true)] {
        let object = world.complete(body);
        let mut page = pipeline(Vec::new(), recorder(u64::MAX >> 1));
        run(page.write(&splice::HEADER)).expect("the sink accepts everything");
        let mut include = Box::new(EsiInclude::new(page, true, Checksum::default(), true));
        assert!(run(include.prepare(Some(&object), is_packed, false)));
        let mut inner = BodyPipeline::new(Vec::new(), 1 << 15, BodySink::Include(include));
        run(send_stored(&mut inner, &object, 0, u64::MAX, Behind::More)).expect("it is complete");
        let BodySink::Include(mut include) = inner.into_sink() else { unreachable!() };
        include.close();
        assert_eq!(include.take_count(), body.len() as u64);
        let (mut page, sum, sent) = include.into_parts();
        sent.expect("nothing failed");
        run(page.write(&splice::trailer(sum))).expect("the sink accepts everything");
        let stream = client(page).bytes;
        let mut unpacking = pipeline(vec![Box::new(Gunzip::for_delivery())], recorder(u64::MAX >> 1));
        run(unpacking.write(&stream)).expect("it is gzip");
        run(unpacking.end()).expect("its checksum is right");
        assert!(client(unpacking).bytes == plain, "packed: {is_packed}");
    }
}

#[test]
fn a_malformed_include_and_a_gone_client_are_reported() {
    let world = World::new();
    let broken = world.complete(b"\x1f\x8b\x08\0 this is not gzip");
    let mut include = EsiInclude::new(pipeline(Vec::new(), recorder(9)), true, Checksum::default(), true);
    assert!(!run(include.prepare(Some(&broken), true, false)));
    include.fail();
    assert!(matches!(include.into_parts().2, Err(SendError::Include)));

    // A body that is to be included as a whole is not waited for if the client is gone.
    let (object, writer) = world.begin(0);
    let gone = Recorder { breaks_after: Some(0), ..recorder(9) };
    let mut include = EsiInclude::new(pipeline(Vec::new(), gone), true, Checksum::default(), false);
    let prepared = {
        let mut prepare = pin!(include.prepare(Some(&object), true, false));
        run(poll_fn(|cx| Poll::Ready(prepare.as_mut().poll(cx))))
    };
    assert_eq!(prepared, Poll::Ready(false), "it does not wait for the fetch");
    assert!(matches!(include.into_parts().2, Err(SendError::Io(_))));
    drop(writer);

    let body = Random(1).bytes(200_000);
    let object = world.complete(&body);
    for breaks_after in [0, 1, 5] {
        let sink = Recorder { breaks_after: Some(breaks_after), ..recorder(20_000) };
        let mut through = pipeline(Vec::new(), sink);
        let sent = run(send_stored(&mut through, &object, 0, u64::MAX, Behind::More));
        assert!(matches!(sent, Err(SendError::Io(_))) || breaks_after == 5, "{sent:?}");
        let BodySink::Client(sink) = through.into_sink() else { unreachable!() };
        assert!(!sink.ended && body.starts_with(&sink.bytes));
    }
}

/// After a failure, the bytes before it are sent without an end. A client that is gone receives nothing more.
#[test]
fn only_a_whole_body_gets_its_end() {
    for (sent, ends, flushes) in [
        (Ok(()), true, 0),
        (Err(SendError::Enough), true, 0),
        (Err(SendError::Source), false, 1),
        (Err(SendError::Filter), false, 1),
        (Err(SendError::Include), false, 1),
        (Err(SendError::disconnected()), false, 0),
    ] {
        let is_failure = !ends;
        let mut sink = BodySink::Client(recorder(1));
        assert_eq!(run(sink.end_body(sent)).is_err(), is_failure);
        let BodySink::Client(sink) = sink else { unreachable!() };
        assert_eq!((sink.ended, sink.flushes), (ends, flushes));
    }
}
