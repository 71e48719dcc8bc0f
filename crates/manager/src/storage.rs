//! `-s`: the object storages. The manager creates the memory or opens the file and keeps it open, so that it
//! belongs to the service and not to one worker.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use lacquer_cli::json;
use lacquer_cli::link::{RecordsConfig, StorageConfig, StorageKind};
use rustix::fs::MemfdFlags;

use crate::complain::Complain;
use crate::disk_storage::{self, DiskArguments, DiskFiles};
use crate::fault::{Fault, Outcome, os_error_text};
use crate::file_storage::{self, FileArguments, Opened, Survival, size_of};
use crate::jail::Jail;
use crate::options::named;
use crate::upgrade::{StorageState, take};
use crate::worker::inheritance::Memory;

const TRANSIENT: &str = "Transient";
const DEFAULT: &str = "default,100m";

/// A storage that was requested and is not created yet.
#[derive(Clone, Debug)]
struct StorageSpec {
    name: String,
    method: String,
    arguments: Vec<String>,
    /// The arguments of further disks of the same storage.
    more_disks: Vec<Vec<String>>,
}

/// One storage.
#[derive(Debug)]
pub struct Storage {
    name: String,
    method: String,
    kind: StorageKind,
    size: Option<u64>,
    file: OwnedFd,
    /// The table of its objects, with which they outlive the worker.
    records: Option<OwnedFd>,
    /// The files with which its objects survive the end of the daemon, if they do.
    survival: Option<Survival>,
    /// The block stores behind the memory.
    disks: Option<DiskFiles>,
    /// The file for the pages that a worker uses which hands over the memory.
    pins: Option<OwnedFd>,
    /// Whether such a worker lives.
    is_pinned: bool,
    /// The files of that worker, until the next one has taken over.
    before: Option<Before>,
}

/// The files that only the worker uses which hands over its memory.
#[derive(Debug)]
enum Before {
    /// The table of its objects. The memory is shared.
    Records(OwnedFd),
    /// Its memory, which is not shared.
    Memory(OwnedFd),
}

/// Tells which storages to open. A check of a configuration opens no file and no store on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opens {
    Everything,
    NoDisk,
}

/// The `-s` arguments.
#[derive(Debug, Default)]
pub struct StorageArguments {
    specs: Vec<StorageSpec>,
    unnamed: usize,
    /// The files of storages that exist already.
    existing: Vec<StorageState>,
}

impl StorageArguments {
    /// Parses one `-s` and returns the storage's name. Disks with the same name are one storage.
    pub fn add(&mut self, argument: &str) -> Outcome<&str> {
        let parsed = named::parse(argument, "-s")?;
        let (method, arguments) = parsed.fields.split_first().expect("at least one field");
        if method.is_empty() {
            return Err(Fault::usage("-s argument lacks strategy {malloc, file, ...}"));
        }
        let name = parsed.name.unwrap_or_else(|| {
            self.unnamed += 1;
            format!("s{}", self.unnamed - 1)
        });
        if name == TRANSIENT && method == "disk" {
            return Err(Fault::usage(format!(
                "(-s {argument}) {TRANSIENT} cannot be on a disk: its objects are short-lived; use malloc, or another name"
            )));
        }
        if let Some(at) = self.specs.iter().position(|other| other.name == name) {
            let known = &mut self.specs[at];
            if [method, &known.method].into_iter().any(|method| method != "disk") {
                return Err(Fault::usage(format!("(-s {argument}) '{name}' is already defined")));
            }
            known.more_disks.push(arguments.to_vec());
            return Ok(&known.name);
        }
        let (method, arguments) = (method.clone(), arguments.to_vec());
        self.specs.push(StorageSpec { name, method, arguments, more_disks: Vec::new() });
        Ok(&self.specs[self.specs.len() - 1].name)
    }

    /// Fails if the words of a storage are wrong, as far as they show it themselves.
    pub fn check(&self) -> Outcome<()> {
        self.specs.iter().try_for_each(StorageSpec::check)
    }

    /// Creates all storages: the default one if none is given, and Transient, which is last.
    pub fn make(mut self, opens: Opens, jail: &Jail, complain: &Complain) -> Outcome<Vec<Storage>> {
        if self.specs.is_empty() {
            self.add(DEFAULT)?;
        }
        if !self.specs.iter().any(|spec| spec.name == TRANSIENT) {
            self.add("Transient=default")?;
        }
        self.specs.sort_by_key(|spec| spec.name == TRANSIENT);
        let Self { specs, mut existing, .. } = self;
        let make = |spec: &StorageSpec| match existing
            .iter()
            .position(|state| state.name == spec.name && state.method == spec.method)
        {
            Some(at) => spec.adopt(&existing.remove(at), jail, complain),
            None => spec.make(opens, jail, complain),
        };
        let mut storages = specs.iter().map(make).collect::<Outcome<Vec<Storage>>>()?;
        let mut survivors: Vec<_> =
            storages.iter_mut().filter_map(|storage| storage.survival.as_mut()).collect();
        file_storage::join(&mut survivors, complain)?;
        Ok(storages)
    }

    /// Returns the files that the storages may make, as they are named.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.specs.iter().flat_map(StorageSpec::files)
    }

    /// Uses these files for the storages that are made.
    pub fn adopt(&mut self, existing: Vec<StorageState>) {
        self.existing = existing;
    }
}

impl StorageSpec {
    fn make(&self, opens: Opens, jail: &Jail, complain: &Complain) -> Outcome<Storage> {
        match self.method.as_str() {
            "malloc" | "default" => self.limited_memory(self.memory_size()?),
            // The test suite's storage with faults on demand. Here it is memory without the faults.
            "debug" => self.limited_memory(None),
            "file" => self.file(opens, jail, complain),
            "disk" => self.disk(opens, jail, complain),
            method => Err(no_method(method)),
        }
    }

    fn check(&self) -> Outcome<()> {
        match self.method.as_str() {
            "malloc" | "default" => self.memory_size().map(drop),
            "debug" => Ok(()),
            "file" => FileArguments::parse(&self.arguments).map(drop),
            "disk" => self.disk_arguments().map(drop),
            method => Err(no_method(method)),
        }
    }

    /// Continues with the files of a storage.
    fn adopt(&self, state: &StorageState, jail: &Jail, complain: &Complain) -> Outcome<Storage> {
        let owned =
            |fd| take(fd).map_err(|e| Fault::plain(format!("storage {}: {}", self.name, os_error_text(&e))));
        let (records, pins) = match state.kept {
            Some((records, pins)) => (Some(owned(records)?), Some(owned(pins)?)),
            None => (None, None),
        };
        let disks = match &state.disks {
            Some((files, marker)) => {
                let files = files.iter().map(|&fd| owned(fd)).collect::<Outcome<Vec<OwnedFd>>>()?;
                Some(DiskFiles::adopt(&self.disk_arguments()?, files, &state.stores, owned(*marker)?))
            }
            None => None,
        };
        let file = owned(state.fd)?;
        let (kind, survival) = match self.method.as_str() {
            "file" => {
                let arguments = FileArguments::parse(&self.arguments)?;
                let size = state.size.filter(|_| records.is_some());
                let survival = size.and_then(|size| arguments.adopt(&file, size, jail, complain));
                (StorageKind::File(arguments.path), survival)
            }
            _ => (StorageKind::Malloc, None),
        };
        Ok(Storage {
            name: self.name.clone(),
            method: self.method.clone(),
            kind,
            size: state.size,
            file,
            records,
            survival,
            disks,
            pins,
            is_pinned: false,
            before: None,
        })
    }

    fn memory_size(&self) -> Outcome<Option<u64>> {
        match self.arguments.as_slice() {
            [] => Ok(None),
            [size] if size.is_empty() => Ok(None),
            [size] => size_of(size, "-smalloc").map(Some),
            _ => Err(Fault::usage("(-smalloc) too many arguments")),
        }
    }

    /// Returns the files that the storage may make. Faults in its words are reported elsewhere.
    fn files(&self) -> Vec<PathBuf> {
        match self.method.as_str() {
            "file" => {
                FileArguments::parse(&self.arguments).map_or_else(|_| Vec::new(), |found| found.files())
            }
            "disk" => disk_storage::files(&self.name, &self.disk_arguments().unwrap_or_default()),
            _ => Vec::new(),
        }
    }

    fn limited_memory(&self, size: Option<u64>) -> Outcome<Storage> {
        let file = self.memory_file("storage")?;
        let storage = Storage {
            name: self.name.clone(),
            method: self.method.clone(),
            kind: StorageKind::Malloc,
            size,
            file,
            disks: None,
            survival: None,
            records: self.records()?,
            pins: self.pins()?,
            is_pinned: false,
            before: None,
        };
        storage
            .clear()
            .map_err(|e| Fault::plain(format!("(-smalloc) allocation error: {}", os_error_text(&e))))?;
        Ok(storage)
    }

    fn disk(&self, opens: Opens, jail: &Jail, complain: &Complain) -> Outcome<Storage> {
        let arguments = self.disk_arguments()?;
        let memory = arguments.iter().fold(0, |sum: u64, disk| sum.saturating_add(disk.memory()));
        // Some objects in this memory are not on the disk.
        let mut storage = self.limited_memory(Some(memory))?;
        if opens == Opens::Everything {
            let _root = jail.raise();
            storage.disks = Some(DiskFiles::open(&self.name, &arguments, complain)?);
        }
        Ok(storage)
    }

    /// Parses the arguments of all disks.
    fn disk_arguments(&self) -> Outcome<Vec<DiskArguments>> {
        let all = [&self.arguments].into_iter().chain(&self.more_disks);
        all.map(|words| DiskArguments::parse(words)).collect()
    }

    /// Creates the table of objects. The objects of Transient end with the worker.
    fn records(&self) -> Outcome<Option<OwnedFd>> {
        if self.name == TRANSIENT { Ok(None) } else { self.memory_file("records").map(Some) }
    }

    /// Creates the file of pins, if the objects can outlive the worker.
    fn pins(&self) -> Outcome<Option<OwnedFd>> {
        if self.name == TRANSIENT { Ok(None) } else { self.memory_file("pins").map(Some) }
    }

    fn memory_file(&self, content: &str) -> Outcome<OwnedFd> {
        memory_file(content, &self.name).map_err(|error| {
            Fault::plain(format!("(-s{}) cannot create memory: {}", self.method, os_error_text(&error)))
        })
    }

    fn file(&self, opens: Opens, jail: &Jail, complain: &Complain) -> Outcome<Storage> {
        let arguments = FileArguments::parse(&self.arguments)?;
        let kind = StorageKind::File(arguments.path.clone());
        if opens == Opens::NoDisk {
            return Ok(Storage { kind, ..self.limited_memory(Some(arguments.least_size()))? });
        }
        let Opened { file, size, survival } = arguments.open(self.name != TRANSIENT, jail, complain)?;
        let (survival, records) = match survival {
            Some((survival, records)) => (Some(survival), Some(records)),
            None => (None, self.records()?),
        };
        Ok(Storage {
            name: self.name.clone(),
            method: self.method.clone(),
            kind,
            size: Some(size),
            file,
            records,
            survival,
            disks: None,
            pins: self.pins()?,
            is_pinned: false,
            before: None,
        })
    }
}

fn no_method(method: &str) -> Fault {
    match method {
        "persistent" => Fault::usage(
            "-spersistent has been deprecated, please see:\n  \
             https://www.varnish-cache.org/docs/trunk/phk/persistent.html\nfor details.",
        ),
        method => Fault::usage(format!("Unknown stevedore method \"{method}\"")),
    }
}

fn memory_file(content: &str, name: &str) -> std::io::Result<OwnedFd> {
    // The kernel accepts 249 bytes; names are ASCII.
    let label = format!("{content}.{name:.200}");
    Ok(rustix::fs::memfd_create(label, MemfdFlags::CLOEXEC)?)
}

impl Storage {
    /// The storage's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the files for the program that replaces this one.
    pub fn describe(&self) -> StorageState {
        let kept = self.records.as_ref().zip(self.pins.as_ref());
        StorageState {
            name: self.name.clone(),
            method: self.method.clone(),
            size: self.size,
            fd: self.file.as_raw_fd(),
            kept: kept.map(|(records, pins)| (records.as_raw_fd(), pins.as_raw_fd())),
            disks: self.disks.as_ref().map(DiskFiles::numbers),
            stores: self.disks.as_ref().map(DiskFiles::stores).unwrap_or_default(),
        }
    }

    /// Returns the method's name as it was given.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Prepares the storage for a new worker: memory is emptied unless it is kept, and a disk that has failed is not used.
    pub fn prepare(&mut self, is_emptied: bool, jail: &Jail, complain: &Complain) -> std::io::Result<()> {
        let _root = jail.raise();
        if let Some(disks) = &mut self.disks {
            disks.prepare(complain);
        }
        if is_emptied { self.clear() } else { Ok(()) }
    }

    /// Discards the content and frees the memory, before a worker starts to use it.
    pub fn clear(&self) -> std::io::Result<()> {
        file_storage::clear(&self.file, self.size.unwrap_or(0))?;
        if let Some(records) = &self.records {
            rustix::fs::ftruncate(records, 0)?;
        }
        Ok(())
    }

    /// Returns the number of early deaths of workers that had the objects, if the objects of an earlier daemon are found.
    pub fn found(&self) -> Option<u32> {
        self.survival.as_ref().and_then(Survival::found)
    }

    /// Records that no later daemon may take over the present objects.
    pub fn forbid_survival(&mut self) -> std::io::Result<()> {
        self.survival.as_mut().map_or(Ok(()), Survival::invalidate)
    }

    /// Records that a worker uses the storage, whose objects a later daemon may take over.
    pub fn allow_survival(&mut self, early_deaths: u32) -> std::io::Result<()> {
        match (&mut self.survival, &self.records) {
            (Some(survival), Some(records)) => {
                survival.begin(self.file.as_fd(), records.as_fd(), early_deaths)
            }
            _ => Ok(()),
        }
    }

    /// Records the number of early deaths of workers for later daemons.
    pub fn set_early_deaths(&mut self, early_deaths: u32) -> std::io::Result<()> {
        self.survival.as_mut().map_or(Ok(()), |survival| survival.set_early_deaths(early_deaths))
    }

    /// Writes the contents to the device at the end of the daemon, when there is no worker.
    pub fn settle(&mut self) -> std::io::Result<()> {
        match (&mut self.survival, &self.records) {
            (Some(survival), Some(records)) => survival.settle(self.file.as_fd(), records.as_fd()),
            _ => Ok(()),
        }
    }

    /// Prepares the storage for a worker that starts while another one lives: kept memory is shared, and the new worker
    /// gets a table of its own. Other memory is new, and a disk that has failed is not used.
    pub fn share(&mut self, jail: &Jail, complain: &Complain) -> std::io::Result<()> {
        if let Some(disks) = &mut self.disks {
            let _root = jail.raise();
            disks.prepare(complain);
        }
        if let Some(records) = &mut self.records {
            let anew = match &mut self.survival {
                Some(survival) => {
                    let _root = jail.raise();
                    survival.invalidate()?;
                    survival.next_records()?
                }
                None => memory_file("records", &self.name)?,
            };
            self.before = Some(Before::Records(std::mem::replace(records, anew)));
            self.is_pinned = true;
            return Ok(());
        }
        self.may_share().map_err(std::io::Error::other)?;
        let anew = memory_file("storage", &self.name)?;
        rustix::fs::ftruncate(&anew, self.size.unwrap_or(0))?;
        self.before = Some(Before::Memory(std::mem::replace(&mut self.file, anew)));
        Ok(())
    }

    /// Returns the path of the file that is the memory, if it is one.
    pub fn file_path(&self) -> Option<&Path> {
        match &self.kind {
            StorageKind::File(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the reason why a second worker cannot start while one uses the storage.
    pub fn may_share(&self) -> Result<(), String> {
        if self.records.is_none() && matches!(self.kind, StorageKind::File(_)) {
            return Err(format!(
                "storage {} is a file, which two workers cannot use at the same time",
                self.name
            ));
        }
        Ok(())
    }

    /// Takes back the files of the worker that lives, because the next one failed to start.
    pub fn unshare(&mut self, jail: &Jail) {
        if let Some(survival) = &self.survival {
            let _root = jail.raise();
            survival.drop_next_records();
        }
        match self.before.take() {
            Some(Before::Records(records)) => (self.records, self.is_pinned) = (Some(records), false),
            Some(Before::Memory(file)) => self.file = file,
            None => {}
        }
    }

    /// Closes the files that only the previous worker uses, after the next one has taken over.
    pub fn taken_over(&mut self, early_deaths: u32, jail: &Jail) -> std::io::Result<()> {
        self.before = None;
        let Some(survival) = &self.survival else { return Ok(()) };
        let _root = jail.raise();
        survival.take_next_records()?;
        self.allow_survival(early_deaths)
    }

    /// Records that the worker that has handed over the memory has ended.
    pub fn unpin(&mut self) {
        self.is_pinned = false;
    }

    /// Returns whether its objects can outlive the worker.
    pub fn is_kept(&self) -> bool {
        self.records.is_some()
    }

    /// Returns the storage's description for a worker, which continues with the objects of the last one if `memory` is
    /// [`Memory::TakeOver`].
    pub fn for_worker(&self, memory: Memory) -> StorageConfig {
        let take_over = matches!(memory, Memory::TakeOver | Memory::Shared);
        let kept = self.records.as_ref().zip(self.pins.as_ref()).filter(|_| memory != Memory::NotKept);
        let predecessor = match &self.before {
            Some(Before::Records(records)) => Some(records.as_raw_fd()),
            _ => None,
        };
        let disks = self.disks.as_ref().map(DiskFiles::config);
        StorageConfig {
            name: self.name.clone(),
            kind: disks.map_or_else(|| self.kind.clone(), StorageKind::Disk),
            size: self.size,
            fd: self.file.as_raw_fd(),
            records: kept.map(|(records, pins)| RecordsConfig {
                fd: records.as_raw_fd(),
                take_over,
                predecessor,
                pins_fd: pins.as_raw_fd(),
                is_pinned: self.is_pinned,
            }),
        }
    }

    /// Maximum size in bytes, if it has a limit.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The descriptors that the worker inherits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let before = match &self.before {
            Some(Before::Records(records)) => Some(records),
            _ => None,
        };
        let kept = [self.records.as_ref(), self.pins.as_ref(), before];
        let records = kept.into_iter().flatten().map(OwnedFd::as_fd);
        let disks = self.disks.iter().flat_map(DiskFiles::descriptors);
        std::iter::once(self.file.as_fd()).chain(records).chain(disks)
    }
}

/// Returns the text of `storage.list`.
pub fn list(storages: &[Storage]) -> String {
    let lines = storages.iter().map(|s| format!("\tstorage.{} = {}\n", s.name, s.method()));
    std::iter::once("Storage devices:\n".to_owned()).chain(lines).collect()
}

/// Returns the elements of `storage.list -j`.
pub fn list_json(storages: &[Storage]) -> String {
    let object = |s: &Storage| {
        let (name, method) = (json::string(&s.name), json::string(s.method()));
        format!("{{\n  \"name\": {name},\n  \"storage\": {method}\n}}")
    };
    storages.iter().map(object).collect::<Vec<_>>().join(",\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(arguments: &[&str]) -> Outcome<Vec<Storage>> {
        let mut all = StorageArguments::default();
        for argument in arguments {
            all.add(argument)?;
        }
        all.make(Opens::Everything, &Jail::none(), &Complain::new(false, "test"))
    }

    #[test]
    fn defaults() {
        let made = make(&[]).unwrap();
        assert_eq!(list(&made), "Storage devices:\n\tstorage.s0 = default\n\tstorage.Transient = default\n");
        assert_eq!((made[0].size, made[1].size), (Some(100 << 20), None));
    }

    #[test]
    fn transient_is_last() {
        let made = make(&["Transient=malloc,2m", "malloc,3m", "big=default,4m"]).unwrap();
        let names: Vec<&str> = made.iter().map(Storage::name).collect();
        assert_eq!(names, ["s0", "big", "Transient"]);
    }

    #[test]
    fn bad_arguments_are_reported() {
        for (arguments, text) in [
            (
                &["main=default,10m", "main=default,100m"][..],
                "(-s main=default,100m) 'main' is already defined",
            ),
            (&["default,10m", "s0=default,100m"], "(-s s0=default,100m) 's0' is already defined"),
            (&["big=malloc,10m", "big=disk,/x"], "'big' is already defined"),
            (
                &["malloc", "Transient=disk,/x,size=1g"],
                "(-s Transient=disk,/x,size=1g) Transient cannot be on a disk",
            ),
            (&["big=disk,/x", "big=disk,/y,size=1m"], "(-sdisk) size= is too small"),
            (&["malloc,10"], "too small, did you forget"),
            (&["nosuch"], "Unknown stevedore method \"nosuch\""),
            (&["file"], "path is mandatory"),
        ] {
            let fault = make(arguments).unwrap_err().to_string();
            assert!(fault.contains(text), "{fault}");
        }
    }
}
