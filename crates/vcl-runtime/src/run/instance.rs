//! One loaded VCL: the program and all that is prepared once and shared by the tasks that run it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lacquer_names::{Name, Refresh};
use lacquer_shm::Segment;
use lacquer_shm::vsc::CounterSet;
use lacquer_vcl::program::{Backend, Program};

use super::{BackendMaker, Director, Directors, Imports, Module, ModuleStates};
use crate::acl::AclTable;
use crate::backend::BackendId;
use crate::kept::Kept;
use crate::new_backend::NewBackend;
use crate::regex::Regex;

pub use super::{Instance, ResolvedFunction, SubFn};
pub use crate::args::ObjectState;
pub use crate::header_name::HeaderName;
pub use crate::private_map::PrivateMap;

impl Instance {
    /// Prepares a program: regexes (with JIT code if `regex_jit`), ACLs, module functions.
    /// Call [`add_backends`](Self::add_backends) next.
    pub fn new(
        name: &str,
        program: Program,
        modules: &[&'static dyn Module],
        regex_jit: bool,
    ) -> Result<Instance, String> {
        let find = |wanted: &str| {
            let module = modules.iter().copied().find(|m| m.name() == wanted);
            module.ok_or_else(|| format!("There is no module {wanted}"))
        };
        let modules =
            program.modules.imports.iter().map(|i| find(&i.module)).collect::<Result<Vec<_>, _>>()?;
        let mut functions = Vec::with_capacity(program.modules.functions.len());
        for f in &program.modules.functions {
            let module = modules.get(f.import as usize).ok_or("A function without its module")?;
            functions.push(resolve(*module, &f.object, &f.name)?);
        }
        let mut constructors = Vec::with_capacity(program.modules.objects.len());
        for o in &program.modules.objects {
            let module = modules.get(o.import as usize).ok_or("An object without its module")?;
            let found = module.objects().iter().find(|t| t.name == o.type_name);
            let missing = || format!("Module {} has no object {}", module.name(), o.type_name);
            constructors.push(found.ok_or_else(missing)?.new);
        }
        let mut regexes = Vec::with_capacity(program.regexes.len());
        for pattern in &program.regexes {
            let regex = Regex::new(pattern, regex_jit);
            let regex = regex.map_err(|e| format!("Regex compilation error: {e} (\"{pattern}\")"))?;
            regexes.push(Arc::new(regex));
        }
        Ok(Instance {
            name: name.to_owned(),
            headers: program.headers.iter().map(|h| HeaderName::new(h)).collect(),
            regexes,
            acls: program.acls.iter().map(AclTable::new).collect(),
            imports: Imports { modules, functions, constructors },
            objects: program.modules.objects.iter().map(|_| OnceLock::new()).collect(),
            directors: Directors::default(),
            backends: Vec::new(),
            default_backend: BackendId::NONE,
            subs: OnceLock::new(),
            states: ModuleStates {
                call_sites: (0..program.modules.call_sites).map(|_| OnceLock::new()).collect(),
                vcl: Mutex::default(),
                bytes: Kept::default(),
                maker: OnceLock::new(),
                warnings: Mutex::default(),
            },
            program,
        })
    }

    /// Creates the declared backends in the program's order; a `none` backend gets no director.
    pub fn add_backends(&mut self, mut make: impl FnMut(&Backend) -> Arc<dyn Director>) {
        for backend in &self.program.origins.backends {
            let id = if backend.none { BackendId::NONE } else { self.directors.add(make(backend)) };
            self.backends.push(id);
        }
        let default = self.program.origins.default_backend.and_then(|i| self.backends.get(i as usize));
        self.default_backend = default.copied().unwrap_or(BackendId::NONE);
    }

    /// Sets the maker of backends and counters for modules. Only the first call has an effect.
    pub fn set_backend_maker(&self, maker: Arc<dyn BackendMaker>) {
        let _ = self.states.maker.set(maker);
    }

    /// Creates a backend, which exists until it is removed, or as long as this VCL.
    pub fn make_backend(&self, backend: NewBackend) -> Result<BackendId, String> {
        let maker = self.states.maker.get().ok_or("backends cannot be created here")?;
        Ok(self.directors.add(maker.make(self, backend)?))
    }

    /// Removes a backend. Tasks that have its id have no backend from now on.
    pub fn remove_backend(&self, id: BackendId) {
        if let Some((cell, maker)) = self.directors.remove(id).zip(self.states.maker.get()) {
            maker.retire(&*cell.director);
        }
    }

    /// Returns the regular expression with an index.
    pub fn regex(&self, index: usize) -> Option<&Regex> {
        self.regexes.get(index).map(|regex| &**regex)
    }

    /// Returns the index of a regular expression of this program.
    pub fn regex_index(&self, regex: &Regex) -> Option<usize> {
        self.regexes.iter().position(|one| std::ptr::eq(Arc::as_ptr(one), regex))
    }

    /// Returns a regular expression of this program so that it can outlive the call, such as on another thread.
    pub fn shared_regex(&self, regex: &Regex) -> Option<Arc<Regex>> {
        self.regexes.get(self.regex_index(regex)?).cloned()
    }

    /// Returns the name of a service (SRV records), whose places are looked up from now on.
    pub fn watch_service(&self, service: &str, refresh: Refresh) -> Result<Arc<Name>, String> {
        self.states.maker.get().ok_or("services cannot be looked up here")?.watch_service(service, refresh)
    }

    /// Creates the counters of a module's object, which readers call `SET.VCL.OBJECT`. They are hidden, and exist until
    /// they are dropped: a module that stores them in the object removes them with the VCL.
    pub fn make_counters<T: CounterSet>(&self, object: &str) -> Result<Segment<T>, String> {
        let maker = self.states.maker.get().ok_or("counters cannot be created here")?;
        let made = Segment::create(&maker.shared_memory()?, &format!("{}.{object}", self.name));
        let counters: Segment<T> = made.map_err(|error| error.to_string())?;
        counters.hide();
        Ok(counters)
    }

    /// Adds a warning to the reply of the command that loads this VCL. It has an effect in `vcl_init` only.
    pub fn warn(&self, text: String) {
        self.states.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// Returns the warnings of modules, and removes them.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.states.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the machine code of the program's subs, in their order. Fails if there is some already, or not one for each.
    ///
    /// # Safety
    /// The code must be compiled from this instance, and must be callable as long as the instance is reachable.
    pub unsafe fn set_code(&self, subs: Vec<SubFn>) -> Result<(), String> {
        if subs.len() != self.program.subs.len() {
            return Err(format!("{} subs have the code of {}", self.program.subs.len(), subs.len()));
        }
        self.subs.set(subs).map_err(|_| "The program is compiled already".to_owned())
    }

    /// Returns the machine code of a sub. Calling it requires a context of this instance.
    pub fn sub(&self, index: u32) -> Option<SubFn> {
        self.subs.get()?.get(index as usize).copied()
    }

    /// Stores bytes as long as this VCL lives, so that its tasks need not copy them (files, objects' content).
    pub fn keep(&self, bytes: &Arc<[u8]>) -> &[u8] {
        self.states.bytes.keep(bytes)
    }

    /// Returns the value that a module stores for the whole VCL (PRIV_VCL), by its type and a key.
    pub fn vcl_state<T: Default + Send + Sync + 'static>(&self, key: usize) -> Arc<T> {
        let mut cells = self.states.vcl.lock().unwrap_or_else(PoisonError::into_inner);
        for (k, state) in cells.iter() {
            if *k == key
                && let Ok(found) = state.clone().downcast::<T>()
            {
                return found;
            }
        }
        let made = Arc::new(T::default());
        cells.push((key, made.clone()));
        made
    }

    /// Returns the value of one call site (PRIV_CALL). Creates it at its first use.
    pub fn call_state<T: Default + Send + Sync + 'static>(&self, call_site: Option<u32>) -> Option<&T> {
        let cell = self.states.call_sites.get(call_site? as usize)?;
        cell.get_or_init(|| Box::<T>::default()).downcast_ref()
    }
}

fn resolve(module: &'static dyn Module, object: &str, name: &str) -> Result<ResolvedFunction, String> {
    let (table, full) = if object.is_empty() {
        (module.functions(), name.to_owned())
    } else {
        let found = module.objects().iter().find(|t| t.name == object);
        let missing = || format!("Module {} has no object {object}", module.name());
        (found.ok_or_else(missing)?.methods, format!("{object}.{name}"))
    };
    let found = table.iter().find(|f| f.0 == name);
    let func = found.ok_or_else(|| format!("Module {} has no function {full}", module.name()))?.1;
    Ok(ResolvedFunction { func, suspends: module.suspends().contains(&full.as_str()) })
}
