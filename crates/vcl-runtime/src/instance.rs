//! One loaded VCL: the program with everything that is prepared once and shared by all tasks that run it.

use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lacquer_http::OwnedName;
use lacquer_vcl::program::{Backend, Program};

use crate::acl::AclTable;
use crate::ctx::Ctx;
use crate::director::{BackendId, Director, Directors};
use crate::module::{Constructor, Func, Module};
use crate::regex::Regex;

/// A header name as the program writes it, with what look-ups need prepared.
#[derive(Clone, Debug)]
pub struct HeaderName {
    pub name: OwnedName,
    /// The name in lower case.
    pub lower: String,
}

impl HeaderName {
    pub fn new(name: &str) -> HeaderName {
        HeaderName { name: OwnedName::new(name), lower: name.to_ascii_lowercase() }
    }
}

/// Values that modules keep, found by type and by a key that tells apart several of one type.
#[derive(Default)]
pub struct PrivateMap {
    cells: Vec<(usize, Box<dyn Any>)>,
}

impl PrivateMap {
    /// The value, made by default when it is first asked for.
    pub fn get<T: Default + 'static>(&mut self, key: usize) -> &mut T {
        let at = match self.cells.iter().position(|(k, v)| *k == key && v.is::<T>()) {
            Some(at) => at,
            None => {
                self.cells.push((key, Box::<T>::default()));
                self.cells.len() - 1
            }
        };
        self.cells[at].1.downcast_mut::<T>().expect("the position was chosen by this type")
    }

    /// What was kept under the key, if anything was.
    pub fn peek<T: 'static>(&self, key: usize) -> Option<&T> {
        self.cells.iter().find(|(k, _)| *k == key).and_then(|(_, v)| v.downcast_ref::<T>())
    }

    pub fn clear(&mut self) {
        self.cells.clear();
    }
}

/// An object made by `new`, shared by all tasks.
pub type ObjectState = Arc<dyn Any + Send + Sync>;

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

/// A program with all that it needs at run time; shared by all threads.
pub struct Instance {
    pub name: String,
    pub program: Program,
    pub headers: Vec<HeaderName>,
    pub regexes: Vec<Regex>,
    pub acls: Vec<AclTable>,
    /// The module behind each of the program's imports.
    pub modules: Vec<&'static dyn Module>,
    /// The function behind each of the program's functions.
    pub functions: Vec<ResolvedFunction>,
    /// The constructor of each of the program's objects, and its state once vcl_init made it.
    pub constructors: Vec<Constructor>,
    pub objects: Vec<OnceLock<ObjectState>>,
    pub directors: Directors,
    /// The id of each declared backend, in the program's order.
    pub backends: Vec<BackendId>,
    pub default_backend: BackendId,
    /// The machine code of each of the program's subs, once compiled.
    subs: OnceLock<Vec<SubFn>>,
    call_states: Vec<OnceLock<Box<dyn Any + Send + Sync>>>,
    vcl_states: Mutex<Vec<(usize, Arc<dyn Any + Send + Sync>)>>,
    kept: Kept,
}

impl Instance {
    /// Prepares a program: regexes (with machine code of their own if `regex_jit`), ACLs, module functions.
    /// Next, [`add_backends`](Self::add_backends).
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
        let modules = program.imports.iter().map(|i| find(&i.module)).collect::<Result<Vec<_>, _>>()?;
        let mut functions = Vec::with_capacity(program.functions.len());
        for f in &program.functions {
            let module = modules.get(f.import as usize).ok_or("A function without its module")?;
            functions.push(resolve(*module, &f.object, &f.name)?);
        }
        let mut constructors = Vec::with_capacity(program.objects.len());
        for o in &program.objects {
            let module = modules.get(o.import as usize).ok_or("An object without its module")?;
            let found = module.objects().iter().find(|t| t.name == o.type_name);
            let missing = || format!("Module {} has no object {}", module.name(), o.type_name);
            constructors.push(found.ok_or_else(missing)?.new);
        }
        let mut regexes = Vec::with_capacity(program.regexes.len());
        for pattern in &program.regexes {
            let regex = Regex::new(pattern, regex_jit);
            regexes.push(regex.map_err(|e| format!("Regex compilation error: {e} (\"{pattern}\")"))?);
        }
        Ok(Instance {
            name: name.to_owned(),
            headers: program.headers.iter().map(|h| HeaderName::new(h)).collect(),
            regexes,
            acls: program.acls.iter().map(AclTable::new).collect(),
            modules,
            functions,
            constructors,
            objects: program.objects.iter().map(|_| OnceLock::new()).collect(),
            directors: Directors::default(),
            backends: Vec::new(),
            default_backend: BackendId::NONE,
            subs: OnceLock::new(),
            call_states: (0..program.call_sites).map(|_| OnceLock::new()).collect(),
            vcl_states: Mutex::default(),
            kept: Kept::default(),
            program,
        })
    }

    /// Makes the declared backends, in the program's order; `none` backends are no backend.
    pub fn add_backends(&mut self, mut make: impl FnMut(&Backend) -> Arc<dyn Director>) {
        for backend in &self.program.backends {
            let id = if backend.none { BackendId::NONE } else { self.directors.add(make(backend)) };
            self.backends.push(id);
        }
        let default = self.program.default_backend.and_then(|i| self.backends.get(i as usize));
        self.default_backend = default.copied().unwrap_or(BackendId::NONE);
    }

    /// Sets the machine code of the program's subs, in their order. Fails if there is some already.
    ///
    /// # Safety
    /// The code must have been made of this instance, and may be called as long as the instance can be reached.
    pub unsafe fn set_code(&self, subs: Vec<SubFn>) -> Result<(), String> {
        self.subs.set(subs).map_err(|_| "The program is compiled already".to_owned())
    }

    /// The machine code of a sub; calling it takes a context of this instance.
    pub fn sub(&self, index: u32) -> Option<SubFn> {
        self.subs.get()?.get(index as usize).copied()
    }

    /// Keeps bytes as long as this VCL, so that its tasks need not copy them (files, objects' content).
    pub fn keep(&self, bytes: &Arc<[u8]>) -> &[u8] {
        self.kept.keep(bytes)
    }

    /// The value that a module keeps for the whole VCL (PRIV_VCL), by its type and a key.
    pub fn vcl_state<T: Default + Send + Sync + 'static>(&self, key: usize) -> Arc<T> {
        let mut cells = self.vcl_states.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The value of one call site (PRIV_CALL), made at its first use.
    pub fn call_state<T: Default + Send + Sync + 'static>(&self, call_site: Option<u32>) -> Option<&T> {
        let cell = self.call_states.get(call_site? as usize)?;
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

/// Shared bytes that outlive every task of a VCL. Only ever grows, each once.
#[derive(Default)]
struct Kept(Mutex<Vec<Arc<[u8]>>>);

impl Kept {
    fn keep(&self, bytes: &Arc<[u8]>) -> &[u8] {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|held| Arc::ptr_eq(held, bytes)) {
            all.push(bytes.clone());
        }
        // SAFETY: the reference counter held above is not given up before `self` goes.
        unsafe { &*Arc::as_ptr(bytes) }
    }
}
