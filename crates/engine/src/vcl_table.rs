//! The VCLs that this worker has loaded, their labels, and the active one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use lacquer_cli::link::VclState;
use lacquer_shm::vsm::Cluster;
use lacquer_vcl_native::LoadedVcl;
use parking_lot::{Mutex, RwLock};

use crate::backends::Origin;
use crate::activity::ProgramMark;

/// One loaded program.
pub struct Vcl {
    pub name: String,
    pub loaded: LoadedVcl,
    pub mark: ProgramMark,
    /// The backends it declares.
    pub origins: Vec<Arc<Origin>>,
    /// The counters of the backends, shown for as long as this lives.
    _room: Option<Cluster>,
    state: Mutex<VclState>,
    temperature: AtomicU8,
    busy: AtomicU32,
    fini_done: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Temperature {
    Init = 0,
    Cold,
    Warm,
    Busy,
    Cooling,
}

impl Temperature {
    pub const fn word(self) -> &'static str {
        match self {
            Temperature::Init => "init",
            Temperature::Cold => "cold",
            Temperature::Warm => "warm",
            Temperature::Busy => "busy",
            Temperature::Cooling => "cooling",
        }
    }
}

impl Vcl {
    pub fn new(
        name: String,
        loaded: LoadedVcl,
        (origins, room): (Vec<Arc<Origin>>, Option<Cluster>),
        state: VclState,
    ) -> Vcl {
        Vcl {
            name,
            loaded,
            mark: ProgramMark::next(),
            origins,
            _room: room,
            state: Mutex::new(state),
            temperature: AtomicU8::new(Temperature::Init as u8),
            busy: AtomicU32::new(0),
            fini_done: AtomicBool::new(false),
        }
    }

    pub fn state(&self) -> VclState {
        *self.state.lock()
    }

    pub fn set_state(&self, state: VclState) {
        *self.state.lock() = state;
    }

    pub fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    pub fn temperature(&self) -> Temperature {
        match self.temperature.load(Ordering::Relaxed) {
            0 => Temperature::Init,
            1 => Temperature::Cold,
            2 => Temperature::Warm,
            3 => Temperature::Busy,
            _ => Temperature::Cooling,
        }
    }

    pub fn set_temperature(&self, to: Temperature) {
        self.temperature.store(to as u8, Ordering::Relaxed);
    }

    /// Returns true for the one caller that has to run `vcl_fini`.
    pub fn claim_fini(&self) -> bool {
        !self.fini_done.swap(true, Ordering::Relaxed)
    }
}

/// A reactor's or a task's hold on a VCL. While one exists the VCL is busy.
pub struct VclRef(Arc<Vcl>);

impl VclRef {
    pub fn new(vcl: Arc<Vcl>) -> VclRef {
        vcl.busy.fetch_add(1, Ordering::Relaxed);
        VclRef(vcl)
    }
}

impl std::ops::Deref for VclRef {
    type Target = Vcl;
    fn deref(&self) -> &Vcl {
        &self.0
    }
}

impl Drop for VclRef {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
pub enum Entry {
    Program(Arc<Vcl>),
    Label { name: String, target: Arc<Vcl> },
}

impl Entry {
    pub fn name(&self) -> &str {
        match self {
            Entry::Program(v) => &v.name,
            Entry::Label { name, .. } => name,
        }
    }

    pub fn program(&self) -> &Arc<Vcl> {
        match self {
            Entry::Program(v) => v,
            Entry::Label { target, .. } => target,
        }
    }
}

#[derive(Default)]
struct Inner {
    entries: Vec<Entry>,
    active: Option<String>,
    /// Programs that were discarded but are still in use by some task.
    leaving: Vec<Arc<Vcl>>,
}

#[derive(Default)]
pub struct VclTable {
    inner: RwLock<Inner>,
    generation: AtomicU64,
    /// Wakes reactors when another VCL is active or one has gone.
    pub changes: tokio::sync::Notify,
}

impl VclTable {
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
        self.changes.notify_waiters();
    }

    pub fn active(&self) -> Option<Arc<Vcl>> {
        let inner = self.inner.read();
        let name = inner.active.as_ref()?;
        inner.entries.iter().find(|e| e.name() == name).map(|e| e.program().clone())
    }

    pub fn active_name(&self) -> Option<String> {
        self.inner.read().active.clone()
    }

    pub fn find(&self, name: &str) -> Option<Entry> {
        self.inner.read().entries.iter().find(|e| e.name() == name).cloned()
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.inner.read().entries.clone()
    }

    /// Returns the name of the program that has this mark.
    pub fn name_of(&self, mark: ProgramMark) -> Option<String> {
        let inner = self.inner.read();
        let programs = inner.entries.iter().map(Entry::program).chain(&inner.leaving);
        programs.into_iter().find(|vcl| vcl.mark == mark).map(|vcl| vcl.name.clone())
    }

    /// Returns the discarded programs that tasks still hold.
    pub fn leaving(&self) -> Vec<Arc<Vcl>> {
        self.inner.read().leaving.clone()
    }

    pub fn add(&self, vcl: Arc<Vcl>) {
        self.inner.write().entries.push(Entry::Program(vcl));
    }

    /// Makes or moves a label.
    pub fn label(&self, label: &str, target: Arc<Vcl>) {
        let mut inner = self.inner.write();
        let entry = Entry::Label { name: label.to_owned(), target };
        match inner.entries.iter_mut().find(|e| e.name() == label) {
            Some(old) => *old = entry,
            None => inner.entries.push(entry),
        }
        drop(inner);
        self.changed();
    }

    pub fn use_for_new(&self, name: &str) {
        self.inner.write().active = Some(name.to_owned());
        self.changed();
    }

    /// Removes an entry. Its program stays until the last task that runs it has ended.
    pub fn discard(&self, name: &str) -> Option<Entry> {
        let mut inner = self.inner.write();
        let at = inner.entries.iter().position(|e| e.name() == name)?;
        let entry = inner.entries.remove(at);
        if let Entry::Program(vcl) = &entry {
            inner.leaving.push(vcl.clone());
        }
        drop(inner);
        self.changed();
        Some(entry)
    }

    /// Cools programs that were asked to, and returns discarded ones that nobody runs any more. Their end runs
    /// `vcl_fini` and may free thousands of regexes and backends, so it must not happen on a reactor: a program ends
    /// only when no task holds a reference.
    #[must_use = "they are to be finished"]
    pub fn reap(&self) -> Vec<Arc<Vcl>> {
        let mut gone = Vec::new();
        if !self.inner.read().leaving.is_empty() {
            let mut inner = self.inner.write();
            let (free, busy) =
                inner.leaving.drain(..).partition(|v| v.busy() == 0 && Arc::strong_count(v) == 1);
            inner.leaving = busy;
            gone = free;
        }
        gone.retain(|vcl| vcl.claim_fini());
        for entry in &self.inner.read().entries {
            if let Entry::Program(vcl) = entry
                && vcl.temperature() == Temperature::Cooling
                && vcl.busy() == 0
            {
                vcl.set_temperature(Temperature::Cold);
            }
        }
        gone
    }
}
