//! The panic message of a dying worker, for `panic.show`.

use std::backtrace::Backtrace;
use std::fmt::Write;
use std::panic::PanicHookInfo;

use lacquer_sources::clock;
use lacquer_system;

/// The prefix of the messages of panics that VCL requested (`vtc.panic`).
const FROM_VCL: &str = "Panic from VCL:";

/// Returns the message of a failed assertion.
pub fn failed_check(function: &str, file: &str, line: u32, condition: &str) -> String {
    format!("Assert error in {function}(), {file} line {line}:\n  Condition({condition}) not true.")
}

/// Ends the process, with this panic message and a description of the process.
pub fn die(message: &str) -> ! {
    lacquer_system::die(&panic_report(message))
}

/// Returns the message, with a description of the process and a backtrace.
pub fn panic_report(message: &str) -> String {
    let system = rustix::system::uname();
    let mut out =
        format!("{message}\nversion = varnish-7.7.0 lacquer-{}, vrt api = 21.0\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(
        out,
        "ident = {},{},{},epoll",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy()
    );
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let mono = up.tv_sec as f64 + up.tv_nsec as f64 / 1e9;
    let _ = writeln!(out, "now = {mono:.6} (mono), {:.6} (real)", clock::real());
    let _ = writeln!(out, "Backtrace:");
    for line in Backtrace::force_capture().to_string().lines() {
        let _ = writeln!(out, "  {line}");
    }
    let thread = std::thread::current();
    let _ = writeln!(out, "pthread.name = ({})", thread.name().unwrap_or("unnamed"));
    out
}

/// The panic hook. A panic of the program itself is reported, and ends only one request. A panic that VCL requested
/// ends the worker.
pub fn hook(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or_default();
    if message.starts_with(FROM_VCL) {
        die(message);
    }
    eprintln!("Fault: {info}\n{}", Backtrace::force_capture());
}
