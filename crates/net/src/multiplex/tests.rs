//! Streams over a connection in memory, whose other end is a server that the tests write.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lacquer_h2::client::{Failure, Request};
use lacquer_h2::frame::{self, FrameHeader, Kind, flag};
use lacquer_http::{Message, Slot, Workspace};
use lacquer_sources::clock::Instant;

use super::{Connections, Place, Stream, begin, failure_of};
use crate::connection::Connection;
use crate::endpoint::{Addresses, Endpoint};
use crate::memory::{self, Ends, Limits, Peer};

const IDLE: Duration = Duration::from_secs(10);
const OK: &[u8] = &[0x88];

/// A connection with its driver, and its server.
struct World {
    connections: Connections,
    endpoint: u64,
    server: Peer,
}

/// Opens a connection on which the server has sent its settings.
async fn open() -> (World, Arc<Stream>) {
    let (world, stream) = open_silent(1000);
    world.announce().await;
    (world, stream)
}

/// Opens a connection on which the server has sent nothing. `window` is the number of bytes in flight.
fn open_silent(window: usize) -> (World, Arc<Stream>) {
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    let limits = Limits { window, step: window * 7 / 10, buffer: 0, sends_files: false };
    let (near, server) = memory::connection(limits, Ends { engine: address, peer: address });
    let endpoint = Endpoint::new(Addresses { path: Some("/h2".to_owned()), ..Addresses::default() }, None);
    let connections = Connections::default();
    let Place::Open(opening) = connections.place(endpoint.id(), false, &|_, _| false) else {
        panic!("nothing is open")
    };
    assert!(
        matches!(connections.place(endpoint.id(), false, &|_, _| false), Place::Wait(_)),
        "one at a time"
    );
    let counted = endpoint.trust().open();
    let (connection, driver) = begin(crate::stream::Stream::Memory(near), &endpoint, counted, (10_000, IDLE));
    let stream = opening.complete(&connection).expect("the first stream");
    tokio::task::spawn_local(driver.run());
    tokio::task::spawn_local(opening.share(connection, IDLE / 2));
    (World { connections, endpoint: endpoint.id(), server }, stream)
}

impl World {
    async fn announce(&self) {
        self.server.write_all(&frames(Kind::Settings, 0, 0, b"")).await.expect("it reads");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn place(&self) -> Place {
        self.connections.place(self.endpoint, false, &|_, _| false)
    }
}

fn frames(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = FrameHeader::new(kind, flags, stream, payload.len()).bytes().to_vec();
    out.extend_from_slice(payload);
    out
}

fn send_head(stream: &Stream, ends: bool) -> io::Result<usize> {
    send_head_to(stream, "/", ends)
}

fn send_head_to(stream: &Stream, path: &str, ends: bool) -> io::Result<usize> {
    let (mut ws, mut message) = (Workspace::new(8000), Message::new(64));
    for (slot, text) in [(Slot::Method, "POST"), (Slot::Url, path)] {
        let text = ws.copy(text.as_bytes()).expect("there is room");
        message.put(&ws, slot, text);
    }
    stream.open(Request { message: &message, ws: &ws, is_secure: false, ends, wants_trailers: false })
}

/// Reads the whole response.
async fn read(connection: &mut Connection) -> io::Result<String> {
    let (mut all, mut piece) = (Vec::new(), [0; 100]);
    loop {
        match connection.rx_mut().read(&mut piece).await? {
            0 => return Ok(String::from_utf8_lossy(&all).into_owned()),
            n => all.extend_from_slice(&piece[..n]),
        }
    }
}

/// Reads until the connection sends a frame of this kind. Returns the kinds of all frames.
async fn until(server: &Peer, seen: &mut Vec<u8>, kind: Kind) -> Vec<(Kind, u32)> {
    let mut piece = [0; 500];
    loop {
        let found: Vec<_> = frame::split(seen.get(24..).unwrap_or_default())
            .filter_map(|(header, _)| Some((header.kind()?, header.stream)))
            .collect();
        if found.iter().any(|(found, _)| *found == kind) {
            return found;
        }
        let n = server.read(&mut piece).await.expect("it is open");
        assert!(n > 0, "{found:?}");
        seen.extend_from_slice(&piece[..n]);
    }
}

async fn locally(test: impl Future<Output = ()>) {
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn streams_share_a_connection_until_it_is_idle() {
    locally(async {
        let (world, first) = open().await;
        let Place::Stream(second) = world.connections.place(world.endpoint, false, &|_, _| false) else {
            panic!("there is room")
        };
        assert!(first.is_first() && !second.is_first());
        let (mut one, mut two) = (Connection::of_stream(first), Connection::of_stream(second));
        for connection in [&one, &two] {
            send_head(connection.stream().expect("a stream"), true).expect("it is open");
        }
        // The second response is the first to arrive.
        for (id, body) in [(3, b"two"), (1, b"one")] {
            let head = frames(Kind::Headers, flag::END_HEADERS, id, OK);
            let data = frames(Kind::Data, flag::END_STREAM, id, body);
            world.server.write_all(&[head, data].concat()).await.expect("it reads");
        }
        assert_eq!(read(&mut one).await.expect("a response"), "HTTP/1.1 200 \r\n\r\none");
        assert_eq!(read(&mut two).await.expect("a response"), "HTTP/1.1 200 \r\n\r\ntwo");
        drop((one, two));
        let begun = Instant::now();
        let found = until(&world.server, &mut Vec::new(), Kind::GoAway).await;
        assert!(begun.elapsed() >= IDLE && !found.iter().any(|(kind, _)| *kind == Kind::RstStream));
        assert!(matches!(world.connections.place(world.endpoint, false, &|_, _| false), Place::Open(_)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_at_its_limit_is_left_and_ends() {
    locally(async {
        let (world, first) = open().await;
        let at_two = |opened: u32, _: f64| opened >= 2;
        let place = || world.connections.place(world.endpoint, false, &at_two);
        let Place::Stream(second) = place() else { panic!("it has had one stream") };
        let Place::Open(opening) = place() else { panic!("it has had two") };
        drop(opening);
        drop(second);
        assert!(matches!(place(), Place::Open(_)), "it stays left");
        let begun = Instant::now();
        drop(Connection::of_stream(first));
        until(&world.server, &mut Vec::new(), Kind::GoAway).await;
        assert!(begun.elapsed() < IDLE);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn writes_wait_for_the_window_and_drops_reset() {
    locally(async {
        let (world, stream) = open().await;
        world.server.write_all(&frames(Kind::Settings, 0, 0, &[0, 4, 0, 0, 0, 5])).await.expect("it reads");
        let connection = Connection::of_stream(stream);
        tokio::time::sleep(Duration::from_millis(1)).await;
        send_head(connection.stream().expect("a stream"), false).expect("it is open");
        let late =
            connection.tx().write_all_within(b"0123456789", 2.0).await.expect_err("the window is shut");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        let mut seen = Vec::new();
        until(&world.server, &mut seen, Kind::Data).await;
        {
            let mut rest = pin!(connection.tx().write_all(b"56789"));
            poll_fn(|cx| {
                assert!(rest.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            world.server.write_all(&frames(Kind::WindowUpdate, 0, 1, &[0, 0, 0, 9])).await.expect("it reads");
            rest.await.expect("there is a window");
        }
        drop(connection);
        let found = until(&world.server, &mut seen, Kind::RstStream).await;
        assert_eq!(found.last(), Some(&(Kind::RstStream, 1)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_ends_its_streams() {
    locally(async {
        let (world, stream) = open().await;
        let mut connection = Connection::of_stream(stream);
        send_head(connection.stream().expect("a stream"), true).expect("it is open");
        let Place::Stream(late) = world.connections.place(world.endpoint, false, &|_, _| false) else {
            panic!("there is room")
        };
        let ((), failed) = tokio::join!(
            async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                world.server.shutdown();
            },
            read(&mut connection)
        );
        let failed = failed.expect_err("there is no response");
        assert!(failure_of(&failed).is_some_and(|failure| !failure.is_unprocessed()), "{failed}");
        // A request that was not sent can be sent elsewhere.
        let failed = send_head(&late, true).expect_err("it has ended");
        assert!(failure_of(&failed).is_some_and(Failure::is_unprocessed), "{failed}");
    })
    .await;
}

/// Requests at the same time might be more than the server allows, which is known once it has sent its settings.
#[tokio::test(start_paused = true)]
async fn a_connection_is_shared_after_its_settings() {
    locally(async {
        let (world, first) = open_silent(1000);
        let Place::Wait(opened) = world.place() else { panic!("the settings have not arrived") };
        send_head(&first, true).expect("the first request does not wait");
        let begun = Instant::now();
        let (was_opened, ()) = tokio::join!(opened.wait(), world.announce());
        assert!(begun.elapsed() < Duration::from_secs(1) && !was_opened, "it was opened before");
        assert!(matches!(world.place(), Place::Stream(_)));
        // Without settings, the wait is limited, and so is it at the end of the connection.
        let (silent, _first) = open_silent(1000);
        let Place::Wait(opened) = silent.place() else { panic!("the settings have not arrived") };
        let begun = Instant::now();
        opened.wait().await;
        assert!(begun.elapsed() >= IDLE / 2 && matches!(silent.place(), Place::Stream(_)));
        let (closed, _first) = open_silent(1000);
        let Place::Wait(opened) = closed.place() else { panic!("the settings have not arrived") };
        closed.server.shutdown();
        let begun = Instant::now();
        assert!(!opened.wait().await);
        assert!(begun.elapsed() < Duration::from_secs(1) && matches!(closed.place(), Place::Open(_)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_gets_no_further_streams() {
    locally(async {
        let (world, first) = open().await;
        send_head(&first, true).expect("it is open");
        world.server.write_all(&frames(Kind::Ping, 0, 0, &[0; 8])).await.expect("it reads");
        tokio::time::sleep(Duration::from_millis(1)).await;
        first.leave_if_silent();
        let Place::Stream(second) = world.place() else { panic!("something has arrived since") };
        send_head(&second, true).expect("it is open");
        second.leave_if_silent();
        assert!(matches!(world.place(), Place::Open(_)));
    })
    .await;
}

/// A response arrives while much output waits. It is received once the output is sent.
#[tokio::test(start_paused = true)]
async fn a_driver_receives_again_after_much_output() {
    locally(async {
        let (world, first) = open_silent(1 << 20);
        world.announce().await;
        let mut others = Vec::new();
        while let Place::Stream(stream) = world.place()
            && others.len() < 80
        {
            others.push(stream);
        }
        let mut connection = Connection::of_stream(first);
        send_head(connection.stream().expect("a stream"), true).expect("it is open");
        tokio::time::sleep(Duration::from_millis(1)).await;
        let response = frames(Kind::Headers, flag::END_HEADERS | flag::END_STREAM, 1, OK);
        world.server.write_all(&response).await.expect("it reads");
        let path = format!("/{}", "x".repeat(4000));
        for stream in &others {
            send_head_to(stream, &path, true).expect("it is open");
        }
        let received = tokio::time::timeout(IDLE, read(&mut connection)).await.expect("it is received");
        assert_eq!(received.expect("a response"), "HTTP/1.1 200 \r\n\r\n");
    })
    .await;
}
