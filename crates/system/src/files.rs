//! Files.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Reserves the blocks of a part of a file, which keeps its contents and its length. Succeeds without an effect on file
/// systems that cannot reserve blocks.
pub fn reserve(file: impl AsFd, at: u64, len: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::KEEP_SIZE, at, len) {
        Err(error) if error != Errno::OPNOTSUPP => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no such calls")]
    fn a_reserved_part_keeps_its_contents_and_the_length() {
        let file = rustix::fs::memfd_create("reserved", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::io::pwrite(&file, b"contents", 0).expect("it can be written");
        reserve(&file, 0, 1 << 20).expect("there is room");
        let found = rustix::fs::fstat(&file).expect("it is open");
        assert!(found.st_size == 8 && found.st_blocks >= 2048, "{found:?}");
        let mut read = [0; 8];
        rustix::io::pread(&file, &mut read, 0).expect("it can be read");
        assert_eq!(&read, b"contents");
        assert!(reserve(&file, 0, 0).is_err());
    }
}
