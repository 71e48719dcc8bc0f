//! The storages that the worker takes over from the manager.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lacquer_cli::link::{RecordsConfig, StorageConfig, StorageKind};
use lacquer_storage::{Arena, KeptFiles, Kind, Stevedore};

/// The mapped storages.
pub struct Storages {
    pub stevedores: Vec<Stevedore>,
    /// The files of pins, with the numbers of the storages that are kept.
    pub pins: Vec<(usize, OwnedFd)>,
}

/// Maps the storages that the manager has opened. A storage without a limit reserves `reserve` bytes of address
/// space.
pub fn inherited(configs: &[StorageConfig], reserve: u64) -> Result<Storages, String> {
    let mut all = Storages { stevedores: Vec::new(), pins: Vec::new() };
    for (index, config) in configs.iter().enumerate() {
        let fault = |e| format!("storage {}: cannot map descriptor {}: {e}", config.name, config.fd);
        let pins = config.records.map(|records| lacquer_system::inherit(records.pins_fd));
        let arena = inherit_arena(config, pins.as_ref(), reserve).map_err(fault)?;
        let kind = match config.kind {
            StorageKind::Malloc => Kind::Malloc,
            StorageKind::File(_) => Kind::File,
            StorageKind::Disk(_) => Kind::Disk,
        };
        all.stevedores.push(Stevedore::new(&config.name, kind, index as u8, arena));
        all.pins.extend(pins.map(|pins| (index, pins)));
    }
    Ok(all)
}

/// Takes over the files of a storage and maps them.
fn inherit_arena(config: &StorageConfig, pins: Option<&OwnedFd>, reserve: u64) -> io::Result<Arc<Arena>> {
    let file = lacquer_system::inherit(config.fd);
    let pins = pins.map(OwnedFd::try_clone).transpose()?;
    // SAFETY: the manager keeps the files for the next worker, but neither maps nor writes them, and starts the next
    // worker only after this process has ended, or after it has replied to `HandOver`, and has frozen the arena. In this
    // process, each file is inherited once, and the arena does not lend its descriptors.
    unsafe {
        match config.records {
            None => Arena::from_fd(file, config.size, reserve),
            Some(RecordsConfig { fd, take_over, predecessor, is_pinned, pins_fd: _ }) => {
                let files = KeptFiles {
                    arena: file,
                    records: lacquer_system::inherit(fd),
                    take_over,
                    predecessor: predecessor.map(lacquer_system::inherit),
                    pins: pins.filter(|_| is_pinned),
                };
                Arena::kept(files, config.size, reserve)
            }
        }
    }
}
