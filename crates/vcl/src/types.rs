//! The types of VCL, the messages of a transaction, the subroutines that VCL defines and the actions they return.

use serde::{Deserialize, Serialize};

/// A VCL type. `Strands` is a list of strings that are not joined; only arguments have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    Void,
    Bool,
    Int,
    Real,
    Bytes,
    Duration,
    Time,
    String,
    Strands,
    Ip,
    Blob,
    Backend,
    Probe,
    Acl,
    Sub,
    Stevedore,
    Header,
    Http,
    Enum,
    Regex,
    Body,
    Instance,
}

impl Type {
    /// Returns the name in VCL and in module signatures.
    pub const fn name(self) -> &'static str {
        match self {
            Type::Void => "VOID",
            Type::Bool => "BOOL",
            Type::Int => "INT",
            Type::Real => "REAL",
            Type::Bytes => "BYTES",
            Type::Duration => "DURATION",
            Type::Time => "TIME",
            Type::String => "STRING",
            Type::Strands => "STRANDS",
            Type::Ip => "IP",
            Type::Blob => "BLOB",
            Type::Backend => "BACKEND",
            Type::Probe => "PROBE",
            Type::Acl => "ACL",
            Type::Sub => "SUB",
            Type::Stevedore => "STEVEDORE",
            Type::Header => "HEADER",
            Type::Http => "HTTP",
            Type::Enum => "ENUM",
            Type::Regex => "REGEX",
            Type::Body => "BODY",
            Type::Instance => "INSTANCE",
        }
    }

    pub fn from_name(name: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|t| t.name() == name)
    }

    const ALL: [Type; 22] = [
        Type::Void,
        Type::Bool,
        Type::Int,
        Type::Real,
        Type::Bytes,
        Type::Duration,
        Type::Time,
        Type::String,
        Type::Strands,
        Type::Ip,
        Type::Blob,
        Type::Backend,
        Type::Probe,
        Type::Acl,
        Type::Sub,
        Type::Stevedore,
        Type::Header,
        Type::Http,
        Type::Enum,
        Type::Regex,
        Type::Body,
        Type::Instance,
    ];
}

/// A message of the transaction that VCL can access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum HttpId {
    Req = 0,
    ReqTop = 1,
    Bereq = 2,
    Beresp = 3,
    Obj = 4,
    Resp = 5,
    ObjStale = 6,
}

/// The subroutines that a transaction calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Method {
    Recv = 0,
    Pipe,
    Pass,
    Hash,
    Purge,
    Miss,
    Hit,
    Deliver,
    Synth,
    BackendFetch,
    BackendRefresh,
    BackendResponse,
    BackendError,
    Init,
    Fini,
}

impl Method {
    pub const COUNT: usize = 15;
    pub const ALL: [Method; Method::COUNT] = [
        Method::Recv,
        Method::Pipe,
        Method::Pass,
        Method::Hash,
        Method::Purge,
        Method::Miss,
        Method::Hit,
        Method::Deliver,
        Method::Synth,
        Method::BackendFetch,
        Method::BackendRefresh,
        Method::BackendResponse,
        Method::BackendError,
        Method::Init,
        Method::Fini,
    ];

    /// Returns the name in upper case, for the log's `VCL_call`.
    pub const fn log_name(self) -> &'static str {
        match self {
            Method::Recv => "RECV",
            Method::Pipe => "PIPE",
            Method::Pass => "PASS",
            Method::Hash => "HASH",
            Method::Purge => "PURGE",
            Method::Miss => "MISS",
            Method::Hit => "HIT",
            Method::Deliver => "DELIVER",
            Method::Synth => "SYNTH",
            Method::BackendFetch => "BACKEND_FETCH",
            Method::BackendRefresh => "BACKEND_REFRESH",
            Method::BackendResponse => "BACKEND_RESPONSE",
            Method::BackendError => "BACKEND_ERROR",
            Method::Init => "INIT",
            Method::Fini => "FINI",
        }
    }

    /// Returns the subroutine's name in VCL source.
    pub const fn sub_name(self) -> &'static str {
        match self {
            Method::Recv => "vcl_recv",
            Method::Pipe => "vcl_pipe",
            Method::Pass => "vcl_pass",
            Method::Hash => "vcl_hash",
            Method::Purge => "vcl_purge",
            Method::Miss => "vcl_miss",
            Method::Hit => "vcl_hit",
            Method::Deliver => "vcl_deliver",
            Method::Synth => "vcl_synth",
            Method::BackendFetch => "vcl_backend_fetch",
            Method::BackendRefresh => "vcl_backend_refresh",
            Method::BackendResponse => "vcl_backend_response",
            Method::BackendError => "vcl_backend_error",
            Method::Init => "vcl_init",
            Method::Fini => "vcl_fini",
        }
    }
}

const _: () = {
    let mut number = 0;
    while number < Method::COUNT {
        assert!(Method::ALL[number] as usize == number, "Method::ALL has another order than the enum");
        number += 1;
    }
};

/// The action that a subroutine returns. In compiled code, zero means "no return yet".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum Action {
    Abandon = 1,
    Deliver,
    Error,
    Fail,
    Fetch,
    Hash,
    Lookup,
    Ok,
    Pass,
    Pipe,
    Purge,
    Restart,
    Retry,
    Synth,
    Vcl,
    Beresp,
    Merge,
    ObjStale,
}

impl Action {
    pub const ALL: [Action; 18] = [
        Action::Abandon,
        Action::Deliver,
        Action::Error,
        Action::Fail,
        Action::Fetch,
        Action::Hash,
        Action::Lookup,
        Action::Ok,
        Action::Pass,
        Action::Pipe,
        Action::Purge,
        Action::Restart,
        Action::Retry,
        Action::Synth,
        Action::Vcl,
        Action::Beresp,
        Action::Merge,
        Action::ObjStale,
    ];

    /// Returns the action with this number, as compiled code passes it.
    pub fn from_code(code: u32) -> Option<Action> {
        Action::ALL.get((code as usize).wrapping_sub(1)).copied()
    }

    /// Returns the name in VCL source and in the log's `VCL_return`.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Abandon => "abandon",
            Action::Deliver => "deliver",
            Action::Error => "error",
            Action::Fail => "fail",
            Action::Fetch => "fetch",
            Action::Hash => "hash",
            Action::Lookup => "lookup",
            Action::Ok => "ok",
            Action::Pass => "pass",
            Action::Pipe => "pipe",
            Action::Purge => "purge",
            Action::Restart => "restart",
            Action::Retry => "retry",
            Action::Synth => "synth",
            Action::Vcl => "vcl",
            Action::Beresp => "beresp",
            Action::Merge => "merge",
            Action::ObjStale => "obj_stale",
        }
    }
}

const _: () = {
    let mut place = 0;
    while place < Action::ALL.len() {
        assert!(Action::ALL[place] as usize == place + 1, "Action::ALL has another order than the enum");
        place += 1;
    }
};
