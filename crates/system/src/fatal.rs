//! The end of the process: the panic message for the manager's `panic.show`, and fatal signals.

use std::io::Write;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The fatal signals. The manager sends SIGQUIT to a worker that does not respond; the panic message then
/// shows where it was.
const FATAL: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGQUIT, libc::SIGSYS];
/// Ignored signals. A broken pipe is an ordinary error, and the manager handles signals that a terminal or a service
/// manager sends to the whole group.
const IGNORED: [libc::c_int; 4] = [libc::SIGPIPE, libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// Size of the handler's stack in bytes. The handler unwinds and resolves names. The memory is not touched before.
const HANDLER_STACK: usize = 512 * 1024;
/// Maximum time for the handler's message, in seconds.
const HANDLER_TIMEOUT: libc::c_uint = 5;

static PANIC_FD: AtomicI32 = AtomicI32::new(-1);
static REPORTED: AtomicBool = AtomicBool::new(false);
static DESCRIBE: OnceLock<fn(&str) -> String> = OnceLock::new();

/// Sets the descriptor that panic messages are written to.
pub fn set_panic_fd(fd: RawFd) {
    PANIC_FD.store(fd, Ordering::Relaxed);
}

/// Writes the text for the manager's `panic.show`, replacing any earlier one.
fn write_report(text: &[u8]) {
    let fd = PANIC_FD.load(Ordering::Relaxed);
    if fd >= 0 {
        // SAFETY: the descriptor is open as long as the process; the pointer is valid for the length.
        unsafe { libc::pwrite(fd, text.as_ptr().cast(), text.len(), 0) };
    }
}

/// Writes the panic message and aborts the process.
pub fn die(text: &str) -> ! {
    REPORTED.store(true, Ordering::Relaxed);
    write_report(text.as_bytes());
    std::process::abort()
}

/// Handles fatal signals: writes a message, which `describe` then extends.
pub fn watch_for_faults(describe: fn(&str) -> String) {
    let _ = DESCRIBE.set(describe);
    prepare_thread();
    // SAFETY: all zeroes are a valid structure: no flags, and no blocked signals.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
    // SAFETY: the handler has the signature that SA_SIGINFO requires, and its own comments explain why it is safe.
    unsafe {
        for signal in FATAL {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
        for signal in IGNORED {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Gives a thread that lives as long as the process a stack for the handler, because its own stack may be the cause.
pub fn prepare_thread() {
    let stack = vec![0_u8; HANDLER_STACK].leak();
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
    // SAFETY: the memory is never freed, and nothing else uses it.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
}

/// Writes a short message first, which needs no other code. The longer one needs the allocator and the unwinder, which
/// may be the cause of the fault. A second fault then ends the process at once, and an alarm ends it if they block.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    if !REPORTED.swap(true, Ordering::Relaxed) {
        let mut short = [0; 200];
        // SAFETY: the kernel passes a valid structure, which lives as long as the handler runs.
        let length = summarize(signal, unsafe { &*info }, &mut short);
        write_report(&short[..length]);
        // SAFETY: no pointers; nothing else in the process sets an alarm.
        unsafe { libc::alarm(HANDLER_TIMEOUT) };
        if let (Some(describe), Ok(short)) = (DESCRIBE.get(), str::from_utf8(&short[..length])) {
            write_report(describe(short).as_bytes());
        }
    }
    // SAFETY: allowed in signal handlers. The default action is in effect again and ends the process on return.
    unsafe { libc::raise(signal) };
}

/// The part of `siginfo_t` that the kernel fills in for SIGSYS.
#[repr(C)]
struct Violation {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    address: *const libc::c_void,
    call: libc::c_int,
    architecture: libc::c_uint,
}

/// `si_code` of a SIGSYS from the filter.
const SYS_SECCOMP: libc::c_int = 1;

/// Writes the name of the call that the filter refused.
fn name_violation(info: &libc::siginfo_t, out: &mut impl Write) {
    // SAFETY: `siginfo_t` is larger and aligned at least as strictly; all fields are plain numbers.
    let violation = unsafe { &*std::ptr::from_ref(info).cast::<Violation>() };
    let call = violation.call.cast_unsigned();
    let _ = match crate::call_names_table::name(call) {
        Some(name) => write!(out, ": the jail forbids the worker to call {name}"),
        None => write!(out, ": the jail forbids the worker to make system call {call}"),
    };
}

/// Writes the facts that need neither allocator nor unwinder. Returns their length.
fn summarize(signal: libc::c_int, info: &libc::siginfo_t, out: &mut [u8]) -> usize {
    let size = out.len();
    let mut rest = out;
    let what = match signal {
        libc::SIGSEGV => "(Segmentation fault): the worker touched memory it must not",
        libc::SIGBUS => "(Bus error): is the disk behind a storage file full?",
        libc::SIGILL => "(Illegal instruction)",
        libc::SIGFPE => "(Arithmetic error)",
        libc::SIGQUIT => "(Quit)",
        libc::SIGSYS => "(Bad system call)",
        _ => "(Aborted)",
    };
    let _ = write!(rest, "Panic: signal {signal} {what}");
    // SAFETY: the origin of the signal, a process or the kernel, determines which of the two fields is set; both are
    // integers within the structure in any case.
    let (sender, address) = unsafe { (info.si_pid(), info.si_addr()) };
    if signal == libc::SIGSYS && info.si_code == SYS_SECCOMP {
        name_violation(info, &mut rest);
    } else if info.si_code > 0 {
        let _ = write!(rest, ", at {address:?}");
    } else if sender.cast_unsigned() != std::process::id() {
        let _ = write!(rest, ", sent by process {sender}");
    }
    let left = rest.len();
    size - left
}
