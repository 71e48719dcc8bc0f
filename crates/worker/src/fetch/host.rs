//! What VCL can see and do on behalf of a fetch.

use std::net::SocketAddr;

use lacquer_http::{BodyStatus, Message, SessClose, Text, fixed_text_table};
use lacquer_shm::Tag;
use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::instance::PrivateMap;
use lacquer_vcl_runtime::{
    BackendId, Blob, HeaderEdit, Host, HostResult, PurgeMode, RegexLimits, Str, instance,
};

use super::Fetch;
use crate::clock;
use crate::task::Logged;
use crate::vars::client::{HASH_BLOB, purge_tags};
use crate::vars::{fetch as vars, headers, keep, misplaced, object, storage, workspace};

impl Fetch {
    fn message(&self, http: HttpId) -> Option<&Message> {
        match http {
            HttpId::Bereq => Some(&self.bereq),
            HttpId::Beresp => Some(&self.beresp),
            _ => None,
        }
    }

    fn changeable(&mut self, http: HttpId) -> HostResult<Logged<'_>> {
        match http {
            HttpId::Bereq => Ok(self.bereq_headers()),
            HttpId::Beresp => Ok(self.beresp_headers()),
            _ => Err("This message cannot be changed here".to_owned()),
        }
    }
}

impl Host for Fetch {
    fn method(&self) -> Method {
        self.task.method
    }

    fn now(&self) -> f64 {
        self.task.now
    }

    fn real_now(&self) -> f64 {
        clock::real()
    }

    fn alloc(&mut self, bytes: usize) -> Option<*mut u8> {
        self.task.alloc(bytes)
    }

    fn copy(&mut self, bytes: &[u8]) -> Option<Str> {
        self.task.copy(bytes)
    }

    fn get_bool(&mut self, var: Var) -> bool {
        vars::get_bool(self, var)
    }

    fn get_int(&mut self, var: Var) -> i64 {
        vars::get_int(self, var)
    }

    fn get_real(&mut self, var: Var) -> f64 {
        vars::get_real(self, var)
    }

    fn get_str(&mut self, var: Var) -> Str {
        vars::get_str(self, var)
    }

    fn get_ip(&mut self, var: Var) -> Option<SocketAddr> {
        vars::get_ip(self, var)
    }

    fn get_blob(&mut self, var: Var) -> Option<Blob> {
        (var == Var::BereqHash).then(|| Blob::new(&self.digest, HASH_BLOB))
    }

    fn get_backend(&mut self, var: Var) -> BackendId {
        vars::get_backend(self, var)
    }

    fn get_stevedore(&mut self, var: Var) -> u32 {
        vars::get_stevedore(self, var)
    }

    fn set_bool(&mut self, var: Var, value: bool) -> HostResult<()> {
        vars::set_bool(self, var, value)
    }

    fn set_int(&mut self, var: Var, value: i64) -> HostResult<()> {
        match var {
            Var::BerespStatus => headers::set_status(&mut self.beresp_headers(), var, value),
            Var::BerespTransitBuffer => {
                self.transit_buffer = u64::try_from(value).unwrap_or(0);
                Ok(())
            }
            _ => misplaced(var),
        }
    }

    fn set_real(&mut self, var: Var, value: f64) -> HostResult<()> {
        vars::set_real(self, var, value)
    }

    fn set_str(&mut self, var: Var, value: Str) -> HostResult<()> {
        vars::set_str(self, var, value)
    }

    fn set_backend(&mut self, var: Var, value: BackendId) -> HostResult<()> {
        if var != Var::BereqBackend {
            return misplaced(var);
        }
        self.backend = value;
        Ok(())
    }

    fn set_stevedore(&mut self, var: Var, value: u32) -> HostResult<()> {
        if var != Var::BerespStorage {
            return misplaced(var);
        }
        self.storage = value.checked_sub(1);
        Ok(())
    }

    fn unset(&mut self, var: Var) -> HostResult<()> {
        vars::unset(self, var)
    }

    fn storage_var(&mut self, name: &str, var: Var) -> i64 {
        storage::value(&self.task.reactor.shared.stevedores, name, var)
    }

    fn stevedore_by_name(&mut self, name: &str) -> u32 {
        storage::by_name(&self.task.reactor.shared.stevedores, name)
    }

    fn stevedore_name(&mut self, number: u32) -> Str {
        storage::name(&self.task.reactor.shared.stevedores, number)
    }

    fn header(&mut self, http: HttpId, name: &instance::HeaderName) -> Str {
        if http == HttpId::ObjStale {
            return self.stale.as_ref().map_or(Str::NULL, |o| object::header(o, name));
        }
        let ws = &self.task.ws;
        Str::from_option(self.message(http).and_then(|message| message.get(ws, name.name.borrow())))
    }

    fn set_header(&mut self, http: HttpId, name: &instance::HeaderName, value: Str) -> HostResult<()> {
        let features = self.task.params.feature;
        headers::set(&mut self.changeable(http)?, name.name.borrow(), value, features)
    }

    fn unset_header(&mut self, http: HttpId, name: &instance::HeaderName) -> HostResult<()> {
        self.changeable(http)?.unset(name.name.borrow());
        Ok(())
    }

    fn collect_header(
        &mut self,
        http: HttpId,
        name: &instance::HeaderName,
        separator: &[u8],
    ) -> HostResult<()> {
        headers::collect(&mut self.changeable(http)?, name.name.borrow(), separator);
        Ok(())
    }

    fn append_header(&mut self, http: HttpId, name: &[u8], value: &[u8]) -> HostResult<()> {
        let features = self.task.params.feature;
        headers::append(&mut self.changeable(http)?, name, value, features)
    }

    fn edit_headers(&mut self, http: HttpId, edit: &mut dyn FnMut(&[u8]) -> HeaderEdit) -> HostResult<()> {
        headers::edit(&mut self.changeable(http)?, edit);
        Ok(())
    }

    fn set_body(&mut self, var: Var, append: bool, content: &[u8]) -> HostResult<()> {
        if var != Var::BerespBody {
            return misplaced(var);
        }
        if !append {
            self.synth_body.clear();
        }
        self.synth_body.extend_from_slice(content);
        Ok(())
    }

    fn return_status(&mut self, status: i64, reason: Str) -> HostResult<()> {
        self.err_code = status as u16;
        self.err_reason = if reason.is_null() {
            fixed_text_table::reason_text(self.err_code)
        } else {
            keep(&mut self.task.ws, reason)
        };
        if self.err_reason.is_none() { Err("Workspace overflow".to_owned()) } else { Ok(()) }
    }

    fn return_pass_for(&mut self, seconds: f64) -> HostResult<()> {
        vars::pass_for(self, seconds);
        Ok(())
    }

    fn log(&mut self, tag: u8, text: &[u8]) {
        self.task.put(tag, text);
    }

    fn log_as(&mut self, vxid: u64, tag: u8, text: &[u8]) {
        self.task.put_as(vxid, tag, text);
    }

    fn trace(&mut self, text: &str) {
        self.task.log.put(Tag::VCL_trace, text.as_bytes());
    }

    fn regex_limits(&self) -> RegexLimits {
        self.task.regex_limits()
    }

    fn fail(&mut self, text: &str) {
        self.task.fail(text);
    }

    fn timestamp(&mut self, label: &[u8]) {
        self.task.stamp(&String::from_utf8_lossy(label));
    }

    /// Back to the request before VCL saw it. A connection that is in use is given up with its answer.
    fn rollback(&mut self, http: HttpId) -> HostResult<()> {
        if http != HttpId::Bereq {
            return Err("This message cannot be changed here".to_owned());
        }
        let unread = self.body_status() != BodyStatus::None;
        self.close_origin(unread.then_some(SessClose::RespClose));
        self.task.privates.clear();
        self.bereq.clone_from(&self.bereq0);
        self.filters = Text::NONE;
        self.bereq_filters = Text::NONE;
        self.err_reason = Text::NONE;
        self.task.ws.clear_overflowed();
        self.task.ws.release(self.snapshot);
        Ok(())
    }

    fn ban(&mut self, expression: &[u8]) -> Result<(), String> {
        crate::control::ban_from_vcl(&self.task.reactor.shared, expression)
    }

    fn purge_tags(&mut self, tags: &[&[u8]], mode: PurgeMode) -> HostResult<i64> {
        Ok(purge_tags(&self.task, tags, mode))
    }

    fn rfc_ttl(&mut self) -> HostResult<()> {
        vars::rfc_ttl(self);
        Ok(())
    }

    fn cached_req_body(&mut self) -> Option<Vec<u8>> {
        self.cached_body.as_ref().map(|body| crate::extra::body_of(body))
    }

    fn peer_credentials(&mut self) -> Option<(u32, u32)> {
        self.task.sess.credentials
    }

    fn proxy_tlv(&mut self, kind: u8) -> Option<Vec<u8>> {
        self.task.proxy_tlv(kind)
    }

    fn workspace_free(&mut self, which: &str) -> Option<usize> {
        workspace::free(&mut self.task, which)
    }

    fn workspace_alloc(&mut self, which: &str, bytes: usize) -> bool {
        workspace::alloc(&mut self.task, which, bytes)
    }

    fn workspace_overflow(&mut self, which: &str) {
        workspace::overflow(&mut self.task, which);
    }

    fn workspace_overflowed(&mut self, which: &str) -> bool {
        workspace::overflowed(&mut self.task, which)
    }

    fn workspace_snapshot(&mut self, which: &str) {
        workspace::snapshot(&mut self.task, which);
    }

    fn workspace_reset(&mut self, which: &str) {
        workspace::reset(&mut self.task, which);
    }

    fn workspace_dump(&mut self, which: &str, at: u8, offset: usize, length: usize) -> HostResult<Vec<u8>> {
        workspace::dump(&mut self.task, which, at, offset, length)
    }

    fn task_privates(&mut self) -> &mut PrivateMap {
        &mut self.task.privates
    }
}
