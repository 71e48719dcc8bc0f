//! A transaction in memory: every variable can be read and set, and every effect is recorded in a journal.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{
    BackendId, Blob, HeaderName, Host, HostResult, LocalFuture, PrivateMap, RegexLimits, StableValues,
};

/// A string's index in the arena, or `None` for undefined.
type Held = Option<usize>;

#[derive(Default)]
pub struct MemoryHost {
    pub method: Option<Method>,
    pub journal: Vec<String>,
    pub bools: BTreeMap<u16, bool>,
    pub ints: BTreeMap<u16, i64>,
    pub reals: BTreeMap<u16, f64>,
    texts: BTreeMap<u16, Held>,
    pub numbers: BTreeMap<u16, u32>,
    headers: BTreeMap<(u8, String), Held>,
    pub client_ip: Option<SocketAddr>,
    pub limits: RegexLimits,
    /// Bytes left in the workspace.
    pub room: usize,
    /// All strings that were ever stored. None is changed or dropped before the host.
    arena: Vec<Vec<u8>>,
    privates: PrivateMap,
}

impl MemoryHost {
    pub fn new(method: Method) -> MemoryHost {
        MemoryHost {
            method: Some(method),
            room: 1 << 20,
            client_ip: "192.0.2.7:1234".parse().ok(),
            ..MemoryHost::default()
        }
    }

    fn hold(&mut self, text: Option<&[u8]>) -> Held {
        self.arena.push(text?.to_vec());
        Some(self.arena.len() - 1)
    }

    fn held(&self, held: Option<&Held>) -> Option<&[u8]> {
        self.arena.get((*held?)?).map(Vec::as_slice)
    }

    pub fn text(&self, var: Var) -> Option<&[u8]> {
        self.held(self.texts.get(&(var as u16)))
    }

    pub fn with_header(mut self, http: HttpId, name: &str, value: &str) -> MemoryHost {
        let value = self.hold(Some(value.as_bytes()));
        self.headers.insert((http as u8, name.to_ascii_lowercase()), value);
        self
    }

    pub fn with_text(mut self, var: Var, value: &str) -> MemoryHost {
        let value = self.hold(Some(value.as_bytes()));
        self.texts.insert(var as u16, value);
        self
    }

    pub fn header_text(&self, http: HttpId, name: &str) -> Option<String> {
        let value = self.held(self.headers.get(&(http as u8, name.to_ascii_lowercase())))?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    fn note(&mut self, what: String) -> HostResult<()> {
        self.journal.push(what);
        Ok(())
    }
}

fn show(text: Option<&[u8]>) -> String {
    text.map_or_else(|| "-".to_owned(), |t| format!("{:?}", String::from_utf8_lossy(t)))
}

// SAFETY: strings are in the arena, whose elements live as long as the host; the address is set before VCL runs.
unsafe impl StableValues for MemoryHost {}

impl Host for MemoryHost {
    fn method(&self) -> Method {
        self.method.unwrap_or(Method::Recv)
    }
    fn now(&self) -> f64 {
        1_000_000.5
    }
    fn real_now(&self) -> f64 {
        1_000_001.5
    }
    fn alloc(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.room = self.room.checked_sub(bytes)?;
        self.arena.push(vec![0; bytes]);
        self.arena.last_mut().map(Vec::as_mut_slice)
    }
    fn copy(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        self.room = self.room.checked_sub(bytes.len())?;
        self.arena.push(bytes.to_vec());
        self.arena.last().map(Vec::as_slice)
    }
    fn get_bool(&mut self, var: Var) -> bool {
        self.bools.get(&(var as u16)).copied().unwrap_or_default()
    }
    fn get_int(&mut self, var: Var) -> i64 {
        self.ints.get(&(var as u16)).copied().unwrap_or_default()
    }
    fn get_real(&mut self, var: Var) -> f64 {
        self.reals.get(&(var as u16)).copied().unwrap_or_default()
    }
    fn get_str(&mut self, var: Var) -> Option<&[u8]> {
        self.text(var)
    }
    fn get_ip(&self, _var: Var) -> Option<&SocketAddr> {
        self.client_ip.as_ref()
    }
    fn get_blob(&mut self, _var: Var) -> Option<Blob<'_>> {
        Some(Blob::new(b"hash", 0))
    }
    fn get_backend(&mut self, var: Var) -> BackendId {
        BackendId(self.numbers.get(&(var as u16)).copied().unwrap_or_default())
    }
    fn get_stevedore(&mut self, var: Var) -> u32 {
        self.numbers.get(&(var as u16)).copied().unwrap_or_default()
    }
    fn set_bool(&mut self, var: Var, value: bool) -> HostResult<()> {
        self.bools.insert(var as u16, value);
        self.note(format!("{} = {value}", var.name()))
    }
    fn set_int(&mut self, var: Var, value: i64) -> HostResult<()> {
        self.ints.insert(var as u16, value);
        self.note(format!("{} = {value}", var.name()))
    }
    fn set_real(&mut self, var: Var, value: f64) -> HostResult<()> {
        self.reals.insert(var as u16, value);
        self.note(format!("{} = {value}", var.name()))
    }
    fn set_str(&mut self, var: Var, value: Option<&[u8]>) -> HostResult<()> {
        let held = self.hold(value);
        self.texts.insert(var as u16, held);
        self.note(format!("{} = {}", var.name(), show(value)))
    }
    fn set_backend(&mut self, var: Var, value: BackendId) -> HostResult<()> {
        self.numbers.insert(var as u16, value.0);
        self.note(format!("{} = backend {}", var.name(), value.0))
    }
    fn set_stevedore(&mut self, var: Var, value: u32) -> HostResult<()> {
        self.numbers.insert(var as u16, value);
        self.note(format!("{} = storage {value}", var.name()))
    }
    fn unset(&mut self, var: Var) -> HostResult<()> {
        self.texts.remove(&(var as u16));
        self.note(format!("unset {}", var.name()))
    }
    fn storage_var(&mut self, storage: &str, _var: Var) -> i64 {
        storage.len() as i64
    }
    fn stevedore_by_name(&mut self, name: &str) -> u32 {
        name.len() as u32
    }
    fn stevedore_name(&mut self, _index: u32) -> Option<&[u8]> {
        Some(b"storage")
    }
    fn header(&mut self, http: HttpId, name: &HeaderName) -> Option<&[u8]> {
        self.held(self.headers.get(&(http as u8, name.lower.clone())))
    }
    fn set_header(&mut self, http: HttpId, name: &HeaderName, value: Option<&[u8]>) -> HostResult<()> {
        if value.unwrap_or_default().contains(&b'\n') {
            return Err(format!("Bad header {}:", name.name));
        }
        let held = self.hold(Some(value.unwrap_or_default()));
        self.headers.insert((http as u8, name.lower.clone()), held);
        self.note(format!("{http:?} {}: {}", name.name, show(value)))
    }
    fn unset_header(&mut self, http: HttpId, name: &HeaderName) -> HostResult<()> {
        self.headers.remove(&(http as u8, name.lower.clone()));
        self.note(format!("{http:?} unset {}", name.name))
    }
    fn set_body(&mut self, var: Var, append: bool, content: &[u8]) -> HostResult<()> {
        let op = if append { "+=" } else { "=" };
        self.note(format!("{} {op} {:?}", var.name(), String::from_utf8_lossy(content)))
    }
    fn return_status(&mut self, status: i64, reason: Option<&[u8]>) -> HostResult<()> {
        self.note(format!("status {status} {}", show(reason)))
    }
    fn return_pass_for(&mut self, seconds: f64) -> HostResult<()> {
        self.note(format!("pass for {seconds}"))
    }
    fn return_vcl(&mut self, label: &str) -> HostResult<()> {
        self.note(format!("vcl {label}"))
    }
    fn hash_data(&mut self, data: Option<&[u8]>) -> HostResult<()> {
        self.note(format!("hash {}", show(data)))
    }
    fn log(&mut self, tag: u8, text: &[u8]) {
        self.journal.push(format!("log {tag} {}", String::from_utf8_lossy(text)));
    }
    fn trace(&mut self, text: &str) {
        self.journal.push(format!("trace {text}"));
    }
    fn regex_limits(&self) -> RegexLimits {
        self.limits
    }
    fn fail(&mut self, text: &str) {
        self.journal.push(format!("fail {text}"));
    }
    fn ban(&mut self, expression: &[u8]) -> Result<(), String> {
        if expression.is_empty() {
            return Err("No ban conditions found.".to_owned());
        }
        self.note(format!("ban {}", String::from_utf8_lossy(expression)))
    }
    fn cache_req_body(&mut self, limit: u64) -> HostResult<LocalFuture<'_, i64>> {
        Ok(Box::pin(async move {
            Yield(false).await;
            self.journal.push(format!("body up to {limit}"));
            42
        }))
    }
    fn task_privates(&mut self) -> &mut PrivateMap {
        &mut self.privates
    }
}

/// A future that is pending once.
pub struct Yield(pub bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    }
}
