//! `-s disk`: block stores on devices or in files, with memory in front of them. The manager opens and locks them.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lacquer_cli::link::{DiskConfig, DisksConfig};
use lacquer_disk::{
    Aligned, BLOCK, Blocks, FileDevice, Joined, LEAST_SIZE, Layout, Membership, OpenError, enlarge,
    open_file, path_of,
};
use lacquer_params::number::parse_bytes;

use crate::complain::{Complain, Level};
use crate::fault::{Fault, Outcome, os_error_text};
use crate::file_identity::FileIdentity;
use crate::secret;
use crate::shm::now;
use crate::upgrade::StoreState;

/// The default of `memory=`.
const MEMORY: u64 = 256 << 20;
/// The least memory.
const LEAST_MEMORY: u64 = 16 << 20;
/// The beginning of the marker's name.
const MARKER: &str = "_.disk-";
/// The most bytes of a marker that are read.
const MOST_MARKED: u64 = 1 << 20;
/// The length of the beginning of a device that must be empty.
const CHECKED: u64 = 1 << 20;

/// The arguments of `-s disk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskArguments {
    path: PathBuf,
    size: Option<u64>,
    min: u64,
    max: u64,
    memory: u64,
}

impl DiskArguments {
    /// Parses the words after the method.
    pub fn parse(words: &[String]) -> Outcome<Self> {
        let Some((path, options)) = words.split_first().filter(|(path, _)| !path.is_empty()) else {
            return Err(Fault::usage("(-sdisk) path is mandatory"));
        };
        let mut this = Self { path: PathBuf::from(path), size: None, min: 0, max: u64::MAX, memory: MEMORY };
        for (i, option) in options.iter().enumerate() {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let is_given = |before: &String| before.split_once('=').is_some_and(|(given, _)| given == name);
            if options[..i].iter().any(is_given) {
                return Err(Fault::usage(format!("(-sdisk) {name}= is given twice")));
            }
            let bytes = || {
                let parsed = parse_bytes(value, None);
                // A larger number of bytes has this value, too.
                let parsed =
                    parsed.and_then(|bytes| if bytes < u64::MAX { Ok(bytes) } else { Err("too large") });
                parsed.map_err(|fault| Fault::usage(format!("(-sdisk) {name} \"{value}\": {fault}")))
            };
            match name {
                "size" => this.size = Some(bytes()?),
                "min" => this.min = bytes()?,
                "max" => this.max = bytes()?,
                "memory" => this.memory = bytes()?,
                _ => {
                    return Err(Fault::usage(format!(
                        "(-sdisk) unknown argument \"{option}\"; known are size=, memory=, min= and max="
                    )));
                }
            }
        }
        if this.memory < LEAST_MEMORY {
            return Err(Fault::usage("(-sdisk) memory= is too small; the least is 16M"));
        }
        if this.min > this.max {
            return Err(Fault::usage("(-sdisk) min= is larger than max="));
        }
        if this.size.is_some_and(|size| size < LEAST_SIZE) {
            return Err(Fault::usage("(-sdisk) size= is too small; the least is 16M"));
        }
        Ok(this)
    }

    /// Returns the size of the memory in front of the store.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Opens and locks the store. Creates it in a file that does not exist or is empty, and on an empty device.
    fn open(&self, complain: &Complain) -> Outcome<DiskFile> {
        let path = path_of(&self.path);
        let was_there = path.exists();
        if self.size.is_none() && !was_there {
            let text = "there is no store; add size=, such as size=100G, to create one";
            return Err(about(&path, &text));
        }
        self.open_at(&path, complain).inspect_err(|_| {
            if !was_there {
                let _ = std::fs::remove_file(&path);
            }
        })
    }

    fn open_at(&self, path: &Path, complain: &Complain) -> Outcome<DiskFile> {
        let fault = |text: &dyn Display| about(path, text);
        let io = |error: &std::io::Error| match error.raw_os_error() {
            Some(_) => fault(&os_error_text(error)),
            None => fault(error),
        };
        let file = open_file(path, self.size.is_some()).map_err(|error| io(&error))?;
        let device = device(&file).map_err(|error| io(&error))?;
        match Layout::open(&device) {
            Ok(layout) => {
                let planned = self.size.and_then(|size| Layout::plan(size, 0, 0.0).ok());
                if planned.is_some_and(|planned| planned.size() != layout.size()) {
                    let text = format!(
                        "(-sdisk) {}: the store has {} bytes; size= is for new stores",
                        path.display(),
                        layout.size()
                    );
                    complain.report(Level::Info, &text);
                }
            }
            Err(OpenError::Empty) => self.create(path, &file)?,
            Err(error) => return Err(fault(&error)),
        }
        Ok(self.adopt(file, StoreState::default()))
    }

    /// Continues with a store that is open and locked. [`DiskFiles::prepare`] reads its id, which is 0 if it is not known.
    fn adopt(&self, file: File, state: StoreState) -> DiskFile {
        let path = path_of(&self.path);
        let (fd, min, max) = (file.as_raw_fd(), self.min, self.max);
        let StoreState { id, refused } = state;
        DiskFile { config: DiskConfig { path, fd, id, refused, min, max }, file }
    }

    fn create(&self, path: &Path, file: &File) -> Outcome<()> {
        let fault = |text: &dyn Display| about(path, text);
        let found = device(file).map_err(|error| fault(&error))?;
        // A file that is shorter than a block cannot be read past the page cache.
        let is_short = file.metadata().is_ok_and(|metadata| (1..BLOCK).contains(&metadata.len()));
        if is_short || !is_blank(&found) {
            return Err(fault(&OpenError::Foreign));
        }
        if let Some(size) = self.size.filter(|&size| found.size() < size) {
            enlarge(file, size)
                .map_err(|error| fault(&format!("cannot reserve {size} bytes: {}", os_error_text(&error))))?;
        }
        let device = device(file).map_err(|error| fault(&error))?;
        let size = self.size.unwrap_or(u64::MAX).min(device.size());
        let mut id = [0; 8];
        secret::random(&mut id).map_err(|error| fault(&os_error_text(&error)))?;
        let layout = Layout::plan(size, u64::from_le_bytes(id), now()).map_err(|error| fault(&error))?;
        layout.create(&device).map_err(|error| fault(&os_error_text(&error)))
    }
}

fn about(path: &Path, text: &dyn Display) -> Fault {
    Fault::plain(format!("(-sdisk) {}: {text}", path.display()))
}

fn device(file: &File) -> std::io::Result<FileDevice> {
    FileDevice::new(file.try_clone()?)
}

/// Returns whether the beginning of a device, where file systems keep their marks, contains only zeros.
fn is_blank(device: &FileDevice) -> bool {
    let mut buffer = Aligned::new((device.size() / BLOCK * BLOCK).min(CHECKED) as usize);
    device.read(0, buffer.bytes_mut()).is_ok() && buffer.bytes().iter().all(|&byte| byte == 0)
}

/// An open store.
#[derive(Debug)]
struct DiskFile {
    config: DiskConfig,
    file: File,
}

/// The open stores of a storage.
#[derive(Debug)]
pub struct DiskFiles {
    disks: Vec<DiskFile>,
    /// Contains the ids of stores that failed and could not be made invalid.
    marker: File,
}

/// Returns the files that a storage with this name may make.
pub fn files(name: &str, arguments: &[DiskArguments]) -> Vec<PathBuf> {
    let stores = arguments.iter().map(|one| path_of(&one.path));
    stores.chain([PathBuf::from(format!("{MARKER}{name}"))]).collect()
}

impl DiskFiles {
    /// Opens the stores of the storage with this name. The marker is in the current directory.
    pub fn open(name: &str, arguments: &[DiskArguments], complain: &Complain) -> Outcome<Self> {
        let disks = arguments.iter().map(|one| one.open(complain)).collect::<Outcome<Vec<DiskFile>>>()?;
        let marker_name = format!("{MARKER}{name}");
        let mut options = OpenOptions::new();
        let marker =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&marker_name);
        let marker = marker.map_err(|error| {
            Fault::plain(format!("(-sdisk) cannot create the file {marker_name}: {}", os_error_text(&error)))
        })?;
        Ok(Self { disks, marker })
    }

    /// Returns the description for the worker, with the stores that it cannot use.
    pub fn config(&self) -> DisksConfig {
        let disks = self.disks.iter().map(|disk| disk.config.clone()).collect();
        DisksConfig { disks, marker_fd: self.marker.as_raw_fd() }
    }

    /// Continues with the stores of a storage, which are open and locked. The next worker uses those that
    /// [`DiskFiles::prepare`] finds in order. `stores` is empty if they are not known.
    pub fn adopt(
        arguments: &[DiskArguments],
        files: Vec<OwnedFd>,
        stores: &[StoreState],
        marker: OwnedFd,
    ) -> Self {
        let states = stores.iter().cloned().chain(std::iter::repeat_with(StoreState::default));
        let disks = arguments.iter().zip(files).zip(states);
        let disks = disks.map(|((one, file), state)| one.adopt(File::from(file), state)).collect();
        Self { disks, marker: File::from(marker) }
    }

    /// Returns the stores for the program that replaces this one.
    pub fn stores(&self) -> Vec<StoreState> {
        let state = |config: &DiskConfig| StoreState { id: config.id, refused: config.refused.clone() };
        self.disks.iter().map(|disk| state(&disk.config)).collect()
    }

    /// Returns the numbers of the descriptors of the devices and of their marker.
    pub fn numbers(&self) -> (Vec<RawFd>, RawFd) {
        (self.disks.iter().map(|disk| disk.config.fd).collect(), self.marker.as_raw_fd())
    }

    /// Returns the descriptors that the worker inherits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.disks.iter().map(|disk| disk.file.as_fd()).chain([self.marker.as_fd()])
    }

    /// Prepares the stores for the next worker. Drops the contents of those that failed while they were in use: purges may
    /// have been answered that they have not recorded. The next worker does not use a store for which that is impossible.
    pub fn prepare(&mut self, complain: &Complain) {
        let marked = read_marker(&self.marker);
        let mut left = marked.clone();
        for disk in &mut self.disks {
            let before = disk.config.id;
            let prepared = disk.prepare(&marked).or_else(|error| disk.reopen().map_err(|()| error));
            disk.config.refused = prepared.as_ref().err().map(ToString::to_string);
            let path = disk.config.path.display();
            match prepared {
                Ok(None) => {}
                Ok(Some(dropped)) => {
                    left.retain(|&id| id != dropped);
                    // Another store may have taken its place.
                    if before != 0 && dropped != before && !left.contains(&before) {
                        left.push(before);
                    }
                    let text = format!("(-sdisk) {path}: the disk had failed; it starts empty");
                    complain.report(Level::Info, &text);
                }
                Err(error) => {
                    let text = format!("(-sdisk) {path}: the disk has failed and is not used: {error}");
                    complain.report(Level::Error, &text);
                    // Purges that are answered from now on are not recorded.
                    if !left.contains(&disk.config.id) {
                        left.push(disk.config.id);
                    }
                }
            }
        }
        for (id, error) in self.join(complain) {
            complain.report(Level::Error, &error);
            if !left.contains(&id) {
                left.push(id);
            }
        }
        if left != marked
            && let Err(error) = write_marker(&self.marker, &left)
        {
            let text = format!(
                "(-sdisk) the file {MARKER}NAME cannot be written ({}): make new stores on disks that have failed with \
                 `lacquer storage create --force`, or purged objects may come back",
                os_error_text(&error)
            );
            complain.report(Level::Error, &text);
        }
    }
}

impl DiskFiles {
    /// Drops the contents of disks that were absent when others of the storage were in use: they have not recorded the
    /// purges of that time. Returns the ids of disks for which that is impossible, and which are not used.
    fn join(&mut self, complain: &Complain) -> Vec<(u64, String)> {
        let mut used: Vec<&mut DiskFile> =
            self.disks.iter_mut().filter(|disk| disk.config.refused.is_none()).collect();
        let members: Vec<_> = used.iter().map(|disk| disk.membership().unwrap_or(None)).collect();
        let Joined { outdated, changes } = Membership::join(&members);
        let Some(changes) = changes else { return Vec::new() };
        let mut id = [0; 8];
        // Without a random number, the time distinguishes the changes.
        let id = secret::random(&mut id).map_or(now().to_bits(), |()| u64::from_le_bytes(id));
        let membership = Membership { changes, id, disks: used.len() as u64 };
        let mut failed = Vec::new();
        for (index, disk) in used.iter_mut().enumerate() {
            let is_outdated = outdated.contains(&index);
            let path = disk.config.path.display().to_string();
            if is_outdated {
                let text = format!(
                    "(-sdisk) {path}: the disk was not in use at the last start of its storage, and may lack purges; it \
                     starts empty"
                );
                complain.report(Level::Error, &text);
            }
            if let Err(error) = disk.set_membership(&membership, is_outdated) {
                let text = format!("(-sdisk) {path}: the disk has failed and is not used: {error}");
                disk.config.refused = Some(error.to_string());
                failed.push((disk.config.id, text));
            }
        }
        failed
    }
}

fn write_marker(marker: &File, ids: &[u64]) -> std::io::Result<()> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    marker.write_all_at(&bytes, 0)?;
    marker.set_len(bytes.len() as u64)?;
    marker.sync_all()
}

/// Reads the ids of stores that have failed.
fn read_marker(marker: &File) -> Vec<u64> {
    let length = marker.metadata().map_or(0, |found| found.len()).min(MOST_MARKED);
    let mut bytes = vec![0; length as usize];
    if marker.read_exact_at(&mut bytes, 0).is_err() {
        return Vec::new();
    }
    bytes.as_chunks().0.iter().map(|&id| u64::from_le_bytes(id)).collect()
}

impl DiskFile {
    fn membership(&self) -> Result<Option<Membership>, OpenError> {
        let device = device(&self.file)?;
        Ok(Membership::read(&Layout::open(&device)?, &device)?)
    }

    /// Drops the contents if they are outdated, and writes the membership.
    fn set_membership(&mut self, membership: &Membership, is_outdated: bool) -> Result<(), OpenError> {
        let device = device(&self.file)?;
        let mut layout = Layout::open(&device)?;
        if is_outdated {
            layout.renew(&device, now())?;
            layout = Layout::open(&device)?;
            self.config.id = layout.id;
        }
        Ok(membership.write(&layout, &device)?)
    }

    /// Reads the id of the store. Drops its contents if it is one of those that have failed, or the last worker did not use
    /// it, and returns the old id.
    fn prepare(&mut self, marked: &[u64]) -> Result<Option<u64>, OpenError> {
        let id = Layout::open(&device(&self.file)?)?.id;
        if self.config.refused.is_some() || marked.contains(&id) {
            return self.empty().map(Some);
        }
        self.config.id = id;
        Ok(None)
    }

    /// Drops the contents, and returns the old id.
    fn empty(&mut self) -> Result<u64, OpenError> {
        let device = device(&self.file)?;
        let layout = Layout::open(&device)?;
        layout.renew(&device, now())?;
        self.config.id = Layout::open(&device)?.id;
        Ok(layout.id)
    }

    /// Continues with the store that is at the path now, because the open one has failed, and drops its contents. Does not
    /// create one: the path may be that of a file system which is not mounted.
    fn reopen(&mut self) -> Result<Option<u64>, ()> {
        let path = &self.config.path;
        let (open, there) = FileIdentity::of(&self.file).zip(FileIdentity::at(path)).ok_or(())?;
        if open == there {
            return Err(());
        }
        let file = open_file(path, false).map_err(|_| ())?;
        let mut anew = Self { config: DiskConfig { fd: file.as_raw_fd(), ..self.config.clone() }, file };
        let dropped = anew.empty().map_err(|_| ())?;
        *self = anew;
        Ok(Some(dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Outcome<DiskArguments> {
        let words: Vec<String> = words.split(',').map(str::to_owned).collect();
        DiskArguments::parse(&words)
    }

    #[test]
    fn arguments() {
        let parsed = parse("/dev/x,size=1G,min=4k,max=10m,memory=64m").unwrap();
        let expected = DiskArguments {
            path: "/dev/x".into(),
            size: Some(1 << 30),
            min: 4 << 10,
            max: 10 << 20,
            memory: 64 << 20,
        };
        assert_eq!(parsed, expected);
        for (words, text) in [
            ("", "path is mandatory"),
            ("/x,10G", "unknown argument \"10G\""),
            ("/x,size=1x", "size \"1x\""),
            ("/x,size=1m", "the least is 16M"),
            ("/x,memory=1m", "the least is 16M"),
            ("/x,min=2,max=1", "larger than max="),
            ("/x,size=32M,size=64M", "size= is given twice"),
            ("/x,size=99999999999G", "too large"),
        ] {
            let fault = parse(words).unwrap_err().to_string();
            assert!(fault.contains(text), "{fault}");
        }
    }

    #[test]
    fn a_short_file_of_others_is_not_overwritten() {
        let path = std::env::temp_dir().join(format!("lacquer-short-{}", std::process::id()));
        std::fs::write(&path, "text").unwrap();
        let complain = Complain::new(false, "test");
        for option in ["", ",size=16m"] {
            let fault = parse(&format!("{}{option}", path.display())).unwrap().open(&complain).unwrap_err();
            assert!(fault.to_string().contains("is not a Lacquer store"), "{fault}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        std::fs::remove_file(&path).unwrap();
    }

    /// A disk that was absent while another one was in use begins empty.
    #[test]
    fn disks_that_were_absent_are_emptied() {
        let folder = std::env::temp_dir().join(format!("lacquer-members-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let complain = Complain::new(false, "test");
        let start = |names: &[&str]| -> Vec<u64> {
            let open = |name: &&str| {
                parse(&format!("{},size=16m", folder.join(name).display())).unwrap().open(&complain).unwrap()
            };
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            let marker = options.open(folder.join("marker")).unwrap();
            let mut files = DiskFiles { disks: names.iter().map(open).collect(), marker };
            files.prepare(&complain);
            assert!(read_marker(&files.marker).is_empty());
            files.config().disks.iter().map(|disk| disk.id).collect()
        };
        let first = start(&["a", "b"]);
        assert_eq!(start(&["b", "a"]), [first[1], first[0]], "the order does not matter");
        assert_eq!(start(&["a"]), [first[0]]);
        let second = start(&["a", "b"]);
        assert!(second[0] == first[0] && second[1] != first[1], "{first:?} {second:?}");
        assert_eq!(start(&["a", "b"]), second);
        // The contents of one are dropped, as when it fails. It is not emptied once more.
        let renew = |name: &str| {
            let device = device(&open_file(&folder.join(name), false).unwrap()).unwrap();
            Layout::open(&device).unwrap().renew(&device, 7.0).unwrap();
            Layout::open(&device).unwrap().id
        };
        let second = vec![second[0], renew("b")];
        assert_eq!(start(&["a", "b"]), second);
        // Each of them alone.
        assert_eq!((start(&["a"]), start(&["b"])), (vec![second[0]], vec![second[1]]));
        let third = start(&["a", "b"]);
        assert!(third[0] != second[0] && third[1] != second[1], "{second:?} {third:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A store that the worker did not use before an upgrade begins empty afterwards, and one that fails is marked.
    #[test]
    fn an_upgrade_keeps_the_ids_of_stores_and_those_that_are_not_used() {
        let folder = std::env::temp_dir().join(format!("lacquer-adopted-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let complain = Complain::new(false, "test");
        let path = |name: &str| folder.join(name);
        let arguments = ["a", "b"].map(|name| parse(&format!("{},size=16m", path(name).display())).unwrap());
        let disks = arguments.iter().map(|one| one.open(&complain).unwrap()).collect();
        let marker = File::options().read(true).write(true).create_new(true).open(path("marker")).unwrap();
        let mut files = DiskFiles { disks, marker };
        let upgrade = |files: DiskFiles| {
            let (stores, DiskFiles { disks, marker }) = (files.stores(), files);
            let files = disks.into_iter().map(|disk| disk.file.into()).collect();
            DiskFiles::adopt(&arguments, files, &stores, marker.into())
        };
        files.prepare(&complain);
        let before = files.stores();
        // The worker could not open the first one.
        files.disks[0].config.refused = Some("it did not respond".to_owned());
        let mut files = upgrade(files);
        let size = path("b").metadata().unwrap().len();
        let set_size = |size| File::options().write(true).open(path("b")).unwrap().set_len(size).unwrap();
        set_size(1 << 20);
        files.prepare(&complain);
        let after = files.stores();
        assert!(after[0].refused.is_none() && after[0].id != before[0].id, "{before:?} {after:?}");
        assert!(after[1].refused.is_some(), "{after:?}");
        assert_eq!(read_marker(&files.marker), [before[1].id]);
        // It works again before the next worker starts.
        let mut files = upgrade(files);
        set_size(size);
        files.prepare(&complain);
        let last = files.stores();
        assert!(last[0].id == after[0].id && last[1].refused.is_none(), "{last:?}");
        assert_ne!(last[1].id, before[1].id);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Stores that failed begin empty, and one that cannot be read is not used until it was emptied.
    #[test]
    fn stores_that_failed_are_emptied() {
        let folder = std::env::temp_dir().join(format!("lacquer-marker-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let complain = Complain::new(false, "test");
        let path = |name: &str| folder.join(name);
        let open =
            |name| parse(&format!("{},size=16m", path(name).display())).unwrap().open(&complain).unwrap();
        let marker = File::options().read(true).write(true).create_new(true).open(path("marker")).unwrap();
        let mut files = DiskFiles { disks: vec![open("a"), open("b")], marker };
        let ids = |files: &DiskFiles| {
            let config = files.config();
            let used = config.disks.iter().filter(|disk| disk.refused.is_none());
            used.map(|disk| disk.id).collect::<Vec<u64>>()
        };
        let set_size = |size| File::options().write(true).open(path("a")).unwrap().set_len(size).unwrap();
        files.prepare(&complain);
        let before = ids(&files);
        files.prepare(&complain);
        assert_eq!(ids(&files), before);
        // Another store of the storage has failed earlier, and its id stays.
        write_marker(&files.marker, &[77, before[1]]).unwrap();
        files.prepare(&complain);
        let after = ids(&files);
        assert!(after[0] == before[0] && after[1] != before[1], "{before:?} {after:?}");
        assert_eq!(read_marker(&files.marker), [77]);
        let size = path("a").metadata().unwrap().len();
        set_size(1 << 20);
        files.prepare(&complain);
        assert_eq!(ids(&files), [after[1]]);
        assert_eq!(read_marker(&files.marker), [77, before[0]]);
        set_size(size);
        files.prepare(&complain);
        let last = ids(&files);
        assert!(last.len() == 2 && last[0] != before[0] && last[1] == after[1], "{last:?}");
        assert_eq!(read_marker(&files.marker), [77]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
