//! The checked program, which the front end passes to the code generator.
//!
//! Everything is resolved: names are indices, conversions are explicit nodes, and every expression has its
//! type. No error that a VCL author could fix remains. The manager sends the program to the worker in serialized
//! form.

use serde::{Deserialize, Serialize};

use crate::text::Text;
use crate::types::{Action, HttpId, Method, Type};
use crate::variables_table::Var;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// Language version times ten: 40 or 41.
    pub syntax: u32,
    pub sources: Vec<Source>,
    /// Header names, one for each spelling. A name keeps its first spelling in each message.
    pub headers: Vec<String>,
    pub regexes: Vec<Text>,
    pub acls: Vec<Acl>,
    pub origins: Origins,
    pub modules: Modules,
    pub subs: Vec<Sub>,
    /// The subroutine of each method, indexed by `Method as usize`: the user's code, then the built-in code.
    pub methods: Vec<u32>,
    /// The labels in `return (vcl(name))`, each once.
    pub labels: Vec<String>,
    /// Environment variables for std.getenv(). The manager adds them, because the worker's environment is filtered.
    pub environment: Vec<(String, Vec<u8>)>,
}

/// The origins that a program declares.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Origins {
    pub probes: Vec<Probe>,
    pub backends: Vec<Backend>,
    /// The backend that is used if VCL selects none; `None` for `default none` or a program without backends.
    pub default_backend: Option<u32>,
    /// The contents of the files that backends with TLS name.
    pub tls: TlsFiles,
}

impl Origins {
    /// Returns the probe of backends without one of their own.
    pub fn default_probe(&self) -> Option<&Probe> {
        // The name of a probe within a backend has a colon.
        self.probes.iter().find(|probe| probe.name == "default")
    }
}

/// The modules that a program imports, and the parts of them that it uses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Modules {
    pub imports: Vec<Import>,
    /// Every module function or method that the program calls, each once.
    pub functions: Vec<Function>,
    pub objects: Vec<Object>,
    /// Number of call sites with a private state (PRIV_CALL).
    pub call_sites: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Source {
    /// "<vcl.inline>", a file name, "Builtin".
    pub name: String,
    pub text: Text,
    /// Index of the source that includes this one, if any.
    pub parent: Option<u32>,
    /// The line of the include in that source.
    pub included_at: u32,
    pub builtin: bool,
}

/// A location in the sources: line and column count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    pub source: u32,
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Acl {
    pub name: String,
    pub entries: Vec<AclEntry>,
    pub log: bool,
    pub table: bool,
    pub fold: bool,
    pub pedantic: bool,
}

/// One network. The first `bits` bits of the address are significant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclEntry {
    pub negated: bool,
    pub address: std::net::IpAddr,
    pub bits: u8,
    /// The text in the log after the ACL's name, for example `"192.168.0.0"/16`.
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub name: String,
    pub url: Option<Text>,
    /// The lines of `.request`, joined with CRLF, if given instead of `.url`.
    pub request: Option<Text>,
    pub expected_response: Option<u32>,
    pub timeout: Option<f64>,
    pub interval: Option<f64>,
    pub initial: Option<u32>,
    pub window: Option<u32>,
    pub threshold: Option<u32>,
    pub expect_close: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    pub name: String,
    pub address: BackendAddress,
    pub host_header: Option<Text>,
    pub limits: BackendLimits,
    pub proxy_header: Option<u32>,
    pub preamble: Option<Vec<u8>>,
    pub authority: Option<String>,
    pub probe: Option<u32>,
    pub via: Option<u32>,
    /// `backend x none;`: always sick, never connected.
    pub none: bool,
    pub tls: Option<BackendTls>,
    /// `.proto = "h2"`: HTTP/2 is spoken; with TLS, it is offered.
    pub http2: bool,
}

/// The address of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendAddress {
    /// `.host` as written, or empty with `path`.
    pub host: String,
    pub port: Option<String>,
    pub path: Option<String>,
    /// Addresses that were resolved when the program was checked.
    pub ipv4: Option<std::net::SocketAddr>,
    pub ipv6: Option<std::net::SocketAddr>,
    /// The host, if it is a name whose addresses are looked up while the program runs.
    pub name: Option<HostName>,
}

/// A host name and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostName {
    pub host: String,
    pub port: u16,
}

/// The limits of a backend that replace those of the parameters. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendLimits {
    pub connect_timeout: Option<f64>,
    pub first_byte_timeout: Option<f64>,
    pub between_bytes_timeout: Option<f64>,
    pub max_connections: Option<u32>,
    pub wait_limit: Option<u32>,
    pub wait_timeout: Option<f64>,
    /// The age of a connection; 0 is no limit, as for `max_requests`.
    pub max_age: Option<f64>,
    pub max_requests: Option<u32>,
}

/// TLS on the connections to a backend (`.ssl = 1`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendTls {
    /// The location of `.ssl`.
    pub at: At,
    /// The name that is sent (SNI) and compared with the certificate: a host name or an address, without port.
    pub server_name: String,
    pub sends_name: bool,
    /// Whether the certificate must come from one of the authorities.
    pub verifies_peer: bool,
    /// Whether the certificate must contain the server name. Without effect if the peer is not verified.
    pub verifies_host: bool,
    /// Index into `TlsFiles::authorities`; `None` if the peer is not verified.
    pub authorities: Option<u32>,
    /// Index into `TlsFiles::identities`, for a client certificate.
    pub identity: Option<u32>,
}

/// Files that the front end has read, each once, because the worker may lack the rights.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TlsFiles {
    pub authorities: Vec<Authorities>,
    pub identities: Vec<Identity>,
}

/// Certificates of trusted authorities.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Authorities {
    /// `None` for the trust store of the system.
    pub path: Option<String>,
    pub pem: Vec<u8>,
}

/// A client certificate with its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub certificate: String,
    /// The file of the key, if it is not in that of the certificate.
    pub key: Option<String>,
    pub pem: IdentityPem,
}

/// The contents of the files of a client certificate. They are not printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityPem {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl std::fmt::Debug for IdentityPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdentityPem")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// The module's own name.
    pub module: String,
    /// Its name in this program.
    pub alias: String,
}

/// A function of a module, or a method of one of its object types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    pub import: u32,
    /// The object type's name, or "" for a plain function.
    pub object: String,
    pub name: String,
}

/// An object that `new` creates in vcl_init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    pub name: String,
    pub import: u32,
    pub type_name: String,
    /// Whether the object may be missing after vcl_init. Otherwise a missing object fails the load.
    pub null_ok: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sub {
    pub name: String,
    pub at: At,
    pub body: Vec<Stmt>,
    /// The methods that reach it, as bits `1 << Method as u32`.
    pub reachable_from: u32,
    /// The methods that allow all its statements, for calls of SUB values, which are checked at run time.
    pub allowed: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Stmt {
    Set {
        at: At,
        target: Var,
        op: SetOp,
        value: Expr,
    },
    /// `value` has type String (parts are an `ExprKind::Concat`).
    SetHeader {
        at: At,
        http: HttpId,
        header: u32,
        value: Expr,
    },
    /// `op` is `Assign` or `Add`; `value` is String or Blob.
    SetBody {
        at: At,
        target: Var,
        op: SetOp,
        value: Expr,
    },
    Unset {
        at: At,
        target: Var,
    },
    UnsetHeader {
        at: At,
        http: HttpId,
        header: u32,
    },
    If {
        arms: Vec<(Expr, Vec<Stmt>)>,
        otherwise: Vec<Stmt>,
    },
    /// Call of a subroutine known by name.
    CallSub {
        at: At,
        sub: u32,
    },
    /// Call of a SUB value computed at run time.
    CallDynamic {
        at: At,
        sub: Expr,
    },
    /// An expression that is evaluated for its effect: a module function of type VOID, or one whose value is dropped.
    Do {
        at: At,
        call: Expr,
    },
    New {
        at: At,
        object: u32,
        args: Vec<Option<Expr>>,
    },
    /// `hash_data(...)`
    HashData {
        at: At,
        value: Expr,
    },
    /// `ban(...)`; `value` is String.
    Ban {
        at: At,
        value: Expr,
    },
    /// `synthetic(...)`: appends to the body of the current response, resp or beresp; `value` is Strands.
    Synthetic {
        at: At,
        value: Expr,
    },
    Return {
        at: At,
        how: Return,
    },
    /// A point that `req.trace` and `feature +trace` log as `VCL_trace`: number, source, line, column.
    Trace {
        at: At,
        number: u32,
    },
}

impl Stmt {
    /// Returns the statement's own location, if it has one.
    pub fn at(&self) -> Option<At> {
        match self {
            Stmt::If { .. } => None,
            Stmt::Set { at, .. }
            | Stmt::SetHeader { at, .. }
            | Stmt::SetBody { at, .. }
            | Stmt::Unset { at, .. }
            | Stmt::UnsetHeader { at, .. }
            | Stmt::CallSub { at, .. }
            | Stmt::CallDynamic { at, .. }
            | Stmt::Do { at, .. }
            | Stmt::New { at, .. }
            | Stmt::HashData { at, .. }
            | Stmt::Ban { at, .. }
            | Stmt::Synthetic { at, .. }
            | Stmt::Return { at, .. }
            | Stmt::Trace { at, .. } => Some(*at),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Return {
    Plain(Action),
    /// `synth(status [, reason])` and `error(status [, reason])`.
    Status {
        action: Action,
        status: Expr,
        reason: Option<Expr>,
    },
    /// `pass(duration)` in vcl_backend_response.
    PassFor(Expr),
    /// `vcl(label)`: index into `Program::labels`.
    Vcl(u32),
    /// `fail("reason")`.
    Fail(Option<Expr>),
    /// `return;` ends the subroutine and continues in its caller.
    FromSub,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetOp {
    Assign,
    Add,
    Sub,
    Mul,
    Div,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expr {
    pub ty: Type,
    pub kind: ExprKind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ExprKind {
    Bool(bool),
    /// INT and BYTES.
    Int(i64),
    /// REAL, DURATION and TIME.
    Real(f64),
    Str(Text),
    /// An undefined string. An unset header is equal to it.
    NullStr,
    Ip(std::net::IpAddr, u16),
    Blob(Vec<u8>),
    /// Index of a declared backend; `None` is VCL's default backend, named `default`.
    Backend(u32),
    DefaultBackend,
    /// No backend: a `None` literal, or the default 0 of an optional argument.
    NoBackend,
    Probe(u32),
    Acl(u32),
    Sub(u32),
    Regex(u32),
    Enum(String),
    Stevedore(String),
    HttpRef(HttpId),
    /// A HEADER argument: message and name.
    HeaderRef(HttpId, u32),
    Var(Var),
    /// `storage.<name>.<field>`
    StorageVar(String, Var),
    /// The same field of a computed STEVEDORE, as in `beresp.storage.free_space`.
    StorageField(Box<Expr>, Var),
    /// `.upper()` and `.lower()` of a STRING.
    ChangeCase {
        upper: bool,
        value: Box<Expr>,
    },
    /// `.resolve()` of a BACKEND: the backend that its directors currently select.
    ResolveBackend(Box<Expr>),
    /// The value of a header; undefined if unset.
    Header(HttpId, u32),
    /// Parts of type String: joined for type String, passed as a list for type Strands.
    Concat(Vec<Expr>),
    /// Conversion of any type to STRING.
    ToString(Box<Expr>),
    /// Numeric conversion in one machine instruction (INT→REAL, INT→DURATION, BYTES→INT …), to the type `Expr::ty`.
    Convert(Box<Expr>),
    /// A STRING or other type as a condition: true if it is defined.
    Defined(Box<Expr>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    Arith(ArithOp, Box<Expr>, Box<Expr>),
    /// STRING against a constant regex or a REGEX value.
    Match {
        subject: Box<Expr>,
        regex: Box<Expr>,
        negated: bool,
    },
    AclMatch {
        ip: Box<Expr>,
        acl: Box<Expr>,
        negated: bool,
    },
    Regsub {
        all: bool,
        subject: Box<Expr>,
        regex: Box<Expr>,
        replacement: Box<Expr>,
    },
    /// A module function or method. Absent optional arguments are `None`.
    Call {
        function: u32,
        object: Option<u32>,
        args: Vec<Option<Expr>>,
        call_site: Option<u32>,
        at: At,
    },
    /// Whether a SUB value may be called from here (`if (sub)`). Constant true for literals.
    SubCallable(Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArithOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

impl Program {
    pub fn method(&self, method: Method) -> Option<&Sub> {
        self.methods.get(method as usize).and_then(|&i| self.subs.get(i as usize))
    }
}
