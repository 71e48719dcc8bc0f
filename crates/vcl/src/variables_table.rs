//! All VCL variables: name, type, the methods in which each can be read, written and unset, and its versions.
//!
//! Headers (`req.http.*`) are not in the table: they are `ExprKind::Header`. A name can have two rows if the language
//! versions allow different uses.

use serde::{Deserialize, Serialize};

use crate::types::{Method, Type};

const fn m(method: Method) -> u32 {
    1 << method as u32
}

/// All subroutines of the client side.
pub const CLIENT: u32 = m(Method::Recv)
    | m(Method::Pipe)
    | m(Method::Pass)
    | m(Method::Hash)
    | m(Method::Purge)
    | m(Method::Miss)
    | m(Method::Hit)
    | m(Method::Deliver)
    | m(Method::Synth);
/// All subroutines of the backend side.
pub const BACKEND: u32 = m(Method::BackendFetch)
    | m(Method::BackendRefresh)
    | m(Method::BackendResponse)
    | m(Method::BackendError);
/// The subroutines in which there is a response from the backend.
const RESPONSE: u32 = m(Method::BackendResponse) | m(Method::BackendError) | m(Method::BackendRefresh);
/// All subroutines, including vcl_init and vcl_fini.
pub const ALL: u32 = CLIENT | BACKEND | m(Method::Init) | m(Method::Fini);

/// One row: the uses that the language allows for a variable from version `since` to version `until`.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub var: Var,
    pub name: &'static str,
    pub ty: Type,
    pub read: u32,
    pub write: u32,
    pub unset: u32,
    pub since: u32,
    pub until: u32,
}

/// Defines the variables once: compiled code contains their numbers, and [`Var::from_code`] finds them by these.
macro_rules! variables {
    ($($name:ident,)*) => {
        /// A variable's identity in checked programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[repr(u16)]
        pub enum Var {
            $($name,)*
        }

        impl Var {
            pub const EVERY: [Var; Var::COUNT] = [$(Var::$name,)*];
            pub const COUNT: usize = [$(Var::$name,)*].len();
        }
    };
}

variables! {
    ClientConnections,
    ClientIdentity,
    ClientIp,
    ClientRequests,
    ServerHostname,
    ServerIdentity,
    ServerIp,
    RemoteIp,
    LocalIp,
    Req,
    ReqBackendHint,
    ReqCanGzip,
    ReqEsiLevel,
    ReqFilters,
    ReqGrace,
    ReqHash,
    ReqHashAlwaysMiss,
    ReqHashIgnoreBusy,
    ReqHashIgnoreVary,
    ReqIsHitmiss,
    ReqIsHitpass,
    ReqMethod,
    ReqRestarts,
    ReqStorage,
    ReqTime,
    ReqTrace,
    ReqTransport,
    ReqMaxAge,
    ReqTtl,
    ReqUrl,
    ReqXid,
    ReqTopMethod,
    ReqTopProto,
    ReqTopTime,
    ReqTopUrl,
    BereqBackend,
    BereqBetweenBytesTimeout,
    BereqBody,
    BereqConnectTimeout,
    BereqFilters,
    BereqFirstByteTimeout,
    BereqHash,
    BereqIsBgfetch,
    BereqIsHitmiss,
    BereqIsHitpass,
    BereqMethod,
    BereqRetries,
    BereqRetryConnect,
    BereqTaskDeadline,
    BereqTime,
    BereqTrace,
    BereqUncacheable,
    BereqUrl,
    BereqXid,
    Beresp,
    BerespAge,
    BerespBackend,
    BerespBackendName,
    BerespBody,
    BerespDoEsi,
    BerespDoGunzip,
    BerespDoGzip,
    BerespDoStream,
    BerespFilters,
    BerespGrace,
    BerespIsStorable,
    BerespKeep,
    BerespReason,
    BerespStaleIfError,
    BerespStatus,
    BerespStorage,
    BerespStorageHint,
    BerespTime,
    BerespTransitBuffer,
    BerespTtl,
    BerespUncacheable,
    BerespWas304,
    ObjStaleAge,
    ObjStaleCanEsi,
    ObjStaleGrace,
    ObjStaleHits,
    ObjStaleKeep,
    ObjStaleProto,
    ObjStaleReason,
    ObjStaleStatus,
    ObjStaleStorage,
    ObjStaleTime,
    ObjStaleTtl,
    ObjStaleUncacheable,
    ObjStaleIsValid,
    ObjAge,
    ObjCanEsi,
    ObjGrace,
    ObjHits,
    ObjKeep,
    ObjProto,
    ObjReason,
    ObjStatus,
    ObjStorage,
    ObjTime,
    ObjTtl,
    ObjUncacheable,
    RespBody,
    RespFilters,
    RespIsStreaming,
    RespReason,
    RespStatus,
    RespTime,
    Now,
    SessIdleSendTimeout,
    SessSendTimeout,
    SessTimeoutIdle,
    SessTimeoutLinger,
    StorageFreeSpace,
    StorageHappy,
    StorageUsedSpace,
    ParamBackendIdleTimeout,
    ParamBackendWaitLimit,
    ParamBackendWaitTimeout,
    ParamBetweenBytesTimeout,
    ParamConnectTimeout,
    ParamDefaultGrace,
    ParamDefaultKeep,
    ParamDefaultTtl,
    ParamFirstByteTimeout,
    ParamIdleSendTimeout,
    ParamMaxEsiDepth,
    ParamMaxRestarts,
    ParamMaxRetries,
    ParamRfc9111,
    ParamPipeTaskDeadline,
    ParamPipeTimeout,
    ParamSendTimeout,
    ParamShortlived,
    ParamTimeoutIdle,
    ParamTransitBuffer,
    ParamUncacheableTtl,
    LocalEndpoint,
    LocalSocket,
    ReqEsi,
    ReqProto,
    Bereq,
    BereqProto,
    BerespBackendIp,
    BerespProto,
    Resp,
    RespDoEsi,
    RespProto,
    SessXid,
}

impl Var {
    /// Returns the variable with this number, as compiled code passes it.
    #[inline]
    pub fn from_code(code: u32) -> Option<Var> {
        Var::EVERY.get(code as usize).copied()
    }

    pub fn name(self) -> &'static str {
        ENTRIES.iter().find(|e| e.var == self).map_or("", |e| e.name)
    }
}

const fn row(
    var: Var,
    name: &'static str,
    ty: Type,
    read: u32,
    write: u32,
    unset: u32,
    since: u32,
    until: u32,
) -> Entry {
    Entry { var, name, ty, read, write, unset, since, until }
}

#[rustfmt::skip]
pub const ENTRIES: &[Entry] = &[
    row(Var::ClientConnections, "client.connections", Type::Int, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::ClientIdentity, "client.identity", Type::String, CLIENT | BACKEND, CLIENT, 0, 40, 41),
    row(Var::ClientIp, "client.ip", Type::Ip, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::ClientRequests, "client.requests", Type::Int, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::ServerHostname, "server.hostname", Type::String, ALL, 0, 0, 40, 41),
    row(Var::ServerIdentity, "server.identity", Type::String, ALL, 0, 0, 40, 41),
    row(Var::ServerIp, "server.ip", Type::Ip, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::RemoteIp, "remote.ip", Type::Ip, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::LocalIp, "local.ip", Type::Ip, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::Req, "req", Type::Http, CLIENT, 0, 0, 40, 41),
    row(Var::ReqBackendHint, "req.backend_hint", Type::Backend, CLIENT, CLIENT, 0, 40, 41),
    row(Var::ReqCanGzip, "req.can_gzip", Type::Bool, CLIENT, CLIENT, 0, 40, 41),
    row(Var::ReqEsiLevel, "req.esi_level", Type::Int, CLIENT, 0, 0, 40, 41),
    row(Var::ReqFilters, "req.filters", Type::String, m(Method::Recv), m(Method::Recv), 0, 40, 41),
    row(Var::ReqGrace, "req.grace", Type::Duration, CLIENT, CLIENT, CLIENT, 40, 41),
    row(Var::ReqHash, "req.hash", Type::Blob, m(Method::Hit) | m(Method::Miss) | m(Method::Pass) | m(Method::Purge) | m(Method::Deliver) | m(Method::Synth) | m(Method::Pipe), 0, 0, 40, 41),
    row(Var::ReqHashAlwaysMiss, "req.hash_always_miss", Type::Bool, CLIENT, CLIENT, 0, 40, 41),
    row(Var::ReqHashIgnoreBusy, "req.hash_ignore_busy", Type::Bool, CLIENT, CLIENT, 0, 40, 41),
    row(Var::ReqHashIgnoreVary, "req.hash_ignore_vary", Type::Bool, CLIENT, CLIENT, 0, 40, 41),
    row(Var::ReqIsHitmiss, "req.is_hitmiss", Type::Bool, m(Method::Miss) | m(Method::Deliver) | m(Method::Pass) | m(Method::Synth), 0, 0, 40, 41),
    row(Var::ReqIsHitpass, "req.is_hitpass", Type::Bool, m(Method::Pass) | m(Method::Deliver) | m(Method::Synth), 0, 0, 40, 41),
    row(Var::ReqMethod, "req.method", Type::String, CLIENT, CLIENT, 0, 40, 41),
    row(Var::ReqRestarts, "req.restarts", Type::Int, CLIENT, 0, 0, 40, 41),
    row(Var::ReqStorage, "req.storage", Type::Stevedore, CLIENT, CLIENT, 0, 40, 41),
    row(Var::ReqTime, "req.time", Type::Time, CLIENT, 0, 0, 40, 41),
    row(Var::ReqTrace, "req.trace", Type::Bool, CLIENT, CLIENT, 0, 40, 41),
    row(Var::ReqTransport, "req.transport", Type::String, CLIENT, 0, 0, 40, 41),
    row(Var::ReqMaxAge, "req.max_age", Type::Duration, CLIENT, CLIENT, CLIENT, 40, 41),
    row(Var::ReqTtl, "req.ttl", Type::Duration, CLIENT, CLIENT, CLIENT, 40, 41),
    row(Var::ReqUrl, "req.url", Type::String, CLIENT, CLIENT, 0, 40, 41),
    row(Var::ReqXid, "req.xid", Type::Int, CLIENT, 0, 0, 40, 41),
    row(Var::ReqTopMethod, "req_top.method", Type::String, CLIENT, 0, 0, 40, 41),
    row(Var::ReqTopProto, "req_top.proto", Type::String, CLIENT, 0, 0, 40, 41),
    row(Var::ReqTopTime, "req_top.time", Type::Time, CLIENT, 0, 0, 40, 41),
    row(Var::ReqTopUrl, "req_top.url", Type::String, CLIENT, 0, 0, 40, 41),
    row(Var::BereqBackend, "bereq.backend", Type::Backend, m(Method::Pipe) | BACKEND, m(Method::Pipe) | BACKEND, 0, 40, 41),
    row(Var::BereqBetweenBytesTimeout, "bereq.between_bytes_timeout", Type::Duration, BACKEND, BACKEND, m(Method::Pipe) | BACKEND, 40, 41),
    row(Var::BereqBody, "bereq.body", Type::Body, 0, 0, m(Method::BackendFetch), 40, 41),
    row(Var::BereqConnectTimeout, "bereq.connect_timeout", Type::Duration, m(Method::Pipe) | BACKEND, m(Method::Pipe) | BACKEND, m(Method::Pipe) | BACKEND, 40, 41),
    row(Var::BereqFilters, "bereq.filters", Type::String, m(Method::BackendFetch), m(Method::BackendFetch), 0, 40, 41),
    row(Var::BereqFirstByteTimeout, "bereq.first_byte_timeout", Type::Duration, BACKEND, BACKEND, m(Method::Pipe) | BACKEND, 40, 41),
    row(Var::BereqHash, "bereq.hash", Type::Blob, m(Method::Pipe) | BACKEND, 0, 0, 40, 41),
    row(Var::BereqIsBgfetch, "bereq.is_bgfetch", Type::Bool, BACKEND, 0, 0, 40, 41),
    row(Var::BereqIsHitmiss, "bereq.is_hitmiss", Type::Bool, BACKEND, 0, 0, 40, 41),
    row(Var::BereqIsHitpass, "bereq.is_hitpass", Type::Bool, BACKEND, 0, 0, 40, 41),
    row(Var::BereqMethod, "bereq.method", Type::String, m(Method::Pipe) | BACKEND, m(Method::Pipe) | BACKEND, 0, 40, 41),
    row(Var::BereqRetries, "bereq.retries", Type::Int, BACKEND, 0, 0, 40, 41),
    row(Var::BereqRetryConnect, "bereq.retry_connect", Type::Bool, BACKEND, BACKEND, 0, 40, 41),
    row(Var::BereqTaskDeadline, "bereq.task_deadline", Type::Duration, m(Method::Pipe), m(Method::Pipe), m(Method::Pipe), 40, 41),
    row(Var::BereqTime, "bereq.time", Type::Time, m(Method::Pipe) | BACKEND, 0, 0, 40, 41),
    row(Var::BereqTrace, "bereq.trace", Type::Bool, BACKEND, BACKEND, 0, 40, 41),
    row(Var::BereqUncacheable, "bereq.uncacheable", Type::Bool, BACKEND, 0, 0, 40, 41),
    row(Var::BereqUrl, "bereq.url", Type::String, m(Method::Pipe) | BACKEND, m(Method::Pipe) | BACKEND, 0, 40, 41),
    row(Var::BereqXid, "bereq.xid", Type::Int, m(Method::Pipe) | BACKEND, 0, 0, 40, 41),
    row(Var::Beresp, "beresp", Type::Http, RESPONSE, 0, 0, 40, 41),
    row(Var::BerespAge, "beresp.age", Type::Duration, RESPONSE, 0, 0, 40, 41),
    row(Var::BerespBackend, "beresp.backend", Type::Backend, RESPONSE, 0, 0, 40, 41),
    row(Var::BerespBackendName, "beresp.backend.name", Type::String, RESPONSE, 0, 0, 40, 41),
    row(Var::BerespBody, "beresp.body", Type::Body, 0, m(Method::BackendError), 0, 40, 41),
    row(Var::BerespDoEsi, "beresp.do_esi", Type::Bool, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespDoGunzip, "beresp.do_gunzip", Type::Bool, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespDoGzip, "beresp.do_gzip", Type::Bool, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespDoStream, "beresp.do_stream", Type::Bool, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespFilters, "beresp.filters", Type::String, m(Method::BackendResponse), m(Method::BackendResponse), 0, 40, 41),
    row(Var::BerespGrace, "beresp.grace", Type::Duration, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespIsStorable, "beresp.is_storable", Type::Bool, RESPONSE, 0, 0, 40, 41),
    row(Var::BerespKeep, "beresp.keep", Type::Duration, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespReason, "beresp.reason", Type::String, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespStaleIfError, "beresp.stale_if_error", Type::Duration, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespStatus, "beresp.status", Type::Int, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespStorage, "beresp.storage", Type::Stevedore, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespStorageHint, "beresp.storage_hint", Type::String, RESPONSE, RESPONSE, 0, 40, 40),
    row(Var::BerespTime, "beresp.time", Type::Time, RESPONSE, 0, 0, 40, 41),
    row(Var::BerespTransitBuffer, "beresp.transit_buffer", Type::Bytes, m(Method::BackendResponse), m(Method::BackendResponse), 0, 40, 41),
    row(Var::BerespTtl, "beresp.ttl", Type::Duration, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespUncacheable, "beresp.uncacheable", Type::Bool, RESPONSE, RESPONSE, 0, 40, 41),
    row(Var::BerespWas304, "beresp.was_304", Type::Bool, RESPONSE, 0, 0, 40, 41),
    row(Var::ObjStaleAge, "obj_stale.age", Type::Duration, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleCanEsi, "obj_stale.can_esi", Type::Bool, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleGrace, "obj_stale.grace", Type::Duration, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleHits, "obj_stale.hits", Type::Int, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleKeep, "obj_stale.keep", Type::Duration, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleProto, "obj_stale.proto", Type::String, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleReason, "obj_stale.reason", Type::String, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleStatus, "obj_stale.status", Type::Int, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleStorage, "obj_stale.storage", Type::Stevedore, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleTime, "obj_stale.time", Type::Time, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleTtl, "obj_stale.ttl", Type::Duration, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleUncacheable, "obj_stale.uncacheable", Type::Bool, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjStaleIsValid, "obj_stale.is_valid", Type::Bool, m(Method::BackendRefresh), 0, 0, 40, 41),
    row(Var::ObjAge, "obj.age", Type::Duration, m(Method::Hit) | m(Method::Deliver), 0, 0, 40, 41),
    row(Var::ObjCanEsi, "obj.can_esi", Type::Bool, m(Method::Hit) | m(Method::Deliver), 0, 0, 40, 41),
    row(Var::ObjGrace, "obj.grace", Type::Duration, m(Method::Hit) | m(Method::Deliver), 0, 0, 40, 41),
    row(Var::ObjHits, "obj.hits", Type::Int, m(Method::Hit) | m(Method::Deliver), 0, 0, 40, 41),
    row(Var::ObjKeep, "obj.keep", Type::Duration, m(Method::Hit) | m(Method::Deliver), 0, 0, 40, 41),
    row(Var::ObjProto, "obj.proto", Type::String, m(Method::Hit), 0, 0, 40, 41),
    row(Var::ObjReason, "obj.reason", Type::String, m(Method::Hit), 0, 0, 40, 41),
    row(Var::ObjStatus, "obj.status", Type::Int, m(Method::Hit), 0, 0, 40, 41),
    row(Var::ObjStorage, "obj.storage", Type::Stevedore, m(Method::Hit) | m(Method::Deliver), 0, 0, 40, 41),
    row(Var::ObjTime, "obj.time", Type::Time, m(Method::Hit) | m(Method::Deliver), 0, 0, 40, 41),
    row(Var::ObjTtl, "obj.ttl", Type::Duration, m(Method::Hit) | m(Method::Deliver), 0, 0, 40, 41),
    row(Var::ObjUncacheable, "obj.uncacheable", Type::Bool, m(Method::Deliver), 0, 0, 40, 41),
    row(Var::RespBody, "resp.body", Type::Body, 0, m(Method::Synth), 0, 40, 41),
    row(Var::RespFilters, "resp.filters", Type::String, m(Method::Deliver) | m(Method::Synth), m(Method::Deliver) | m(Method::Synth), 0, 40, 41),
    row(Var::RespIsStreaming, "resp.is_streaming", Type::Bool, m(Method::Deliver) | m(Method::Synth), m(Method::Deliver) | m(Method::Synth), 0, 40, 41),
    row(Var::RespReason, "resp.reason", Type::String, m(Method::Deliver) | m(Method::Synth), m(Method::Deliver) | m(Method::Synth), 0, 40, 41),
    row(Var::RespStatus, "resp.status", Type::Int, m(Method::Deliver) | m(Method::Synth), m(Method::Deliver) | m(Method::Synth), 0, 40, 41),
    row(Var::RespTime, "resp.time", Type::Time, m(Method::Deliver) | m(Method::Synth), 0, 0, 40, 41),
    row(Var::Now, "now", Type::Time, ALL, 0, 0, 40, 41),
    row(Var::SessIdleSendTimeout, "sess.idle_send_timeout", Type::Duration, CLIENT, CLIENT, CLIENT, 40, 41),
    row(Var::SessSendTimeout, "sess.send_timeout", Type::Duration, CLIENT, CLIENT, CLIENT, 40, 41),
    row(Var::SessTimeoutIdle, "sess.timeout_idle", Type::Duration, CLIENT, CLIENT, CLIENT, 40, 41),
    row(Var::SessTimeoutLinger, "sess.timeout_linger", Type::Duration, CLIENT, CLIENT, CLIENT, 40, 41),
    row(Var::StorageFreeSpace, "storage.<name>.free_space", Type::Bytes, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::StorageHappy, "storage.<name>.happy", Type::Bool, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::StorageUsedSpace, "storage.<name>.used_space", Type::Bytes, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::ParamBackendIdleTimeout, "param.backend_idle_timeout", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamBackendWaitLimit, "param.backend_wait_limit", Type::Int, ALL, 0, 0, 40, 41),
    row(Var::ParamBackendWaitTimeout, "param.backend_wait_timeout", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamBetweenBytesTimeout, "param.between_bytes_timeout", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamConnectTimeout, "param.connect_timeout", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamDefaultGrace, "param.default_grace", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamDefaultKeep, "param.default_keep", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamDefaultTtl, "param.default_ttl", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamFirstByteTimeout, "param.first_byte_timeout", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamIdleSendTimeout, "param.idle_send_timeout", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamMaxEsiDepth, "param.max_esi_depth", Type::Int, ALL, 0, 0, 40, 41),
    row(Var::ParamMaxRestarts, "param.max_restarts", Type::Int, ALL, 0, 0, 40, 41),
    row(Var::ParamMaxRetries, "param.max_retries", Type::Int, ALL, 0, 0, 40, 41),
    row(Var::ParamRfc9111, "param.rfc9111", Type::Bool, CLIENT | BACKEND, 0, 0, 40, 41),
    row(Var::ParamPipeTaskDeadline, "param.pipe_task_deadline", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamPipeTimeout, "param.pipe_timeout", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamSendTimeout, "param.send_timeout", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamShortlived, "param.shortlived", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamTimeoutIdle, "param.timeout_idle", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::ParamTransitBuffer, "param.transit_buffer", Type::Bytes, ALL, 0, 0, 40, 41),
    row(Var::ParamUncacheableTtl, "param.uncacheable_ttl", Type::Duration, ALL, 0, 0, 40, 41),
    row(Var::LocalEndpoint, "local.endpoint", Type::String, CLIENT | BACKEND, 0, 0, 41, 41),
    row(Var::LocalSocket, "local.socket", Type::String, CLIENT | BACKEND, 0, 0, 41, 41),
    row(Var::ReqEsi, "req.esi", Type::Bool, CLIENT, CLIENT, 0, 40, 40),
    row(Var::ReqProto, "req.proto", Type::String, CLIENT, CLIENT, 0, 40, 40),
    row(Var::ReqProto, "req.proto", Type::String, CLIENT, 0, 0, 41, 41),
    row(Var::Bereq, "bereq", Type::Http, BACKEND, 0, 0, 40, 41),
    row(Var::BereqProto, "bereq.proto", Type::String, m(Method::Pipe) | BACKEND, m(Method::Pipe) | BACKEND, 0, 40, 40),
    row(Var::BereqProto, "bereq.proto", Type::String, m(Method::Pipe) | BACKEND, 0, 0, 41, 41),
    row(Var::BerespBackendIp, "beresp.backend.ip", Type::Ip, m(Method::BackendResponse), 0, 0, 40, 40),
    row(Var::BerespProto, "beresp.proto", Type::String, RESPONSE, RESPONSE, 0, 40, 40),
    row(Var::BerespProto, "beresp.proto", Type::String, RESPONSE, 0, 0, 41, 41),
    row(Var::Resp, "resp", Type::Http, m(Method::Deliver) | m(Method::Synth), 0, 0, 40, 41),
    row(Var::RespDoEsi, "resp.do_esi", Type::Bool, m(Method::Deliver) | m(Method::Synth), m(Method::Deliver) | m(Method::Synth), 0, 41, 41),
    row(Var::RespProto, "resp.proto", Type::String, m(Method::Deliver) | m(Method::Synth), m(Method::Deliver) | m(Method::Synth), 0, 40, 40),
    row(Var::RespProto, "resp.proto", Type::String, m(Method::Deliver) | m(Method::Synth), 0, 0, 41, 41),
    row(Var::SessXid, "sess.xid", Type::Int, CLIENT | BACKEND, 0, 0, 41, 41),
];

/// The headers of one message, `<name>.*`.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    pub name: &'static str,
    pub read: u32,
    pub write: u32,
    pub unset: u32,
    /// Headers that frame the body, which cannot be written.
    pub protected: &'static [&'static str],
    pub protected_read: u32,
}

const FRAMING: &[&str] = &["content-length", "transfer-encoding"];
const SENDING: u32 = m(Method::Deliver) | m(Method::Synth);
const FETCHING: u32 = m(Method::Pipe) | BACKEND;

const fn headers(name: &'static str, read: u32, write: u32, protected_read: u32) -> Headers {
    let protected: &[&str] = if protected_read == 0 { &[] } else { FRAMING };
    Headers { name, read, write, unset: write, protected, protected_read }
}

pub const HEADERS: &[Headers] = &[
    headers("req.http", CLIENT, CLIENT, CLIENT),
    headers("req_top.http", CLIENT, 0, 0),
    headers("bereq.http", FETCHING, FETCHING, BACKEND),
    headers("beresp.http", RESPONSE, RESPONSE, RESPONSE),
    headers("obj.http", m(Method::Hit), 0, 0),
    headers("obj_stale.http", m(Method::BackendRefresh), 0, 0),
    headers("resp.http", SENDING, SENDING, SENDING),
];
