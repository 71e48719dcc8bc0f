//! The files beside the one of a storage, with which its objects survive the end of the daemon: PATH.records, the table
//! of records, and PATH.state ([`State`]). All are in use only while the lock of PATH is held, which the worker inherits.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{OFlags, fstat, fsync};
use twox_hash::XxHash3_64;

use super::state::{Boot, Identity, LENGTH, Membership, State, Status, Unreadable, VERSION};
use crate::complain::{Complain, Level};
use crate::fault::{Fault, Outcome, os_error_text};
use crate::secret;

/// The word with which a table of records begins after the seal of its first record, without its version.
const TABLE: [u8; 7] = *b"LQTABLE";
const TABLE_AT: usize = 8;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The files beside a storage's file, and what they mean.
#[derive(Debug)]
pub struct Survival {
    /// The path of the storage's file, without symbolic links.
    path: PathBuf,
    size: u64,
    file: File,
    /// The state at the start, if the objects may be taken over.
    found: Option<State>,
    /// The state that this daemon has written last.
    current: State,
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Returns a file and those beside it.
pub fn files(path: &Path) -> Vec<PathBuf> {
    vec![path.to_owned(), beside(path, ".state"), beside(path, ".records")]
}

fn fault(path: &Path, text: impl std::fmt::Display) -> Fault {
    Fault::plain(format!("(-sfile) \"{}\" {text}", path.display()))
}

/// Opens or creates a file. A link in a directory that others may write to must not lead to another file.
fn open_beside(path: &Path) -> Outcome<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options
        .custom_flags(flags.bits() as i32)
        .open(path)
        .map_err(|error| fault(path, format!("could not open ({})", os_error_text(&error))))?;
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    if is_file { Ok(file) } else { Err(foreign(path)) }
}

fn foreign(path: &Path) -> Fault {
    fault(path, "is not a file of this program: remove it, or choose another path for the storage")
}

/// Reads up to `length` bytes from the beginning of a file.
fn beginning(file: &File, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Returns whether a file is a table of records, or empty.
fn is_table(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0) || bytes.get(TABLE_AT..).is_some_and(|rest| rest.starts_with(&TABLE))
}

/// Returns the id of the boot. Without one, only files that were synced are taken over.
fn this_boot() -> Option<Boot> {
    Boot::parse(&fs::read_to_string(BOOT_ID).ok()?)
}

impl Survival {
    /// Opens or creates the files beside `path`, which is locked and was found as `before`. Reports why objects are not
    /// taken over. Also returns the table of records. The state does not change before [`Survival::invalidate`] or
    /// [`Survival::begin`].
    pub fn open(
        path: &Path,
        before: &Metadata,
        size: u64,
        complain: &Complain,
    ) -> Outcome<(Survival, OwnedFd)> {
        let mut this = Self::adopt(path, size)?;
        // An upgrade that was interrupted has left it.
        this.drop_next_records();
        let records_path = this.records_path();
        let records = open_beside(&records_path)?;
        let begins = beginning(&records, TABLE_AT + TABLE.len())
            .map_err(|error| fault(&records_path, os_error_text(&error)))?;
        if !is_table(&begins) {
            return Err(foreign(&records_path));
        }
        let state_path = beside(&this.path, ".state");
        let bytes =
            beginning(&this.file, LENGTH + 1).map_err(|error| fault(&state_path, os_error_text(&error)))?;
        let found = Identity {
            size: before.len(),
            file: number(before),
            records: records.metadata().map_or(0, |found| number(&found)),
            changed: nanoseconds(before.mtime(), before.mtime_nsec()),
        };
        let judged = match State::read(&bytes) {
            Ok(state) => state.judge(&found, this_boot()).map(|()| state),
            Err(Unreadable::Missing) => Err(None),
            Err(Unreadable::Foreign) => return Err(foreign(&state_path)),
            Err(Unreadable::Damaged) => Err(Some("its state is damaged")),
            Err(Unreadable::Version(version)) => {
                this.report(complain, &format!("it has version {version}, and this program uses {VERSION}"));
                Err(None)
            }
        };
        match judged {
            // A file that was made longer or shorter has another length than the state says.
            Ok(state) if state.identity.size != size => this.report(complain, "its size has changed"),
            Ok(state) => this.found = Some(state),
            Err(Some(why)) => this.report(complain, why),
            Err(None) => {}
        }
        Ok((this, records.into()))
    }

    /// Continues with the files beside a storage that a worker uses.
    pub fn adopt(path: &Path, size: u64) -> Outcome<Survival> {
        let path = path.canonicalize().map_err(|error| fault(path, os_error_text(&error)))?;
        let file = open_beside(&beside(&path, ".state"))?;
        Ok(Survival { path, size, file, found: None, current: State::default() })
    }

    fn report(&self, complain: &Complain, why: &str) {
        let text = format!("(-sfile) {}: {why}; the storage starts empty", self.path.display());
        complain.report(Level::Info, &text);
    }

    /// Returns the table's path.
    fn records_path(&self) -> PathBuf {
        beside(&self.path, ".records")
    }

    fn next_path(&self) -> PathBuf {
        beside(&self.path, ".records.next")
    }

    /// Returns the number of early deaths of workers, if objects may be taken over.
    pub fn found(&self) -> Option<u32> {
        self.found.map(|state| state.early_deaths)
    }

    fn write(&mut self, state: State) -> io::Result<()> {
        if state != self.current || state.status == Status::Unusable {
            self.file.write_all_at(&state.to_bytes(), 0)?;
            self.file.sync_data()?;
            self.current = state;
        }
        Ok(())
    }

    /// Records durably that the contents must not be taken over.
    pub fn invalidate(&mut self) -> io::Result<()> {
        self.found = None;
        self.write(State {
            status: Status::Unusable,
            membership: self.current.membership,
            ..State::default()
        })
    }

    /// Records durably that a worker uses the files, which a next daemon may take over. If other files have taken their
    /// places meanwhile, it may not.
    pub fn begin(
        &mut self,
        file: BorrowedFd<'_>,
        records: BorrowedFd<'_>,
        early_deaths: u32,
    ) -> io::Result<()> {
        let (file, records) = (number_of(file)?, number_of(records)?);
        let identity = Identity { size: self.size, file, records, changed: 0 };
        let named = |path: &Path| path.metadata().map_or(0, |found| number(&found));
        if named(&self.path) != identity.file || named(&self.records_path()) != identity.records {
            return self.invalidate();
        }
        let (boot, membership) = (this_boot().unwrap_or_default(), self.current.membership);
        self.found = None;
        self.write(State { status: Status::InUse, boot, membership, identity, early_deaths })
    }

    /// Records the number of early deaths of workers.
    pub fn set_early_deaths(&mut self, early_deaths: u32) -> io::Result<()> {
        match self.current.status {
            Status::InUse => self.write(State { early_deaths, ..self.current }),
            _ => Ok(()),
        }
    }

    /// Syncs the files after the worker has ended, so that their contents outlive the machine's restart.
    pub fn settle(&mut self, file: BorrowedFd<'_>, records: BorrowedFd<'_>) -> io::Result<()> {
        if self.current.status != Status::InUse {
            return Ok(());
        }
        fsync(file)?;
        fsync(records)?;
        if let Some(directory) = self.path.parent() {
            fsync(File::open(directory)?)?;
        }
        let found = fstat(file)?;
        let changed = nanoseconds(found.st_mtime, found.st_mtime_nsec as i64);
        let identity = Identity { changed, ..self.current.identity };
        self.write(State { status: Status::Synced, identity, ..self.current })
    }

    /// Creates the table for a worker that starts while another one uses the present table.
    pub fn next_records(&self) -> io::Result<OwnedFd> {
        let path = self.next_path();
        let _ = fs::remove_file(&path);
        let mut options = OpenOptions::new();
        Ok(options.read(true).write(true).create_new(true).mode(0o600).open(path)?.into())
    }

    /// Replaces the table by that of the next worker.
    pub fn take_next_records(&self) -> io::Result<()> {
        fs::rename(self.next_path(), self.records_path())
    }

    /// Removes the table of a worker that has failed to start.
    pub fn drop_next_records(&self) {
        let _ = fs::remove_file(self.next_path());
    }
}

/// Returns a number that no other file of the file system has. Without the time of the creation, a later file may have
/// it, because the numbers of inodes are used again.
fn number(found: &Metadata) -> u64 {
    let created = found.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let words = [found.ino(), created.map_or(0, |since| since.as_nanos() as u64)];
    XxHash3_64::oneshot(words.map(u64::to_le_bytes).as_flattened())
}

fn number_of(file: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(number(&File::from(file.try_clone_to_owned()?).metadata()?))
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Makes the storages of a daemon a set. Unless all of a set were found, and no others, none is taken over.
pub fn join(all: &mut [&mut Survival], complain: &Complain) -> Outcome<()> {
    let count = all.len() as u32;
    let set = all.first().and_then(|first| first.found).map(|state| state.membership.set);
    let is_whole = all.iter().zip(0..).all(|(one, number)| {
        let expected = set.map(|set| Membership { set, number, count });
        one.found.is_some_and(|state| Some(state.membership) == expected)
    });
    let mut id = [0; 8];
    secret::random(&mut id).map_err(|error| Fault::plain(format!("(-sfile) {}", os_error_text(&error))))?;
    let set = set.filter(|_| is_whole).unwrap_or(u64::from_le_bytes(id));
    for (one, number) in all.iter_mut().zip(0..) {
        if !is_whole && one.found.take().is_some() {
            one.report(complain, "it was in use together with other files");
        }
        one.current.membership = Membership { set, number, count };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("lacquer-survival-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        /// Starts a daemon with the files of these names, but no worker.
        fn start(&self, names: &[&str]) -> Vec<(Survival, File, OwnedFd)> {
            let complain = Complain::new(false, "test");
            let open = |name: &&str| {
                let path = self.0.join(name);
                let mut options = OpenOptions::new();
                let file = options.read(true).write(true).create(true).truncate(false).open(&path).unwrap();
                // A change of the length is a change of the file.
                if file.metadata().unwrap().len() == 0 {
                    file.set_len(1 << 20).unwrap();
                }
                let before = file.metadata().unwrap();
                let (survival, records) = Survival::open(&path, &before, 1 << 20, &complain).unwrap();
                (survival, file, records)
            };
            let mut all: Vec<_> = names.iter().map(open).collect();
            join(&mut all.iter_mut().map(|(survival, ..)| survival).collect::<Vec<_>>(), &complain).unwrap();
            all
        }

        /// Starts a daemon whose worker uses the files. Returns whether their objects are taken over.
        fn run(&self, names: &[&str]) -> bool {
            let mut all = self.start(names);
            let found: Vec<Option<u32>> = all.iter().map(|(survival, ..)| survival.found()).collect();
            let are_found = found.iter().all(Option::is_some);
            assert_eq!(are_found, found.iter().any(Option::is_some));
            for (survival, file, records) in &mut all {
                survival.begin(file.as_fd(), records.as_fd(), 0).unwrap();
            }
            are_found
        }

        /// Changes the state of a file, as if another daemon had written it.
        fn rewrite(&self, name: &str, change: impl FnOnce(&mut State)) {
            let path = self.0.join(format!("{name}.state"));
            let mut state = State::read(&fs::read(&path).unwrap()).unwrap();
            change(&mut state);
            fs::write(path, state.to_bytes()).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_in_use_survive_processes_and_synced_files_survive_the_machine() {
        let folder = Folder::new("boots");
        let restart = |state: &mut State| state.boot = Boot::parse(&"7".repeat(32)).unwrap();
        assert!(!folder.run(&["a"]));
        assert!(folder.run(&["a"]));
        folder.rewrite("a", restart);
        assert!(!folder.run(&["a"]));

        let settle = || {
            let mut all = folder.start(&["a"]);
            let (survival, file, records) = &mut all[0];
            survival.begin(file.as_fd(), records.as_fd(), 1).unwrap();
            survival.set_early_deaths(2).unwrap();
            survival.settle(file.as_fd(), records.as_fd()).unwrap();
            folder.rewrite("a", restart);
        };
        settle();
        assert_eq!(folder.start(&["a"])[0].0.found(), Some(2), "a start without a worker changes nothing");
        assert!(folder.run(&["a"]));
        // From the start of the worker on, the state on the device is not that of the contents.
        folder.rewrite("a", restart);
        assert!(!folder.run(&["a"]));
        settle();
        let mut all = folder.start(&["a"]);
        all[0].0.invalidate().unwrap();
        let (survival, file, records) = &mut all[0];
        survival.settle(file.as_fd(), records.as_fd()).unwrap();
        assert!(!folder.run(&["a"]));
    }

    #[test]
    fn storages_are_taken_over_together() {
        let folder = Folder::new("sets");
        let both = ["a", "b"];
        assert!(!folder.run(&both));
        assert!(folder.run(&both));
        assert!(!folder.run(&["b", "a"]), "the other one has the bans");
        assert!(folder.run(&["b", "a"]));
        assert!(!folder.run(&["b"]));
        assert!(!folder.run(&both), "b was in use without a");
        folder.rewrite("b", |state| state.membership.set += 1);
        assert!(!folder.run(&both));
        folder.rewrite("b", |state| state.status = Status::Unusable);
        assert!(!folder.run(&both));
        assert!(folder.run(&both));
    }

    #[test]
    fn a_table_that_another_one_has_replaced_does_not_survive() {
        let folder = Folder::new("tables");
        assert!(!folder.run(&["a"]));
        let (mut survival, file, records) = folder.start(&["a"]).remove(0);
        let status = || State::read(&fs::read(folder.0.join("a.state")).unwrap()).unwrap().status;
        let next = survival.next_records().unwrap();
        survival.begin(file.as_fd(), next.as_fd(), 0).unwrap();
        assert_eq!(status(), Status::Unusable, "the old table has the name");
        survival.take_next_records().unwrap();
        survival.begin(file.as_fd(), records.as_fd(), 0).unwrap();
        assert_eq!(status(), Status::Unusable, "the new table has the name");
        survival.begin(file.as_fd(), next.as_fd(), 0).unwrap();
        assert!(folder.run(&["a"]));
        // A file that replaces another one often gets its inode.
        let path = folder.0.join("a.records");
        fs::remove_file(&path).unwrap();
        fs::write(&path, []).unwrap();
        assert!(!folder.run(&["a"]), "the table is another file");
    }
}
