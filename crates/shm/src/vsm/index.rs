//! `_.index`: the list of segments. Lines are appended as segments appear and disappear. The file is replaced when most
//! of its lines are obsolete.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::files::{FILE_MODE, create_unique};

const NAME: &str = "_.index";
/// Number of removals that are appended before a rewrite is considered.
const MIN_REMOVALS: usize = 10;
/// Maximum length of a class or identifier. Readers read a line into a buffer of 8 kB.
const MAX_IDENT: usize = 1024;

/// The process that writes the directory. Readers treat a new pair as a restart, and a pid without a process as an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    /// The start of the process, in seconds since the epoch.
    pub birth: u64,
}

#[derive(Debug)]
pub(super) struct Index {
    dir: Arc<OwnedFd>,
    head: String,
    /// The lines of existing segments without their sign, in the order of their creation.
    lines: BTreeMap<u64, String>,
    next_key: u64,
    /// Removals appended since the file was last rewritten.
    removals: usize,
}

impl Index {
    pub(super) fn begin(dir: Arc<OwnedFd>, owner: Owner) -> io::Result<Self> {
        let head = format!("# {} {}\n", owner.pid, owner.birth);
        let index = Self { dir, head, lines: BTreeMap::new(), next_key: 0, removals: 0 };
        index.rewrite()?;
        Ok(index)
    }

    pub(super) fn add(
        &mut self,
        file: &str,
        offset: usize,
        len: usize,
        class: &str,
        ident: &str,
    ) -> io::Result<u64> {
        let line = format!("{file} {offset} {len} {} {}\n", escape_word(class), escape_word(ident));
        self.append('+', &line)?;
        let key = self.next_key;
        self.next_key += 1;
        self.lines.insert(key, line);
        Ok(key)
    }

    pub(super) fn remove(&mut self, key: u64) -> io::Result<()> {
        let Some(line) = self.lines.remove(&key) else { return Ok(()) };
        if self.removals < MIN_REMOVALS || self.removals * 2 < self.lines.len() {
            self.removals += 1;
            return self.append('-', &line);
        }
        self.removals = 0;
        self.rewrite()
    }

    fn append(&self, sign: char, line: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, NAME, flags, FILE_MODE)?;
        write_all(&fd, &format!("{sign} {line}"))
    }

    /// Replaces the file by a complete new one.
    fn rewrite(&self) -> io::Result<()> {
        let (fd, name) = create_unique(&self.dir, NAME)?;
        let mut text = self.head.clone();
        for line in self.lines.values() {
            text.push_str("+ ");
            text.push_str(line);
        }
        write_all(&fd, &text)?;
        Ok(rustix::fs::renameat(&self.dir, &name, &self.dir, NAME)?)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.dir, NAME, AtFlags::empty());
    }
}

fn write_all(fd: &OwnedFd, text: &str) -> io::Result<()> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(fd, rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Replaces the characters that separate, quote or escape words, because readers split lines like a shell.
fn escape_word(text: &str) -> String {
    text.chars()
        .take(MAX_IDENT)
        .map(|c| if c.is_whitespace() || c.is_control() || matches!(c, '"' | '\\') { '_' } else { c })
        .collect()
}
