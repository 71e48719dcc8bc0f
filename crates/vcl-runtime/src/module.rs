//! What a module (vmod) is: a name, its signatures as text, and the functions behind them. A module's author
//! needs this page only.
//!
//! ```ignore
//! pub struct Greeter;
//!
//! impl Module for Greeter {
//!     fn name(&self) -> &'static str { "greeter" }
//!     fn signatures(&self) -> &'static str {
//!         "$Module greeter 3 \"Says hello\"\n$Function STRING hello(STRING name, BOOL loud = 0)"
//!     }
//!     fn functions(&self) -> &'static [(&'static str, Func)] { &[("hello", hello)] }
//! }
//!
//! fn hello<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<Value<'a>, ModuleError> {
//!     let name = args.str(0).ok_or("hello(): there is nobody")?;   // fails the transaction
//!     let text = ctx.copy(&[b"hello ", name].concat())?;           // lives as long as the task
//!     Ok(Value::Str(Some(text)))                                   // VOID: Ok(Value::Absent)
//! }
//! ```
//!
//! **Arguments** come checked, converted and with defaults filled in, one per parameter that is not PRIV_*;
//! an optional one (`[INT n]`) that was not given is `Absent` ([`Args::is_given`]). BYTES, DURATION and TIME
//! read like INT and REAL. **Values** live as long as the task (`'a`): return constants, arguments, or what
//! [`Ctx::copy`], [`Ctx::join`], [`Ctx::ip`], [`Ctx::blob`] and [`Ctx::blob_of`] put into the workspace.
//!
//! **Failure**: `Err(text)` (from `&str` or `String`) logs `VCL_Error` and fails the transaction;
//! [`Ctx::fail`] does so too and lets the function return a value. To complain without failing, log.
//!
//! **State**, the type being the module's own and `key` telling apart several of one type (0, or the address
//! of the object's state):
//! - PRIV_TASK: [`Ctx::task`] `ctx.task::<T>(key) -> &mut T`; PRIV_TOP: [`Ctx::top`] likewise;
//! - PRIV_CALL: [`Ctx::call_state`] `ctx.call_state::<T>(args)? -> &'a T`, shared by all threads;
//! - PRIV_VCL: [`Ctx::vcl_state`] `ctx.vcl_state::<T>(key) -> Arc<T>`, shared by all threads;
//! - objects: the constructor returns an `Arc`, methods get it by [`Args::this`] `args.this::<T>()? -> &'a T`,
//!   the name in VCL is [`Args::object_name`].
//!
//! **The transaction**: `ctx.host` is everything a [`Host`](crate::Host) offers. Headers by a HEADER argument:
//! `let (http, name) = args.header(0)?; ctx.header(http, name)`; to change one: [`Ctx::set_header`],
//! [`Ctx::unset_header`] with the [`HeaderName`](crate::HeaderName) that [`Ctx::named`] makes of it.
//! Log: [`Ctx::log`] with the tag's number (`lacquer_shm::vsl::Tag::VCL_Log as u8`).
//!
//! **What the program declares**: [`Args::regex`] is ready to match with `ctx.host.regex_limits()`;
//! [`Args::acl`] with [`Ctx::acl_match`]; [`Args::sub`] with [`Ctx::call_sub`] (after it, return at once: the
//! sub may have returned an action) and [`Ctx::check_sub`]; backends are numbers into `ctx.vcl.directors`,
//! where a module adds its own [`Director`](crate::Director)s: `let id = ctx.vcl.directors.add(director)`.
//!
//! **Waiting**: name the function in [`Module::suspends`], then [`Ctx::block_on`] waits for a future, and
//! [`Ctx::block_on_host`] for one that the host makes.
//! [`Ctx::cache_req_body`] is the common case. The task's thread goes on with other tasks meanwhile,
//! so hold no lock or `RefCell` borrow across it.

use std::net::SocketAddr;

use lacquer_vcl::program::Probe;
use lacquer_vcl::types::HttpId;

use crate::ctx::Ctx;
use crate::director::BackendId;
use crate::instance::ObjectState;
use crate::regex::Regex;
use crate::value::{Blob, NameRef, Str, Value};

/// A module's failure: the text goes to `VCL_Error` and the transaction fails.
#[derive(Debug)]
pub struct ModuleError(pub String);

impl<T: Into<String>> From<T> for ModuleError {
    fn from(text: T) -> Self {
        ModuleError(text.into())
    }
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

/// What happens to a loaded VCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Load,
    Warm,
    Cold,
    Discard,
}

/// A module as the compiler and compiled code use it; see the top of this file for how to write one.
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
    fn event(&self, _vcl: &crate::Instance, _event: Event) -> Result<(), ModuleError> {
        Ok(())
    }
}

/// The arguments of one call: one per declared parameter (PRIV_* left out), in order.
pub struct Args<'a> {
    values: &'a [Value<'a>],
    /// The object's state, for methods.
    pub this: Option<&'a ObjectState>,
    /// The VCL name of the object being made or called.
    pub object_name: &'a str,
    /// Which call site this is, where the signature has PRIV_CALL.
    pub call_site: Option<u32>,
}

impl<'a> Args<'a> {
    /// A plain function's arguments.
    pub fn new(values: &'a [Value<'a>]) -> Args<'a> {
        Args { values, this: None, object_name: "", call_site: None }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn get(&self, i: usize) -> Value<'a> {
        self.values.get(i).copied().unwrap_or(Value::Absent)
    }

    pub fn is_given(&self, i: usize) -> bool {
        !matches!(self.get(i), Value::Absent)
    }

    pub fn bool(&self, i: usize) -> bool {
        matches!(self.get(i), Value::Bool(true))
    }

    /// INT and BYTES.
    pub fn int(&self, i: usize) -> i64 {
        match self.get(i) {
            Value::Int(n) | Value::Bytes(n) => n,
            _ => 0,
        }
    }

    /// REAL, DURATION and TIME.
    pub fn real(&self, i: usize) -> f64 {
        match self.get(i) {
            Value::Real(n) | Value::Duration(n) | Value::Time(n) => n,
            _ => 0.0,
        }
    }

    /// STRING and ENUM.
    pub fn str(&self, i: usize) -> Option<&'a [u8]> {
        match self.get(i) {
            Value::Str(s) => s,
            _ => None,
        }
    }

    /// STRANDS: strings not yet joined; [`Ctx::join`] joins them, [`Args::parts`] walks over them.
    pub fn strands(&self, i: usize) -> &'a [Str<'a>] {
        match self.get(i) {
            Value::Strands(s) => s,
            _ => &[],
        }
    }

    pub fn ip(&self, i: usize) -> Option<&'a SocketAddr> {
        match self.get(i) {
            Value::Ip(ip) => ip,
            _ => None,
        }
    }

    pub fn blob(&self, i: usize) -> Option<&'a Blob<'a>> {
        match self.get(i) {
            Value::Blob(b) => b,
            _ => None,
        }
    }

    pub fn backend(&self, i: usize) -> BackendId {
        match self.get(i) {
            Value::Backend(b) => b,
            _ => BackendId::NONE,
        }
    }

    pub fn probe(&self, i: usize) -> Option<&'a Probe> {
        match self.get(i) {
            Value::Probe(p) => p,
            _ => None,
        }
    }

    /// For [`Ctx::acl_match`].
    pub fn acl(&self, i: usize) -> Option<u32> {
        match self.get(i) {
            Value::Acl(acl) => acl,
            _ => None,
        }
    }

    /// For [`Ctx::call_sub`].
    pub fn sub(&self, i: usize) -> Option<u32> {
        match self.get(i) {
            Value::Sub(sub) => sub,
            _ => None,
        }
    }

    pub fn stevedore(&self, i: usize) -> Option<u32> {
        match self.get(i) {
            Value::Stevedore(s) => s,
            _ => None,
        }
    }

    /// The message and the header's name, for [`Ctx::header`] and [`Ctx::named`].
    pub fn header(&self, i: usize) -> Result<(HttpId, NameRef<'a>), ModuleError> {
        match self.get(i) {
            Value::Header(http, name) => Ok((http, name)),
            _ => Err("a header is wanted".into()),
        }
    }

    pub fn http(&self, i: usize) -> Result<HttpId, ModuleError> {
        match self.get(i) {
            Value::Http(http) => Ok(http),
            _ => Err("a message is wanted".into()),
        }
    }

    pub fn regex(&self, i: usize) -> Result<&'a Regex, ModuleError> {
        match self.get(i) {
            Value::Regex(Some(regex)) => Ok(regex),
            _ => Err("a regular expression is wanted".into()),
        }
    }

    /// The object's state as its own type.
    pub fn this<T: std::any::Any + Send + Sync>(&self) -> Result<&'a T, ModuleError> {
        let this = self.this.ok_or("called without its object")?;
        this.downcast_ref::<T>().ok_or_else(|| "called on an object of another type".into())
    }
}
