//! Reads files that an operator names: VCL, certificates and keys.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lacquer_tls::MAX_FILE;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Maximum size of a VCL file in bytes.
pub const LONGEST_VCL: u64 = 128 << 20;

/// Reads a VCL file. Fails for anything but a regular file: a device may never end, and opening a pipe without a writer
/// would block.
pub fn read_vcl(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !about.is_file() {
        return Err(io::Error::other("Not a regular file"));
    }
    if about.len() > LONGEST_VCL {
        return Err(Errno::FBIG.into());
    }
    let mut text = Vec::new();
    file.take(LONGEST_VCL).read_to_end(&mut text)?;
    Ok(text)
}

/// Reads a file of certificates or keys. Of one that is too long, the beginning is enough for the fault that it is.
pub fn read_pem(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe without a writer would block.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("Not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
