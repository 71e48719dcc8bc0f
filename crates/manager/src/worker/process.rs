//! One worker process: its start, its output, requests to it and its end.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lacquer_cli::link::{self, DatagramPeers, FromWorker, PeerSockets, Request, ToWorker, WORKER_ARGUMENT};
use lacquer_cli::status;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, Signal};

use super::child::Process;
use super::lines::Lines;
use crate::spawning::{spawn_with, this_program};
use crate::upgrade::{WorkerState, take};

/// Size of the output pipe in bytes: the worker may write this much before the manager reads.
const OUTPUT_BUFFER: usize = 1 << 20;
const READ: usize = 64 << 10;
/// Maximum number of reads at a time, so that a worker that writes without end does not block the manager.
const READS: usize = OUTPUT_BUFFER / 4096;

/// A worker process.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    link: UnixStream,
    output: OwnedFd,
    lines: Lines,
    received: Vec<u8>,
    next_id: u64,
    killed: bool,
    /// Our end of its connection to the next worker, until that has inherited it and has started.
    peer: Option<UnixStream>,
    datagrams: DatagramEnd,
}

/// The end of a worker's connection on which later workers pass on datagrams for it.
#[derive(Debug)]
struct DatagramEnd {
    /// The number of the worker.
    worker: u8,
    socket: OwnedFd,
}

/// The sockets that a worker has inherited for the next one.
pub struct ForSuccessor {
    stream: UnixStream,
    datagrams: OwnedFd,
}

impl ForSuccessor {
    /// Returns the sockets for the configuration of the worker with this number. It takes over from the worker `beside` it,
    /// and `before` may still serve connections of HTTP/3.
    pub fn describe(&self, number: u8, beside: Option<&Worker>, before: Option<&Worker>) -> PeerSockets {
        let leads_to = |worker: &Worker| (worker.datagrams.worker, worker.datagrams().as_raw_fd());
        PeerSockets {
            successor: Some(self.stream.as_raw_fd()),
            predecessor: beside.and_then(Worker::peer).map(|peer| peer.as_raw_fd()),
            datagrams: DatagramPeers {
                worker: number,
                incoming: Some(self.datagrams.as_raw_fd()),
                predecessor: before.map(leads_to),
            },
        }
    }
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestResult {
    /// The worker's reply.
    Reply {
        /// Status of the CLI.
        status: u16,
        /// Text for the user.
        text: Vec<u8>,
    },
    /// The worker did not reply, or not in time.
    NoReply,
}

/// The end of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Exit code, unless it was killed by a signal.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Whether it dumped core.
    pub core: bool,
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> End {
        End { code: status.code(), signal: status.signal(), core: status.core_dumped() }
    }
}

fn timespec(duration: Duration) -> Timespec {
    // Longer timeouts would overflow the kernel's clock.
    let duration = duration.min(Duration::from_hours(24));
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}

/// Returns the command of a tool (`valgrind --tool=callgrind`, `perf record`) that runs the worker. The worker then has
/// no jail, because the jail would confine the tool. This is no risk: the user who starts the manager may run any
/// program anyway.
pub fn tool() -> Option<OsString> {
    std::env::var_os("LACQUER_WORKER_UNDER")
}

/// Returns the command that starts a worker. `more` names variables to pass.
fn program(name: &OsString, more: &str) -> io::Result<Command> {
    let Some(tool) = tool() else { return Ok(this_program(name, more)) };
    let tool = tool.to_string_lossy();
    let mut words = tool.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("env"));
    command.args(words).arg(std::env::current_exe()?);
    Ok(command)
}

impl Worker {
    /// Starts a worker with a number. It inherits the descriptors with their numbers, and the variables that `more` names.
    pub fn spawn(
        name: &OsString,
        number: u8,
        more: &str,
        inherited: &[BorrowedFd<'_>],
    ) -> io::Result<(Worker, ForSuccessor)> {
        let (link, theirs) = UnixStream::pair()?;
        let (peer, successor) = UnixStream::pair()?;
        // Datagrams keep their limits, and the queue is limited by its bytes.
        let (outgoing, datagrams) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (output, output_end) = pipe_with(PipeFlags::CLOEXEC)?;
        // A small pipe buffer is acceptable.
        let _ = fcntl_setpipe_size(&output, OUTPUT_BUFFER);
        rustix::io::ioctl_fionbio(&output, true)?;
        let passed = [inherited, &[theirs.as_fd(), successor.as_fd(), datagrams.as_fd()]].concat();
        let mut command = program(name, more)?;
        command
            .arg(format!("{WORKER_ARGUMENT}{}", theirs.as_raw_fd()))
            .stdin(Stdio::null())
            .stdout(output_end.try_clone()?)
            .stderr(output_end);
        let process = Process::Started(spawn_with(&mut command, &passed)?);
        let worker = Worker {
            process,
            link,
            output,
            lines: Lines::default(),
            received: Vec::new(),
            next_id: 1,
            killed: false,
            peer: Some(peer),
            datagrams: DatagramEnd { worker: number, socket: outgoing },
        };
        Ok((worker, ForSuccessor { stream: successor, datagrams }))
    }

    /// Returns the state for the program that replaces this one. `panic` is its panic file.
    pub fn describe(&self, panic: Option<RawFd>, is_kept: bool) -> WorkerState {
        WorkerState {
            pid: self.pid(),
            link: self.link.as_raw_fd(),
            output: self.output.as_raw_fd(),
            peer: self.peer.as_ref().map(AsRawFd::as_raw_fd),
            number: self.datagrams.worker,
            datagrams: self.datagrams.socket.as_raw_fd(),
            panic,
            next_id: self.next_id,
            received: self.received.clone(),
            is_kept,
        }
    }

    /// Continues with a worker that the program before this one has started.
    pub fn adopt(state: WorkerState) -> io::Result<Worker> {
        Ok(Worker {
            process: Process::adopt(state.pid)?,
            link: UnixStream::from(take(state.link)?),
            output: take(state.output)?,
            lines: Lines::default(),
            received: state.received,
            next_id: state.next_id,
            killed: false,
            peer: state.peer.map(take).transpose()?.map(UnixStream::from),
            datagrams: DatagramEnd { worker: state.number, socket: take(state.datagrams)? },
        })
    }

    /// Returns the descriptors that another program needs to continue with it.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.link.as_fd(), self.output.as_fd(), self.datagrams()].into_iter().chain(self.peer())
    }

    /// Returns the end of its connection on which later workers pass on datagrams for it.
    pub fn datagrams(&self) -> BorrowedFd<'_> {
        self.datagrams.socket.as_fd()
    }

    /// Returns the end of its connection to the next worker that the next one inherits.
    pub fn peer(&self) -> Option<BorrowedFd<'_>> {
        self.peer.as_ref().map(AsFd::as_fd)
    }

    /// Closes our copy of that end, so that the end of the next worker is the end of the connection.
    pub fn close_peer(&mut self) {
        self.peer = None;
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the descriptor to poll for output. Call [`Worker::listen`] when it is readable or hung up.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Reads the worker's output. Returns false at its end.
    pub fn listen(&mut self, mut line: impl FnMut(&str)) -> bool {
        let mut buffer = [0; 4096];
        for _ in 0..=READS {
            match rustix::io::read(&self.output, &mut buffer) {
                Ok(0) => {
                    self.lines.finish(line);
                    return false;
                }
                Ok(length) => self.lines.feed(&buffer[..length], &mut line),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    fn send(&mut self, message: &ToWorker, timeout: Duration) -> io::Result<()> {
        self.link.set_write_timeout(Some(timeout.max(Duration::from_millis(1))))?;
        link::send(&mut self.link, message)?;
        self.link.flush()
    }

    /// Sends a message that has no reply.
    pub fn notify(&mut self, message: &ToWorker, timeout: Duration) -> io::Result<()> {
        self.send(message, timeout)
    }

    /// Waits for one message and reads the output meanwhile.
    pub fn receive(&mut self, timeout: Duration, mut line: impl FnMut(&str)) -> Option<FromWorker> {
        let deadline = Instant::now() + timeout.min(Duration::from_hours(8760));
        let mut output_open = true;
        loop {
            if let Some(message) = self.complete_message() {
                return message.ok();
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let mut fds = vec![PollFd::new(&self.link, PollFlags::IN)];
            if output_open {
                fds.push(PollFd::new(&self.output, PollFlags::IN));
            }
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
            let has_message = !fds[0].revents().is_empty();
            let has_output = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            if has_output {
                output_open = self.listen(&mut line);
            }
            if has_message && !self.read_link() {
                return None;
            }
        }
    }

    fn read_link(&mut self) -> bool {
        let start = self.received.len();
        self.received.resize(start + READ, 0);
        let length = match self.link.read(&mut self.received[start..]) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.received.truncate(start);
                return true;
            }
            Err(_) => 0,
        };
        self.received.truncate(start + length);
        length > 0
    }

    /// Removes a complete message from the received bytes. The error is a message that cannot be decoded.
    fn complete_message(&mut self) -> Option<io::Result<FromWorker>> {
        let length = u32::from_le_bytes(*self.received.first_chunk()?) as usize;
        let end = 4 + length;
        if self.received.len() < end {
            return None;
        }
        let message = link::receive(&mut &self.received[..end]);
        self.received.drain(..end);
        Some(message)
    }

    /// Sends a request and waits for the reply.
    pub fn request(&mut self, body: Request, timeout: Duration, mut line: impl FnMut(&str)) -> RequestResult {
        let id = self.next_id;
        self.next_id += 1;
        match self.send(&ToWorker::Request { id, body }, timeout) {
            Ok(()) => {}
            Err(error) if link::is_too_long(&error) => {
                return RequestResult::Reply { status: status::CANT, text: error.to_string().into_bytes() };
            }
            Err(_) => return RequestResult::NoReply,
        }
        loop {
            match self.receive(timeout, &mut line) {
                Some(FromWorker::Reply { id: answered, status, text }) if answered == id => {
                    return RequestResult::Reply { status, text };
                }
                Some(_) => {}
                None => return RequestResult::NoReply,
            }
        }
    }

    /// Sends SIGQUIT, so that the worker writes a panic report; from the second call on SIGKILL.
    pub fn kill_harder(&mut self) -> io::Result<()> {
        let signal = if self.killed { Signal::KILL } else { Signal::QUIT };
        self.killed = true;
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Closes the link, which makes the worker exit.
    pub fn hang_up(&self) {
        let _ = self.link.shutdown(std::net::Shutdown::Both);
    }

    /// Waits for its end, for `timeout` at most, and reads the output meanwhile.
    pub fn wait(&mut self, timeout: Duration, mut line: impl FnMut(&str)) -> Option<End> {
        let deadline = Instant::now() + timeout.min(Duration::from_hours(24));
        let mut output_open = true;
        loop {
            if output_open {
                output_open = self.listen(&mut line);
            }
            if let Ok(Some(status)) = self.process.try_wait() {
                self.listen(&mut line);
                return Some(status.into());
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let nap = left.min(Duration::from_millis(if output_open { 50 } else { 2 }));
            if output_open {
                let mut fds = [PollFd::new(&self.output, PollFlags::IN)];
                let _ = poll(&mut fds, Some(&timespec(nap)));
            } else {
                std::thread::sleep(nap);
            }
        }
    }

    /// Waits for the end of a worker that was killed, without a limit.
    pub fn wait_killed(&mut self, mut line: impl FnMut(&str)) -> io::Result<End> {
        let status = self.process.wait()?;
        self.listen(&mut line);
        Ok(status.into())
    }
}

/// Creates an empty memory file for the worker's panic report.
pub fn panic_file() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("panic", rustix::fs::MemfdFlags::CLOEXEC)?))
}

/// Reads the worker's panic report.
pub fn read_panic(file: &File, limit: u64) -> Option<Vec<u8>> {
    let length = file.metadata().ok()?.len().min(limit);
    let mut text = vec![0; length as usize];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut text, 0).ok()?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.truncate(end);
    Some(text).filter(|text| !text.is_empty())
}
