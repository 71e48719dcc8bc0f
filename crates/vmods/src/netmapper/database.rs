//! A file of networks that a thread of its own reads again when it changes. Requests never wait for it: each reactor keeps
//! the current table and compares a generation before it uses it.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::table::Table;

/// Limit on the size of a file, in bytes.
const LARGEST: u64 = 256 << 20;
/// Limit on the number of messages that wait to be logged.
const MOST_MESSAGES: usize = 16;
const STACK: usize = 1 << 20;

pub(super) struct Database {
    file: PathBuf,
    table: Mutex<Arc<Table>>,
    /// Changes with each new table.
    generation: AtomicU64,
    /// Lines for the log, which the thread cannot write.
    messages: Mutex<Vec<String>>,
    has_messages: AtomicBool,
    /// Ends the thread when the database is dropped.
    _end: Sender<()>,
}

/// The properties by which a change of a file is seen.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// A table that a reactor keeps.
struct Kept {
    database: Weak<Database>,
    generation: u64,
    table: Arc<Table>,
}

thread_local! {
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// Reads a file. The version is that of the file that was read, also if the name changes meanwhile.
fn read(file: &Path) -> Result<(Table, Version), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", file.display());
    let opened = File::open(file).map_err(fail)?;
    let version = Version::of(&opened.metadata().map_err(fail)?);
    let mut json = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut json).map_err(fail)?;
    if json.len() as u64 > LARGEST {
        return Err(format!("{}: larger than {LARGEST} bytes", file.display()));
    }
    let table = Table::parse(&json).map_err(|why| format!("{}: {why}", file.display()))?;
    Ok((table, version))
}

impl Version {
    fn of(metadata: &std::fs::Metadata) -> Version {
        Version {
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl Database {
    /// Reads the file and starts the thread that reads it again.
    pub fn open(file: &Path, interval: Duration) -> Result<Arc<Database>, String> {
        let (table, version) = read(file)?;
        let (end, ended) = mpsc::channel();
        let warnings = table.warnings.clone();
        let database = Arc::new(Database {
            file: file.to_owned(),
            table: Mutex::new(Arc::new(table)),
            generation: AtomicU64::new(0),
            messages: Mutex::default(),
            has_messages: AtomicBool::new(false),
            _end: end,
        });
        for warning in warnings {
            database.report(format!("{}: {warning}", file.display()));
        }
        let weak = Arc::downgrade(&database);
        let watch = move || {
            let mut seen = Some(version);
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(interval) {
                let Some(database) = weak.upgrade() else { return };
                database.check(&mut seen);
            }
        };
        let builder = std::thread::Builder::new().name("vmod-netmapper".to_owned()).stack_size(STACK);
        builder.spawn(watch).map_err(|error| format!("No thread for {}: {error}", file.display()))?;
        Ok(database)
    }

    /// Reads the file if it has changed since it was `seen`. An error is reported once for each change.
    fn check(&self, seen: &mut Option<Version>) {
        let now = std::fs::metadata(&self.file).map(|metadata| Version::of(&metadata));
        if now.as_ref().ok() == seen.as_ref() {
            return;
        }
        *seen = now.ok();
        match read(&self.file) {
            Ok((table, version)) => {
                *seen = Some(version);
                for warning in &table.warnings {
                    self.report(format!("{}: {warning}", self.file.display()));
                }
                self.report(format!("{}: read again, {} networks", self.file.display(), table.networks));
                *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
                self.generation.fetch_add(1, Ordering::Release);
            }
            Err(why) => self.report(format!("{why}; the old networks stay in use")),
        }
    }

    fn report(&self, message: String) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < MOST_MESSAGES {
            messages.push(message);
        }
        self.has_messages.store(true, Ordering::Release);
    }

    /// Takes the messages that wait to be logged.
    pub fn take_messages(&self) -> Vec<String> {
        if !self.has_messages.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_messages.store(false, Ordering::Release);
        std::mem::take(&mut *messages)
    }

    /// Calls `read` with the current table. Takes a lock only if it has changed since this thread's last call.
    pub fn with_table<R>(self: &Arc<Self>, read: impl FnOnce(&Table) -> R) -> R {
        let generation = self.generation.load(Ordering::Acquire);
        KEPT.with_borrow_mut(|kept| {
            let known = kept.iter().position(|kept| std::ptr::eq(kept.database.as_ptr(), Arc::as_ptr(self)));
            if let Some(known) = known.filter(|at| kept[*at].generation == generation) {
                return read(&kept[known].table);
            }
            let table = self.table.lock().unwrap_or_else(PoisonError::into_inner).clone();
            kept.retain(|kept| {
                kept.database.strong_count() > 0 && !std::ptr::eq(kept.database.as_ptr(), &raw const **self)
            });
            let answer = read(&table);
            kept.push(Kept { database: Arc::downgrade(self), generation, table });
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(database: &Arc<Database>) -> String {
        database.with_table(|table| {
            let found = table.find("192.0.2.1".parse().expect("an address"));
            String::from_utf8_lossy(found.unwrap_or_default()).into_owned()
        })
    }

    #[test]
    fn a_changed_file_is_read_and_a_broken_one_is_not_used() {
        let file = std::env::temp_dir().join(format!("lacquer-netmapper-{}", std::process::id()));
        let write = |text: &str| {
            std::fs::write(file.with_extension("new"), text).expect("writable");
            std::fs::rename(file.with_extension("new"), &file).expect("writable");
        };
        write(r#"{"one": ["192.0.2.0/24"]}"#);
        let database = Database::open(&file, Duration::from_hours(1)).expect("valid");
        let mut seen = Some(Version::of(&std::fs::metadata(&file).expect("it exists")));
        assert_eq!(name(&database), "one");
        database.check(&mut seen);
        assert!(database.take_messages().is_empty(), "nothing has changed");

        write(r#"{"second": ["192.0.2.0/24"]}"#);
        database.check(&mut seen);
        assert_eq!(name(&database), "second");
        assert!(database.take_messages()[0].ends_with("read again, 1 networks"));

        write(r#"{"third": ["192.0.2.0/24"]"#);
        database.check(&mut seen);
        database.check(&mut seen);
        assert_eq!(name(&database), "second");
        let messages = database.take_messages();
        assert!(messages.len() == 1 && messages[0].ends_with("the old networks stay in use"), "{messages:?}");

        write(r#"{"host": ["192.0.2.1/24"]}"#);
        database.check(&mut seen);
        let messages = database.take_messages();
        let text = ": host: network \"192.0.2.1/24\" has bits beyond its length; it is used as 192.0.2.0/24";
        assert!(
            messages[0].starts_with(&*file.to_string_lossy()) && messages[0].ends_with(text),
            "{messages:?}"
        );
        write(r#"{"second": ["192.0.2.0/24"]}"#);
        database.check(&mut seen);
        database.take_messages();

        std::fs::remove_file(&file).expect("writable");
        database.check(&mut seen);
        assert_eq!((name(&database).as_str(), database.take_messages().len()), ("second", 1));
        write(r#"{"fourth": ["192.0.2.0/24"]}"#);
        database.check(&mut seen);
        assert_eq!(name(&database), "fourth");
        let _ = std::fs::remove_file(&file);
        assert!(Database::open(&file, Duration::from_secs(1)).is_err());
    }
}
