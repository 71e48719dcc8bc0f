//! A host that is memory only: a workspace of boxes, a log, and the few variables tests set.

use std::cell::RefCell;
use std::rc::Rc;

use lacquer_shm::Tag;
use lacquer_vcl::program::Program;
use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{
    Args, BackendId, Blob, Ctx, Director, Health, Host, Instance, ModuleError, ObjectState, ObjectType,
    PrivateMap, Str, Value,
};

pub struct Memory {
    method: Method,
    log: Rc<RefCell<Vec<String>>>,
    privates: PrivateMap,
}

impl Host for Memory {
    fn method(&self) -> Method {
        self.method
    }

    fn now(&self) -> f64 {
        1e9
    }

    fn real_now(&self) -> f64 {
        1e9
    }

    /// Tests are short: what is allocated stays.
    fn alloc(&mut self, bytes: usize) -> Option<*mut u8> {
        Some(vec![0_u64; bytes.div_ceil(8)].leak().as_mut_ptr().cast())
    }

    fn copy(&mut self, bytes: &[u8]) -> Option<Str> {
        Some(Str::new(bytes.to_vec().leak()))
    }

    fn get_str(&mut self, var: Var) -> Str {
        if matches!(var, Var::ReqUrl | Var::BereqUrl) { Str::new(b"/") } else { Str::NULL }
    }

    fn get_blob(&mut self, var: Var) -> Option<Blob> {
        (var == Var::BereqHash).then(|| Blob::new(&[0xff; 32], 0))
    }

    fn log(&mut self, tag: u8, text: &[u8]) {
        let name = Tag::ALL.iter().find(|t| **t as u8 == tag).map_or("", |t| t.name());
        self.log.borrow_mut().push(format!("{name} {}", String::from_utf8_lossy(text)));
    }

    fn log_as(&mut self, vxid: u64, tag: u8, text: &[u8]) {
        self.log(tag, format!("{vxid:x} {}", String::from_utf8_lossy(text)).as_bytes());
    }

    fn fail(&mut self, text: &str) {
        self.log.borrow_mut().push(format!("VCL_Error {text}"));
    }

    fn task_privates(&mut self) -> &mut PrivateMap {
        &mut self.privates
    }
}

/// A backend that is as healthy as it says.
pub struct Leaf(pub &'static str, pub bool);

impl Director for Leaf {
    fn name(&self) -> &str {
        self.0
    }

    fn kind(&self) -> &'static str {
        "backend"
    }

    fn resolve(&self, _ctx: &mut Ctx<'_>, me: BackendId) -> BackendId {
        me
    }

    fn healthy(&self, _vcl: &Instance) -> Health {
        Health { healthy: self.1, changed: 0.0 }
    }

    fn list(&self, _vcl: &Instance, _details: bool, _json: bool) -> String {
        String::new()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

pub fn instance() -> &'static Instance {
    let instance = Instance::new("test", Program { syntax: 41, ..Program::default() }, &[], false);
    Box::leak(Box::new(instance.expect("an empty program has nothing to resolve")))
}

/// A task whose values all stay for the rest of the test run, so that lifetimes need no thought.
pub struct Task {
    pub ctx: Ctx<'static>,
    log: Rc<RefCell<Vec<String>>>,
}

impl Task {
    pub fn new(method: Method, vcl: &'static Instance) -> Self {
        let log = Rc::<RefCell<Vec<String>>>::default();
        let memory = Memory { method, log: log.clone(), privates: PrivateMap::default() };
        Task { ctx: Ctx::new(Box::leak(Box::new(memory)), vcl), log }
    }

    /// What was logged since the last look.
    pub fn logged(&self) -> Vec<String> {
        self.log.take()
    }

    pub fn call(&mut self, name: &str, values: &[Value<'static>]) -> Result<Value<'static>, ModuleError> {
        let (module, function) = name.split_once('.').expect("module.function");
        let module = crate::find(module).expect("the module is there");
        let found = module.functions().iter().find(|(name, _)| *name == function);
        let args = Args::new(values.to_vec().leak());
        (found.expect("the function is there").1)(&mut self.ctx, &args)
    }

    /// Makes an object of a type given as `module.type`.
    pub fn make(&mut self, kind: &'static str, name: &'static str, values: &[Value<'static>]) -> Object {
        let (module, kind) = kind.split_once('.').expect("module.type");
        let found = crate::find(module).and_then(|m| m.objects().iter().find(|t| t.name == kind));
        let kind = found.expect("the type is there");
        let args = Args { object_name: name, ..Args::new(values.to_vec().leak()) };
        let state = (kind.new)(&mut self.ctx, &args).expect("the object can be made");
        Object { kind, name, state: Box::leak(Box::new(state)) }
    }
}

#[derive(Clone, Copy)]
pub struct Object {
    kind: &'static ObjectType,
    name: &'static str,
    state: &'static ObjectState,
}

impl Object {
    pub fn call(
        self,
        task: &mut Task,
        method: &str,
        values: &[Value<'static>],
    ) -> Result<Value<'static>, ModuleError> {
        let found = self.kind.methods.iter().find(|(name, _)| *name == method);
        let args =
            Args { this: Some(self.state), object_name: self.name, ..Args::new(values.to_vec().leak()) };
        (found.expect("the method is there").1)(&mut task.ctx, &args)
    }
}
