//! The operations that a transaction offers to VCL. The worker implements them for client
//! requests, fetches and the context of vcl_init. Methods that a context may lack have a default, which
//! returns a neutral value or fails.
//!
//! A method that fails returns `Err` with a text, which is logged as `VCL_Error` and fails the
//! transaction.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use lacquer_system::TcpInfo;
use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;

use crate::backend::BackendId;
use crate::header_name::HeaderName;
use crate::private_map::PrivateMap;
use crate::regex::RegexLimits;
use crate::value::{Blob, Str};

/// Work that VCL waits for. It runs on the reactor's own thread.
pub type LocalFuture<'h, T> = Pin<Box<dyn Future<Output = T> + 'h>>;

/// The kind of a purge: at once, or by new lifetimes (`None` keeps the object's value).
#[derive(Clone, Copy, Debug)]
pub enum PurgeMode {
    Hard,
    Soft { ttl: f64, grace: Option<f64>, keep: Option<f64> },
}

/// The change of one header line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderEdit {
    Keep,
    Remove,
    /// Replaces the whole line, `Name: value`.
    Replace(Vec<u8>),
}

/// A parameter of an HTTP/2 session, with the session's own value (module h2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum H2Setting {
    RapidReset,
    RapidResetLimit,
    RapidResetPeriod,
    /// Number of resets left before the session is closed; cannot be set.
    RapidResetBudget,
}

/// A fact about a TLS session (module tls): the client's, or in `vcl_backend_response` the origin's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFact {
    Version,
    Cipher,
    /// The server name that the client has requested.
    Authority,
    Alpn,
    /// The signature algorithm of the server's certificate.
    CertSign,
    /// The algorithm and size of the certificate's key.
    CertKey,
    /// The fingerprint of the client.
    Ja3,
    /// A fact about the client's certificate.
    Client(ClientFact),
}

/// A fact about the verified certificate of a client (module tls).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFact {
    Subject,
    CommonName,
    Issuer,
    Serial,
    /// The SHA-256 digest.
    Fingerprint,
    /// The first moment of its validity, in seconds since the epoch.
    NotBefore,
    /// The last moment of its validity, in seconds since the epoch.
    NotAfter,
    Pem,
    /// As a field `Client-Cert` has it.
    Header,
}

/// The result of an operation. The error is the text for the log.
pub type HostResult<T> = Result<T, String>;

fn unavailable<T>(what: &str) -> HostResult<T> {
    Err(format!("{what} is not available here"))
}

/// Promises that the values of a [`Host`] outlive the call that returned them. This is the only promise about
/// lifetimes that the compiler cannot check: a string must survive the next call, which borrows the host again, and
/// compiled code holds pointers instead of borrows.
///
/// # Safety
/// Let a [`Ctx`](crate::Ctx) borrow the host for `'a`. Until `'a` ends, whichever other methods of the host are
/// called, nothing moves, changes or frees the memory behind what one of these returned: [`Host::alloc`] (except for
/// what the caller writes there before its next call), [`Host::copy`], [`Host::get_str`], [`Host::get_ip`],
/// [`Host::get_blob`], [`Host::header`] and [`Host::stevedore_name`]. This includes [`Host::rollback`] and
/// [`Host::workspace_reset`]: memory that they release must not be written before `'a` ends.
pub unsafe trait StableValues {}

/// A transaction from VCL's side: a client's request, a fetch, or none (vcl_init and vcl_fini). A kind of
/// transaction keeps the defaults for what it does not have; they fail or return a neutral value.
pub trait Host: StableValues {
    /// Returns the method that is running.
    fn method(&self) -> Method;
    /// Returns the time of this task, seconds since the epoch (VCL's `now`).
    fn now(&self) -> f64;
    /// Returns the current time (std.now, timestamps).
    fn real_now(&self) -> f64;

    // Workspace. `None`: out of workspace.
    /// Returns `bytes` bytes with undefined content.
    fn alloc(&mut self, bytes: usize) -> Option<&mut [u8]>;
    fn copy(&mut self, bytes: &[u8]) -> Option<&[u8]>;

    // Variables by class. Types are checked at compile time, so a wrong class is a bug; it returns a neutral value.
    fn get_bool(&mut self, _var: Var) -> bool {
        false
    }
    /// Reads an INT or BYTES.
    fn get_int(&mut self, _var: Var) -> i64 {
        0
    }
    /// Reads a REAL, DURATION or TIME.
    fn get_real(&mut self, _var: Var) -> f64 {
        0.0
    }
    /// `None` is VCL's undefined string, here and in every method with a string as parameter or result.
    fn get_str(&mut self, _var: Var) -> Option<&[u8]> {
        None
    }
    fn get_ip(&self, _var: Var) -> Option<&SocketAddr> {
        None
    }
    fn get_blob(&mut self, _var: Var) -> Option<Blob<'_>> {
        None
    }
    fn get_backend(&mut self, _var: Var) -> BackendId {
        BackendId::NONE
    }
    /// Reads a STEVEDORE: the storage's index plus one, 0 for none.
    fn get_stevedore(&mut self, _var: Var) -> u32 {
        0
    }
    fn set_bool(&mut self, var: Var, _value: bool) -> HostResult<()> {
        unavailable(var.name())
    }
    fn set_int(&mut self, var: Var, _value: i64) -> HostResult<()> {
        unavailable(var.name())
    }
    fn set_real(&mut self, var: Var, _value: f64) -> HostResult<()> {
        unavailable(var.name())
    }
    fn set_str(&mut self, var: Var, _value: Option<&[u8]>) -> HostResult<()> {
        unavailable(var.name())
    }
    fn set_backend(&mut self, var: Var, _value: BackendId) -> HostResult<()> {
        unavailable(var.name())
    }
    fn set_stevedore(&mut self, var: Var, _value: u32) -> HostResult<()> {
        unavailable(var.name())
    }
    fn unset(&mut self, var: Var) -> HostResult<()> {
        unavailable(var.name())
    }
    /// Reads `storage.<name>.free_space`, `used_space` (BYTES) or `happy` (0 or 1).
    fn storage_var(&mut self, _storage: &str, _var: Var) -> i64 {
        0
    }
    fn stevedore_by_name(&mut self, _name: &str) -> u32 {
        0
    }
    fn stevedore_name(&mut self, _index: u32) -> Option<&[u8]> {
        None
    }

    // Headers. An undefined value sets an empty header, as in Varnish. The host decides whether a value is valid
    // in a header (feature validate_headers).
    fn header(&mut self, _http: HttpId, _name: &HeaderName) -> Option<&[u8]> {
        None
    }
    fn set_header(&mut self, _http: HttpId, name: &HeaderName, _value: Option<&[u8]>) -> HostResult<()> {
        unavailable(name.name.as_str())
    }
    /// Like [`set_header`](Host::set_header), with the joined parts as value. Undefined parts are empty.
    fn set_header_parts(&mut self, http: HttpId, name: &HeaderName, parts: &[Str<'_>]) -> HostResult<()> {
        let value: Vec<u8> = parts.iter().flat_map(|part| part.or_empty()).copied().collect();
        self.set_header(http, name, Some(&value))
    }
    fn unset_header(&mut self, _http: HttpId, name: &HeaderName) -> HostResult<()> {
        unavailable(name.name.as_str())
    }
    fn collect_header(&mut self, _http: HttpId, name: &HeaderName, _separator: &[u8]) -> HostResult<()> {
        unavailable(name.name.as_str())
    }
    /// Adds a header line and keeps others of the same name.
    fn append_header(&mut self, _http: HttpId, name: &[u8], _value: &[u8]) -> HostResult<()> {
        unavailable(&String::from_utf8_lossy(name))
    }
    /// Calls `edit` for every header line (`Name: value`).
    fn edit_headers(&mut self, _http: HttpId, _edit: &mut dyn FnMut(&[u8]) -> HeaderEdit) -> HostResult<()> {
        unavailable("the message")
    }
    /// Sets `resp.body` or `beresp.body`; `append` for `+=`.
    fn set_body(&mut self, var: Var, _append: bool, _content: &[u8]) -> HostResult<()> {
        unavailable(var.name())
    }

    // Returns with arguments; the plain action is the compiled subroutine's result.
    fn return_status(&mut self, _status: i64, _reason: Option<&[u8]>) -> HostResult<()> {
        unavailable("return with a status")
    }
    fn return_pass_for(&mut self, _seconds: f64) -> HostResult<()> {
        unavailable("return(pass(duration))")
    }
    fn return_vcl(&mut self, _label: &str) -> HostResult<()> {
        unavailable("return(vcl(label))")
    }

    // Effects.
    /// Adds one string to the hash; undefined is the separator after each `hash_data(...)`.
    fn hash_data(&mut self, _data: Option<&[u8]>) -> HostResult<()> {
        unavailable("hash_data()")
    }
    /// Writes one log record; `tag` is the number in the log's tag table. Records that do not fit are truncated.
    fn log(&mut self, tag: u8, text: &[u8]);
    /// Writes a record of another transaction (`vxid` with its marker bits; 0 for none).
    fn log_as(&mut self, _vxid: u64, _tag: u8, _text: &[u8]) {}
    /// Receives a trace point: the text of its record `VCL_trace`. Called only while [`Ctx::trace`](crate::Ctx) is not 0.
    fn trace(&mut self, _text: &str) {}
    /// Returns the parameters `pcre2_match_limit` and `pcre2_depth_limit`.
    fn regex_limits(&self) -> RegexLimits {
        RegexLimits::default()
    }
    /// Logs `VCL_Error` (or, in vcl_init, adds the line to the reply to the CLI). Called through
    /// [`Ctx::fail`](crate::Ctx::fail), which reports only the first failure of a run.
    fn fail(&mut self, text: &str);
    fn timestamp(&mut self, _label: &[u8]) {}
    fn rollback(&mut self, _http: HttpId) -> HostResult<()> {
        unavailable("rollback")
    }
    fn ban(&mut self, _expression: &[u8]) -> Result<(), String> {
        unavailable("ban")
    }
    /// Purges the objects with the request's hash. Returns their number.
    fn purge(&mut self, _mode: PurgeMode) -> HostResult<LocalFuture<'_, i64>> {
        unavailable("purge")
    }
    /// Purges the objects with any of the tags (module xkey). Returns their number.
    fn purge_tags(&mut self, _tags: &[&[u8]], _mode: PurgeMode) -> HostResult<LocalFuture<'_, i64>> {
        unavailable("purging by tags")
    }
    fn rfc_ttl(&mut self) -> HostResult<()> {
        unavailable("rfc_ttl")
    }
    fn late_100_continue(&mut self, _late: bool) -> HostResult<()> {
        unavailable("late_100_continue")
    }
    fn set_ip_tos(&mut self, _tos: i64) -> HostResult<()> {
        unavailable("set_ip_tos")
    }
    /// Reads and stores the request's body. Returns its length, negative on failure.
    fn cache_req_body(&mut self, _limit: u64) -> HostResult<LocalFuture<'_, i64>> {
        unavailable("cache_req_body")
    }
    /// Returns the request's cached body, if there is one (module bodyaccess).
    fn cached_req_body(&mut self) -> Option<Vec<u8>> {
        None
    }
    /// Returns the length of the request's cached body, if there is one.
    fn cached_req_body_len(&mut self) -> Option<u64> {
        None
    }
    /// Returns the peer credentials of a UNIX socket: uid, gid.
    fn peer_credentials(&mut self) -> Option<(u32, u32)> {
        None
    }
    /// Returns the raw value of a PROXY v2 TLV by its type byte.
    fn proxy_tlv(&mut self, _kind: u8) -> Option<Vec<u8>> {
        None
    }
    /// Returns `None` if the connection does not use TLS, or has no such fact.
    fn tls_fact(&mut self, _which: TlsFact) -> Option<Vec<u8>> {
        None
    }
    fn is_http2(&mut self) -> bool {
        false
    }
    /// Returns `None` if the session is not HTTP/2.
    fn h2_setting(&mut self, _which: H2Setting) -> Option<f64> {
        None
    }
    fn set_h2_setting(&mut self, _which: H2Setting, _value: f64) {}
    /// Sets the congestion control of the client's connection. Returns whether the kernel accepted it.
    fn tcp_congestion(&mut self, _algorithm: &str) -> bool {
        false
    }
    /// Limits the send rate of the client's connection, in kilobytes per second.
    fn tcp_pace(&mut self, _kilobytes: i64) -> bool {
        false
    }
    fn tcp_info(&mut self) -> Option<TcpInfo> {
        None
    }

    // Workspaces by name (client, backend, session, thread), for module vtc.
    fn workspace_free(&mut self, _which: &str) -> Option<usize> {
        None
    }
    fn workspace_alloc(&mut self, _which: &str, _bytes: usize) -> bool {
        false
    }
    fn workspace_overflow(&mut self, _which: &str) {}
    fn workspace_overflowed(&mut self, _which: &str) -> bool {
        false
    }
    fn workspace_snapshot(&mut self, _which: &str) {}
    fn workspace_reset(&mut self, _which: &str) {}
    /// Returns up to `length` bytes at `offset` from the start (`s`), the free part (`f`) or the reservation (`r`).
    fn workspace_dump(
        &mut self,
        _which: &str,
        _at: u8,
        _offset: usize,
        _length: usize,
    ) -> HostResult<Vec<u8>> {
        Err("NULL".to_owned())
    }

    /// Values that modules store for this task (PRIV_TASK), and for the request and its sub-requests (PRIV_TOP).
    fn task_privates(&mut self) -> &mut PrivateMap;
    fn top_privates(&mut self) -> &mut PrivateMap {
        self.task_privates()
    }
}
