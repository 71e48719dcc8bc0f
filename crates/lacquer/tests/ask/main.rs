//! The commands that talk to a daemon, as users type them.

mod admin;
mod commands;
mod otlp;
mod pages;
mod tls;
mod top;
mod why;
mod why_header;

use std::io::{self, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lacquer_testing::Ran;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::Origin;

/// Runs `lacquer` with these words.
fn lacquer(words: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer"));
    Ran::of(command.args(words).env_remove("NO_COLOR"))
}

/// Runs a command on the daemon of a working directory. It must succeed.
fn on(directory: &Path, words: &[&str]) -> Ran {
    let name = directory.to_str().expect("text");
    let ran = lacquer(&[words, &["-n", name]].concat());
    assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
    assert!(
        ran.out.lines().all(|line| line.chars().count() <= 100 || words.contains(&"--json")),
        "{}",
        ran.out
    );
    ran
}

/// An origin whose pages have the headers that their path names, and a daemon before it.
struct Site {
    daemon: Daemon,
    origin: Origin,
    gate: Gate,
}

/// Holds back the pages below `/slow`, and the second halves of those below `/drip`.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

impl Gate {
    fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn wait(&self) {
        let begun = Instant::now();
        while !self.0.load(Ordering::SeqCst) && begun.elapsed() < Duration::from_mins(2) {
            sleep(Duration::from_millis(5));
        }
    }
}

impl Site {
    fn start(subs: &str, options: &[&str]) -> Site {
        let gate = Gate::default();
        let held = gate.clone();
        let origin = Origin::start(move |path, stream| page(path, stream, &held));
        let options = [&["-p", "why_header=127.0.0.0/8"], options].concat();
        let daemon = Daemon::start(&vcl(origin.address, subs), &options);
        Site { daemon, origin, gate }
    }

    fn run(&self, words: &[&str]) -> Ran {
        on(&self.daemon.directory(), words)
    }

    /// Returns the explanation of a request.
    fn why(&self, path: &str, more: &[&str]) -> serde_json::Value {
        self.run(&[&["why", path, "--json"], more].concat()).json()
    }

    /// Checks the outcome of a request, and words of its explanation.
    fn expect(&self, path: &str, more: &[&str], outcome: &str, words: &str) {
        let found = self.why(path, more);
        assert_eq!(found["outcome"], outcome, "{path}: {found:#}");
        assert!(found.to_string().contains(words), "{path}: {words}: {found:#}");
        assert_ne!(found["advice"], "", "{found:#}");
        is_in_header(outcome, &found);
    }
}

/// Checks that the response's own explanation has the same outcome. It does not know the past of the page.
fn is_in_header(outcome: &str, found: &serde_json::Value) {
    let Some(header) = found["header"].as_str() else {
        return assert!(["pipe", "rejected"].contains(&outcome), "{outcome} has no header: {found:#}");
    };
    let own = header.split(';').next().unwrap_or_default();
    let depends_on_past =
        ["miss-purged", "miss-invalidated", "miss-tagged", "miss-evicted", "miss-not-stored", "miss-banned"];
    let is_same = own == outcome || own == "miss" && depends_on_past.contains(&outcome);
    assert!(is_same, "{outcome}: {header}: {found:#}");
}

/// Writes a page: `/vary/..` has the header Vary, and so on.
fn page(path: &str, stream: &mut TcpStream, gate: &Gate) -> bool {
    /// The number of requests for pages below `/tag`; all but the first one are confirmed.
    static CONFIRMED: AtomicUsize = AtomicUsize::new(0);
    if path.starts_with("/tag/") && CONFIRMED.fetch_add(1, Ordering::SeqCst) > 0 {
        return write!(
            stream,
            "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nCache-Control: max-age=60\r\n\r\n"
        )
        .is_ok();
    }
    if path.starts_with("/drip/") {
        return drip(stream, gate).is_ok();
    }
    let header = match path.split('/').nth(1).unwrap_or_default() {
        "cookie" => "Set-Cookie: a=b\r\n",
        "private" => "Cache-Control: private\r\n",
        "zero" => "Cache-Control: max-age=0\r\n",
        "short" | "second" => "Cache-Control: max-age=1\r\n",
        "minute" => "Cache-Control: max-age=60\r\n",
        "vary" => "Vary: Accept-Language\r\nCache-Control: max-age=60\r\n",
        "all" => "Vary: *\r\n",
        "tag" => "ETag: \"1\"\r\nCache-Control: max-age=1\r\n",
        "slow" => {
            gate.wait();
            ""
        }
        "broken" => return false,
        _ => "",
    };
    let big = "x".repeat(200_000);
    let (status, body) = match path {
        "/error" => ("500 Internal Server Error", "no"),
        "/esi" => ("200 OK", "<esi:include src=\"/minute/part\"/>"),
        _ if path.starts_with("/big/") => ("200 OK", &*big),
        _ => ("200 OK", "hello"),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{header}\r\n{body}").is_ok()
}

/// Writes a page whose second half waits for the gate.
fn drip(stream: &mut TcpStream, gate: &Gate) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")?;
    gate.wait();
    write!(stream, "hello")
}
