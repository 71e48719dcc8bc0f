//! Clients of `lacquer lsp` that break the framing, close early or ask without end. The server ends in order, and its memory
//! stays bounded.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time until the server has ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most memory of the server, in kilobytes.
const MOST_MEMORY: u64 = 300_000;

fn start() -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer"));
    command.args(["lsp", "--stdio"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the server starts")
}

fn message(body: &str) -> Vec<u8> {
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"processId":null,"capabilities":{}}}"#;

/// Returns the largest size of a process so far, in kilobytes.
fn peak(server: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Waits until the server has ended, without a signal and without a panic.
fn expect_end(mut server: Child, what: &str) {
    let begun = Instant::now();
    let mut most = 0;
    let status = loop {
        most = most.max(peak(&server));
        if let Some(status) = server.try_wait().expect("the server is a child") {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            let _ = server.kill();
            panic!("{what}: the server does not end");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut errors = String::new();
    let _ = server.stderr.take().expect("it is a pipe").read_to_string(&mut errors);
    assert!(status.code().is_some_and(|code| code < 2), "{what}: {status:?}: {errors}");
    assert!(!errors.contains("panicked"), "{what}: {errors}");
    assert!(most < MOST_MEMORY, "{what}: {most} kB");
}

#[test]
fn lost_framing_and_early_ends_end_the_server() {
    let long_line = [b"X: ".to_vec(), vec![b'a'; 1 << 20]].concat();
    for (what, bytes) in [
        ("nothing", Vec::new()),
        ("half a head", b"Content-Le".to_vec()),
        ("half a message", b"Content-Length: 100\r\n\r\n{\"id\":1".to_vec()),
        ("a message of 60 MB that does not come", b"Content-Length: 60000000\r\n\r\n{".to_vec()),
        ("a message of 99 TB", b"Content-Length: 99999999999999\r\n\r\n{}".to_vec()),
        ("a negative length", b"Content-Length: -1\r\n\r\n{}".to_vec()),
        ("no length", b"Content-Type: x\r\n\r\n{}".to_vec()),
        ("a head that is not UTF-8", b"Content-Length\xff: 2\r\n\r\n{}".to_vec()),
        ("a long line", long_line),
        ("a request, and the end", message(INITIALIZE)),
        ("the exit, without a shutdown", message(r#"{"method":"exit"}"#)),
    ] {
        let mut server = start();
        let mut input = server.stdin.take().expect("it is a pipe");
        // A server that has ended reads nothing.
        let _ = input.write_all(&bytes);
        drop(input);
        expect_end(server, what);
    }
}

#[test]
fn a_client_that_does_not_read_ends_the_server_when_it_closes() {
    let mut server = start();
    drop(server.stdout.take());
    let mut input = server.stdin.take().expect("it is a pipe");
    let _ = input.write_all(&message(INITIALIZE));
    for id in 2..100 {
        let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"textDocument/hover","params":{{}}}}"#);
        if input.write_all(&message(&request)).is_err() {
            break;
        }
    }
    expect_end(server, "closed output");
}

#[test]
fn nested_and_odd_messages_get_errors() {
    let mut server = start();
    let mut input = server.stdin.take().expect("it is a pipe");
    let deep = "[".repeat(200_000);
    let odd_ids = [r#"{"id":null,"method":"x"}"#, r#"{"id":{},"method":"x"}"#, r#"{"id":1e99,"method":"x"}"#];
    let unknown = [r#"{"id":77,"result":1}"#, r#"{"id":"none","error":{"code":1}}"#];
    let bodies = [&deep[..], "{\"id\":", "\u{0}"].into_iter().chain(odd_ids).chain(unknown);
    let all: Vec<u8> = bodies.flat_map(message).chain(message(r#"{"method":"exit"}"#)).collect();
    input.write_all(&all).expect("the server reads");
    let mut output = String::new();
    server.stdout.take().expect("it is a pipe").read_to_string(&mut output).expect("it is text");
    assert_eq!(output.matches("\"error\"").count(), 6, "{output}");
    expect_end(server, "odd messages");
}
