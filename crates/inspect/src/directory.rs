//! The working directory of a daemon: which processes write to it, and which segments of shared memory they offer.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lacquer_cli::pid_file;
use lacquer_shm::vsm::{CHILD_DIRNAME, MGT_DIRNAME};

use crate::fault::Fault;

/// The directory of daemons whose option -n is a name.
const STATE_DIR: &str = "/var/lib/varnish";
/// The name of a daemon without the option -n.
const DEFAULT_NAME: &str = "varnishd";
/// Maximum size of an index in bytes: millions of segments.
const MAX_INDEX: u64 = 256 << 20;
/// Maximum size of an argument in bytes.
const MAX_TEXT: usize = 4 << 20;

/// The working directory of a daemon that runs.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    /// Whether something else shows that the daemon runs, such as a connection to it.
    is_alive: bool,
}

/// A segment of shared memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub file: PathBuf,
    pub offset: u64,
    pub len: u64,
    pub class: String,
    pub ident: String,
}

/// The list of segments of one process. There may be very many, so it is kept as text.
#[derive(Debug)]
pub struct Index {
    pid: u32,
    folder: PathBuf,
    text: String,
}

/// The line of a segment in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line<'a> {
    /// The name of its file in [`Index::folder`].
    pub name: &'a str,
    pub offset: u64,
    pub len: u64,
    pub class: &'a str,
    pub ident: &'a str,
}

impl Directory {
    /// Finds the daemon that was started with this option -n, or without it. If no daemon runs without a name, the only
    /// one that the user has started with `lacquer run` is meant.
    pub fn find(name: Option<&str>) -> Result<Directory, Fault> {
        let from_environment = std::env::var("VARNISH_DEFAULT_N").ok();
        let name = name.map(str::to_owned).or(from_environment).filter(|name| !name.is_empty());
        let path = Path::new(STATE_DIR).join(name.as_deref().unwrap_or(DEFAULT_NAME));
        let directory = Directory { path, is_alive: false };
        let found = directory.check_is_alive();
        match (found, name) {
            (Ok(()), _) => Ok(directory),
            (Err(fault), Some(_)) => Err(fault),
            (Err(fault), None) => match &own_runs()[..] {
                [] => Err(fault),
                [one] => Ok(one.clone()),
                several => {
                    let names: Vec<String> =
                        several.iter().map(|run| run.path.display().to_string()).collect();
                    Err(Fault::new("several daemons run", format!("name one: -n {}", names.join(", or -n "))))
                }
            },
        }
    }

    /// Returns a directory whose writer is known to be alive.
    pub fn at(path: &Path) -> Directory {
        Directory { path: path.to_owned(), is_alive: true }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the process of the daemon's manager.
    pub fn pid(&self) -> Option<u32> {
        self.index(MGT_DIRNAME).ok().map(|index| index.pid)
    }

    /// Fails if the daemon has ended. In a directory whose writer is known to be alive, this reads the index alone: the
    /// process of another user may be hidden.
    pub fn check_is_alive(&self) -> Result<(), Fault> {
        let index = self.index(MGT_DIRNAME).map_err(|error| self.cannot_read(&error))?;
        let is_shown = || Path::new("/proc").join(index.pid.to_string()).exists();
        // A process that this one may not see is in another container, or hidden, and holds its lock.
        if self.is_alive || is_shown() || pid_file::is_used(&self.path) {
            return Ok(());
        }
        let what =
            format!("the daemon of {} has ended: its process {} is gone", self.path.display(), index.pid);
        Err(Fault::new(what, "start it, or name another one with -n"))
    }

    fn cannot_read(&self, error: &io::Error) -> Fault {
        let path = self.path.display();
        if error.kind() == io::ErrorKind::PermissionDenied {
            return denied(&format!("the working directory {path}"), &self.path);
        }
        if error.kind() == io::ErrorKind::FileTooLarge {
            return Fault::new(
                format_args!("the index of the shared memory in {path} is too large"),
                "discard VCL programs that are not used: vcl.discard",
            );
        }
        Fault::new(
            format_args!("no daemon runs with the working directory {path}"),
            "name the daemon's option -n: lacquer COMMAND -n DIR; `lacquer run` prints its own",
        )
    }

    /// Returns the segments of a class that the worker offers.
    pub fn worker_blocks(&self, class: &str) -> Result<Vec<Block>, Fault> {
        self.blocks(CHILD_DIRNAME, class)
    }

    /// Returns the segments of a class that the manager offers.
    pub fn manager_blocks(&self, class: &str) -> Result<Vec<Block>, Fault> {
        self.blocks(MGT_DIRNAME, class)
    }

    fn blocks(&self, part: &str, class: &str) -> Result<Vec<Block>, Fault> {
        Ok(self.index_of(part)?.blocks(class))
    }

    /// Returns the segments that the worker offers; `None` if there is no worker.
    pub fn index_of_any_worker(&self) -> Result<Option<Index>, Fault> {
        match self.index(CHILD_DIRNAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            index => index.map(Some).map_err(|error| self.cannot_read(&error)),
        }
    }

    /// Returns the segments that the manager offers.
    pub fn manager_index(&self) -> Result<Index, Fault> {
        self.index_of(MGT_DIRNAME)
    }

    fn index_of(&self, part: &str) -> Result<Index, Fault> {
        match self.index(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && part == CHILD_DIRNAME => {
                let what = format!("the daemon of {} runs, but its worker does not", self.path.display());
                Err(Fault::new(what, "start the worker: lacquerd's command `start`; its log has the reason"))
            }
            index => index.map_err(|error| self.cannot_read(&error)),
        }
    }

    fn index(&self, part: &str) -> io::Result<Index> {
        let folder = self.path.join(part);
        let bytes = read_index(&folder.join("_.index"), MAX_INDEX)?;
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Index::parse(text, folder)
            .ok_or_else(|| io::Error::other("the index of the shared memory is damaged"))
    }

    /// Returns an argument that the daemon publishes for its tools: `-T`, `-S`.
    pub fn argument(&self, name: &str) -> Option<String> {
        let block = self.manager_blocks("Arg").ok()?.into_iter().rfind(|block| block.ident == name)?;
        let bytes = fs::read(block.file).ok()?;
        let text: Vec<u8> = bytes.into_iter().take(MAX_TEXT).take_while(|byte| *byte != 0).collect();
        String::from_utf8(text).ok()
    }
}

/// Returns the fault of a user who may not read what belongs to a daemon. `what` describes it; the path is its own, or that of
/// a folder above it.
pub fn denied(what: &str, path: &Path) -> Fault {
    let own = user_name(rustix::process::geteuid().as_raw());
    match fs::metadata(path).map(|found| user_name(found.uid())) {
        Ok(owner) if owner != own => Fault::new(
            format_args!("{what} belongs to the user {owner}, and you are {own}"),
            format_args!(
                "run the command as root (sudo), as {owner} (sudo -u {owner}), or in the daemon's group"
            ),
        ),
        _ => Fault::new(
            format_args!("{what} cannot be read: permission denied"),
            "run the command as root, as the daemon's user or in its group",
        ),
    }
}

/// Returns the name of a user, or its number after `#`, as sudo accepts it.
fn user_name(uid: u32) -> String {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| crate::page::plain(name.as_bytes()))
    });
    name.unwrap_or_else(|| format!("#{uid}"))
}

/// Returns the folder in which `lacquer run` makes working directories. Other users may write to it.
pub fn folder_of_runs() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    folder.unwrap_or_else(std::env::temp_dir)
}

/// The beginning of the names of these working directories.
pub const RUN_PREFIX: &str = "lacquer-";

/// Returns the daemons that this user has started with `lacquer run`, by their names.
fn own_runs() -> Vec<Directory> {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |path: &PathBuf| {
        let is_named =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(RUN_PREFIX));
        is_named && fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == own)
    };
    let entries = fs::read_dir(folder_of_runs()).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = entries.filter(is_own).collect();
    paths.sort();
    let directories = paths.into_iter().map(|path| Directory { path, is_alive: false });
    directories.filter(|directory| directory.check_is_alive().is_ok()).collect()
}

/// Reads an index of at most this size. Segments that a reader does not see would seem not to exist.
fn read_index(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

impl Index {
    /// Parses an index: a line with the process, and a line for each segment that was added or removed.
    fn parse(text: String, folder: PathBuf) -> Option<Index> {
        let first = text.lines().next()?;
        let pid = first.strip_prefix("# ")?.split_whitespace().next()?.parse().ok()?;
        Some(Index { pid, folder, text })
    }

    /// Returns the folder of the segments' files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the lines of the segments that exist, in the order in which they were added.
    pub fn lines(&self) -> Vec<Line<'_>> {
        // Behind the last line feed is a line that is being written.
        let whole = self.text.rfind('\n').map_or("", |end| &self.text[..end]);
        let mut removed = HashSet::new();
        let mut found = Vec::new();
        // A removal is of what was added before it.
        for line in whole.lines().rev() {
            let Some((sign, rest)) = line.split_at_checked(2) else { continue };
            let Some(line) = Line::parse(rest) else { continue };
            match sign {
                "+ " if !removed.contains(&line) => found.push(line),
                "- " => {
                    removed.insert(line);
                }
                _ => {}
            }
        }
        found.reverse();
        found
    }

    fn blocks(&self, class: &str) -> Vec<Block> {
        let lines = self.lines().into_iter().filter(|line| line.class == class);
        lines.map(|line| line.block(&self.folder)).collect()
    }
}

impl<'a> Line<'a> {
    /// Parses a line without its sign. Files outside of the folder are refused.
    fn parse(text: &'a str) -> Option<Line<'a>> {
        let mut words = text.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (name, offset, len) = (word(), word().parse().ok()?, word().parse().ok()?);
        // The class and identifier of a cluster are empty, and Varnish writes them as quotes.
        let (class, ident) = (word().trim_matches('"'), word().trim_matches('"'));
        (!name.contains('/')).then_some(Line { name, offset, len, class, ident })
    }

    fn block(&self, folder: &Path) -> Block {
        let Line { name, offset, len, class, ident } = *self;
        Block { file: folder.join(name), offset, len, class: class.to_owned(), ident: ident.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idents(text: &str) -> Option<Vec<String>> {
        let index = Index::parse(text.to_owned(), PathBuf::from("/d"))?;
        Some(index.lines().iter().map(|line| line.ident.to_owned()).collect())
    }

    #[test]
    fn removed_segments_are_gone_and_damaged_lines_are_ignored() {
        let text = "# 12 3\n+ _.a 0 8 Arg -T\n+ _.b 0 8 Arg -S\n- _.a 0 8 Arg -T\n+ x\n+ ../e 0 8 Arg x\n+\n\n?? 1 2";
        assert_eq!(idents(text), Some(vec!["-S".to_owned()]));
        for damaged in ["", "#", "# x 1", "+ _.a 0 8 Arg -T"] {
            assert_eq!(idents(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn the_last_segment_that_was_added_counts() {
        let text = "# 1 1\n+ _.a 0 5 Arg -T\n+ _.b 0 5 Arg -S\n- _.a 0 5 Arg -T\n+ _.c 0 5 Arg -T\n+ ../x 0 5 Arg -i\n";
        let index = Index::parse(text.to_owned(), PathBuf::from("/d")).expect("it has a process");
        let blocks = index.blocks("Arg");
        let file = |ident: &str| blocks.iter().rfind(|block| block.ident == ident).map(|b| b.file.clone());
        assert_eq!(file("-T"), Some(PathBuf::from("/d/_.c")));
        assert_eq!(file("-i"), None, "a path outside of the directory");
    }

    #[test]
    fn a_line_that_is_being_written_is_left_out() {
        assert_eq!(
            idents("# 1 1\n+ _.a 0 8 Stat VBE.a\n+ _.b 0 8 Stat VBE.b"),
            Some(vec!["VBE.a".to_owned()])
        );
        assert_eq!(idents("# 1 1"), Some(Vec::new()));
        // Added, removed and added again.
        let line = "_.a 0 8 Stat VBE.a\n";
        assert_eq!(idents(&format!("# 1 1\n+ {line}- {line}+ {line}")), Some(vec!["VBE.a".to_owned()]));
    }

    #[test]
    fn an_index_is_read_whole_or_not_at_all() {
        let folder = lacquer_testing::Folder::new("index");
        let path = folder.join("_.index");
        fs::write(&path, [b'#'; 100]).expect("it is writable");
        assert_eq!(read_index(&path, 100).map(|bytes| bytes.len()).ok(), Some(100));
        assert!(read_index(&path, 99).is_err_and(|error| error.kind() == io::ErrorKind::FileTooLarge));
    }
}
