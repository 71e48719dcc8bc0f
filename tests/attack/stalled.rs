//! Name lookups and file reads that never complete. Only the requests that need them wait.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, MAX_WAIT, is_root, signal, until, vcl};
use lacquer_testing::management::ManagementPort;
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::shared_slot;

/// The limit for other requests. It is generous, because the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A temporary directory, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("lacquer-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory can be created");
        Directory(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A name server that receives queries and never responds.
struct SilentServer {
    socket: UdpSocket,
    directory: Directory,
}

impl SilentServer {
    /// Returns `None` if the test may not bind a name server's port or create a mount. The number distinguishes the
    /// servers of this program.
    fn start(number: u32) -> Option<SilentServer> {
        if !is_root() {
            return None;
        }
        let process = std::process::id();
        let address = Ipv4Addr::new(127, 53 + number as u8, (process >> 8) as u8, process as u8 | 1);
        let socket = UdpSocket::bind((address, 53)).ok()?;
        socket.set_read_timeout(Some(MAX_WAIT)).ok()?;
        let directory = Directory::new(&format!("names-{number}"));
        let text = format!("nameserver {address}\noptions timeout:3 attempts:1\n");
        fs::write(directory.path("resolv.conf"), text).ok()?;
        Some(SilentServer { socket, directory })
    }

    /// Starts a daemon that queries this server.
    fn daemon(&self, vcl: &str, options: &[&str]) -> Daemon {
        let mount = format!("mount --bind {} /etc/resolv.conf", self.directory.path("resolv.conf"));
        Daemon::start_by(
            vcl,
            options,
            &format!("exec unshare --mount sh -c '{mount} && exec \"$@\"' sh \"$@\""),
        )
    }

    fn wait_for_query(&self) {
        self.socket.recv(&mut [0; 512]).expect("a query arrives");
    }
}

/// Sends a GET from a thread, which returns the status of the response, or `None` without one.
fn ask(address: SocketAddr, path: &str) -> JoinHandle<Option<u16>> {
    let path = path.to_owned();
    thread::spawn(move || {
        Client::connect(address).and_then(|mut client| client.get(&path)).ok().map(|r| r.status)
    })
}

fn hits_go_on(address: SocketAddr) {
    for _ in 0..20 {
        let asked = Instant::now();
        assert_eq!(get(address, "/100/kept/a").expect("a response arrives").status, 200);
        assert!(asked.elapsed() < AT_ONCE, "a hit took {:?}", asked.elapsed());
    }
}

/// A name in a new VCL that must be resolved, whose name server is silent, stops neither traffic nor logins, other
/// commands or a worker's restart.
#[test]
fn a_silent_name_server_does_not_hold_the_manager() {
    let _slot = shared_slot();
    let Some(server) = SilentServer::start(0) else {
        eprintln!("skipped: a name server cannot be started");
        return;
    };
    let origin = Origin::start(sized);
    let options = ["-T", "127.0.0.1:0", "-p", "dns_strict=on"];
    let mut daemon = server.daemon(&vcl(origin.address, ""), &options);
    let port = ManagementPort::of(&daemon.directory()).expect("the daemon publishes its port");
    hits_go_on(daemon.address);
    let mut operator = port.login().expect("an operator can log in");
    let loading = thread::spawn(move || {
        let begun = Instant::now();
        let command = r#"vcl.inline named "vcl 4.1; backend a { .host = \"silent.example.\"; }""#;
        let answer = operator.cli(command).expect("a response arrives");
        (answer, begun.elapsed())
    });
    server.wait_for_query();
    let begun = Instant::now();
    hits_go_on(daemon.address);
    let mut other = port.login().expect("another operator can log in");
    assert_eq!(other.cli("ping").expect("a response arrives").0, 200);
    assert_eq!(other.cli("param.show").expect("a response arrives").0, 200);
    assert_eq!(
        other.cli("vcl.inline b \"vcl 4.1; backend default none;\"").expect("a response arrives").0,
        200
    );
    let worker = daemon.worker();
    signal(worker, "-KILL");
    assert!(until(|| get(daemon.address, "/100/kept/a").is_ok_and(|answer| answer.status == 200)));
    assert_ne!(daemon.worker(), worker);
    assert!(begun.elapsed() < 2 * AT_ONCE, "all that took {:?}", begun.elapsed());
    assert!(!loading.is_finished(), "the lookup is still in progress");
    let ((status, text), took) = loading.join().expect("the thread does not panic");
    assert!(status == 106 && text.contains("silent.example"), "{status} {text}");
    assert!(took > AT_ONCE, "it took {took:?}");
}

/// A name in a new VCL that may be unresolved, whose name server is silent, is a warning. The load waits for it for a
/// moment, and so do other commands and the restart of a worker. Traffic does not wait.
#[test]
fn a_silent_name_server_delays_a_load_for_a_moment() {
    let _slot = shared_slot();
    let Some(server) = SilentServer::start(2) else {
        eprintln!("skipped: a name server cannot be started");
        return;
    };
    let origin = Origin::start(sized);
    let mut daemon = server.daemon(&vcl(origin.address, ""), &["-T", "127.0.0.1:0"]);
    let port = ManagementPort::of(&daemon.directory()).expect("the daemon publishes its port");
    hits_go_on(daemon.address);
    let mut operator = port.login().expect("an operator can log in");
    let begun = Instant::now();
    let loading = thread::spawn(move || {
        let command = r#"vcl.inline named "vcl 4.1; backend a { .host = \"silent.example.\"; }""#;
        operator.cli(command).expect("a response arrives")
    });
    server.wait_for_query();
    hits_go_on(daemon.address);
    let mut other = port.login().expect("another operator can log in");
    assert_eq!(other.cli("ping").expect("a response arrives").0, 200);
    let (status, text) = loading.join().expect("the thread does not panic");
    assert!(status == 200 && text.contains("silent.example"), "{status} {text}");
    assert!(begun.elapsed() < 2 * AT_ONCE, "the load took {:?}", begun.elapsed());
    let begun = Instant::now();
    signal(daemon.worker(), "-KILL");
    assert!(until(|| get(daemon.address, "/100/kept/a").is_ok_and(|answer| answer.status == 200)));
    assert!(begun.elapsed() < 2 * AT_ONCE, "the restart took {:?}", begun.elapsed());
}

/// Name lookups in VCL hold only the requests that need them.
#[test]
fn a_silent_name_server_does_not_hold_others() {
    let _slot = shared_slot();
    let Some(server) = SilentServer::start(1) else {
        eprintln!("skipped: a name server cannot be started");
        return;
    };
    let origin = Origin::start(sized);
    let subs = "import std;
        sub vcl_recv {
            if (req.url ~ \"^/name/\") {
                if (std.ip(req.url.lower() + \".silent.example.\", \"192.0.2.1\") == \"192.0.2.1\") { return (synth(404)); }
            }
        }";
    let subs = subs.replace("req.url.lower()", "regsub(req.url, \"^/name/\", \"\")");
    let daemon = server.daemon(&vcl(origin.address, &subs), &[]);
    hits_go_on(daemon.address);
    let asking: Vec<_> = (0..40).map(|n| ask(daemon.address, &format!("/name/{n}"))).collect();
    server.wait_for_query();
    hits_go_on(daemon.address);
    assert!(asking.iter().any(|thread| !thread.is_finished()), "the lookup is still in progress");
    for thread in asking {
        assert_eq!(thread.join().expect("the thread does not panic"), Some(404));
    }
}

/// File reads that never complete hold only the requests that need them.
#[test]
fn blocked_file_reads_do_not_hold_others() {
    let _slot = shared_slot();
    let directory = Directory::new("files");
    let (text, users) = (directory.path("text"), directory.path("users"));
    for path in [&text, &users] {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.is_ok_and(|status| status.success()), "a FIFO can be created");
    }
    let origin = Origin::start(sized);
    let subs = format!(
        "import std;
        import basicauth;
        sub vcl_recv {{
            if (req.url == \"/text\") {{ return (synth(200, std.fileread(\"{text}\"))); }}
            if (req.url == \"/users\" && !basicauth.match(\"{users}\", \"Basic am9lOmE=\")) {{ return (synth(401)); }}
        }}"
    );
    let mut daemon = Daemon::start(&vcl(origin.address, &subs), &[]);
    hits_go_on(daemon.address);
    let asking: Vec<_> = (0..20).map(|n| ask(daemon.address, ["/text", "/users"][n % 2])).collect();
    thread::sleep(Duration::from_millis(200));
    hits_go_on(daemon.address);
    assert_eq!(daemon.ok("vcl.list").lines().count(), 1);
    daemon.ok("vcl.inline b \"vcl 4.1; backend default none;\"");
    assert!(asking.iter().all(|thread| !thread.is_finished()), "the reads are still in progress");
    let begun = Instant::now();
    daemon.ok("stop");
    assert!(begun.elapsed() < 5 * AT_ONCE, "it stopped after {:?}", begun.elapsed());
}
