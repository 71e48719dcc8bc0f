//! Clients that want a director to avoid an origin that is well.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use lacquer_testing::client::get;
use lacquer_testing::daemon::Daemon;
use lacquer_testing::slots::shared_slot;

/// Starts an origin that responds to GET with this body, and to nothing else.
fn origin(body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || respond(stream, body));
        }
    });
    address
}

fn respond(mut stream: TcpStream, body: &str) {
    let mut input = BufReader::new(stream.try_clone().expect("a socket can be duplicated"));
    let (mut line, mut is_quick) = (String::new(), true);
    while input.read_line(&mut line).is_ok_and(|length| length > 0) {
        if line.starts_with("POST") || line.starts_with("GET /slow") {
            is_quick = false;
        }
        if line == "\r\n" {
            if !is_quick {
                let _ = input.read_to_end(&mut Vec::new());
                return;
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(head.as_bytes()).is_err() {
                return;
            }
        }
        line.clear();
    }
}

/// Sends a request, and closes the connection after a moment.
fn leave_after(address: SocketAddr, request: &str) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(request.as_bytes()).expect("it is open");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a valid time");
    let _ = stream.read(&mut [0; 100]);
    let _ = stream.shutdown(Shutdown::Both);
}

#[test]
fn clients_that_leave_or_send_malformed_bodies_eject_no_origin() {
    let _slot = shared_slot();
    let (first, second) = (origin("first"), origin("second"));
    let vcl = format!(
        "vcl 4.1;
        import directors;
        backend first {{ .host = \"{}\"; .port = \"{}\"; }}
        backend second {{ .host = \"{}\"; .port = \"{}\"; }}
        sub vcl_init {{
            new pool = directors.least_connections(failures = 1, ejection = 1h);
            pool.add_backend(first, 1000);
            pool.add_backend(second, 1);
        }}
        sub vcl_recv {{ set req.backend_hint = pool.backend(); return (pass); }}",
        first.ip(),
        first.port(),
        second.ip(),
        second.port()
    );
    let daemon = Daemon::start(&vcl, &[]);
    let body = || String::from_utf8_lossy(&get(daemon.address, "/").expect("a response").body).into_owned();
    assert_eq!(body(), "first");
    let attacks = [
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nshort",
        "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for attack in attacks {
        for _ in 0..3 {
            leave_after(daemon.address, attack);
        }
        // The fetches have ended.
        thread::sleep(Duration::from_secs(2));
        assert_eq!(body(), "first", "{attack}");
    }
}

/// Backends that refuse connections have no requests in progress, and would look the least used.
#[test]
fn origins_that_refuse_connections_attract_no_requests() {
    let _slot = shared_slot();
    let good = origin("good");
    // Nobody listens on port 1.
    let vcl = |arguments: &str| {
        format!(
            "vcl 4.1;
            import directors;
            backend one {{ .host = \"127.0.0.1\"; .port = \"1\"; }}
            backend other {{ .host = \"127.0.0.2\"; .port = \"1\"; }}
            backend good {{ .host = \"{}\"; .port = \"{}\"; }}
            sub vcl_init {{
                new pool = directors.least_connections({arguments});
                pool.add_backend(one, 2);
                pool.add_backend(other, 3);
                pool.add_backend(good, 1);
            }}
            sub vcl_recv {{ set req.backend_hint = pool.backend(); return (pass); }}",
            good.ip(),
            good.port()
        )
    };
    for arguments in ["", "choices = 2", "subset = 2", "subset = 1, failures = 1", "failures = 0"] {
        let daemon = Daemon::start(&vcl(arguments), &[]);
        let failed = |count| {
            let status = |_| get(daemon.address, "/").expect("a response").status;
            (0..count).map(status).filter(|status| *status != 200).count()
        };
        let (first, begun) = (failed(24), std::time::Instant::now());
        assert!(first <= 2, "{arguments}: {first} of 24");
        thread::sleep(Duration::from_millis(1200));
        // Each is tried once.
        let second = failed(24);
        assert!(second <= 2, "{arguments}: {second} of 24");
        // They are tried at growing intervals.
        let mut more = 0;
        while begun.elapsed() < Duration::from_secs(5) {
            more += failed(1);
            thread::sleep(Duration::from_millis(20));
        }
        assert!(more <= 2, "{arguments}: {more}");
    }
}
