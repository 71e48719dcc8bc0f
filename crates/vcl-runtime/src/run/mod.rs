//! A loaded VCL and a run of it. The types here name each other: a run has the program, the program has modules and
//! directors, and their functions take the run they work for. Each type's own functions are in a file below.

pub mod ctx;
pub mod director;
pub mod instance;
pub mod module;

use std::any::Any;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use lacquer_vcl::program::Program;

use crate::acl::AclTable;
use crate::args::{Args, ModuleError, ObjectState};
use crate::backend::{BackendId, Health};
use crate::header_name::HeaderName;
use crate::host::{Host, LocalFuture};
use crate::kept::Kept;
use crate::regex::Regex;
use crate::value::Value;

/// The coroutine that VCL runs on, which can be suspended. The code generator's crate makes it. A context, or its
/// holder, may keep it longer than the coroutine runs; then a wait is an error.
pub trait Suspend {
    /// Gives the future to the reactor and comes back when it is done, or when the run is being given up.
    fn wait(&self, work: LocalFuture<'_, ()>);
}

/// `'a` is the run: the host is borrowed and values handed to VCL live that long. Compiled code reads the first
/// two fields by place.
#[repr(C)]
pub struct Ctx<'a> {
    /// The code of an action (`Fail` after a failure) once the run has to end. Compiled code looks after
    /// every call that can set it.
    pub handling: u32,
    /// Not zero while `VCL_trace` records are wanted.
    pub trace: u32,
    pub host: &'a mut dyn Host,
    pub vcl: &'a Instance,
    suspend: Option<Rc<dyn Suspend>>,
    /// Subs under way that can be called dynamically.
    active: Vec<u32>,
}

/// A program with all that it needs at run time; shared by all threads.
pub struct Instance {
    pub name: String,
    pub program: Program,
    pub headers: Vec<HeaderName>,
    pub regexes: Vec<Regex>,
    pub acls: Vec<AclTable>,
    pub imports: Imports,
    /// The state of each of the program's objects, once vcl_init made it.
    pub objects: Vec<OnceLock<ObjectState>>,
    pub directors: Directors,
    /// The id of each declared backend, in the program's order.
    pub backends: Vec<BackendId>,
    pub default_backend: BackendId,
    /// The machine code of each of the program's subs, once compiled.
    subs: OnceLock<Vec<SubFn>>,
    states: ModuleStates,
}

/// What a program takes from modules, each in the program's order.
pub struct Imports {
    /// The module behind each import.
    pub modules: Vec<&'static dyn Module>,
    /// The function behind each function that is called.
    pub functions: Vec<ResolvedFunction>,
    /// The constructor of each object.
    pub constructors: Vec<Constructor>,
}

/// Values that modules keep as long as the program.
struct ModuleStates {
    /// Of each call site (PRIV_CALL).
    call_sites: Vec<OnceLock<Box<dyn Any + Send + Sync>>>,
    /// Of the whole VCL (PRIV_VCL), by type and key.
    vcl: Mutex<Vec<(usize, Arc<dyn Any + Send + Sync>)>>,
    bytes: Kept,
}

/// A compiled subroutine: takes the context, returns an action's code or 0. The context must be of the instance
/// that the code was made of.
pub type SubFn = for<'a, 'b> unsafe extern "C" fn(&'b mut Ctx<'a>) -> u32;

/// A module function that the program calls.
#[derive(Clone, Copy)]
pub struct ResolvedFunction {
    pub func: Func,
    /// It may wait ([`Module::suspends`]).
    pub suspends: bool,
}

pub type Func = for<'a> fn(&mut Ctx<'a>, &Args<'a>) -> Result<Value<'a>, ModuleError>;
/// Makes an object; its VCL name is in the arguments.
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
    Warm,
    Cold,
    Discard,
}

/// A module as the compiler and compiled code use it; see [`module`] for how to write one.
pub trait Module: Sync + Send {
    fn name(&self) -> &'static str;
    /// `$Function`, `$Object`, `$Method`, `$Restrict` lines in the notation of vmod interface files.
    fn signatures(&self) -> &'static str;
    fn functions(&self) -> &'static [(&'static str, Func)];
    fn objects(&self) -> &'static [ObjectType] {
        &[]
    }
    /// Names of functions (or `object.method`) that may call [`Ctx::block_on`].
    fn suspends(&self) -> &'static [&'static str] {
        &[]
    }
    fn event(&self, _vcl: &Instance, _event: Event) -> Result<(), ModuleError> {
        Ok(())
    }
}

/// A backend (leaf) or something that chooses among others.
pub trait Director: Send + Sync {
    /// The name in VCL.
    fn name(&self) -> &str;
    /// "backend", "round-robin", "fallback", "random", "hash", "shard", …
    fn kind(&self) -> &'static str;
    /// One step of the choice: a leaf returns `me`, a director one of its own; `NONE` if nothing can serve.
    fn resolve(&self, ctx: &mut Ctx<'_>, me: BackendId) -> BackendId;
    /// Health as probes and the directors below see it; the administrator's word is applied by [`Directors`].
    fn healthy(&self, vcl: &Instance) -> Health;
    /// Health for the task at hand; directors that judge by the object override it.
    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        self.healthy(ctx.vcl)
    }
    /// Returns whether it judges health at all. If not, it counts as healthy.
    fn judges(&self) -> bool {
        true
    }
    /// Text for `backend.list`: the "Probe" column; with `details` the `-p` text, or nothing. `json` asks
    /// for a JSON value.
    fn list(&self, vcl: &Instance, details: bool, json: bool) -> String;
    fn as_any(&self) -> &dyn Any;
}

/// One row of a VCL's table of directors.
pub struct DirectorCell {
    pub director: Arc<dyn Director>,
    admin: AtomicU8,
    /// The time when it was made or the administrator last changed its health, as the bits of a double.
    admin_changed: AtomicU64,
}

/// The directors of one loaded VCL. Rows are only ever added, so an id stays valid as long as the VCL.
#[derive(Default)]
pub struct Directors {
    cells: RwLock<Vec<Arc<DirectorCell>>>,
}
