//! The process: takes what it has inherited, confines itself, and serves.

use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::process::{ExitCode, exit};
use std::sync::Arc;
use std::thread;

use lacquer_cli::admin::{AdminConfig, AdminSocket};
use lacquer_cli::link;
use lacquer_inspect::directory::Directory;
use lacquer_system::inherit;
use lacquer_tls::single_config;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::api::App;
use crate::connections::Connections;
use crate::guard::Guard;
use crate::health::Health;
use crate::limits::STREAMS;
use crate::lists::Lists;
use crate::live_log::LiveLog;
use crate::log_reader::LogThread;
use crate::manager_link::ManagerLink;
use crate::otlp;
use crate::page::Page;
use crate::server::{Listener, accept};
use crate::threads;
use crate::watch::Watch;

/// Runs the process until the manager ends it. `link` is the inherited socket that connects to the manager.
pub fn run(link: RawFd) -> ExitCode {
    match prepare(link) {
        Ok((config, commands)) => match serve(config, commands) {
            Ok(never) => match never {},
            Err(error) => {
                eprintln!("The admin listener: {error}");
                ExitCode::from(2)
            }
        },
        Err(why) => {
            eprintln!("The admin listener: {why}");
            ExitCode::from(2)
        }
    }
}

/// Reads the configuration and confines the process, before it has threads and before it reads a byte of a client.
fn prepare(link: RawFd) -> Result<(AdminConfig, UnixStream), String> {
    let mut commands = UnixStream::from(inherit(link));
    let config: AdminConfig =
        link::receive(&mut commands).map_err(|error| format!("cannot read the configuration: {error}"))?;
    if let Some(line) = lacquer_jail::enter_as_reader(&config)?.line("admin process") {
        eprintln!("{line}");
    }
    Ok((config, commands))
}

/// Ends the process as soon as the manager has gone, however that ended: the kernel's signal at a parent's death does not
/// reach the process of another user. The socket is not read.
fn end_with_manager(link: &UnixStream) -> std::io::Result<()> {
    let link = link.try_clone()?;
    thread::Builder::new().name("manager".into()).spawn(move || {
        let mut watched = [PollFd::new(&link, PollFlags::RDHUP)];
        while !matches!(poll(&mut watched, None), Ok(1..)) {}
        exit(0)
    })?;
    Ok(())
}

fn serve(config: AdminConfig, commands: UnixStream) -> std::io::Result<std::convert::Infallible> {
    end_with_manager(&commands)?;
    let directory = Directory::at(&config.workdir);
    let exporter = config.collector.map(otlp::start).transpose()?;
    let addresses = UnixStream::from(inherit(config.addresses_fd));
    if let Some(exporter) = &exporter {
        otlp::follow_addresses(addresses, Arc::clone(exporter))?;
    }
    let watch = Arc::new(Watch::new(directory.clone()));
    let live_log = Arc::<LiveLog>::default();
    LogThread::start(directory.clone(), Arc::clone(&watch), Arc::clone(&live_log), exporter.clone())?;
    let app = Arc::new(App {
        manager: ManagerLink::start(commands, "commands")?,
        questions: ManagerLink::start(UnixStream::from(inherit(config.questions_fd)), "questions")?,
        watch,
        exporter,
        live_log,
        lists: Arc::new(Lists::new()),
        page: Page::new(),
        connections: Connections::default(),
        health: Health::default(),
        streams: Arc::new(Semaphore::new(STREAMS)),
        reads: Arc::new(Semaphore::new(1)),
        refused: Default::default(),
    });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    runtime.block_on(async move {
        let lists = Arc::clone(&app.lists).run(app.manager.clone(), directory, Arc::clone(&app.reads));
        tokio::spawn(threads::task("lists", lists));
        let exports = Arc::clone(&app);
        tokio::spawn(threads::task("exports", async move { exports.export_metrics().await }));
        for socket in config.sockets {
            let listener = listener(&socket)?;
            let guard = Arc::new(Guard::new(socket.is_unix, socket.token.as_deref(), socket.hosts));
            tokio::spawn(threads::task("accept", accept(listener, guard, Arc::clone(&app))));
        }
        std::future::pending().await
    })
}

fn listener(socket: &AdminSocket) -> std::io::Result<Listener> {
    let fd = inherit(socket.fd);
    if socket.is_unix {
        let unix = std::os::unix::net::UnixListener::from(fd);
        unix.set_nonblocking(true)?;
        return UnixListener::from_std(unix).map(Listener::Unix);
    }
    let tcp = std::net::TcpListener::from(fd);
    tcp.set_nonblocking(true)?;
    let config =
        socket.certificate.as_deref().map(single_config).transpose().map_err(std::io::Error::other)?;
    Ok(Listener::Tcp(TcpListener::from_std(tcp)?, config.map(TlsAcceptor::from)))
}
