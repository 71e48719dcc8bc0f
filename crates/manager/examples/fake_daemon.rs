//! The manager with a worker that serves nobody: it answers whatever the manager asks.

use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use lacquer_cli::link::{FromWorker, Request, ToWorker, WORKER_ARGUMENT, receive, send};

fn worker(fd: RawFd) -> ExitCode {
    // SAFETY: the manager passes an open socket under this number, which nobody else here knows.
    let mut link = unsafe { UnixStream::from_raw_fd(fd) };
    println!("Child starts");
    while let Ok(message) = receive(&mut link) {
        let answer = match message {
            ToWorker::Configure(_) => FromWorker::Ready,
            ToWorker::Param(_) => continue,
            ToWorker::Request { id, body } => {
                let text = match body {
                    Request::Ping => "PONG 1 1.0".to_owned(),
                    Request::Cli { argv } => format!("{argv:?}"),
                    _ => String::new(),
                };
                FromWorker::Reply { id, status: 200, text }
            }
        };
        if send(&mut link, &answer).is_err() {
            break;
        }
    }
    println!("Child dies");
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let link = std::env::args().nth(1).and_then(|first| first.strip_prefix(WORKER_ARGUMENT)?.parse().ok());
    match link {
        Some(fd) => worker(fd),
        None => lacquer_manager::main(),
    }
}
