//! What a module (vmod) is: a name, its signatures as text, and the functions behind them.

use std::net::SocketAddr;

use crate::ctx::Ctx;
use crate::director::BackendId;
use crate::instance::ObjectState;
use crate::value::{Blob, Str, Value};

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
    pub values: &'a [Value<'a>],
    /// The object's state, for methods.
    pub this: Option<ObjectState>,
    /// The VCL name of the object being made or called.
    pub object_name: &'a str,
    /// Which call site this is, where the signature has PRIV_CALL.
    pub call_site: Option<u32>,
}

impl<'a> Args<'a> {
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

    pub fn strands(&self, i: usize) -> &'a [Str] {
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

    pub fn blob(&self, i: usize) -> Option<&'a Blob> {
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

    /// The object's state as its own type.
    pub fn this<T: std::any::Any + Send + Sync>(&self) -> Result<std::sync::Arc<T>, ModuleError> {
        let this = self.this.clone().ok_or("called without its object")?;
        this.downcast::<T>().map_err(|_| ModuleError::from("called on an object of another type"))
    }
}
