//! Values in the form that compiled code reads and writes. Probes and regexes are numbers, which only the
//! program they belong to can resolve.

use std::net::SocketAddr;

use crate::backend::BackendId;
use crate::run::Instance;
use crate::value::{Blob, NameRef, Str, Value, http_from_code};

/// The type of the value in a [`Raw`].
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
    /// STRING and ENUM; `a` is the pointer (null: undefined), `b` the length.
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
    /// The low byte of `a` is the `HttpId`. If the rest is 0, `b` is the index of a name in the program;
    /// otherwise it is the length plus one of a name that `b` points to.
    Header,
    /// `a` is the `HttpId`.
    Http,
    /// `a` is an index into the program's regexes plus one (0: none).
    Regex,
}

/// One argument or result in the form of compiled code.
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

fn less_one(number: u64) -> Option<u32> {
    (number as u32).checked_sub(1)
}

impl<'a> Value<'a> {
    /// # Safety
    /// Pointers in `raw` must be valid for its kind and live for `'a`.
    pub unsafe fn from_raw(raw: Raw, vcl: &'a Instance) -> Value<'a> {
        let Raw { kind, a, b } = raw;
        // SAFETY: every arm below that follows a pointer relies on the caller's guarantee that it is valid for the
        // kind.
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
                RawKind::Probe => {
                    Value::Probe(less_one(a).and_then(|i| vcl.program.origins.probes.get(i as usize)))
                }
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
                RawKind::Regex => Value::Regex(less_one(a).and_then(|i| vcl.regex(i as usize))),
            }
        }
    }

    /// Returns the form for compiled code. Probes and regexes are identified by their address in `vcl`.
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
                let (pointer, length) = Str::from_option(v).words();
                (RawKind::Str, pointer, length)
            }
            Value::Strands(v) => (RawKind::Strands, v.as_ptr() as u64, v.len() as u64),
            Value::Ip(v) => (RawKind::Ip, v.map_or(0, |p| std::ptr::from_ref(p) as u64), 0),
            Value::Blob(v) => (RawKind::Blob, v.map_or(0, |p| std::ptr::from_ref(p) as u64), 0),
            Value::Backend(v) => (RawKind::Backend, u64::from(v.0), 0),
            Value::Probe(v) => {
                let at = v.and_then(|p| vcl.program.origins.probes.iter().position(|q| std::ptr::eq(p, q)));
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
                let at = v.and_then(|regex| vcl.regex_index(regex));
                (RawKind::Regex, place(at), 0)
            }
        };
        Raw { kind, a, b }
    }
}
