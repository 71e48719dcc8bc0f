//! Access to the operating system without safe interfaces: inherited descriptors, identities, options of sockets, fatal
//! signals, and the confinement of a process.

pub mod call_names_table;
pub mod confine;
mod exec;
mod fatal;
mod files;
mod heap;

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

pub use exec::{exec, release_signals};
pub use fatal::{die, prepare_thread, set_panic_fd, watch_for_faults};
pub use files::reserve;
pub use heap::{free_heap, limit_heaps, prepare_heap, trim_heap};

/// Returns the number that a new descriptor would get, or the largest number if none is free.
pub fn lowest_free_descriptor(any: BorrowedFd<'_>) -> RawFd {
    rustix::io::fcntl_dupfd_cloexec(any, 0).map_or(RawFd::MAX, |fd| fd.as_raw_fd())
}

/// Takes ownership of a descriptor that the manager left open for this process. Each can be taken once.
pub fn inherit(fd: RawFd) -> OwnedFd {
    static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(!taken.contains(&fd), "descriptor {fd} was inherited already");
    taken.push(fd);
    // SAFETY: the number comes from the manager, which opened it only for this worker before this process began;
    // it is taken once, so nothing else here closes it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Returns uid and gid of the peer of a UNIX socket.
pub fn peer_credentials(fd: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let creds = rustix::net::sockopt::socket_peercred(fd).ok()?;
    Some((creds.uid.as_raw(), creds.gid.as_raw()))
}

/// The kernel's statistics of a TCP connection (module tcp).
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpInfo {
    /// Microseconds.
    pub rtt: u32,
    pub rtt_variation: u32,
    /// Segments.
    pub congestion_window: u32,
    pub lost: u32,
    pub retransmitting: u32,
    pub reordering: u32,
    /// Bytes.
    pub send_mss: u32,
    pub receive_mss: u32,
    pub advertised_mss: u32,
    pub path_mtu: u32,
}

/// Returns the kernel's statistics of a TCP connection, or `None` if there are none.
pub fn tcp_info(fd: BorrowedFd<'_>) -> Option<TcpInfo> {
    // SAFETY: the structure consists of integers, for which all zeroes are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let to = (&raw mut info).cast();
    // SAFETY: the kernel writes at most `length` bytes, the size of the structure.
    let failed =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut length) };
    (failed == 0).then_some(TcpInfo {
        rtt: info.tcpi_rtt,
        rtt_variation: info.tcpi_rttvar,
        congestion_window: info.tcpi_snd_cwnd,
        lost: info.tcpi_lost,
        retransmitting: info.tcpi_retrans,
        reordering: info.tcpi_reordering,
        send_mss: info.tcpi_snd_mss,
        receive_mss: info.tcpi_rcv_mss,
        advertised_mss: info.tcpi_advmss,
        path_mtu: info.tcpi_pmtu,
    })
}

/// Returns the number of bytes in the send buffer of a socket that the peer has not taken yet, or `None` if it is no
/// socket.
pub fn queued(fd: BorrowedFd<'_>) -> Option<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: for TIOCOUTQ, the kernel writes one integer.
    let failed = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if failed == 0 { usize::try_from(count).ok() } else { None }
}

/// Limits the send rate of a connection, in kilobytes per second. Returns whether the kernel supports it.
pub fn set_pace(fd: BorrowedFd<'_>, kilobytes: i64) -> bool {
    let Some(pace) = kilobytes.checked_mul(1024).and_then(|bytes| u32::try_from(bytes).ok()) else {
        return false;
    };
    let (from, length) = ((&raw const pace).cast(), size_of::<u32>() as libc::socklen_t);
    // SAFETY: the pointer is valid for the length.
    let failed =
        unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, from, length) };
    failed == 0
}

/// The error number of a read or write that timed out.
pub const EAGAIN: i32 = libc::EAGAIN;

/// Returns the C library's text for an error number.
pub fn error_text(errno: i32) -> String {
    let mut buffer = [0 as libc::c_char; 128];
    // SAFETY: strerror_r writes at most the given length, which is the buffer's.
    let done = unsafe { libc::strerror_r(errno, buffer.as_mut_ptr(), buffer.len()) };
    if done != 0 {
        return format!("error {errno}");
    }
    // SAFETY: strerror_r succeeded, so a NUL ends the text within the buffer, which lives until the copy exists.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}

/// Changes the user, the group and the supplementary groups permanently.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Result<(), String> {
    // SAFETY: the pointer is that of the list, which has the given length.
    let set_groups = |groups: &[u32]| unsafe { libc::setgroups(groups.len(), groups.as_ptr()) } == 0;
    // A user namespace may lack some of the groups.
    let has_groups = set_groups(groups) || set_groups(&[gid]);
    // SAFETY: no pointers.
    let failed = !has_groups || unsafe { libc::setgid(gid) != 0 || libc::setuid(uid) != 0 };
    if failed { Err(format!("cannot become uid {uid}, gid {gid}")) } else { Ok(()) }
}

/// Makes the kernel kill the process when the manager ends, even if the manager is killed. The signal does not arrive if
/// the manager is another user by then (`-j`), so that the process must also watch its connection to the manager.
pub fn die_with_parent() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Sets whether the process may dump core and other processes of its user may inspect it.
pub fn set_dumpable(dumpable: bool) {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(dumpable), 0, 0, 0) };
}
