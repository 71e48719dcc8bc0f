//! The replacement of the program of this process by another one.

use std::ffi::CString;
use std::io;

/// The signals that wait while the next program starts. Without that, they would end it.
const HELD: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR2];

fn mask(how: libc::c_int) {
    // SAFETY: all zeroes are a valid set, which the calls initialize; the pointers are valid during the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in HELD {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Lets the signals arrive that have waited since [`exec`], in a program that was started by it and handles them.
pub fn release_signals() {
    mask(libc::SIG_UNBLOCK);
}

/// Replaces the program of this process, which keeps its id, its children and the descriptors that are not closed on
/// exec. SIGTERM, SIGINT, SIGHUP and SIGUSR2 wait until the new program calls [`release_signals`]. Returns only if that
/// fails.
pub fn exec(program: &CString, arguments: &[CString]) -> io::Error {
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    mask(libc::SIG_BLOCK);
    // SAFETY: the strings end with a zero, and the list with a null pointer. All of them live until the call returns.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    let error = io::Error::last_os_error();
    mask(libc::SIG_UNBLOCK);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_leaves_this_one() {
        let error = exec(&c"/nonexistent".to_owned(), &[c"a".to_owned()]);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
