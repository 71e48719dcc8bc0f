//! Clients that do not read, and a device that does not respond: a sink holds no part of a body while it waits for its
//! client, and waits for neither of them longer than its limits.

use std::sync::Arc;
use std::time::Duration;

use lacquer_cache::{ChunkSizes, Object};
use lacquer_deliver::{Behind, SendError, send_stored};
use lacquer_storage::{Arena, Kind, Stevedore};
use lacquer_testing::Random;
use lacquer_testing::slow_store::{Faults, SlowStore};
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;

use crate::client_sink::ClientSink;
use crate::protocol_tests::{Opened, PROTOCOLS, Protocol, World, decoded, limited_sink, ok_head, runtime};

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
        Ok(()) => lacquer_deliver::Sink::end(&mut sink).await,
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
) -> (tokio::net::UnixStream, JoinHandle<()>) {
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

async fn received(mut client: tokio::net::UnixStream) -> Vec<u8> {
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
                assert_eq!(lacquer_deliver::ResponseSink::limit_hit(&sink), Some(limit), "{protocol:?}");
                if let Some(conn) = conn {
                    conn.release_streams();
                }
                drop((transport, rx, client));
            });
        }
    }
}
