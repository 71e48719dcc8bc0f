//! A running `lacquerd` in debug mode. Its standard input is the management port, so that it ends with the test. Only
//! one daemon runs at a time in a test program, because many tests measure time or memory, unless its test holds a
//! shared slot.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::machine::Machine;
use crate::management::read_answer;
use crate::slots::{self, ExclusiveSlot};
use crate::wait::until_within;
pub use crate::wait::{MAX_WAIT, until};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The longest time of an end that writes what waits for a disk.
const LONGEST_END: Duration = Duration::from_mins(2);

pub struct Daemon {
    pub address: SocketAddr,
    process: Child,
    cli_in: ChildStdin,
    cli_out: BufReader<ChildStdout>,
    dir: PathBuf,
    _slot: Option<ExclusiveSlot>,
}

/// Resident memory of both processes, shared pages counted once.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// Everything except the log's ring buffer.
    pub memory: u64,
    /// The pages of the log's ring buffer that were touched.
    pub ring: u64,
}

/// Returns the path of the daemon under test: `LACQUERD` from the environment, or the program that was built beside the
/// running test program.
pub fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("LACQUERD") {
        return named.into();
    }
    let test = std::env::current_exe().expect("a running program has a path");
    let profile =
        test.ancestors().nth(2).expect("the test program is two folders below the profile's folder");
    profile.join("lacquerd")
}

/// Returns a VCL with this origin and these subroutines.
pub fn vcl(origin: SocketAddr, subs: &str) -> String {
    format!(
        "vcl 4.1;\nbackend default {{ .host = \"{}\"; .port = \"{}\"; }}\n{subs}\n",
        origin.ip(),
        origin.port()
    )
}

/// Runs a daemon that must fail to start, through a shell script as in `Daemon::start_by`, in which `$dir` is a new
/// directory. Returns its standard error.
pub fn refused(options: &[&str], script: &str) -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("lacquer-refused-{}-{number}", std::process::id()));
    fs::create_dir_all(&dir).expect("a temporary directory can be created");
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(program())
        .args(["-F", "-j", "none", "-a", "127.0.0.1:0", "-b", "none", "-n"])
        .arg(dir.join("name"))
        .args(options)
        .env("dir", &dir)
        .stdin(Stdio::null())
        .output()
        .expect("the shell runs");
    let _ = fs::remove_dir_all(&dir);
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

impl Daemon {
    /// Starts a daemon with this VCL and further options.
    pub fn start(vcl: &str, options: &[&str]) -> Daemon {
        Daemon::start_by(vcl, options, "exec \"$@\"")
    }

    /// Starts the daemon through a shell script that ends with `exec "$@"` and may set limits of the process.
    pub fn start_by(vcl: &str, options: &[&str], script: &str) -> Daemon {
        // Only root may read the memory maps of a worker that is not dumpable.
        let readable: &[&str] = if is_root() { &[] } else { &["-p", "jail_dumpable=on"] };
        Daemon::start_jailed(vcl, &[&["-j", "none"], readable, options].concat(), script)
    }

    /// Starts the daemon like `start_by`, in the jail that the options select, or in the default one.
    pub fn start_jailed(vcl: &str, options: &[&str], script: &str) -> Daemon {
        let slot = slots::exclusive_slot();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("lacquer-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary directory can be created");
        fs::write(dir.join("boot.vcl"), vcl).expect("the VCL can be written");
        let errors = fs::File::create(dir.join("stderr")).expect("a file for messages can be created");
        let mut process = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(program())
            .args(["-d", "-a", "127.0.0.1:0", "-p", "auto_restart=on", "-n"])
            .arg(dir.join("name"))
            .arg("-f")
            .arg(dir.join("boot.vcl"))
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("the shell runs");
        let cli_in = process.stdin.take().expect("it is a pipe");
        let cli_out = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut daemon = Daemon { address, process, cli_in, cli_out, dir, _slot: slot };
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

    /// Returns the port of the listener with this name (`-a NAME=...`).
    pub fn port_of(&mut self, listener: &str) -> u16 {
        let text = self.ok("debug.listen_address");
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(listener));
        let port = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
        port.expect("it listens on a port")
    }

    fn answer(&mut self) -> (u16, String) {
        let read = read_answer(&mut self.cli_out);
        read.unwrap_or_else(|error| panic!("no reply from the daemon: {error}: {}", self.stderr()))
    }

    /// Reads the banner of the program that has replaced the daemon.
    pub fn banner(&mut self) {
        self.answer();
    }

    /// Sends a management command and returns its status and text.
    pub fn cli(&mut self, command: &str) -> (u16, String) {
        writeln!(self.cli_in, "{command}").expect("the daemon reads");
        self.answer()
    }

    /// Sends a management command that must succeed and returns its text.
    pub fn ok(&mut self, command: &str) -> String {
        let (status, text) = self.cli(command);
        assert_eq!(status, 200, "{command}: {text}\n{}", self.stderr());
        text
    }

    /// Returns the daemon's standard error so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.dir.join("stderr")).unwrap_or_default()
    }

    /// Returns the working directory.
    pub fn directory(&self) -> PathBuf {
        self.dir.join("name")
    }

    /// Polls the log until a record contains this text, or `LONGEST_POLL` is over. Returns whether one does.
    pub fn logs(&self, text: &str) -> bool {
        until(|| self.log_has(text))
    }

    /// Returns whether the log contains this text now.
    pub fn log_has(&self, text: &str) -> bool {
        let files = fs::read_dir(self.directory().join("_.vsm_child")).into_iter().flatten().flatten();
        let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("_.Log"));
        let has = |bytes: Vec<u8>| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        logs.filter_map(|file| written_part(&file.path()).ok()).any(has)
    }

    pub fn manager(&self) -> u32 {
        self.process.id()
    }

    /// Returns the exit code of the manager, once it has ended. `None` if it has not ended in time.
    pub fn end(&mut self) -> Option<i32> {
        let mut code = None;
        until(|| {
            code = self.process.try_wait().ok().flatten().and_then(|end| end.code());
            code.is_some()
        });
        code
    }

    /// Ends the daemon in order, so that everything is on its disks.
    pub fn end_in_order(mut self) {
        self.cli_in.write_all(b"quit\n").expect("the daemon reads");
        let has_ended = || self.process.try_wait().is_ok_and(|end| end.is_some());
        assert!(until_within(LONGEST_END, has_ended), "it does not end: {}", self.stderr());
    }

    pub fn worker(&mut self) -> u32 {
        let text = self.ok("pid");
        let line = text.lines().find(|l| l.starts_with("Worker")).expect("there is a worker");
        line.split_whitespace().last().and_then(|w| w.parse().ok()).expect("a process id")
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("the daemon accepts connections")
    }

    /// Starts to measure the CPU time of other processes.
    pub fn machine(&mut self) -> Machine {
        Machine::beside([self.manager(), self.worker()])
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
            let _ = write!(text, "standard error of the daemon:\n{}", self.stderr());
            eprintln!("{text}");
        }
        // The command ends the daemon; if not, the signal ends the manager, and thereby the worker.
        let _ = self.cli_in.write_all(b"quit\n");
        if !until(|| self.process.try_wait().is_ok_and(|end| end.is_some())) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns whether the test runs as root.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Reads a log file up to the end of its written part.
fn written_part(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    loop {
        let start = bytes.len();
        Read::by_ref(&mut file).take(1 << 20).read_to_end(&mut bytes)?;
        if bytes[start..].iter().all(|byte| *byte == 0) {
            return Ok(bytes);
        }
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
            // The share of a program's file that counts as the daemon's depends on other processes that run it.
            is_program = line.contains(".so") || line.ends_with("/lacquerd");
        } else if let Some(kilobytes) = line.strip_prefix("Pss:").filter(|_| !is_program) {
            let bytes = kilobytes.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024;
            if is_ring { found.ring += bytes } else { found.memory += bytes }
        }
    }
    found
}

/// Returns the running child processes of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Returns whether a process has ended. If no process reaps orphans, it stays as a zombie.
pub fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |text| text.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

pub fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").args([name, &pid.to_string()]).status().expect("kill runs");
    assert!(done.success(), "kill {name} {pid}");
}
