//! The storages that the worker takes over from the manager.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use lacquer_cli::link::{StorageConfig, StorageKind};
use lacquer_storage::{Arena, Kind, Stevedore};

/// Maps the storages that the manager has opened. A storage without a limit reserves `reserve` bytes of address
/// space.
pub fn inherited(configs: &[StorageConfig], reserve: u64) -> Result<Vec<Stevedore>, String> {
    let map = |(index, config): (usize, &StorageConfig)| {
        let arena = inherit_arena(config.fd, config.size, reserve)
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

/// Takes over the file of a storage and maps it.
fn inherit_arena(fd: RawFd, size: Option<u64>, reserve: u64) -> io::Result<Arc<Arena>> {
    // SAFETY: the manager keeps the file for the next worker, but neither maps nor writes it, and starts the next
    // worker only after this process has ended. In this process, the file is inherited once, and the arena does not
    // lend its descriptor.
    unsafe { Arena::from_fd(lacquer_system::inherit(fd), size, reserve) }
}
