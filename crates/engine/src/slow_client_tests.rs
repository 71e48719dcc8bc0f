//! Clients that do not read, and a device that does not respond: a sink holds no part of a body while it waits for its
//! client, and waits for neither of them longer than its limits.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lacquer_cache::{ChunkSizes, Object};
use lacquer_deliver::{Behind, ResponseSink, SendError, Sink, send_stored};
use lacquer_h2::frame::{self, Kind as FrameKind};
use lacquer_net::disconnect::DisconnectPolicy;
use lacquer_params::Params;
use lacquer_sources::clock;
use lacquer_storage::{Arena, Kind, Stevedore};
use lacquer_testing::Random;
use lacquer_testing::slow_store::{Faults, SlowStore};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::client_sink::ClientSink;
use crate::client_transport::ClientTransport;
use crate::h2::{Conn, Stream as H2Stream};
use crate::protocol_tests::{Opened, PROTOCOLS, Protocol, World, decoded, limited_sink, ok_head, runtime};
use crate::send_limits::SendLimits;

const SIZES: ChunkSizes = ChunkSizes { first: 256 << 10, max: 256 << 10 };
const MANY: usize = 24;

struct SlowWorld {
    world: World,
    store: SlowStore,
}

impl SlowWorld {
    fn new(name: &str) -> SlowWorld {
        let store = SlowStore::new(1, Faults { short: 30, errors: 0 }).expect("a file");
        let arena = Arena::anonymous(Some(4 << 20)).expect("memory");
        let stevedore = Stevedore::new("slow", Kind::File, 0, arena).with_device(Arc::new(store.clone()));
        SlowWorld { world: World::over(name, stevedore), store }
    }

    /// Returns an object whose body is only on the device.
    fn settled(&self, body: &[u8]) -> Arc<Object> {
        let object = self.world.complete(body, SIZES);
        self.world.services.shared().stevedores().all()[0].commit(object.stored(), b"");
        self.store.run();
        assert!(!object.is_ready(0));
        object
    }
}

/// Sends the whole body to a client. Also returns the sink.
async fn send(mut sink: ClientSink, object: &Object, behind: Behind) -> (Result<(), SendError>, ClientSink) {
    let sent = send_stored(&mut sink, object, 0, u64::MAX, behind).await;
    let sent = match sent {
        Ok(()) => sink.end().await,
        failed => failed,
    };
    (sent, sink)
}

/// Starts to send an object to a client, and to end its connection afterwards. Returns the client.
fn start(
    slow: &SlowWorld,
    protocol: Protocol,
    object: Arc<Object>,
    behind: Behind,
) -> (UnixStream, JoinHandle<()>) {
    let Opened { transport, rx, client, conn } = slow.world.open(protocol);
    let task = tokio::task::spawn_local(async move {
        let mut sink = limited_sink(&transport, 60.0, 60.0);
        ok_head(&mut sink, protocol.end());
        let (sent, _sink) = send(sink, &object, behind).await;
        sent.expect("the client reads in time");
        if let Some(conn) = conn {
            while conn.gathered() > 0 {
                conn.tx().writable().await.expect("the client reads");
                std::future::poll_fn(|cx| std::task::Poll::Ready(conn.poll_flush(cx))).await;
            }
            conn.release_streams();
        }
        drop((transport, rx));
    });
    (client, task)
}

async fn received(mut client: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).await.expect("no error");
    bytes
}

/// More clients than parts fit into memory do not read. The next client still gets its whole body, and so do the others
/// once they read.
#[test]
fn clients_that_do_not_read_delay_no_other_reader() {
    let mut random = Random(31);
    for (protocol, behind) in
        PROTOCOLS.into_iter().flat_map(|protocol| [(protocol, Behind::End), (protocol, Behind::More)])
    {
        let slow = SlowWorld::new(&format!("slow-{protocol:?}-{behind:?}"));
        let bodies: Vec<Vec<u8>> = (0..=MANY).map(|_| random.bytes(700_000)).collect();
        let objects: Vec<_> = bodies.iter().map(|body| slow.settled(body)).collect();
        runtime().block_on(async {
            let store = slow.store.clone();
            let device = tokio::task::spawn_local(async move {
                loop {
                    store.step();
                    tokio::task::yield_now().await;
                }
            });
            let start = |number: usize| start(&slow, protocol, objects[number].clone(), behind);
            let waiting: Vec<_> = (0..MANY).map(start).collect();
            tokio::time::sleep(Duration::from_millis(300)).await;
            let (client, task) = start(MANY);
            let bytes = tokio::time::timeout(Duration::from_secs(10), received(client)).await;
            let bytes =
                bytes.unwrap_or_else(|_| panic!("{protocol:?}: slow clients hold the memory for parts"));
            task.await.expect("no panic");
            assert!(decoded(protocol, bytes) == (bodies[MANY].clone(), 1), "{protocol:?}");
            for ((client, task), body) in waiting.into_iter().zip(&bodies) {
                assert!(decoded(protocol, received(client).await) == (body.clone(), 1), "{protocol:?}");
                task.await.expect("no panic");
            }
            device.abort();
        });
    }
}

#[test]
fn a_device_that_does_not_respond_ends_the_response_in_time() {
    for protocol in PROTOCOLS {
        for (total, idle, limit) in [(0.2, 60.0, "send_timeout"), (60.0, 0.2, "idle_send_timeout")] {
            let slow = SlowWorld::new(&format!("dead-{protocol:?}-{limit}"));
            let object = slow.settled(&Random(32).bytes(300_000));
            runtime().block_on(async {
                let Opened { transport, rx, client, conn } = slow.world.open(protocol);
                let mut sink = limited_sink(&transport, total, idle);
                ok_head(&mut sink, protocol.end());
                let sent = tokio::time::timeout(Duration::from_secs(10), send(sink, &object, Behind::End));
                let (sent, sink) = sent.await.expect("the wait is limited");
                assert!(matches!(sent, Err(SendError::Io(_))), "{protocol:?}: {sent:?}");
                assert_eq!(sink.limit_hit(), Some(limit), "{protocol:?}");
                if let Some(conn) = conn {
                    conn.release_streams();
                }
                drop((transport, rx, client));
            });
        }
    }
}

/// Sends a small page on another stream, and then all frames that wait. Ends the connection.
async fn send_page(conn: Rc<Conn>, page: &[u8]) {
    conn.conduct().open_upgraded();
    let transport = ClientTransport::Http2(H2Stream::open(&conn, 3, 0.0));
    let mut sink = limited_sink(&transport, 60.0, 60.0);
    ok_head(&mut sink, Protocol::Http2.end());
    sink.end_with(page).await.expect("the connection is open");
    while conn.gathered() > 0 {
        conn.tx().writable().await.expect("the client reads");
        std::future::poll_fn(|cx| std::task::Poll::Ready(conn.poll_flush(cx))).await;
    }
    conn.release_streams();
}

/// Returns the bytes of the bodies of the streams 1 and 3. All frames are whole, and belong to these streams.
fn bodies_of(bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut bodies, mut length) = ((Vec::new(), Vec::new()), 0);
    for (header, payload) in frame::split(bytes) {
        length += header.total_len();
        assert!(matches!(header.stream, 1 | 3), "{header:?}");
        match header.kind() {
            Some(FrameKind::Data) if header.stream == 1 => bodies.0.extend_from_slice(payload),
            Some(FrameKind::Data) => bodies.1.extend_from_slice(payload),
            kind => assert!(matches!(kind, Some(FrameKind::Headers | FrameKind::RstStream)), "{header:?}"),
        }
    }
    assert_eq!(length, bytes.len());
    bodies
}

/// A response is given up while the client does not read, in the middle of a frame. The client gets the rest of the
/// frame before those of other streams, and the credit of frames that were not begun is left to them.
#[test]
fn a_response_that_is_given_up_leaves_whole_frames() {
    let (world, mut random) = (World::new("given-up"), Random(33));
    let (body, page) = (random.bytes(2_000_000), random.bytes(5000));
    let object = world.complete(&body, SIZES);
    for is_stored in [false, true] {
        runtime().block_on(async {
            let Opened { transport, rx, client, conn } = world.open(Protocol::Http2);
            let conn = conn.expect("a connection of HTTP/2");
            let credit = conn.credit();
            let mut sink = limited_sink(&transport, 60.0, 60.0);
            ok_head(&mut sink, Protocol::Http2.end());
            let sending = async {
                if is_stored {
                    send_stored(&mut sink, &object, 0, u64::MAX, Behind::End).await
                } else {
                    sink.write(&body).await
                }
            };
            let given_up = tokio::time::timeout(Duration::from_millis(300), sending).await;
            assert!(given_up.is_err(), "the socket is full");
            drop(sink);
            let charged = credit - conn.credit();
            let whole = async {
                send_page(conn, &page).await;
                drop((transport, rx));
            };
            let ((), bytes) = tokio::join!(whole, received(client));
            let (begun, other) = bodies_of(&bytes);
            assert!(!begun.is_empty() && body.starts_with(&begun), "{is_stored}");
            assert_eq!((begun.len(), other == page), (charged, true), "{is_stored}");
        });
    }
}

/// The time for one response is over while the client does not read. Only its stream ends.
#[test]
fn a_response_whose_time_is_over_spares_the_connection() {
    let (world, mut random) = (World::new("over"), Random(34));
    let (body, page) = (random.bytes(2_000_000), random.bytes(5000));
    runtime().block_on(async {
        let Opened { transport, rx, client, conn } = world.open(Protocol::Http2);
        let conn = conn.expect("a connection of HTTP/2");
        let disconnect = DisconnectPolicy::of(&Params::default());
        let limits = SendLimits { total: 60.0, since: clock::real() - 59.8, idle: 60.0, disconnect };
        let mut sink = transport.open(Vec::new(), limits);
        ok_head(&mut sink, Protocol::Http2.end());
        let whole = async {
            let sent = sink.write(&body).await;
            assert!(matches!(sent, Err(SendError::Io(_))), "{sent:?}");
            assert_eq!(sink.limit_hit(), Some("send_timeout"));
            assert_eq!(conn.error(), None);
            drop(sink);
            send_page(conn, &page).await;
            drop((transport, rx));
        };
        let late = async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            received(client).await
        };
        let ((), bytes) = tokio::join!(whole, late);
        let (begun, other) = bodies_of(&bytes);
        assert!(body.starts_with(&begun) && other == page);
    });
}
