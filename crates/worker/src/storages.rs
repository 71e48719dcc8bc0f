//! The storages that the worker takes over from the manager.
#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;

use lacquer_cli::link::{RecordsConfig, StorageConfig, StorageKind};
use lacquer_storage::{Arena, KeptFiles, Kind, Stevedore};

/// Maps the storages that the manager has opened. A storage without a limit reserves `reserve` bytes of address
/// space.
pub fn inherited(configs: &[StorageConfig], reserve: u64) -> Result<Vec<Stevedore>, String> {
    let map = |(index, config): (usize, &StorageConfig)| {
        let arena = inherit_arena(config, reserve)
            .map_err(|e| format!("storage {}: cannot map descriptor {}: {e}", config.name, config.fd))?;
        let kind = match config.kind {
            StorageKind::Malloc => Kind::Malloc,
            StorageKind::File(_) => Kind::File,
            StorageKind::Disk(_) => Kind::Disk,
        };
        Ok(Stevedore::new(&config.name, kind, index as u8, arena))
    };
    configs.iter().enumerate().map(map).collect()
}

/// Takes over the files of a storage and maps them.
fn inherit_arena(config: &StorageConfig, reserve: u64) -> io::Result<Arc<Arena>> {
    let file = lacquer_system::inherit(config.fd);
    // SAFETY: the manager keeps the files for the next worker, but neither maps nor writes them, and starts the next
    // worker only after this process has ended. In this process, each file is inherited once, and the arena does not
    // lend its descriptors.
    unsafe {
        match config.records {
            None => Arena::from_fd(file, config.size, reserve),
            Some(RecordsConfig { fd, take_over }) => {
                let records = lacquer_system::inherit(fd);
                let files = KeptFiles { arena: file, records, take_over, predecessor: None, pins: None };
                Arena::kept(files, config.size, reserve)
            }
        }
    }
}
