//! An origin that does not complete its responses, and a daemon in front of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lacquer_testing::daemon::{Daemon, until, vcl};
use lacquer_testing::origin::Origin;

/// The delay of late responses.
pub const LATE: Duration = Duration::from_millis(500);

/// An origin that never completes some of its responses.
pub struct Stuck {
    pub origin: Origin,
    /// Another origin that responds at once and serves `/kept/` and `/fresh/`.
    healthy: Origin,
    /// The number of requests without a response, on connections that are still open.
    held: Arc<AtomicUsize>,
}

impl Stuck {
    /// Starts the origins. `/head/` and `/miss/` get no response, `/body/` stops within the body. `/late/` is late and
    /// cacheable, `/slow/` is late and private, `/parts/` is cacheable with the rest of the body late. All other
    /// responses are private and immediate.
    pub fn start() -> Stuck {
        let held = Arc::new(AtomicUsize::new(0));
        let count = held.clone();
        let origin = Origin::start(move |path: &str, stream: &mut TcpStream| {
            let kind = path.split('/').nth(1).unwrap_or_default();
            match kind {
                "head" | "miss" => return hold(stream, &count),
                "body" => {
                    let begin =
                        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nCache-Control: private\r\n\r\n";
                    let sent = stream.write_all(begin).and_then(|()| stream.write_all(&[b'x'; 1000]));
                    return sent.is_ok() && hold(stream, &count);
                }
                "parts" => {
                    let begin = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n/", path.len());
                    let sent = stream.write_all(begin.as_bytes());
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

    /// Starts a daemon that passes slow, stuck and fresh pages, and caches the others.
    pub fn daemon(&self, options: &[&str]) -> Daemon {
        self.daemon_by(options, "exec \"$@\"")
    }

    /// Starts a daemon like `daemon`, through a shell script that may set limits of the process.
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

/// Sends a response whose body is the path.
fn answer(path: &str, is_cacheable: bool, stream: &mut TcpStream) -> bool {
    let control = if is_cacheable { "max-age=3600" } else { "private" };
    let length = path.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nCache-Control: {control}\r\n\r\n");
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(path.as_bytes())).is_ok()
}

/// Waits until the daemon closes the connection.
fn hold(stream: &mut TcpStream, count: &AtomicUsize) -> bool {
    count.fetch_add(1, Ordering::SeqCst);
    // The body of the request may arrive first.
    while stream.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
    count.fetch_sub(1, Ordering::SeqCst);
    false
}
