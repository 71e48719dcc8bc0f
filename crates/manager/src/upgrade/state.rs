//! The state that a manager leaves to the program that replaces it: a file in memory, whose number is an argument of
//! that program.
//!
//! ```text
//! 0   "LQUPGRAD"   8   u32 version of this format   12  u32 version of the messages to the worker
//! 16  u64 length of the rest   24  `State` in postcard's format
//! then, if there are block stores, a list of them for each storage, which earlier programs do not write
//! then, if a worker has died and left its memory to the next one, the early deaths of workers with it (u32), likewise
//! ```
//!
//! Nothing in it is trusted before it was checked: the program that reads it may be older or newer.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lacquer_cli::link::{self, ListenAddress, VclState};
use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use crate::tls::Secrets;

/// The version of the format. A program with another one refuses the state, and the old program continues.
pub const VERSION: u32 = 3;

const MAGIC: [u8; 8] = *b"LQUPGRAD";
const HEAD: usize = 24;
/// The maximum length of the state in bytes.
const LONGEST: u64 = 1 << 30;
/// The numbers of standard input, output and error.
const STANDARD: RawFd = 3;

/// The state of a manager.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The version of the program that wrote it.
    pub version: String,
    /// The directory in which the daemon was started, to which relative paths among the options refer.
    pub directory: PathBuf,
    pub service: ServiceState,
    pub listeners: Vec<ListenerState>,
    pub storages: Vec<StorageState>,
    /// The parameters that differ from their defaults.
    pub params: Vec<(String, String)>,
    /// Programs and labels, each after those that it depends on.
    pub vcls: Vec<VclEntry>,
    pub active: Option<String>,
    pub worker: Option<WorkerState>,
    /// The early deaths of workers with the memory that the last one has left to the worker that is to be started. `None`
    /// without such memory, or if an earlier program has written the state.
    #[serde(skip)]
    pub left: Option<u32>,
    /// The secrets of TLS and QUIC. Like all of this, they are in memory only.
    pub tls: Option<Secrets>,
}

/// The parts of the state that concern the manager itself.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceState {
    pub uptime: f64,
    pub exit_status: u8,
    /// Whether a worker is to be started, because the last one died.
    pub wants_worker: bool,
    pub panic: Option<String>,
    /// The listening sockets of the management port.
    pub cli: Vec<RawFd>,
    /// The path of the secret, and its content if the manager created it.
    pub secret: Option<(PathBuf, Option<Vec<u8>>)>,
    /// The files with the process id, which are locks.
    pub locks: Vec<(PathBuf, RawFd)>,
    /// The manager's counters, in their order.
    pub counters: Vec<u64>,
}

/// A bound socket for clients.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerState {
    pub name: String,
    pub address: ListenAddress,
    pub fd: RawFd,
    pub datagrams: Vec<RawFd>,
    pub is_listening: bool,
}

/// The files of a storage.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct StorageState {
    pub name: String,
    pub method: String,
    pub size: Option<u64>,
    pub fd: RawFd,
    /// The table of objects, and the file of pins.
    pub kept: Option<(RawFd, RawFd)>,
    /// The devices of block stores, and their marker.
    pub disks: Option<(Vec<RawFd>, RawFd)>,
    /// The block stores, in the order of the devices. Empty if an earlier program has written the state.
    #[serde(skip)]
    pub stores: Vec<StoreState>,
}

/// A block store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreState {
    pub id: u64,
    /// The reason why the worker does not use it.
    pub refused: Option<String>,
}

/// A VCL program or a label.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct VclEntry {
    pub name: String,
    pub state: VclState,
    pub is_warm: bool,
    /// The program of a label.
    pub target: Option<String>,
    /// The texts of a program with their names, the main text first.
    pub sources: Vec<(String, Vec<u8>)>,
}

/// The worker, which serves clients meanwhile.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerState {
    pub pid: u32,
    pub link: RawFd,
    pub output: RawFd,
    /// The socket for the next worker.
    pub peer: Option<RawFd>,
    /// Its number, and the socket for datagrams of later workers.
    pub number: u8,
    pub datagrams: RawFd,
    pub panic: Option<RawFd>,
    /// The id of the next request.
    pub next_id: u64,
    /// The part of a message that was received.
    pub received: Vec<u8>,
    /// Whether its objects can outlive it.
    pub is_kept: bool,
}

impl State {
    /// Returns all descriptors, each once.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all: Vec<RawFd> = self.service.cli.clone();
        all.extend(self.service.locks.iter().map(|(_, fd)| *fd));
        for ListenerState { fd, datagrams, .. } in &self.listeners {
            all.push(*fd);
            all.extend(datagrams);
        }
        for StorageState { fd, kept, disks, .. } in &self.storages {
            all.push(*fd);
            all.extend(kept.iter().flat_map(|&(records, pins)| [records, pins]));
            all.extend(disks.iter().flat_map(|(files, marker)| files.iter().chain([marker])));
        }
        if let Some(WorkerState { link, output, peer, datagrams, panic, .. }) = &self.worker {
            all.extend([*link, *output, *datagrams]);
            all.extend(peer.iter().chain(panic));
        }
        all
    }

    /// Writes the state to a file in memory.
    pub fn write(&self) -> std::io::Result<File> {
        let mut body = postcard::to_stdvec(self).map_err(std::io::Error::other)?;
        if self.has_stores() || self.left.is_some() && self.has_disks() {
            let stores: Vec<&[StoreState]> = self.storages.iter().map(|storage| &*storage.stores).collect();
            body.extend(postcard::to_stdvec(&stores).map_err(std::io::Error::other)?);
        }
        if let Some(early_deaths) = &self.left {
            body.extend(postcard::to_stdvec(early_deaths).map_err(std::io::Error::other)?);
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(link::VERSION.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        let file = File::from(rustix::fs::memfd_create("upgrade", MemfdFlags::CLOEXEC)?);
        file.write_all_at(&bytes, 0)?;
        Ok(file)
    }

    /// Reads a state that another program wrote. Fails if it is damaged or has another version.
    pub fn read(file: &File) -> Result<State, String> {
        let length = file.metadata().map_or(0, |found| found.len());
        if length < HEAD as u64 || length > LONGEST {
            return Err(format!("it has {length} bytes"));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0).map_err(|error| error.to_string())?;
        let (head, body) = bytes.split_at(HEAD);
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = u64::from(number(16)) | u64::from(number(20)) << 32;
        if head[..8] != MAGIC || length != body.len() as u64 {
            return Err("it is damaged".to_owned());
        }
        for (found, known, what) in [(number(8), VERSION, "format"), (number(12), link::VERSION, "messages")]
        {
            if found != known {
                return Err(format!(
                    "its {what} have version {found}, and this program supports version {known}: restart the daemon"
                ));
            }
        }
        let damaged = |error: postcard::Error| format!("it is damaged: {error}");
        let (mut state, mut rest): (State, &[u8]) = postcard::take_from_bytes(body).map_err(damaged)?;
        if !rest.is_empty() && state.has_disks() {
            let stores: Vec<Vec<StoreState>>;
            (stores, rest) = postcard::take_from_bytes(rest).map_err(damaged)?;
            for (storage, stores) in state.storages.iter_mut().zip(stores) {
                storage.stores = stores;
            }
        }
        if !rest.is_empty() && state.service.wants_worker && state.worker.is_none() {
            let early_deaths;
            (early_deaths, rest) = postcard::take_from_bytes(rest).map_err(damaged)?;
            state.left = Some(early_deaths);
        }
        if !rest.is_empty() {
            return Err("it is damaged: it is too long".to_owned());
        }
        state.check()?;
        Ok(state)
    }

    fn has_disks(&self) -> bool {
        self.storages.iter().any(|storage| storage.disks.is_some())
    }

    fn has_stores(&self) -> bool {
        self.storages.iter().any(|storage| !storage.stores.is_empty())
    }

    /// Checks that each descriptor is open and occurs once.
    fn check(&self) -> Result<(), String> {
        let mut seen = HashSet::new();
        for fd in self.descriptors() {
            let is_open = Path::new("/proc/self/fd").join(fd.to_string()).symlink_metadata().is_ok();
            if fd < STANDARD || !seen.insert(fd) || !is_open {
                return Err(format!("its descriptor {fd} is not open, or occurs twice"));
            }
        }
        let is_number = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        if !is_number(self.service.uptime) || self.worker.as_ref().is_some_and(|worker| worker.pid == 0) {
            return Err("it is damaged: a number is out of range".to_owned());
        }
        Ok(())
    }
}

/// Takes ownership of a descriptor of a state that was read.
pub fn take(fd: RawFd) -> std::io::Result<OwnedFd> {
    let owned = lacquer_system::inherit(fd);
    fcntl_setfd(&owned, FdFlags::CLOEXEC)?;
    Ok(owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            version: "1".into(),
            directory: "/".into(),
            service: ServiceState::default(),
            listeners: Vec::new(),
            storages: Vec::new(),
            params: vec![("default_ttl".into(), "7".into())],
            vcls: Vec::new(),
            active: None,
            worker: None,
            left: None,
            tls: Some(Secrets::new([7; 32], 1.8e9)),
        }
    }

    fn bytes(state: &State) -> Vec<u8> {
        let file = state.write().unwrap();
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<State, String> {
        let file = File::from(rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(bytes, 0).unwrap();
        State::read(&file)
    }

    #[test]
    fn damaged_states_are_refused_in_one_line() {
        let good = bytes(&state());
        assert_eq!(read(&good).unwrap(), state());
        for length in 0..good.len() {
            let why = read(&good[..length]).unwrap_err();
            assert!(!why.contains('\n'), "{why}");
        }
        let mut longer = good.clone();
        longer.push(0);
        read(&longer).unwrap_err();
        longer[16] += 1;
        assert!(read(&longer).unwrap_err().contains("too long"));
        for (at, what) in [(8, "format"), (12, "messages")] {
            let mut other = good.clone();
            other[at] = 99;
            assert!(read(&other).unwrap_err().contains(&format!("its {what} have version 99")), "{at}");
        }
        // No damage makes it panic or take much memory.
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut other = good.clone();
                other[at] ^= 1 << bit;
                let _ = read(&other);
            }
        }
    }

    /// A state of an earlier program ends before the list of block stores.
    #[test]
    fn block_stores_are_read_if_they_are_there() {
        let file = File::open("/dev/null").unwrap();
        let copies: Vec<File> = (0..4).map(|_| file.try_clone().unwrap()).collect();
        let fds: Vec<RawFd> = copies.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
        let storage = |name: &str, fd, disks, stores| StorageState {
            name: name.into(),
            method: "disk".into(),
            size: None,
            fd,
            kept: None,
            disks,
            stores,
        };
        let store = StoreState { id: 7, refused: Some("it is gone".into()) };
        let with = |stores| State {
            storages: vec![
                storage("a", fds[0], None, Vec::new()),
                storage("b", fds[1], Some((vec![fds[2]], fds[3])), stores),
            ],
            ..state()
        };
        let (earlier, later) = (bytes(&with(Vec::new())), bytes(&with(vec![store.clone()])));
        assert_eq!(earlier[HEAD..], later[HEAD..earlier.len()]);
        assert_eq!(read(&earlier).unwrap(), with(Vec::new()));
        assert_eq!(read(&later).unwrap(), with(vec![store]));
        for length in (0..later.len()).filter(|&length| length != earlier.len()) {
            let mut short = later[..length].to_vec();
            if let Some(field) = short.get_mut(16..HEAD) {
                field.copy_from_slice(&(length.saturating_sub(HEAD) as u64).to_le_bytes());
            }
            assert!(read(&short).is_err(), "{length}");
        }
    }

    #[test]
    fn memory_that_is_left_to_the_next_worker_is_read_behind_the_stores() {
        let file = File::open("/dev/null").unwrap();
        let (copy, marker) = (file.try_clone().unwrap(), file.try_clone().unwrap());
        let [fd, copy, marker] = [&file, &copy, &marker].map(std::os::fd::AsRawFd::as_raw_fd);
        for disks in [None, Some((vec![copy], marker))] {
            let mut with = state();
            with.storages.push(StorageState {
                name: "a".into(),
                method: "disk".into(),
                size: None,
                fd,
                kept: None,
                disks,
                stores: Vec::new(),
            });
            with.service.wants_worker = true;
            let earlier = bytes(&with);
            with.left = Some(300);
            let later = bytes(&with);
            assert_eq!(read(&later).unwrap(), with);
            assert_eq!(later[HEAD..earlier.len()], earlier[HEAD..]);
            with.left = None;
            assert_eq!(read(&earlier).unwrap(), with);
            with.service.wants_worker = false;
            with.left = Some(300);
            assert!(read(&bytes(&with)).unwrap_err().contains("too long"), "there is nothing to start");
        }
    }

    #[test]
    fn descriptors_must_be_open_and_distinct() {
        let mut with = state();
        for cli in [vec![0], vec![-1], vec![99_999]] {
            with.service.cli = cli;
            assert!(read(&bytes(&with)).unwrap_err().contains("is not open"));
        }
        let file = File::open("/dev/null").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        with.service.cli = vec![fd];
        read(&bytes(&with)).unwrap();
        with.service.locks = vec![("/x".into(), fd)];
        assert!(read(&bytes(&with)).unwrap_err().contains("twice"));
        with.service.locks.clear();
        with.service.uptime = f64::NAN;
        assert!(read(&bytes(&with)).unwrap_err().contains("out of range"));
    }
}
