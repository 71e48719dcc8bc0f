//! The mode `feature=+rfc9111`: clients and origins that send malformed, contradictory or too many instructions for the
//! cache. No client gets a response that was meant for another one, and no request costs more than its share.

mod interim;
mod invalidation;
mod requests;
mod storing;
mod validation;
mod variants;

use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_testing::client::{Client, Response};
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::recorder::Recorder;

/// Starts a daemon in the mode.
fn daemon(origin: &Recorder) -> Daemon {
    Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,32M", "-p", "feature=+rfc9111"])
}

/// Starts an origin whose responses are all different. `lines` returns the lines of the head for a path.
fn numbered(lines: impl Fn(&str) -> String + Send + Sync + 'static) -> Recorder {
    let count = AtomicUsize::new(0);
    Recorder::start(move |request| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        page(&lines(path_of(request)), &format!("answer {number} for {}", path_of(request)))
    })
}

/// Returns a response with these lines, each of which ends with CR and LF, and this body.
fn page(lines: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn path_of(request: &str) -> &str {
    request.split(' ').nth(1).unwrap_or_default()
}

/// Returns a path for the case with this number of a table.
fn path(number: usize) -> String {
    format!("/case/{number}")
}

/// Returns the number of the case from its path.
fn case_of(path: &str) -> usize {
    path.split('/').nth(2).and_then(|word| word.parse().ok()).unwrap_or_default()
}

/// Sends a request for `http://a` and a path on a new connection, with these lines.
fn ask(daemon: &Daemon, path: &str, lines: &str) -> Response {
    send(daemon, "GET", "a", path, lines)
}

fn send(daemon: &Daemon, method: &str, host: &str, path: &str, lines: &str) -> Response {
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    let response = client.ask(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n"));
    response.unwrap_or_else(|error| panic!("{method} {path} {lines:?}: {error}"))
}

fn text(response: &Response) -> String {
    format!("{} {}", response.status, String::from_utf8_lossy(&response.body))
}

/// Panics with all faults that were found.
fn report(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
