//! A loaded VCL and a run of it. These types refer to each other: a run has the program, the program has modules and
//! directors, and their functions have the run as parameter. The submodules contain the functions of each type.

pub mod ctx;
pub mod director;
pub mod instance;
pub mod module;

use std::any::Any;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use lacquer_names::{Name, Refresh};
use lacquer_shm::VsmDir;
use lacquer_vcl::program::Program;

use crate::acl::AclTable;
use crate::args::{Args, ModuleError, ObjectState};
use crate::backend::{BackendId, Health, Load};
use crate::header_name::HeaderName;
use crate::host::{Host, LocalFuture};
use crate::kept::Kept;
use crate::new_backend::NewBackend;
use crate::regex::Regex;
use crate::value::Value;

/// The coroutine that VCL runs on, which can be suspended. The code generator's crate implements it. A context may hold
/// it longer than the coroutine runs; a wait is then an error.
pub trait Suspend {
    /// Passes the future to the reactor. Returns when it is done, or when the run is being given up.
    fn wait(&self, work: LocalFuture<'_, ()>);
}

/// The context of a run. `'a` is the run: the host is borrowed and VCL's values live that long. Compiled code reads the
/// first two fields by their offset.
#[repr(C)]
pub struct Ctx<'a> {
    /// The code of an action (`Fail` after a failure) if the run has to end. Compiled code checks it after
    /// every call that can set it.
    pub handling: u32,
    /// Not zero if the host receives trace points; [`Ctx::LOGS_POINTS`] if VCL has enabled their records.
    pub trace: u32,
    pub host: &'a mut dyn Host,
    pub vcl: &'a Instance,
    suspend: Option<Rc<dyn Suspend>>,
    /// The running subs that can be called dynamically, the outermost first.
    active: Vec<ActiveSub>,
}

/// A running sub that can be called dynamically.
struct ActiveSub {
    index: u32,
    /// An address in the frame of its call.
    frame: usize,
}

/// A program with all its state at run time; shared by all threads.
pub struct Instance {
    pub name: String,
    pub program: Program,
    pub headers: Vec<HeaderName>,
    pub regexes: Vec<Arc<Regex>>,
    pub acls: Vec<AclTable>,
    pub imports: Imports,
    /// The state of each of the program's objects after vcl_init.
    pub objects: Vec<OnceLock<ObjectState>>,
    pub directors: Directors,
    /// The id of each declared backend, in the program's order.
    pub backends: Vec<BackendId>,
    pub default_backend: BackendId,
    /// The machine code of each of the program's subs, after compilation.
    subs: OnceLock<Vec<SubFn>>,
    states: ModuleStates,
}

/// The parts of modules that a program uses, each in the program's order.
pub struct Imports {
    /// The module of each import.
    pub modules: Vec<&'static dyn Module>,
    /// The implementation of each function that the program calls.
    pub functions: Vec<ResolvedFunction>,
    /// The constructor of each object.
    pub constructors: Vec<Constructor>,
}

/// Values that modules keep for the lifetime of the program.
struct ModuleStates {
    /// The value of each call site (PRIV_CALL).
    call_sites: Vec<OnceLock<Box<dyn Any + Send + Sync>>>,
    /// The values of the whole VCL (PRIV_VCL), by type and key.
    vcl: Mutex<Vec<(usize, Arc<dyn Any + Send + Sync>)>>,
    bytes: Kept,
    maker: OnceLock<Arc<dyn BackendMaker>>,
    /// Warnings for the user, before the program is loaded.
    warnings: Mutex<Vec<String>>,
}

/// Creates backends and counters for a program, at the request of modules. The worker implements it.
pub trait BackendMaker: Send + Sync {
    /// Returns the director of a new backend. The caller adds it to the program's directors.
    fn make(&self, vcl: &Instance, backend: NewBackend) -> Result<Arc<dyn Director>, String>;
    /// Ends the probes of a backend that was removed from the program's directors.
    fn retire(&self, _director: &dyn Director) {}
    /// Returns the name of a service (SRV records), whose places are looked up from now on.
    fn watch_service(&self, service: &str, refresh: Refresh) -> Result<Arc<Name>, String>;
    /// Returns the shared memory, to which [`Instance::make_counters`] adds counters.
    fn shared_memory(&self) -> Result<VsmDir, String>;
}

/// A compiled subroutine. Its argument is the context; it returns an action's code or 0. The context must belong to
/// the instance that the code was compiled from.
pub type SubFn = for<'a, 'b> unsafe extern "C" fn(&'b mut Ctx<'a>) -> u32;

/// A module function that the program calls.
#[derive(Clone, Copy)]
pub struct ResolvedFunction {
    pub func: Func,
    /// Whether it may wait ([`Module::suspends`]).
    pub suspends: bool,
}

pub type Func = for<'a> fn(&mut Ctx<'a>, &Args<'a>) -> Result<Value<'a>, ModuleError>;
/// Creates an object. Its VCL name is in the arguments.
pub type Constructor = for<'a> fn(&mut Ctx<'a>, &Args<'a>) -> Result<ObjectState, ModuleError>;

/// An object type: the constructor and the methods by name.
pub struct ObjectType {
    pub name: &'static str,
    pub new: Constructor,
    pub methods: &'static [(&'static str, Func)],
}

/// Events in the life of a loaded VCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Load,
    /// The end of vcl_init, at which all objects exist.
    Initialized,
    Warm,
    Cold,
    Discard,
}

/// A module, as used by the compiler and compiled code. [`module`] describes how to write one.
pub trait Module: Sync + Send {
    fn name(&self) -> &'static str;
    fn functions(&self) -> &'static [(&'static str, Func)];
    fn objects(&self) -> &'static [ObjectType] {
        &[]
    }
    /// Returns the names of functions (or `object.method`) that may call [`Ctx::block_on`].
    fn suspends(&self) -> &'static [&'static str] {
        &[]
    }
    fn event(&self, _vcl: &Instance, _event: Event) -> Result<(), ModuleError> {
        Ok(())
    }
}

/// A backend, or a director that selects one of others.
pub trait Director: Send + Sync {
    /// Returns the name in VCL.
    fn name(&self) -> &str;
    /// Returns "backend", "round-robin", "fallback", "random", "hash", "shard", …
    fn kind(&self) -> &'static str;
    /// Makes one step of the selection: a backend returns `me`, a director one of its own; `NONE` if none can serve.
    fn resolve(&self, ctx: &mut Ctx<'_>, me: BackendId) -> BackendId;
    /// Returns the health according to probes and lower directors. [`Directors`] applies the administrator's setting.
    fn healthy(&self, vcl: &Instance) -> Health;
    /// Returns the health for the current task. Directors with a health per object override it.
    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        self.healthy(ctx.vcl)
    }
    /// Returns whether the director determines a health of its own. If not, it counts as healthy.
    fn determines_health(&self) -> bool {
        true
    }
    /// Returns the backends among which it selects. A backend has none.
    fn members(&self) -> Vec<BackendId> {
        Vec::new()
    }
    /// Returns the reason why it is sick itself, if it is and knows one.
    fn sickness(&self) -> Option<String> {
        None
    }
    /// Returns the use of the backend. That of a director is not known.
    fn load(&self) -> Load {
        Load::default()
    }
    /// Returns the text for `backend.list`: the "Probe" column, or with `details` the text for `-p`, possibly empty.
    /// With `json`, returns a JSON value.
    fn list(&self, vcl: &Instance, details: bool, json: bool) -> String;
    /// Returns the names whose addresses the backend uses: those of its own host and of the one it connects through.
    fn host_names(&self) -> Vec<Arc<Name>> {
        Vec::new()
    }
    /// Ends or resumes the lookups and probes of a backend that uses names. It is sick meanwhile.
    fn set_resting(&self, _is_resting: bool) -> Result<(), String> {
        Ok(())
    }
    fn as_any(&self) -> &dyn Any;
}

/// One row of a VCL's table of directors.
pub struct DirectorCell {
    pub director: Arc<dyn Director>,
    admin: AtomicU8,
    /// The time when it was created or the administrator last changed its health, as the bits of a double.
    admin_changed: AtomicU64,
    retry_debt: AtomicU32,
}

/// The directors of one loaded VCL. An id is never used again: that of a removed director belongs to none.
#[derive(Default)]
pub struct Directors {
    cells: RwLock<Vec<Option<Arc<DirectorCell>>>>,
}
