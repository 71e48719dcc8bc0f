//! An origin that does not complete its responses, and a daemon in front of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lacquer_testing::daemon::{Daemon, until, vcl};
use lacquer_testing::origin::Origin;

/// How long an origin waits that is late.
pub const LATE: Duration = Duration::from_millis(500);

/// An origin that never completes some of its responses.
pub struct Stuck {
    pub origin: Origin,
    /// Another that answers at once: `/kept/` and `/fresh/` are its pages.
    healthy: Origin,
    /// Requests that it has not answered, on connections that are still open.
    held: Arc<AtomicUsize>,
}

impl Stuck {
    /// `/head/` and `/miss/` stay silent, `/body/` stops within the body; `/late/` answers late and
    /// cacheable, `/slow/` late and private, `/parts/` at once and cacheable with the rest of the body late, and
    /// everything else at once and private.
    pub fn start() -> Stuck {
        let held = Arc::new(AtomicUsize::new(0));
        let count = held.clone();
        let origin = Origin::start(move |path: &str, stream: &mut TcpStream| {
            let kind = path.split('/').nth(1).unwrap_or_default();
            match kind {
                "head" | "miss" => return hold(stream, &count),
                "body" => {
                    let head =
                        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nCache-Control: private\r\n\r\n";
                    let sent = stream.write_all(head).and_then(|()| stream.write_all(&[b'x'; 1000]));
                    return sent.is_ok() && hold(stream, &count);
                }
                "parts" => {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n/", path.len());
                    let sent = stream.write_all(head.as_bytes());
                    std::thread::sleep(LATE);
                    return sent.is_ok() && stream.write_all(&path.as_bytes()[1..]).is_ok();
                }
                "late" | "slow" => std::thread::sleep(LATE),
                _ => {}
            }
            answer(path, kind == "late", stream)
        });
        let healthy = Origin::start(|path: &str, stream: &mut TcpStream| {
            answer(path, path.starts_with("/kept/"), stream)
        });
        Stuck { origin, healthy, held }
    }

    /// Starts a daemon that passes what is slow, stuck or fresh, and caches the rest.
    pub fn daemon(&self, options: &[&str]) -> Daemon {
        self.daemon_by(options, "exec \"$@\"")
    }

    /// As `daemon`, through a shell script for limits of the process.
    pub fn daemon_by(&self, options: &[&str], script: &str) -> Daemon {
        let address = self.healthy.address;
        let subs = format!(
            "backend healthy {{ .host = \"{}\"; .port = \"{}\"; }}
            sub vcl_recv {{
                if (req.url ~ \"^/(kept|fresh)/\") {{ set req.backend_hint = healthy; }}
                if (req.url ~ \"^/(head|body|slow|fresh)/\") {{ return (pass); }}
            }}
            sub vcl_backend_response {{ if (bereq.url ~ \"whole\") {{ set beresp.do_stream = false; }} }}",
            address.ip(),
            address.port()
        );
        let always = ["-s", "malloc,32M", "-p", "feature=+http2"];
        Daemon::start_by(&vcl(self.origin.address, &subs), &[&always[..], options].concat(), script)
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    pub fn comes_to_hold(&self, count: usize) {
        assert!(until(|| self.held() == count), "the origin holds {} requests, not {count}", self.held());
    }
}

/// Answers with the path.
fn answer(path: &str, is_cacheable: bool, stream: &mut TcpStream) -> bool {
    let control = if is_cacheable { "max-age=3600" } else { "private" };
    let length = path.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nCache-Control: {control}\r\n\r\n");
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(path.as_bytes())).is_ok()
}

/// Waits until the daemon closes the connection.
fn hold(stream: &mut TcpStream, count: &AtomicUsize) -> bool {
    count.fetch_add(1, Ordering::SeqCst);
    // A request's body may come first.
    while stream.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
    count.fetch_sub(1, Ordering::SeqCst);
    false
}
