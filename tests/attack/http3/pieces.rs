//! A client whose bytes arrive in very many pieces at once: all of them are read.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lacquer_h3::qpack;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::recorder;
use lacquer_testing::slots::shared_slot;
use tokio::net::UdpSocket;

use super::client::{Client, response, run};
use super::malformed::frame;
use super::{load_certificate, start};

/// The packets pass.
const PASS: usize = 0;
/// The next packet of the client is held.
const HOLD: usize = 1;
/// A packet is held. Those of the daemon are lost, so that the client does not repeat it.
const HELD: usize = 2;
/// The number of pieces.
const PIECES: usize = 200;

/// A place between a client and the daemon, which can hold a packet until others have overtaken it.
struct Gate {
    address: SocketAddr,
    state: Arc<AtomicUsize>,
    held: Arc<Mutex<Vec<u8>>>,
    back: Arc<UdpSocket>,
}

async fn socket() -> Arc<UdpSocket> {
    Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"))
}

impl Gate {
    async fn start(daemon: SocketAddr) -> Gate {
        let (front, back) = (socket().await, socket().await);
        back.connect(daemon).await.expect("an address");
        let address = front.local_addr().expect("it is bound");
        let gate = Gate { address, state: Arc::default(), held: Arc::default(), back };
        let client = Arc::<Mutex<Option<SocketAddr>>>::default();
        let (state, held, back) = (gate.state.clone(), gate.held.clone(), gate.back.clone());
        let (from, latest) = (front.clone(), client.clone());
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((n, sender)) = from.recv_from(&mut buffer).await {
                *latest.lock().expect("no panic") = Some(sender);
                if state.compare_exchange(HOLD, HELD, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                    *held.lock().expect("no panic") = buffer[..n].to_vec();
                } else {
                    let _ = back.send(&buffer[..n]).await;
                }
            }
        });
        let (state, back) = (gate.state.clone(), gate.back.clone());
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok(n) = back.recv(&mut buffer).await {
                let client = *client.lock().expect("no panic");
                if let Some(client) = client.filter(|_| state.load(Ordering::SeqCst) != HELD) {
                    let _ = front.send_to(&buffer[..n], client).await;
                }
            }
        });
        gate
    }

    fn hold(&self) {
        self.state.store(HOLD, Ordering::SeqCst);
    }

    async fn release(&self) {
        let held = std::mem::take(&mut *self.held.lock().expect("no panic"));
        self.back.send(&held).await.expect("it is sent");
        self.state.store(PASS, Ordering::SeqCst);
    }
}

/// The instructions of header compression for a field become readable at once in one piece for each byte, because the
/// first one is late. The request that needs the field gets its response.
#[test]
fn instructions_in_many_pieces_are_all_read() {
    let _slot = shared_slot();
    let served = start(&["-p", "reactors=1"]);
    run(async {
        let gate = Gate::start(served.address).await;
        let client = Client::connect(gate.address).await;
        client.get("/1000").await;
        // The capacity of the table, and a field with a long value.
        let mut instructions = b"\x3f\xe1\x1f\x43x-y\x7f\x48".to_vec();
        instructions.resize(instructions.len() + 0x7f + 0x48, b'v');
        let mut encoder = client.connection.open_uni().await.expect("a stream");
        encoder.write_all(&[2]).await.expect("it is read");
        let (mut send, mut receive) = client.connection.open_bi().await.expect("a stream");
        let mut section = Vec::new();
        qpack::begin(&mut section);
        for (name, value) in
            [(":method", "GET"), (":scheme", "https"), (":authority", "example.test"), (":path", "/2000")]
        {
            qpack::field(&mut section, name.as_bytes(), value.as_bytes());
        }
        // The section requires one field of the table, and refers to it.
        section[0] = 2;
        section.push(0x80);
        send.write_all(&frame(1, &section)).await.expect("it is read");
        send.finish().expect("it is open");
        tokio::time::sleep(Duration::from_millis(100)).await;
        gate.hold();
        assert!(instructions.len() > PIECES - 10);
        for byte in instructions {
            encoder.write_all(&[byte]).await.expect("it is read");
            // The packet leaves.
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
        }
        gate.release().await;
        assert_eq!(response(&mut receive).await.body.len(), 2000);
    });
}

/// A request whose stream ends later than its head has no body: HEAD is not refused, and an origin of HTTP/1.1 gets a GET
/// without one.
#[test]
fn late_ends_of_streams_are_no_bodies() {
    let _slot = shared_slot();
    let gate = recorder::Gate::default();
    let origin = gate.origin();
    // The built-in VCL removes the body of a GET.
    let subs = "sub vcl_backend_fetch { return (fetch); } sub vcl_backend_response { return (pass(10s)); }";
    let mut daemon = Daemon::start(&vcl(origin.address, subs), &["-a", "secure=127.0.0.1:0,https,h3"]);
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.port_of("secure")));
    load_certificate(&mut daemon);
    let pause = |millis| tokio::time::sleep(Duration::from_millis(millis));
    run(async {
        let client = Client::connect(address).await;
        // The second request waits for the response to the first, and is passed then.
        let (mut first, mut first_response) = client.open("GET", "/late", &[]).await;
        first.finish().expect("it is open");
        pause(100).await;
        let (mut second, mut second_response) = client.open("GET", "/late", &[]).await;
        pause(20).await;
        second.finish().expect("it is open");
        pause(100).await;
        gate.open();
        for receive in [&mut first_response, &mut second_response] {
            assert_eq!(response(receive).await.status(), "200");
        }
        let seen = origin.take();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(seen.iter().all(|request| !request.contains("Transfer-Encoding")), "{seen:?}");
        let (none, grease, byte) = (Vec::new(), frame(0x21, b"any"), frame(0, b"a"));
        let cases = [(&none, 20, "200"), (&grease, 0, "200"), (&grease, 20, "200"), (&byte, 20, "400")];
        for (n, (rest, millis, status)) in cases.into_iter().enumerate() {
            let (mut send, mut receive) = client.open("HEAD", &format!("/head/{n}"), &[]).await;
            pause(millis).await;
            send.write_all(rest).await.expect("it is read");
            let _ = send.finish();
            assert_eq!(response(&mut receive).await.status(), status, "{n}");
        }
        client.close().await;
    });
}
