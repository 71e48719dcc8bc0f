//! One loaded VCL: the program with everything that is prepared once and shared by all tasks that run it.

use std::any::Any;
use std::sync::{Arc, Mutex, RwLock};

use lacquer_vcl::program::Program;

use crate::director::{BackendId, Directors};
use crate::module::Module;

/// A header name as the program writes it, with what look-ups need prepared.
#[derive(Clone, Debug)]
pub struct HeaderName {
    pub name: String,
}

/// Values that modules keep, by key: a static address of the module's choice.
#[derive(Default)]
pub struct PrivateMap {
    cells: Vec<(usize, Box<dyn Any>)>,
}

impl PrivateMap {
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

    pub fn clear(&mut self) {
        self.cells.clear();
    }
}

/// An object made by `new`, shared by all tasks.
pub type ObjectState = Arc<dyn Any + Send + Sync>;

pub struct Instance {
    pub name: String,
    pub program: Program,
    pub headers: Vec<HeaderName>,
    pub regexes: Vec<pcre2::bytes::Regex>,
    /// The module behind each of the program's imports.
    pub modules: Vec<&'static dyn Module>,
    /// The state of each of the program's objects, once vcl_init made it.
    pub objects: RwLock<Vec<Option<ObjectState>>>,
    pub directors: Directors,
    /// The id of each declared backend, in the program's order.
    pub backends: Vec<BackendId>,
    pub default_backend: BackendId,
    /// State of call sites with PRIV_CALL, and what modules keep for the whole VCL (PRIV_VCL).
    pub call_states: Vec<Mutex<Option<Box<dyn Any + Send>>>>,
    pub vcl_states: Mutex<Vec<(usize, Box<dyn Any + Send>)>>,
    pub kept: Kept,
}

impl Instance {
    /// Keeps bytes as long as this VCL, so that its tasks need not copy them (files, objects' content).
    pub fn keep(&self, bytes: &Arc<[u8]>) -> &[u8] {
        self.kept.keep(bytes)
    }
}

/// Shared bytes that outlive every task of a VCL. Only ever grows, each once.
#[derive(Default)]
pub struct Kept(Mutex<Vec<Arc<[u8]>>>);

impl Kept {
    fn keep(&self, bytes: &Arc<[u8]>) -> &[u8] {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !all.iter().any(|held| Arc::ptr_eq(held, bytes)) {
            all.push(bytes.clone());
        }
        // SAFETY: the reference counter held above is not given up before `self` goes.
        unsafe { &*Arc::as_ptr(bytes) }
    }
}
