//! The arguments of a call of a module's function, and its errors.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use lacquer_vcl::program::Probe;
use lacquer_vcl::types::HttpId;

use crate::backend::BackendId;
use crate::regex::Regex;
use crate::value::{Blob, NameRef, Str, Value};

/// The state of an object that `new` creates, shared by all tasks.
pub type ObjectState = Arc<dyn Any + Send + Sync>;

/// A module's failure. The text is logged as `VCL_Error`, and the transaction fails.
#[derive(Debug)]
pub struct ModuleError(pub String);

impl<T: Into<String>> From<T> for ModuleError {
    fn from(text: T) -> Self {
        ModuleError(text.into())
    }
}

/// The arguments of one call: one for each declared parameter except PRIV_*, in order.
pub struct Args<'a> {
    values: &'a [Value<'a>],
    /// The object's state, for methods.
    pub this: Option<&'a ObjectState>,
    /// The VCL name of the object that is created or called.
    pub object_name: &'a str,
    /// The call site's number, if the signature has PRIV_CALL.
    pub call_site: Option<u32>,
}

impl<'a> Args<'a> {
    /// Creates the arguments of a plain function.
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

    /// Returns an INT or BYTES.
    pub fn int(&self, i: usize) -> i64 {
        match self.get(i) {
            Value::Int(n) | Value::Bytes(n) => n,
            _ => 0,
        }
    }

    /// Returns a REAL, DURATION or TIME.
    pub fn real(&self, i: usize) -> f64 {
        match self.get(i) {
            Value::Real(n) | Value::Duration(n) | Value::Time(n) => n,
            _ => 0.0,
        }
    }

    /// Returns a STRING or ENUM.
    pub fn str(&self, i: usize) -> Option<&'a [u8]> {
        match self.get(i) {
            Value::Str(s) => s,
            _ => None,
        }
    }

    /// Returns STRANDS: strings that are not joined. [`Ctx::join`](crate::Ctx::join) joins them, [`Args::parts`]
    /// iterates.
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

    /// Returns an index for [`Ctx::acl_match`](crate::Ctx::acl_match).
    pub fn acl(&self, i: usize) -> Option<u32> {
        match self.get(i) {
            Value::Acl(acl) => acl,
            _ => None,
        }
    }

    /// Returns an index for [`Ctx::call_sub`](crate::Ctx::call_sub).
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

    /// Returns the message and the header's name, for [`Ctx::header`](crate::Ctx::header) and
    /// [`Ctx::named`](crate::Ctx::named).
    pub fn header(&self, i: usize) -> Result<(HttpId, NameRef<'a>), ModuleError> {
        match self.get(i) {
            Value::Header(http, name) => Ok((http, name)),
            _ => Err("a header is expected".into()),
        }
    }

    pub fn http(&self, i: usize) -> Result<HttpId, ModuleError> {
        match self.get(i) {
            Value::Http(http) => Ok(http),
            _ => Err("a message is expected".into()),
        }
    }

    pub fn regex(&self, i: usize) -> Result<&'a Regex, ModuleError> {
        match self.get(i) {
            Value::Regex(Some(regex)) => Ok(regex),
            _ => Err("a regular expression is expected".into()),
        }
    }

    /// Returns the object's state as its own type.
    pub fn this<T: Any + Send + Sync>(&self) -> Result<&'a T, ModuleError> {
        let this = self.this.ok_or("called without its object")?;
        this.downcast_ref::<T>().ok_or_else(|| "called on an object of another type".into())
    }
}
