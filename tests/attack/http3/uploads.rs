//! Uploads of clients of HTTP/3 to origins that speak HTTP/2: trailers of both directions, and refusals.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lacquer_h3::{frame, qpack};
use lacquer_testing::daemon::{Daemon, until};
use lacquer_testing::slots::shared_slot;
use quinn::SendStream;

use super::client::{Client, Response, response, run, try_response};
use super::load_certificate;
use crate::http2_origins::TRAILED;
use crate::http2_origins::origin::Origin;

/// The stream of the client's instructions for header compression.
const ENCODER: u8 = 2;

/// Starts a daemon with HTTP/3 that passes all requests to this origin.
fn start(origin: &Origin, options: &[&str]) -> (Daemon, SocketAddr) {
    let (ip, port) = (origin.address.ip(), origin.address.port());
    let vcl = format!(
        "vcl 4.1;\nbackend default {{ .host = \"{ip}\"; .port = \"{port}\"; .proto = \"h2\"; }}\n\
         sub vcl_recv {{ return (pass); }}\n"
    );
    let always = ["-a", "secure=127.0.0.1:0,https,h3", "-p", "first_byte_timeout=5"];
    let mut daemon = Daemon::start(&vcl, &[&always[..], options].concat());
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.port_of("secure")));
    load_certificate(&mut daemon);
    (daemon, address)
}

/// Sends a part of a body.
async fn send(stream: &mut SendStream, bytes: &[u8]) -> Result<(), quinn::WriteError> {
    stream.write_all(frame::data_header(bytes.len() as u64).as_slice()).await?;
    stream.write_all(bytes).await
}

/// Sends a request with a body of three bytes and trailers.
async fn ask(client: &Client, path: &str, trailers: &[(&str, &str)]) -> Response {
    let (mut stream, mut receive) = client.open("POST", path, &[("te", "trailers")]).await;
    send(&mut stream, b"abc").await.expect("it reads");
    let mut section = Vec::new();
    frame::write_section(&mut section, |out| {
        qpack::begin(out);
        for (name, value) in trailers {
            qpack::field(out, name.as_bytes(), value.as_bytes());
        }
    });
    stream.write_all(&section).await.expect("it reads");
    let _ = stream.finish();
    response(&mut receive).await
}

/// Trailers pass in both directions, without the fields that are needed before the body.
#[test]
fn trailers_pass_both_ways() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let (daemon, address) = start(&origin, &[]);
    run(async {
        let client = Client::connect(address).await;
        let trailers = [("x-checksum", "seven"), ("content-length", "99"), ("cookie", "forged")];
        for path in ["/trailed", "/echo"] {
            let back = ask(&client, path, &trailers).await;
            let text = String::from_utf8_lossy(&back.body).into_owned();
            assert_eq!(back.status(), "200", "{path}");
            assert!(text.contains("x-checksum") && text.contains("seven"), "{path}: {text:?}");
            assert!(!text.contains("99") && !text.contains("forged"), "{path}: {text:?}");
        }
        for (path, body) in TRAILED {
            let back = client.send("POST", path, &[("te", "trailers")], b"abc").await;
            assert_eq!(
                (&back.body[..], &back.trailers[..]),
                (body.as_bytes(), &["grpc-status: 0".to_owned()][..])
            );
        }
        let back = client.send("POST", "/trailers", &[], b"abc").await;
        assert_eq!((&back.body[..], back.trailers.len()), (&b"hello"[..], 0));
        client.close().await;
    });
    assert!(daemon.logs("x-checksum: seven") && daemon.logs("trailers: 2 forbidden fields were dropped"));
}

/// Trailers may refer to a field of the table that has not arrived. Other requests are served meanwhile.
#[test]
fn trailers_wait_for_the_table() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let (_daemon, address) = start(&origin, &[]);
    run(async {
        let client = Client::connect(address).await;
        let (mut stream, mut receive) = client.open("POST", "/trailed", &[]).await;
        send(&mut stream, b"abc").await.expect("it reads");
        // The required count is 1, and the only field is the newest of the table.
        let section = [&[1, 3][..], &[2, 0, 0x80]].concat();
        stream.write_all(&section).await.expect("it reads");
        let _ = stream.finish();
        assert_eq!(client.get("/ok").await.status(), "200");
        let mut encoder = client.connection.open_uni().await.expect("it accepts streams");
        // A capacity of 220 bytes, and the field x-late: here.
        let instructions = [&[ENCODER, 0x3f, 0xbd, 1, 0x46][..], b"x-late", &[4], b"here"].concat();
        encoder.write_all(&instructions).await.expect("it reads");
        let back = response(&mut receive).await;
        let text = String::from_utf8_lossy(&back.body).into_owned();
        assert!(text.contains("x-late") && text.contains("here"), "{text:?}");
        // A client that leaves with trailers that wait does no harm.
        let (mut stream, receive) = client.open("POST", "/trailed", &[]).await;
        send(&mut stream, b"abc").await.expect("it reads");
        stream.write_all(&[1, 3, 3, 0, 0x80]).await.expect("it reads");
        assert_eq!(client.get("/ok").await.status(), "200");
        let _ = stream.reset(0x10c_u32.into());
        drop(receive);
        assert_eq!(client.get("/ok").await.status(), "200");
        client.close().await;
    });
}

/// A client that is silent for longer than `timeout_idle` goes on, whether it waits for the response or for its next part.
#[test]
fn a_client_that_waits_for_the_response_goes_on() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let options = ["timeout_idle=1", "first_byte_timeout=30", "between_bytes_timeout=30"];
    let (_daemon, address) = start(&origin, &options.map(|param| ["-p", param]).concat());
    run(async {
        let client = Client::connect(address).await;
        let (mut echo, mut echoed) = client.open("POST", "/echo", &[("te", "trailers")]).await;
        let (mut count, mut counted) = client.open("POST", "/count", &[]).await;
        for stream in [&mut echo, &mut count] {
            send(stream, b"hello ").await.expect("it reads");
        }
        tokio::time::sleep(Duration::from_millis(2500)).await;
        for mut stream in [echo, count] {
            send(&mut stream, b"again").await.expect("it reads");
            let _ = stream.finish();
        }
        let back = response(&mut echoed).await;
        assert_eq!(
            (&back.body[..], &back.trailers[..]),
            (&b"hello again"[..], &["grpc-status: 0".to_owned()][..])
        );
        assert_eq!(response(&mut counted).await.body, b"11");
        client.close().await;
    });
}

/// An origin that refuses an upload with 413 while it goes on: the client gets the refusal, and the connection goes on.
#[test]
fn a_refusal_of_the_origin_ends_the_upload() {
    let _slot = shared_slot();
    let origin = Origin::start(&[(4, 1000)]);
    let (_daemon, address) = start(&origin, &[]);
    run(async {
        let client = Client::connect(address).await;
        for path in ["/early", "/early-late"] {
            let (mut stream, mut receive) =
                client.open("POST", path, &[("content-length", "50000000")]).await;
            let upload = async { while send(&mut stream, &[b'x'; 10_000]).await.is_ok() {} };
            let (back, ()) = tokio::join!(response(&mut receive), upload);
            assert_eq!((back.status(), &back.body[..]), ("413", &b"too large"[..]), "{path}");
            assert_eq!(client.get("/ok").await.status(), "200", "{path}");
        }
        // A client that breaks its Content-Length while the response arrives.
        let (mut stream, mut receive) = client.open("POST", "/echo", &[("content-length", "10")]).await;
        send(&mut stream, b"12345").await.expect("it reads");
        let mut first = [0; 1];
        receive.read_exact(&mut first).await.expect("a response");
        let _ = send(&mut stream, b"678901").await;
        let end = try_response(&mut receive).await;
        assert!(end.is_err(), "{end:?}");
        assert_eq!(client.get("/ok").await.status(), "200");
        client.close().await;
    });
    assert!(until(|| origin.counts.resets.load(Ordering::SeqCst) == 1));
}
