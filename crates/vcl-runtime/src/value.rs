//! Values that compiled code and modules exchange.
//!
//! Compiled code passes [`Raw`](crate::Raw) cells (three words, no destructor). A module receives them as [`Value`],
//! borrowed for `'a`, the run, during which values of the host neither move nor change
//! ([`StableValues`](crate::host::StableValues)).

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ptr::NonNull;

use lacquer_vcl::program::Probe;
use lacquer_vcl::types::HttpId;

use crate::backend::BackendId;
use crate::regex::Regex;

/// A VCL string in the two machine words of compiled code: bytes that live for `'a`, or undefined (null
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

// SAFETY: a string is equivalent to a shared slice.
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
        // SAFETY: unless null, pointer and length are those of a slice that lives for `'a`: `new` accepts nothing
        // else, and the caller of `from_words` guarantees it.
        (!self.ptr.is_null()).then(|| unsafe { std::slice::from_raw_parts(self.ptr, self.len) })
    }

    /// Returns the bytes; an undefined string is empty.
    pub fn or_empty(self) -> &'a [u8] {
        self.get().unwrap_or_default()
    }

    /// Creates a string from the two words of compiled code.
    ///
    /// # Safety
    /// `ptr` must be null or point to `len` bytes that live and stay unchanged for `'a`.
    pub(crate) unsafe fn from_words(ptr: u64, len: u64) -> Str<'a> {
        Str { ptr: ptr as *const u8, len: len as usize, bytes: PhantomData }
    }

    /// Returns the two words for compiled code.
    pub(crate) fn words(self) -> (u64, u64) {
        (self.ptr as u64, self.len as u64)
    }

    /// Drops the lifetime, for the result of a function that compiled code calls.
    pub fn into_words(self) -> StrWords {
        StrWords { ptr: self.ptr, len: self.len }
    }
}

/// The two words of a [`Str`] for compiled code. Safe code can create them but not read through them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StrWords {
    ptr: *const u8,
    len: usize,
}

impl StrWords {
    pub const NULL: StrWords = StrWords { ptr: std::ptr::null(), len: 0 };
}

/// A binary value. `kind` distinguishes the blobs of modules (0: plain bytes).
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

/// A binary value that owns its bytes, for modules that return the same one repeatedly.
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
        // SAFETY: `owner` keeps the bytes in place until this value is dropped, nobody writes to them, and `get`
        // returns them only for as long as `self` is borrowed.
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

/// The name of a header in a HEADER value.
#[derive(Clone, Copy, Debug)]
pub enum NameRef<'a> {
    /// The index of a name in the program.
    Written(u32),
    /// A name that was computed at run time.
    Made(&'a [u8]),
}

/// A value in the form that modules use.
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

const _: () = {
    let mut number = 0;
    while number < HTTPS.len() {
        assert!(HTTPS[number] as usize == number, "HTTPS has another order than HttpId");
        number += 1;
    }
};

/// Returns the message with this number, which compiled code passes.
#[inline]
pub fn http_from_code(code: u64) -> HttpId {
    HTTPS.get(code as usize).copied().unwrap_or(HttpId::Req)
}
