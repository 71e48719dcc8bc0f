//! Values as compiled code and modules exchange them.
//!
//! Compiled code passes [`Raw`] cells (three words, no destructor). A module sees them as [`Value`], borrowed
//! for `'a`: the run, during which what the host handed out neither moves nor changes
//! ([`StableValues`](crate::host::StableValues)).

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ptr::NonNull;

use lacquer_vcl::program::Probe;
use lacquer_vcl::types::HttpId;

use crate::director::BackendId;
use crate::instance::Instance;
use crate::regex::Regex;

/// A VCL string as compiled code holds it, in two machine words: bytes that live for `'a`, or undefined (null
/// pointer).
///
/// It cannot outlive its bytes:
/// ```compile_fail,E0597
/// let text = {
///     let bytes = vec![b'a'];
///     lacquer_vcl_runtime::Str::new(&bytes)
/// };
/// text.get();
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Str<'a> {
    ptr: *const u8,
    len: usize,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: a string is a shared slice in all but its form.
unsafe impl Send for Str<'_> {}
// SAFETY: as above.
unsafe impl Sync for Str<'_> {}

impl<'a> Str<'a> {
    pub const NULL: Str<'static> = Str { ptr: std::ptr::null(), len: 0, bytes: PhantomData };

    pub const fn new(bytes: &'a [u8]) -> Str<'a> {
        Str { ptr: bytes.as_ptr(), len: bytes.len(), bytes: PhantomData }
    }

    #[inline]
    pub fn from_option(bytes: Option<&'a [u8]>) -> Str<'a> {
        bytes.map_or(Str::NULL, Str::new)
    }

    pub fn is_null(self) -> bool {
        self.ptr.is_null()
    }

    #[inline]
    pub fn get(self) -> Option<&'a [u8]> {
        // SAFETY: unless null, pointer and length are those of a slice that lives for `'a`: `new` takes nothing
        // else, and `from_words` is promised it.
        (!self.ptr.is_null()).then(|| unsafe { std::slice::from_raw_parts(self.ptr, self.len) })
    }

    /// Returns the bytes; undefined is the empty string.
    pub fn or_empty(self) -> &'a [u8] {
        self.get().unwrap_or_default()
    }

    /// Makes a string of the two words that compiled code has for it.
    ///
    /// # Safety
    /// `ptr` must be null or point to `len` bytes that live and stay unchanged for `'a`.
    unsafe fn from_words(ptr: u64, len: u64) -> Str<'a> {
        Str { ptr: ptr as *const u8, len: len as usize, bytes: PhantomData }
    }

    /// Forgets the lifetime, for the result of a function that compiled code calls.
    pub fn into_words(self) -> StrWords {
        StrWords { ptr: self.ptr, len: self.len }
    }
}

/// The two words of a [`Str`] on their way to compiled code. Safe code can make them but not read through them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StrWords {
    ptr: *const u8,
    len: usize,
}

impl StrWords {
    pub const NULL: StrWords = StrWords { ptr: std::ptr::null(), len: 0 };
}

/// A binary value. `kind` tells apart blobs that a module made for itself (0: plain bytes).
#[derive(Clone, Copy, Debug)]
pub struct Blob<'a> {
    bytes: Str<'a>,
    pub kind: u32,
}

impl<'a> Blob<'a> {
    pub const fn new(bytes: &'a [u8], kind: u32) -> Blob<'a> {
        Blob { bytes: Str::new(bytes), kind }
    }

    pub fn bytes(self) -> &'a [u8] {
        self.bytes.or_empty()
    }
}

/// A binary value that owns its bytes, for modules that hand out the same one again and again.
#[derive(Debug)]
pub struct OwnedBlob {
    blob: Blob<'static>,
    /// The bytes of `blob`.
    owner: NonNull<[u8]>,
}

// SAFETY: the bytes have one owner and never change.
unsafe impl Send for OwnedBlob {}
// SAFETY: as above.
unsafe impl Sync for OwnedBlob {}

impl OwnedBlob {
    pub fn new(bytes: impl Into<Box<[u8]>>, kind: u32) -> OwnedBlob {
        let owner = NonNull::from(Box::leak(bytes.into()));
        // SAFETY: `owner` keeps the bytes in place until this value goes, nobody writes to them, and `get` hands
        // them out no longer than `self` is borrowed.
        OwnedBlob { blob: Blob::new(unsafe { owner.as_ref() }, kind), owner }
    }

    pub fn get(&self) -> &Blob<'_> {
        &self.blob
    }
}

impl Drop for OwnedBlob {
    fn drop(&mut self) {
        // SAFETY: `new` leaked the box, and every borrow of its bytes has ended.
        drop(unsafe { Box::from_raw(self.owner.as_ptr()) });
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
    /// `a` is the i64.
    Int,
    Bytes,
    /// `a` is the f64's bits.
    Real,
    Duration,
    Time,
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
    /// `a` is an index into the program's ACLs plus one (0: none).
    Acl,
    /// `a` is an index into the program's subs plus one (0: none).
    Sub,
    /// `a` is a storage's index plus one (0: none).
    Stevedore,
    /// The low byte of `a` is the `HttpId`. If the rest is 0, `b` is the index of a name that the program
    /// writes; else it is the length plus one of a name that `b` points to.
    Header,
    /// `a` is the `HttpId`.
    Http,
    /// `a` is an index into the program's regexes plus one (0: none).
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

/// The name of a header, as HEADER values have it.
#[derive(Clone, Copy, Debug)]
pub enum NameRef<'a> {
    /// The index of a name that the program writes.
    Written(u32),
    /// A name that was put together at run time.
    Made(&'a [u8]),
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
    Strands(&'a [Str<'a>]),
    Ip(Option<&'a SocketAddr>),
    Blob(Option<&'a Blob<'a>>),
    Backend(BackendId),
    Probe(Option<&'a Probe>),
    /// An index for [`Ctx::acl_match`](crate::Ctx::acl_match).
    Acl(Option<u32>),
    /// An index for [`Ctx::call_sub`](crate::Ctx::call_sub).
    Sub(Option<u32>),
    Stevedore(Option<u32>),
    /// A message and a name for [`Ctx::header`](crate::Ctx::header).
    Header(HttpId, NameRef<'a>),
    Http(HttpId),
    Regex(Option<&'a Regex>),
}

const HTTPS: [HttpId; 7] =
    [HttpId::Req, HttpId::ReqTop, HttpId::Bereq, HttpId::Beresp, HttpId::Obj, HttpId::Resp, HttpId::ObjStale];

/// The message with this number, as compiled code passes it.
#[inline]
pub fn http_from_code(code: u64) -> HttpId {
    HTTPS.get(code as usize).copied().unwrap_or(HttpId::Req)
}

fn less_one(number: u64) -> Option<u32> {
    (number as u32).checked_sub(1)
}

impl<'a> Value<'a> {
    /// # Safety
    /// Pointers in `raw` must be as its kind says and live for `'a`.
    pub unsafe fn from_raw(raw: Raw, vcl: &'a Instance) -> Value<'a> {
        let Raw { kind, a, b } = raw;
        // SAFETY: in every arm below that follows a pointer, the caller promises what the kind says.
        unsafe {
            match kind {
                RawKind::Absent => Value::Absent,
                RawKind::Bool => Value::Bool(a != 0),
                RawKind::Int => Value::Int(a as i64),
                RawKind::Bytes => Value::Bytes(a as i64),
                RawKind::Real => Value::Real(f64::from_bits(a)),
                RawKind::Duration => Value::Duration(f64::from_bits(a)),
                RawKind::Time => Value::Time(f64::from_bits(a)),
                RawKind::Str => Value::Str(Str::from_words(a, b).get()),
                RawKind::Strands if a == 0 => Value::Strands(&[]),
                RawKind::Strands => Value::Strands(std::slice::from_raw_parts(a as *const Str, b as usize)),
                RawKind::Ip => Value::Ip((a as *const SocketAddr).as_ref()),
                RawKind::Blob => Value::Blob((a as *const Blob).as_ref()),
                RawKind::Backend => Value::Backend(BackendId(a as u32)),
                RawKind::Probe => Value::Probe(less_one(a).and_then(|i| vcl.program.probes.get(i as usize))),
                RawKind::Acl => Value::Acl(less_one(a)),
                RawKind::Sub => Value::Sub(less_one(a)),
                RawKind::Stevedore => Value::Stevedore(less_one(a)),
                RawKind::Header => {
                    let name = match (a >> 8).checked_sub(1) {
                        None => NameRef::Written(b as u32),
                        Some(len) => NameRef::Made(Str::from_words(b, len).or_empty()),
                    };
                    Value::Header(http_from_code(a & 0xff), name)
                }
                RawKind::Http => Value::Http(http_from_code(a)),
                RawKind::Regex => Value::Regex(less_one(a).and_then(|i| vcl.regexes.get(i as usize))),
            }
        }
    }

    /// The form for compiled code. Probes and regexes are found by their place in `vcl`.
    pub fn to_raw(self, vcl: &Instance) -> Raw {
        let one = |index: Option<u32>| index.map_or(0, |i| u64::from(i) + 1);
        let place = |i: Option<usize>| one(i.map(|i| i as u32));
        let (kind, a, b) = match self {
            Value::Absent => (RawKind::Absent, 0, 0),
            Value::Bool(v) => (RawKind::Bool, u64::from(v), 0),
            Value::Int(v) => (RawKind::Int, v as u64, 0),
            Value::Bytes(v) => (RawKind::Bytes, v as u64, 0),
            Value::Real(v) => (RawKind::Real, v.to_bits(), 0),
            Value::Duration(v) => (RawKind::Duration, v.to_bits(), 0),
            Value::Time(v) => (RawKind::Time, v.to_bits(), 0),
            Value::Str(v) => {
                let s = Str::from_option(v);
                (RawKind::Str, s.ptr as u64, s.len as u64)
            }
            Value::Strands(v) => (RawKind::Strands, v.as_ptr() as u64, v.len() as u64),
            Value::Ip(v) => (RawKind::Ip, v.map_or(0, |p| std::ptr::from_ref(p) as u64), 0),
            Value::Blob(v) => (RawKind::Blob, v.map_or(0, |p| std::ptr::from_ref(p) as u64), 0),
            Value::Backend(v) => (RawKind::Backend, u64::from(v.0), 0),
            Value::Probe(v) => {
                let at = v.and_then(|p| vcl.program.probes.iter().position(|q| std::ptr::eq(p, q)));
                (RawKind::Probe, place(at), 0)
            }
            Value::Acl(v) => (RawKind::Acl, one(v), 0),
            Value::Sub(v) => (RawKind::Sub, one(v), 0),
            Value::Stevedore(v) => (RawKind::Stevedore, one(v), 0),
            Value::Header(http, NameRef::Written(name)) => (RawKind::Header, http as u64, u64::from(name)),
            Value::Header(http, NameRef::Made(name)) => {
                let len = name.len() as u64 + 1;
                (RawKind::Header, http as u64 | len << 8, name.as_ptr() as u64)
            }
            Value::Http(http) => (RawKind::Http, http as u64, 0),
            Value::Regex(v) => {
                let at = v.and_then(|p| vcl.regexes.iter().position(|q| std::ptr::eq(p, q)));
                (RawKind::Regex, place(at), 0)
            }
        };
        Raw { kind, a, b }
    }
}
