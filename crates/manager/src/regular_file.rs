//! Reads files that an operator names: VCL, certificates and keys.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

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
