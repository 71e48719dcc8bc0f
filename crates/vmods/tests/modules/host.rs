//! A transaction in memory that runs whole programs or single functions. Tests are short, so allocations are leaked
//! and need no lifetimes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use lacquer_shm::Tag;
use lacquer_vcl::program::Program;
use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl::{Diagnostic, NoFiles, NumericResolver, Options};
use lacquer_vcl_native::LoadedVcl;
use lacquer_vcl_runtime::{
    Args, BackendId, Blob, Ctx, Director, HeaderEdit, HeaderName, Health, Host, HostResult, Instance,
    ModuleError, ObjectState, ObjectType, PrivateMap, StableValues, Value,
};

/// A transaction with a single message, which VCL can access by any name.
pub struct Transaction {
    method: Method,
    headers: Vec<(String, &'static [u8])>,
    pub hint: BackendId,
    log: Rc<RefCell<Vec<String>>>,
    clock: Rc<Cell<f64>>,
    privates: PrivateMap,
}

impl Transaction {
    pub fn new(method: Method) -> Transaction {
        Transaction {
            method,
            headers: Vec::new(),
            hint: BackendId::NONE,
            log: Rc::default(),
            clock: Rc::new(Cell::new(1e9)),
            privates: PrivateMap::default(),
        }
    }

    pub fn with_headers(method: Method, headers: &[(&str, &'static str)]) -> Transaction {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes()));
        Transaction { headers: headers.collect(), ..Transaction::new(method) }
    }

    pub fn header_text(&self, name: &str) -> Option<String> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// Returns the lines that were logged since the last call.
    pub fn logged(&self) -> Vec<String> {
        self.log.take()
    }
}

// SAFETY: everything that is returned was leaked before.
unsafe impl StableValues for Transaction {}

impl Host for Transaction {
    fn method(&self) -> Method {
        self.method
    }

    fn now(&self) -> f64 {
        1e9
    }

    fn real_now(&self) -> f64 {
        self.clock.get()
    }

    fn alloc(&mut self, bytes: usize) -> Option<&mut [u8]> {
        Some(vec![0; bytes].leak())
    }

    fn copy(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        Some(bytes.to_vec().leak())
    }

    fn get_str(&mut self, var: Var) -> Option<&[u8]> {
        matches!(var, Var::ReqUrl | Var::BereqUrl).then_some(b"/a?c=1&b=2&utm_x=3")
    }

    fn get_blob(&mut self, var: Var) -> Option<Blob<'_>> {
        (var == Var::BereqHash).then(|| Blob::new(&[0xff; 32], 0))
    }

    fn get_backend(&mut self, _var: Var) -> BackendId {
        self.hint
    }

    fn set_backend(&mut self, _var: Var, value: BackendId) -> HostResult<()> {
        self.hint = value;
        Ok(())
    }

    fn header(&mut self, _http: HttpId, name: &HeaderName) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(n, _)| *n == name.lower);
        found.map(|(_, value)| *value)
    }

    fn set_header(&mut self, http: HttpId, name: &HeaderName, value: Option<&[u8]>) -> HostResult<()> {
        self.headers.retain(|(n, _)| *n != name.lower);
        self.append_header(http, name.lower.as_bytes(), value.unwrap_or(b"(undefined)"))
    }

    fn append_header(&mut self, _http: HttpId, name: &[u8], value: &[u8]) -> HostResult<()> {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        self.headers.push((name, value.to_vec().leak()));
        Ok(())
    }

    fn edit_headers(&mut self, _http: HttpId, edit: &mut dyn FnMut(&[u8]) -> HeaderEdit) -> HostResult<()> {
        self.headers.retain_mut(|(name, value)| match edit(&[name.as_bytes(), b": ", value].concat()) {
            HeaderEdit::Keep => true,
            HeaderEdit::Remove => false,
            HeaderEdit::Replace(line) => {
                *value = line[name.len() + 2..].to_vec().leak();
                true
            }
        });
        Ok(())
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

/// A backend with a fixed health.
pub struct Leaf {
    pub name: String,
    pub healthy: bool,
}

impl Director for Leaf {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "backend"
    }

    fn resolve(&self, _ctx: &mut Ctx<'_>, me: BackendId) -> BackendId {
        me
    }

    fn healthy(&self, _vcl: &Instance) -> Health {
        Health { healthy: self.healthy, changed: 0.0 }
    }

    fn list(&self, _vcl: &Instance, _details: bool, _json: bool) -> String {
        String::new()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// Compiles a program with a default backend. Its backends are healthy, except the one named sick.
pub fn compile(text: &str) -> LoadedVcl {
    let options = Options::new(lacquer_vmods::catalogue(), &NoFiles, &NumericResolver);
    let text = format!("vcl 4.1; backend default {{ .host = \"127.0.0.1\"; }}\n{text}");
    let program = match lacquer_vcl::compile("test", text.as_str(), &options) {
        Ok(compiled) => compiled.program,
        Err(found) => panic!("{}", found.iter().map(Diagnostic::pretty).collect::<String>()),
    };
    let mut instance =
        Instance::new("test", program, lacquer_vmods::all(), true).expect("all names are known");
    instance.add_backends(|declared| {
        Arc::new(Leaf { name: declared.name.clone(), healthy: declared.name != "sick" })
    });
    lacquer_vcl_native::compile(instance).expect("the program compiles")
}

/// An empty program.
pub fn instance() -> &'static Instance {
    let instance = Instance::new("test", Program { syntax: 41, ..Program::default() }, &[], false);
    Box::leak(Box::new(instance.expect("an empty program has nothing to resolve")))
}

/// A transaction that calls single functions.
pub struct Task {
    pub ctx: Ctx<'static>,
    /// The real time.
    pub clock: Rc<Cell<f64>>,
    log: Rc<RefCell<Vec<String>>>,
}

impl Task {
    pub fn new(method: Method, vcl: &'static Instance) -> Self {
        let host = Transaction::new(method);
        let (log, clock) = (host.log.clone(), host.clock.clone());
        Task { ctx: Ctx::new(Box::leak(Box::new(host)), vcl), clock, log }
    }

    /// Returns the lines that were logged since the last call.
    pub fn logged(&self) -> Vec<String> {
        self.log.take()
    }

    pub fn call(&mut self, name: &str, values: &[Value<'static>]) -> Result<Value<'static>, ModuleError> {
        let (module, function) = name.split_once('.').expect("module.function");
        let module = lacquer_vmods::find(module).expect("the module exists");
        let found = module.functions().iter().find(|(name, _)| *name == function);
        let args = Args::new(values.to_vec().leak());
        (found.expect("the function exists").1)(&mut self.ctx, &args)
    }

    /// Creates an object of a type given as `module.type`.
    pub fn make(&mut self, kind: &'static str, name: &'static str, values: &[Value<'static>]) -> Object {
        let (module, kind) = kind.split_once('.').expect("module.type");
        let found = lacquer_vmods::find(module).and_then(|m| m.objects().iter().find(|t| t.name == kind));
        let kind = found.expect("the type exists");
        let mut args = Args::new(values.to_vec().leak());
        args.object_name = name;
        let state = (kind.new)(&mut self.ctx, &args).expect("the object can be created");
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
        let mut args = Args::new(values.to_vec().leak());
        (args.this, args.object_name) = (Some(self.state), self.name);
        (found.expect("the method exists").1)(&mut task.ctx, &args)
    }
}
