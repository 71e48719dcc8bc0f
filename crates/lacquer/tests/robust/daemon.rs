//! One `lacquerd` in debug mode: the management port is its standard input, so that it ends with the test.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Longer than anything takes on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Daemon {
    pub address: SocketAddr,
    process: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
    dir: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// What is resident of both processes, shared pages counted once.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// Everything but the log's ring.
    pub memory: u64,
    /// The log's ring, as far as it was written.
    pub ring: u64,
}

/// A VCL with this origin and these subroutines.
pub fn vcl(origin: SocketAddr, subs: &str) -> String {
    format!(
        "vcl 4.1;\nbackend default {{ .host = \"{}\"; .port = \"{}\"; }}\n{subs}\n",
        origin.ip(),
        origin.port()
    )
}

impl Daemon {
    /// Starts a daemon with this VCL and more options.
    pub fn start(vcl: &str, options: &[&str]) -> Daemon {
        Daemon::start_by(vcl, options, "exec \"$@\"")
    }

    /// The same by a shell script that ends with `exec "$@"`.
    pub fn start_by(vcl: &str, options: &[&str], script: &str) -> Daemon {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lacquer-robust-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary directory can be made");
        fs::write(dir.join("boot.vcl"), vcl).expect("the VCL can be written");
        let errors = fs::File::create(dir.join("stderr")).expect("a file for messages can be made");
        let mut process = Command::new("sh")
            .args(["-c", script, "sh", env!("CARGO_BIN_EXE_lacquerd")])
            .args(["-d", "-j", "none", "-a", "127.0.0.1:0", "-p", "auto_restart=on", "-n"])
            .arg(dir.join("name"))
            .arg("-f")
            .arg(dir.join("boot.vcl"))
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("the shell runs");
        let say = process.stdin.take().expect("it was asked for");
        let hear = BufReader::new(process.stdout.take().expect("it was asked for"));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut daemon = Daemon { address, process, say, hear, dir, _turn: turn };
        daemon.answer();
        daemon.ok("start");
        daemon.address = daemon.listens();
        daemon
    }

    fn listens(&mut self) -> SocketAddr {
        let text = self.ok("debug.listen_address");
        let mut words = text.split_whitespace().skip(1);
        let ip = words.next().and_then(|w| w.parse().ok());
        let port = words.next().and_then(|w| w.parse().ok());
        SocketAddr::new(ip.expect("an address"), port.expect("a port"))
    }

    fn answer(&mut self) -> (u16, String) {
        let mut line = String::new();
        self.hear.read_line(&mut line).expect("the daemon answers");
        let mut words = line.split_whitespace().map(str::parse::<usize>);
        let (Some(Ok(status)), Some(Ok(length))) = (words.next(), words.next()) else {
            panic!("no answer but {line:?}: {}", self.said());
        };
        let mut text = vec![0; length + 1];
        self.hear.read_exact(&mut text).expect("the daemon answers to the end");
        text.pop();
        (status as u16, String::from_utf8_lossy(&text).into_owned())
    }

    /// The answer to a command.
    pub fn cli(&mut self, command: &str) -> (u16, String) {
        writeln!(self.say, "{command}").expect("the daemon reads");
        self.answer()
    }

    /// The answer to a command that succeeds.
    pub fn ok(&mut self, command: &str) -> String {
        let (status, text) = self.cli(command);
        assert_eq!(status, 200, "{command}: {text}\n{}", self.said());
        text
    }

    /// What it wrote to its standard error.
    pub fn said(&self) -> String {
        fs::read_to_string(self.dir.join("stderr")).unwrap_or_default()
    }

    pub fn manager(&self) -> u32 {
        self.process.id()
    }

    pub fn worker(&mut self) -> u32 {
        let text = self.ok("pid");
        let line = text.lines().find(|l| l.starts_with("Worker")).expect("there is a worker");
        line.split_whitespace().last().and_then(|w| w.parse().ok()).expect("a process id")
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("the daemon accepts")
    }

    pub fn resident(&mut self) -> Resident {
        let all = [self.manager(), self.worker()].map(resident_of);
        Resident { memory: all[0].memory + all[1].memory, ring: all[0].ring + all[1].ring }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut text = String::new();
            let _ = write!(text, "the daemon said:\n{}", self.said());
            eprintln!("{text}");
        }
        // The end of its standard input ends the daemon; if not, the signal ends both processes.
        let _ = self.say.write_all(b"quit\n");
        if !until(|| self.process.try_wait().is_ok_and(|end| end.is_some())) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn resident_of(pid: u32) -> Resident {
    let mut found = Resident { memory: 0, ring: 0 };
    let (mut is_ring, mut is_program) = (false, false);
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    for line in maps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if !first.ends_with(':') {
            is_ring = line.contains("_.Log");
            // How much of a program's file counts as ours depends on who else runs it just now.
            is_program = line.contains(".so") || line.ends_with("/lacquerd");
        } else if let Some(kilobytes) = line.strip_prefix("Pss:").filter(|_| !is_program) {
            let bytes = kilobytes.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024;
            if is_ring { found.ring += bytes } else { found.memory += bytes }
        }
    }
    found
}

pub fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").args([name, &pid.to_string()]).status().expect("kill runs");
    assert!(done.success(), "kill {name} {pid}");
}

/// Waits for something, not for ever.
pub fn until(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
