//! Requests to servers that hang, close, lie, or send without end: each ends with a reason, in bounded time and memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::exchange::{LONGEST_BODY, Outcome, Request, exchange};
use super::server;
use super::settings::{Http, Settings};

/// The limit for a request that may reach it, that for one that must not on a busy machine, and what a test waits at most.
const TIMEOUT: Duration = Duration::from_millis(1500);
const LONG: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_mins(1);

fn http(follow: usize, timeout: Duration) -> Http {
    let settings = Settings {
        follow,
        timeout: Some(timeout),
        connect_timeout: None,
        decompress: [true; 3],
        accept_invalid_certs: false,
        accept_invalid_hostnames: false,
        http_proxy: None,
        https_proxy: None,
    };
    settings.build().expect("the settings are valid")
}

fn get(url: String) -> Request {
    Request { url, method: b"GET".to_vec(), fields: Vec::new(), body: None }
}

fn sent(http: Http, request: Request) -> Outcome {
    let runtime = server::THREAD.runtime().expect("the thread starts");
    let (done, outcome) = mpsc::channel();
    runtime.spawn(async move { done.send(exchange(http, request).await) });
    outcome.recv_timeout(PATIENCE).expect("the request ends")
}

/// Starts a server that reads the head of each request and calls `respond`, whose failures do not matter.
fn server(respond: impl Fn(&mut TcpStream, &str) -> std::io::Result<()> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                head.push(byte[0]);
            }
            let _ = respond(&mut stream, &String::from_utf8_lossy(&head));
        }
    });
    address
}

/// Returns the reason for which a request to this server, with this limit, has no response.
fn reason(
    timeout: Duration,
    respond: impl Fn(&mut TcpStream, &str) -> std::io::Result<()> + Send + 'static,
) -> String {
    let address = server(respond);
    sent(http(5, timeout), get(format!("http://{address}/secret-path"))).expect_err("there is no response")
}

#[test]
fn a_response_is_read_with_its_fields() {
    let address = server(|stream, head| {
        assert!(head.starts_with("POST /x HTTP/1.1\r\n") && head.contains("\r\nx-own: 1\r\n"), "{head}");
        assert!(head.contains("content-length: 3\r\n") && !head.contains("transfer-encoding"), "{head}");
        stream.write_all(b"HTTP/1.1 201 Created\r\nId: 7\r\nId: 8\r\nContent-Length: 2\r\n\r\nok")
    });
    let field = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let request = Request {
        method: b"POST".to_vec(),
        // The fields of another request that was copied do not change where the body ends.
        fields: vec![
            field("X-Own", "1"),
            field("Content-Length", "99"),
            field("Transfer-Encoding", "chunked"),
        ],
        body: Some(b"who".to_vec()),
        ..get(format!("http://{address}/x"))
    };
    let response = sent(http(5, LONG), request).expect("there is a response");
    assert_eq!((response.status, response.body.bytes()), (201, &b"ok"[..]));
    assert_eq!(response.headers.get_all("id").iter().count(), 2);
}

#[test]
fn a_server_that_hangs_or_trickles_meets_the_timeout() {
    let begun = Instant::now();
    let hanging = reason(TIMEOUT, |stream, _| stream.read(&mut [0]).map(|_| ()));
    assert!(hanging.contains("timed out"), "{hanging}");
    let trickling = reason(TIMEOUT, |stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
        loop {
            stream.write_all(b"x")?;
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(trickling.contains("timed out"), "{trickling}");
    let interim = reason(TIMEOUT, |stream, _| {
        loop {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(interim.contains("timed out"), "{interim}");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn a_broken_response_is_none() {
    let closed = reason(LONG, |_, _| Ok(()));
    assert!(!closed.is_empty() && !closed.contains("secret-path"), "{closed}");
    let short =
        reason(LONG, |stream, _| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"));
    assert!(short.contains("body"), "{short}");
    for garbage in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nBad Name: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nzip?",
    ] {
        let why = reason(LONG, move |stream, _| stream.write_all(garbage));
        assert!(!why.is_empty(), "{}", String::from_utf8_lossy(garbage));
    }
    let address = server(|stream, _| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    sent(http(5, LONG), get(format!("https://{address}/"))).expect_err("the server does not use TLS");
}

#[test]
fn an_endless_head_or_body_ends_at_a_limit() {
    let head = reason(LONG, |stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        for n in 0.. {
            stream.write_all(format!("X-{n}: {}\r\n", "a".repeat(1000)).as_bytes())?;
        }
        Ok(())
    });
    assert!(!head.is_empty() && !head.contains("timed out"), "{head}");
    let body = reason(TIMEOUT, |stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let part = [&b"10000\r\n"[..], &vec![b'x'; 0x10000], b"\r\n"].concat();
        loop {
            stream.write_all(&part)?;
        }
    });
    assert!(
        body.contains(&format!("more than {LONGEST_BODY} bytes")) || body.contains("timed out"),
        "{body}"
    );
}

#[test]
fn a_decompression_bomb_ends_at_a_limit() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..(LONGEST_BODY >> 20) + 8 {
        encoder.write_all(&zeros).expect("memory is written");
    }
    let bomb = encoder.finish().expect("memory is written");
    let why = reason(TIMEOUT, move |stream, head| {
        assert!(head.contains("accept-encoding: "), "{head}");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")?;
        stream.write_all(&bomb)
    });
    assert!(why.contains(&format!("more than {LONGEST_BODY} bytes")) || why.contains("timed out"), "{why}");
}

#[test]
fn redirects_in_circles_fail_and_to_files_are_not_followed() {
    let circle = reason(LONG, |stream, _| {
        stream.write_all(
            b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )
    });
    assert!(circle.contains("redirect"), "{circle}");
    for (follow, location) in [(5, "file:///etc/passwd"), (0, "/x")] {
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        let address = server(move |stream, _| stream.write_all(head.as_bytes()));
        let response =
            sent(http(follow, LONG), get(format!("http://{address}/"))).expect("it is not followed");
        assert_eq!((response.status, response.body.bytes()), (302, &b""[..]));
    }
}

#[test]
fn a_request_that_is_not_valid_is_not_sent() {
    let (seen, requests) = mpsc::channel();
    let address = server(move |_, head| seen.send(head.to_owned()).map_err(std::io::Error::other));
    let valid = || get(format!("http://{address}/"));
    let with = |name: &str, value: &str| Request {
        fields: vec![(name.as_bytes().to_vec(), value.as_bytes().to_vec())],
        ..valid()
    };
    for request in [
        with("X-A", "1\r\nX-B: 2"),
        with("X-A: 1\r\nX-B", "2"),
        with("", "1"),
        Request { method: b"GE T".to_vec(), ..valid() },
        Request { method: b"CONNECT".to_vec(), ..valid() },
        Request { method: Vec::new(), ..valid() },
        get("/path".to_owned()),
        get(String::new()),
        get("file:///etc/passwd".to_owned()),
        get("http://".to_owned()),
    ] {
        let url = request.url.clone();
        let why = sent(http(5, LONG), request).expect_err(&url);
        assert!(!why.is_empty());
    }
    assert_eq!(requests.try_recv(), Err(mpsc::TryRecvError::Empty));
}
