//! Bans whose conditions contain bytes that are not UTF-8.

use std::io::{Read, Write};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::shared_slot;

const SUBS: &str = r#"
import std;
sub vcl_recv {
    if (req.method == "BAN") {
        if (std.ban("obj.http.X-Name == " + req.http.X-Name)) { return (synth(200)); }
        return (synth(400));
    }
}
sub vcl_deliver { unset resp.http.X-Name; }
"#;

#[test]
fn bytes_that_are_not_utf8_are_banned() {
    let _slot = shared_slot();
    let origin = Origin::start(|_, stream| {
        let head = b"HTTP/1.1 200 OK\r\nX-Name: caf\xe9\r\nCache-Control: max-age=3600\r\n";
        stream.write_all(head).is_ok() && stream.write_all(b"Content-Length: 2\r\n\r\nok").is_ok()
    });
    let mut daemon = Daemon::start(&vcl(origin.address, SUBS), &[]);
    let fetches = |daemon: &Daemon| {
        assert_eq!(get(daemon.address, "/").expect("a response").status, 200);
        origin.requests()
    };
    assert_eq!((fetches(&daemon), fetches(&daemon)), (1, 1));
    daemon.ok("ban obj.http.X-Name == \"caf\\xef\\xbf\\xbd\"");
    assert_eq!(fetches(&daemon), 1, "the ban names another text");
    daemon.ok("ban obj.http.X-Name == \"caf\\xe9\"");
    assert_eq!((fetches(&daemon), fetches(&daemon)), (2, 2));
    daemon.ok("ban obj.http.X-Name ~ \"^caf\\xe9$\"");
    assert_eq!((fetches(&daemon), fetches(&daemon)), (3, 3));
    let mut client = daemon.connect();
    let request = b"BAN / HTTP/1.1\r\nHost: robust\r\nConnection: close\r\nX-Name: caf\xe9\r\n\r\n";
    client.write_all(request).expect("it is open");
    let mut response = Vec::new();
    client.read_to_end(&mut response).expect("a response");
    assert!(response.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&response));
    assert_eq!((fetches(&daemon), fetches(&daemon)), (4, 4));
    let (status, text) = daemon.cli("vcl.load other \"/caf\\xe9.vcl\"");
    assert!(
        status == 106 && text.contains("The name of the file is not UTF-8: /caf\\xe9.vcl"),
        "{status} {text}"
    );
}
