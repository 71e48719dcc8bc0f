//! A storage by name: what `-s` configured, what `storage.<name>` and `beresp.storage` speak of.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::{Arena, Counters};

/// Kind of a storage, as named with `-s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Malloc,
    File,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::File => "file",
        }
    }
}

/// A configured storage.
#[derive(Clone, Debug)]
pub struct Stevedore {
    /// `storage.NAME`.
    vcl_name: Box<str>,
    kind: Kind,
    index: u8,
    arena: Arc<Arena>,
}

impl Stevedore {
    /// `index` is the storage's number in the worker's table; objects remember it.
    pub fn new(name: &str, kind: Kind, index: u8, arena: Arc<Arena>) -> Self {
        Self { vcl_name: format!("storage.{name}").into(), kind, index, arena }
    }

    /// The user's name for it ("s0", "Transient").
    pub fn name(&self) -> &str {
        &self.vcl_name["storage.".len()..]
    }

    /// The name as a value of VCL.
    pub fn vcl_name(&self) -> &str {
        &self.vcl_name
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its number in the worker's table.
    pub fn index(&self) -> u8 {
        self.index
    }

    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub fn counters(&self) -> &Counters {
        self.arena.counters()
    }

    /// Bytes that objects take.
    pub fn used_space(&self) -> u64 {
        self.arena.used()
    }

    /// Bytes left; without a limit, what an INTEGER of VCL can hold at most.
    pub fn free_space(&self) -> u64 {
        match self.arena.limit() {
            Some(_) => self.counters().g_space.load(Ordering::Relaxed),
            None => (i64::MAX as u64) - self.arena.used(),
        }
    }

    /// VCL's `storage.NAME.happy`: memory always is.
    pub fn happy(&self) -> bool {
        true
    }
}
