//! The operations that a transaction offers to the VCL it runs. The worker implements them for client
//! requests, fetches and the bare context of vcl_init. Methods that a context may lack have a default, which
//! returns a neutral value or fails.
//!
//! A method that fails returns `Err` with the text, which becomes `VCL_Error` in the log and fails the
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
use crate::value::Blob;

/// Work that VCL waits for. It runs on the reactor's own thread.
pub type LocalFuture<'h, T> = Pin<Box<dyn Future<Output = T> + 'h>>;

/// Kinds of purge: at once, or by new lifetimes (`None` keeps what the object has).
#[derive(Clone, Copy, Debug)]
pub enum PurgeMode {
    Hard,
    Soft { ttl: f64, grace: Option<f64>, keep: Option<f64> },
}

/// Treatment of one header line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderEdit {
    Keep,
    Remove,
    /// The whole line, `Name: value`.
    Replace(Vec<u8>),
}

/// An HTTP/2 session's own value of a parameter (module h2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum H2Setting {
    RapidReset,
    RapidResetLimit,
    RapidResetPeriod,
    /// Resets left before the session is closed; cannot be set.
    RapidResetBudget,
}

/// The error is the text of the failure, for the log.
pub type HostResult<T> = Result<T, String>;

fn nowhere<T>(what: &str) -> HostResult<T> {
    Err(format!("{what} is not available here"))
}

/// Promises that the values of a [`Host`] outlast the call that returned them. It is the one promise about the life of
/// values that the compiler cannot check: a string must survive the next call, which borrows the host anew, and
/// compiled code holds pointers instead of borrows.
///
/// # Safety
/// Let a [`Ctx`](crate::Ctx) borrow the host for `'a`. Until `'a` ends, whichever other methods of the host are
/// called, nothing moves, changes or frees the memory behind what one of these returned: [`Host::alloc`] (but for
/// what the caller writes there before its next call), [`Host::copy`], [`Host::get_str`], [`Host::get_ip`],
/// [`Host::get_blob`], [`Host::header`] and [`Host::stevedore_name`]. This includes [`Host::rollback`] and
/// [`Host::workspace_reset`]: room that they give back must not be written to before `'a` ends.
pub unsafe trait StableValues {}

/// A transaction as VCL sees it: a client's request, a fetch, or none (vcl_init and vcl_fini). A kind of
/// transaction leaves to the defaults what it does not have; they fail or return a neutral value.
pub trait Host: StableValues {
    /// The subroutine that runs now.
    fn method(&self) -> Method;
    /// Time of this task, seconds since the epoch (VCL's `now`).
    fn now(&self) -> f64;
    /// The real time at this moment (std.now, timestamps).
    fn real_now(&self) -> f64;

    // Workspace. `None`: out of workspace.
    /// Returns `bytes` bytes of any content.
    fn alloc(&mut self, bytes: usize) -> Option<&mut [u8]>;
    fn copy(&mut self, bytes: &[u8]) -> Option<&[u8]>;

    // Variables by class. Types are settled at compile time, so a wrong class is a bug; it yields a neutral value.
    fn get_bool(&mut self, _var: Var) -> bool {
        false
    }
    /// INT and BYTES.
    fn get_int(&mut self, _var: Var) -> i64 {
        0
    }
    /// REAL, DURATION and TIME.
    fn get_real(&mut self, _var: Var) -> f64 {
        0.0
    }
    /// `None` is VCL's undefined string, here and wherever a method takes or returns a string.
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
    /// STEVEDORE: the storage's index plus one, 0 for none.
    fn get_stevedore(&mut self, _var: Var) -> u32 {
        0
    }
    fn set_bool(&mut self, var: Var, _value: bool) -> HostResult<()> {
        nowhere(var.name())
    }
    fn set_int(&mut self, var: Var, _value: i64) -> HostResult<()> {
        nowhere(var.name())
    }
    fn set_real(&mut self, var: Var, _value: f64) -> HostResult<()> {
        nowhere(var.name())
    }
    fn set_str(&mut self, var: Var, _value: Option<&[u8]>) -> HostResult<()> {
        nowhere(var.name())
    }
    fn set_backend(&mut self, var: Var, _value: BackendId) -> HostResult<()> {
        nowhere(var.name())
    }
    fn set_stevedore(&mut self, var: Var, _value: u32) -> HostResult<()> {
        nowhere(var.name())
    }
    fn unset(&mut self, var: Var) -> HostResult<()> {
        nowhere(var.name())
    }
    /// `storage.<name>.free_space`, `used_space` (BYTES) and `happy` (0 or 1).
    fn storage_var(&mut self, _storage: &str, _var: Var) -> i64 {
        0
    }
    fn stevedore_by_name(&mut self, _name: &str) -> u32 {
        0
    }
    fn stevedore_name(&mut self, _index: u32) -> Option<&[u8]> {
        None
    }

    // Headers. An undefined value sets an empty header, as Varnish does. The host decides whether a value may
    // stand in a header (feature validate_headers).
    fn header(&mut self, _http: HttpId, _name: &HeaderName) -> Option<&[u8]> {
        None
    }
    fn set_header(&mut self, _http: HttpId, name: &HeaderName, _value: Option<&[u8]>) -> HostResult<()> {
        nowhere(name.name.as_str())
    }
    fn unset_header(&mut self, _http: HttpId, name: &HeaderName) -> HostResult<()> {
        nowhere(name.name.as_str())
    }
    fn collect_header(&mut self, _http: HttpId, name: &HeaderName, _separator: &[u8]) -> HostResult<()> {
        nowhere(name.name.as_str())
    }
    /// Adds a header line without touching others of its name.
    fn append_header(&mut self, _http: HttpId, name: &[u8], _value: &[u8]) -> HostResult<()> {
        nowhere(&String::from_utf8_lossy(name))
    }
    /// Walks over all header lines (`Name: value`).
    fn edit_headers(&mut self, _http: HttpId, _edit: &mut dyn FnMut(&[u8]) -> HeaderEdit) -> HostResult<()> {
        nowhere("the message")
    }
    /// `resp.body`, `beresp.body`; `append` for `+=`.
    fn set_body(&mut self, var: Var, _append: bool, _content: &[u8]) -> HostResult<()> {
        nowhere(var.name())
    }

    // Returns with arguments; the plain action is the compiled subroutine's result.
    fn return_status(&mut self, _status: i64, _reason: Option<&[u8]>) -> HostResult<()> {
        nowhere("return with a status")
    }
    fn return_pass_for(&mut self, _seconds: f64) -> HostResult<()> {
        nowhere("return(pass(duration))")
    }
    fn return_vcl(&mut self, _label: &str) -> HostResult<()> {
        nowhere("return(vcl(label))")
    }

    // Effects.
    /// One string that goes into the hash; undefined is the separator after each `hash_data(...)`.
    fn hash_data(&mut self, _data: Option<&[u8]>) -> HostResult<()> {
        nowhere("hash_data()")
    }
    /// One log record; `tag` is the number in the log's tag table. Records that do not fit are cut.
    fn log(&mut self, tag: u8, text: &[u8]);
    /// A record of another transaction (`vxid` with its marker bits; 0 for none).
    fn log_as(&mut self, _vxid: u64, _tag: u8, _text: &[u8]) {}
    /// `VCL_trace`; called only while [`Ctx::trace`](crate::Ctx) is on.
    fn trace(&mut self, _text: &str) {}
    /// Parameters `pcre2_match_limit` and `pcre2_depth_limit`.
    fn regex_limits(&self) -> RegexLimits {
        RegexLimits::default()
    }
    /// Logs `VCL_Error` (or, in vcl_init, adds the line to the answer to the CLI). Called through
    /// [`Ctx::fail`](crate::Ctx::fail), which keeps the first failure of a run only.
    fn fail(&mut self, text: &str);
    fn timestamp(&mut self, _label: &[u8]) {}
    fn rollback(&mut self, _http: HttpId) -> HostResult<()> {
        nowhere("rollback")
    }
    fn ban(&mut self, _expression: &[u8]) -> Result<(), String> {
        nowhere("ban")
    }
    /// Purges the objects under the request's hash; how many there were.
    fn purge(&mut self, _mode: PurgeMode) -> HostResult<LocalFuture<'_, i64>> {
        nowhere("purge")
    }
    /// Purges the objects that carry any of the tags; how many there were (module xkey).
    fn purge_tags(&mut self, _tags: &[&[u8]], _mode: PurgeMode) -> HostResult<LocalFuture<'_, i64>> {
        nowhere("purging by tags")
    }
    fn rfc_ttl(&mut self) -> HostResult<()> {
        nowhere("rfc_ttl")
    }
    fn late_100_continue(&mut self, _late: bool) -> HostResult<()> {
        nowhere("late_100_continue")
    }
    fn set_ip_tos(&mut self, _tos: i64) -> HostResult<()> {
        nowhere("set_ip_tos")
    }
    /// Reads and keeps the request's body; the result is its length, negative on failure.
    fn cache_req_body(&mut self, _limit: u64) -> HostResult<LocalFuture<'_, i64>> {
        nowhere("cache_req_body")
    }
    /// The request's cached body, in order, if there is one (module bodyaccess).
    fn cached_req_body(&mut self) -> Option<Vec<u8>> {
        None
    }
    /// Peer credentials of a UNIX socket: uid, gid.
    fn peer_credentials(&mut self) -> Option<(u32, u32)> {
        None
    }
    /// A PROXY v2 TLV by type byte, raw.
    fn proxy_tlv(&mut self, _kind: u8) -> Option<Vec<u8>> {
        None
    }
    fn is_http2(&mut self) -> bool {
        false
    }
    /// `None` where the session is not HTTP/2.
    fn h2_setting(&mut self, _which: H2Setting) -> Option<f64> {
        None
    }
    fn set_h2_setting(&mut self, _which: H2Setting, _value: f64) {}
    /// The congestion control of the client's connection; whether the kernel took it.
    fn tcp_congestion(&mut self, _algorithm: &str) -> bool {
        false
    }
    /// The most that the client's connection sends, in kilobytes a second.
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
    /// Up to `length` bytes at `offset` from the start (`s`), the free part (`f`) or the reservation (`r`).
    fn workspace_dump(
        &mut self,
        _which: &str,
        _at: u8,
        _offset: usize,
        _length: usize,
    ) -> HostResult<Vec<u8>> {
        Err("NULL".to_owned())
    }

    /// Values that modules keep for this task (PRIV_TASK) and for the request and its sub-requests (PRIV_TOP).
    fn task_privates(&mut self) -> &mut PrivateMap;
    fn top_privates(&mut self) -> &mut PrivateMap {
        self.task_privates()
    }
}
