//! Values as compiled code and modules exchange them.
//!
//! Compiled code passes [`Raw`] cells (three words, no destructor). A module sees them as [`Value`],
//! borrowed for `'a`: the life of the task, whose workspace never moves and is not reused before its end.

use std::net::SocketAddr;

use lacquer_vcl::types::HttpId;

use crate::director::BackendId;

/// A VCL string: bytes that outlive the task step, or undefined (null pointer).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Str {
    pub ptr: *const u8,
    pub len: usize,
}

impl Str {
    pub const NULL: Str = Str { ptr: std::ptr::null(), len: 0 };

    /// The bytes must outlive the task that the value is handed to.
    pub fn new(bytes: &[u8]) -> Str {
        Str { ptr: bytes.as_ptr(), len: bytes.len() }
    }

    pub fn from_option(bytes: Option<&[u8]>) -> Str {
        bytes.map_or(Str::NULL, Str::new)
    }

    pub fn is_null(self) -> bool {
        self.ptr.is_null()
    }

    /// # Safety
    /// The bytes behind the pointer must be live and unchanged for `'a`.
    pub unsafe fn bytes<'a>(self) -> Option<&'a [u8]> {
        // SAFETY: the caller promises it; null is handled here.
        (!self.ptr.is_null()).then(|| unsafe { std::slice::from_raw_parts(self.ptr, self.len) })
    }
}

/// A binary value. `kind` tells apart blobs that a module made for itself (0: plain bytes).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Blob {
    pub ptr: *const u8,
    pub len: usize,
    pub kind: u32,
}

impl Blob {
    /// # Safety
    /// The bytes behind the pointer must be live and unchanged for `'a`.
    pub unsafe fn bytes<'a>(self) -> Option<&'a [u8]> {
        // SAFETY: the caller promises it; null is handled there.
        unsafe { Str { ptr: self.ptr, len: self.len }.bytes() }
    }
}

/// What a [`Raw`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum RawKind {
    /// An optional argument that was not given, or no value.
    Absent = 0,
    /// `a` is 0 or 1.
    Bool,
    /// INT and BYTES; `a` is the i64.
    Int,
    /// REAL, DURATION and TIME; `a` is the f64's bits.
    Real,
    /// STRING and ENUM; `a` pointer (null: undefined), `b` length.
    Str,
    /// `a` points to `b` cells of [`Str`].
    Strands,
    /// `a` points to a `SocketAddr`, or is null.
    Ip,
    /// `a` points to a [`Blob`], or is null.
    Blob,
    /// `a` is a [`BackendId`] (0: none).
    Backend,
    /// `a` is an index into the program's probes plus one (0: none).
    Probe,
    /// `a` is an index into the program's ACLs plus one.
    Acl,
    /// `a` is an index into the program's subs plus one.
    Sub,
    /// `a` is a storage's index plus one (0: none).
    Stevedore,
    /// `a` is the `HttpId`, `b` the index of the header name.
    Header,
    /// `a` is the `HttpId`.
    Http,
    /// `a` is an index into the program's regexes.
    Regex,
}

/// One argument or result in the form that compiled code writes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Raw {
    pub kind: RawKind,
    pub a: u64,
    pub b: u64,
}

impl Raw {
    pub const ABSENT: Raw = Raw { kind: RawKind::Absent, a: 0, b: 0 };
}

/// One value as modules see and return it.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Absent,
    Bool(bool),
    Int(i64),
    Bytes(i64),
    Real(f64),
    Duration(f64),
    Time(f64),
    /// `None` is VCL's undefined string.
    Str(Option<&'a [u8]>),
    Strands(&'a [Str]),
    Ip(Option<&'a SocketAddr>),
    Blob(Option<&'a Blob>),
    Backend(BackendId),
    Probe(Option<u32>),
    Acl(Option<u32>),
    Sub(Option<u32>),
    Stevedore(Option<u32>),
    Header(HttpId, u32),
    Http(HttpId),
    Regex(u32),
}
