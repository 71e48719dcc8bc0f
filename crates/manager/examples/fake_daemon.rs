//! The manager with a worker that serves nobody: it answers whatever the manager asks.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use lacquer_cli::link::{FromWorker, ListenAddress, Request, ToWorker, WORKER_ARGUMENT, receive, send};
use lacquer_shm::vsm::Owner;
use lacquer_shm::{Log, Main, Segment, Tag, VsmDir, Vxid};

fn worker(fd: RawFd) -> ExitCode {
    // SAFETY: the manager passes an open socket under this number, which nobody else here knows.
    let mut link = unsafe { UnixStream::from_raw_fd(fd) };
    println!("Child starts");
    let mut listens = String::new();
    let mut shm = None;
    while let Ok(message) = receive(&mut link) {
        let answer = match message {
            ToWorker::Configure(config) => {
                // SAFETY: as above.
                let dir = unsafe { OwnedFd::from_raw_fd(config.vsm_fd) };
                let owner = Owner { pid: std::process::id(), birth: 1 };
                let dir = VsmDir::adopt(dir, owner).expect("an empty directory");
                let counters: Arc<Segment<Main>> = Arc::new(Segment::create(&dir, "").expect("counters"));
                let log = Log::create(&dir, config.params.vsl_space as usize, counters).expect("a log");
                shm = Some((dir, log));
                for socket in &config.sockets {
                    if let ListenAddress::Ip(address) = socket.address {
                        listens += &format!("{} {} {}\n", socket.name, address.ip(), address.port());
                    }
                }
                FromWorker::Ready
            }
            ToWorker::Param(_) => continue,
            ToWorker::Request { id, body } => {
                if let Some((_, log)) = &shm {
                    let log: &Arc<Log> = log;
                    log.write(Tag::CLI, Vxid::default(), format!("Rd {body:?}").as_bytes());
                }
                let text = match body {
                    Request::Ping => "PONG 1 1.0".to_owned(),
                    Request::Cli { argv } if argv[0] == "debug.listen_address" => listens.clone(),
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
    drop(shm);
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
