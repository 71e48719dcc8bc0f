//! The system's clocks and random numbers.
#![allow(unsafe_code)]

/// Returns the time of a clock in seconds. Clocks are read several times for every request, so the conversion
/// avoids the checked arithmetic of `SystemTime`.
#[inline]
pub fn seconds_of(clock: libc::clockid_t) -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a timespec that the call may write to; an unknown clock leaves it unchanged.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Fills the bytes with random numbers of the kernel.
pub fn random(mut bytes: &mut [u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: pointer and length are those of a slice that the call may write to.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(filled) {
            Ok(filled) => bytes = &mut bytes[filled..],
            Err(_) => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
