//! Copies of files.

use std::io;
use std::os::fd::BorrowedFd;

use crate::system;

/// The bytes that are copied at a time.
const AT_ONCE: usize = 64 << 10;

/// Copies the contents of a file to an empty one.
pub(crate) fn copy_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let length = system::length(from);
    system::resize(to, length)?;
    let mut buffer = vec![0; AT_ONCE];
    let mut at = 0;
    while let Some(data) = system::next_data(from, at) {
        let read = system::read(from, &mut buffer, data)?;
        if read == 0 {
            break;
        }
        system::write(to, &buffer[..read], data)?;
        at = data + read as u64;
    }
    Ok(())
}
