//! The management port under attack: silent connections, wrong secrets, clients that do not read, endless commands.
//! Meanwhile an operator can log in and a dead worker is replaced.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, signal, until, vcl};
use lacquer_testing::effort;
use lacquer_testing::machine::ticks;
use lacquer_testing::management::{Management, ManagementPort};
use lacquer_testing::slots::shared_slot;

/// The unit of the deadlines.
const SECOND: Duration = Duration::from_secs(1);
const LOGIN_WITHIN: Duration = Duration::from_secs(10);
const MOST_STRANGERS: usize = 30;
const SILENT: usize = 500;
const SYNTH: &str = "sub vcl_recv { return (synth(200)); }";

/// Returns the limit for a login and for the replacement of a killed worker: a second, or more beside other tests.
fn soon() -> Duration {
    effort(SECOND * 3, SECOND)
}

fn daemon(limit: &str) -> (Daemon, ManagementPort) {
    let script = format!("ulimit -n {limit}; exec \"$@\"");
    let options = ["-T", "127.0.0.1:0", "-s", "malloc,32M"];
    let daemon = Daemon::start_by(&vcl(([127, 0, 0, 1], 1).into(), SYNTH), &options, &script);
    let port = ManagementPort::of(&daemon.directory()).expect("the daemon publishes its port");
    (daemon, port)
}

/// An attack that runs in threads until it is dropped.
struct Attack {
    ends: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    fn by(count: usize, round: impl Fn(&AtomicBool) + Send + Sync + Clone + 'static) -> Attack {
        let (ends, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads = (0..count)
            .map(|_| {
                let (ends, rounds, round) = (ends.clone(), rounds.clone(), round.clone());
                std::thread::spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        round(&ends);
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        Attack { ends, rounds, threads }
    }

    fn rounds(&self) -> usize {
        self.rounds.load(Ordering::Relaxed)
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Removes the connections that the daemon has closed. Returns how many are left.
fn still_open(connections: &mut Vec<TcpStream>) -> usize {
    connections.retain_mut(|stream| {
        stream.set_nonblocking(true).expect("sockets can be non-blocking");
        loop {
            match stream.read(&mut [0; 512]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    });
    connections.len()
}

fn connect_many(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).filter_map(|_| TcpStream::connect(address).ok()).collect()
}

/// Keeps `count` silent connections open, and replaces those that are closed.
fn silent_ones(address: SocketAddr, count: usize) -> Attack {
    let first = Arc::new(Mutex::new(connect_many(address, count)));
    Attack::by(1, move |ends| {
        let mut open = std::mem::take(&mut *first.lock().expect("one thread uses it"));
        while !ends.load(Ordering::Relaxed) {
            still_open(&mut open);
            open.extend(connect_many(address, count - open.len()));
            std::thread::sleep(Duration::from_millis(50));
        }
    })
}

fn wrong_secrets(address: SocketAddr, threads: usize) -> Attack {
    Attack::by(threads, move |_| {
        let _ = Management::connect(address).and_then(|mut management| management.offer(b"guessed"));
    })
}

/// Logs in, sends commands with long replies and reads none of them, until disconnected or ended.
fn non_readers(port: &ManagementPort, threads: usize) -> Attack {
    let port = port.clone();
    Attack::by(threads, move |ends| {
        let Ok(mut management) = port.login() else { return };
        let stream = management.stream();
        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
        let commands = b"param.show -l\n".repeat(100);
        while !ends.load(Ordering::Relaxed) {
            if stream.write_all(&commands).is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
                return;
            }
        }
    })
}

/// Logs in and sends an endless line.
fn endless_lines(port: &ManagementPort, threads: usize) -> Attack {
    let port = port.clone();
    Attack::by(threads, move |ends| {
        let Ok(mut management) = port.login() else { return };
        let stream = management.stream();
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        let filler = vec![b'x'; 64 << 10];
        while !ends.load(Ordering::Relaxed) && stream.write_all(&filler).is_ok() {}
    })
}

fn timed_login(port: &ManagementPort) -> Duration {
    let start = Instant::now();
    let mut management = port.login().expect("an operator can log in");
    assert_eq!(management.cli("ping").expect("the manager replies").0, 200);
    start.elapsed()
}

fn longest_login(port: &ManagementPort, tries: usize) -> Duration {
    (0..tries).map(|_| timed_login(port)).max().unwrap_or_default()
}

/// Kills the worker. Returns the time until the next one serves a request.
fn back_after_kill(daemon: &mut Daemon) -> Duration {
    let before = daemon.worker();
    let killed = Instant::now();
    signal(before, "-KILL");
    assert!(
        until(|| get(daemon.address, "/").is_ok_and(|answer| answer.status == 200)),
        "a worker serves requests"
    );
    let took = killed.elapsed();
    assert_ne!(daemon.worker(), before);
    took
}

/// Silent connections take only the places for clients that have not logged in, and cost nearly nothing.
#[test]
fn silent_connections_give_way() {
    let (mut daemon, port) = daemon("256");
    let mut silent = connect_many(port.address, SILENT);
    assert!(until(|| still_open(&mut silent) <= MOST_STRANGERS), "{} are open", silent.len());
    assert!(longest_login(&port, 5) < soon());
    let before = ticks(daemon.manager());
    std::thread::sleep(SECOND);
    let spent = ticks(daemon.manager()) - before;
    assert!(spent < 30, "{spent} of 100 ticks were spent on silent connections");
    assert!(back_after_kill(&mut daemon) < soon());
    let left = still_open(&mut silent);
    assert!(left > 0, "no client is disconnected without need");
}

/// Replies to wrong secrets are increasingly delayed; replies to right ones are not.
#[test]
fn wrong_secrets_are_slowed() {
    let _slot = shared_slot();
    let (daemon, port) = daemon("256");
    let alone = wrong_secrets(port.address, 1);
    std::thread::sleep(effort(Duration::from_secs(2), Duration::from_secs(20)));
    let tries = alone.rounds();
    assert!((1..=effort(6, 10)).contains(&tries), "{tries} tries by one connection at a time");
    let many = wrong_secrets(port.address, 50);
    let longest = longest_login(&port, effort(10, 100));
    assert!(longest < soon(), "a login beside {} wrong tries took {longest:?}", many.rounds());
    // Ends the attackers' wait for replies.
    drop(daemon);
}

/// A connection that does not log in ends after ten seconds. One that does not read its replies ends after ten seconds,
/// and delays no other client until then.
#[test]
fn silent_and_non_reading_clients_have_ten_seconds() {
    let _slot = shared_slot();
    // A busy machine may stall.
    assert!((0..3).any(|_| clients_have_ten_seconds()), "they end late each time");
}

/// Returns whether both clients have ended in time.
fn clients_have_ten_seconds() -> bool {
    let (mut daemon, port) = daemon("256");
    let mut non_reader = port.login().expect("there is room");
    non_reader.stream().set_nonblocking(true).expect("sockets can be non-blocking");
    let start = Instant::now();
    let mut stranger = vec![TcpStream::connect(port.address).expect("there is room")];
    let (mut stranger_for, mut deaf_for) = (None, None);
    while (stranger_for.is_none() || deaf_for.is_none()) && start.elapsed() < LOGIN_WITHIN * 2 {
        match non_reader.stream().write(b"param.show -l\n") {
            Ok(_) => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => deaf_for = deaf_for.or(Some(start.elapsed())),
        }
        if still_open(&mut stranger) == 0 {
            stranger_for = stranger_for.or(Some(start.elapsed()));
        }
        assert!(longest_login(&port, 1) < soon());
        std::thread::sleep(Duration::from_millis(100));
    }
    let ends = [stranger_for, deaf_for].map(|ended| ended.expect("it was closed"));
    eprintln!("closed after {ends:?}");
    assert!(ends.iter().all(|ended| *ended + SECOND > LOGIN_WITHIN), "closed after {ends:?}");
    assert!(back_after_kill(&mut daemon) < soon());
    ends.iter().all(|ended| *ended < LOGIN_WITHIN + 2 * SECOND)
}

/// Commands have a limit, which is above 64 MB of VCL.
#[test]
fn commands_have_a_limit() {
    let _slot = shared_slot();
    let (mut daemon, port) = daemon("256");
    let mut management = port.login().expect("there is room");
    let size = effort(4 << 20, 64 << 20);
    let line = "# what is left of a large configuration that somebody generated .....\n";
    let comment = line.repeat(size / line.len());
    let text = format!("vcl.inline large << %END\nvcl 4.1;\nbackend default none;\n{comment}%END\n");
    management.stream().write_all(text.as_bytes()).expect("the manager reads");
    let (status, text) = management.answer().expect("the manager replies");
    assert_eq!(status, 200, "{text}");
    if effort(false, true) {
        let endless = endless_lines(&port, 1);
        assert!(until(|| endless.rounds() > 0), "an endless line is read");
    }
    assert!(longest_login(&port, 3) < soon());
    assert!(daemon.resident().memory < 600 << 20);
}

/// During all these attacks at once, an operator logs in within a second, and a killed worker is replaced within a
/// second.
#[test]
fn everything_at_once() {
    let (mut daemon, port) = daemon("256");
    let silent = silent_ones(port.address, SILENT);
    let wrong = wrong_secrets(port.address, 20);
    let non_reader = non_readers(&port, 5);
    let endless = endless_lines(&port, effort(1, 4));
    std::thread::sleep(Duration::from_millis(500));
    let before = ticks(daemon.manager());
    let start = Instant::now();
    for _ in 0..effort(2, 40) {
        let login = longest_login(&port, effort(3, 5));
        let back = back_after_kill(&mut daemon);
        eprintln!("under attack: login {login:?}, worker back {back:?}");
        assert!(login < soon() && back < soon(), "login {login:?}, back {back:?}");
    }
    let spent = (ticks(daemon.manager()) - before) as f64 / start.elapsed().as_secs_f64();
    eprintln!("the manager used {spent:.0} % of a processor");
    drop(daemon);
    drop((silent, wrong, non_reader, endless));
}
