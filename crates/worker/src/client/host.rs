//! What VCL can see and do on behalf of a client's request.

use std::net::SocketAddr;

use lacquer_http::{Message, Text, fixed_text_table};
use lacquer_shm::Tag;
use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::instance::PrivateMap;
use lacquer_vcl_runtime::{
    BackendId, Blob, HeaderEdit, Host, HostResult, LocalFuture, PurgeMode, RegexLimits, Str, TcpInfo,
    instance,
};
use sha2::Digest;

use super::{Req, deliver, synth};
use crate::clock;
use crate::task::{BEREQ, Logged};
use crate::vars::{body, client as vars, headers, keep, misplaced, object, session, storage, workspace};
use crate::vcl_table::VclRef;

impl Req {
    /// `bereq` of vcl_pipe: its texts live in the request's workspace, its records in its own log.
    pub fn pipe_headers(&mut self) -> Option<Logged<'_>> {
        let pipe = self.bereq.as_mut()?;
        Some(Logged { message: &mut pipe.bereq, ws: &mut self.task.ws, log: &mut pipe.log, tags: BEREQ })
    }

    fn message(&self, http: HttpId) -> Option<&Message> {
        match http {
            HttpId::Req | HttpId::ReqTop => Some(&self.http),
            HttpId::Resp => Some(&self.resp),
            HttpId::Bereq => self.bereq.as_ref().map(|pipe| &pipe.bereq),
            _ => None,
        }
    }

    fn changeable(&mut self, http: HttpId) -> HostResult<Logged<'_>> {
        match http {
            HttpId::Req => Ok(self.req_headers()),
            HttpId::Resp => Ok(self.resp_headers()),
            HttpId::Bereq => self.pipe_headers().ok_or_else(no_message),
            _ => Err(no_message()),
        }
    }
}

fn no_message() -> String {
    "This message cannot be changed here".to_owned()
}

impl Host for Req {
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
        session::ip(&self.task.sess, var)
    }

    fn get_blob(&mut self, var: Var) -> Option<Blob> {
        vars::get_blob(self, var)
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
            Var::RespStatus => headers::set_status(&mut self.resp_headers(), var, value),
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
        match (var, &mut self.bereq) {
            (Var::ReqBackendHint, _) => self.backend_hint = value,
            (Var::BereqBackend, Some(pipe)) => pipe.backend = value,
            _ => return misplaced(var),
        }
        Ok(())
    }

    fn set_stevedore(&mut self, var: Var, value: u32) -> HostResult<()> {
        if var != Var::ReqStorage {
            return misplaced(var);
        }
        self.storage = value;
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
        if http == HttpId::Obj {
            return self.object.as_ref().map_or(Str::NULL, |o| object::header(o, name));
        }
        if http == HttpId::ReqTop
            && let Some(top) = self.top.as_ref().filter(|_| self.esi_level > 0)
        {
            return Str::from_option(top.http.get(&top.ws, name.name.borrow()));
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
        if var != Var::RespBody {
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

    fn return_pass_for(&mut self, _seconds: f64) -> HostResult<()> {
        self.task.log.put(Tag::Error, b"Note: Ignoring DURATION argument to return(pass);");
        Ok(())
    }

    /// Only before any restart, and only once: else the flow of the request says that it is illegal.
    fn return_vcl(&mut self, label: &str) -> HostResult<()> {
        if self.restarts > 0 || self.next_label.is_some() {
            return Ok(());
        }
        let entry = self.task.reactor.shared.vcls.find(label);
        let entry = entry.ok_or_else(|| format!("There is no VCL {label}"))?;
        self.next_vcl = Some(VclRef::new(entry.program().clone()).into());
        self.next_label = Some(label.to_owned());
        Ok(())
    }

    fn hash_data(&mut self, data: Str) -> HostResult<()> {
        let Some(hasher) = &mut self.hasher else {
            return Err("hash_data() is not available here".to_owned());
        };
        match crate::sys::bytes_of(data) {
            Some(bytes) => {
                hasher.update(bytes);
                self.task.log.put(Tag::Hash, bytes);
            }
            None => hasher.update([0]),
        }
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

    /// Back to the request as it came; a response that was being made is made again.
    fn rollback(&mut self, http: HttpId) -> HostResult<()> {
        if self.task.method == Method::Pipe {
            return Err("Cannot rollback in vcl_pipe {}".to_owned());
        }
        if http != HttpId::Req {
            return Err(no_message());
        }
        if self.task.ws.overflowed() {
            self.task.reactor.counters.ws_client_overflow.add(1);
        }
        Req::rollback(self);
        self.filters = Text::NONE;
        self.resp_filters = Text::NONE;
        self.task.ws.release(self.snapshot);
        match (self.task.method, self.object.clone()) {
            (Method::Deliver, Some(object)) if !deliver::set_up(self, &object) => {
                Err("Workspace overflow".to_owned())
            }
            (Method::Synth, _) => {
                synth::set_up(self);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn ban(&mut self, expression: &[u8]) -> Result<(), String> {
        crate::control::ban_from_vcl(&self.task.reactor.shared, expression)
    }

    fn purge(&mut self, mode: PurgeMode) -> HostResult<i64> {
        vars::purge(self, mode)
    }

    fn purge_tags(&mut self, tags: &[&[u8]], mode: PurgeMode) -> HostResult<i64> {
        Ok(vars::purge_tags(&self.task, tags, mode))
    }

    fn late_100_continue(&mut self, late: bool) -> HostResult<()> {
        if self.want_100 {
            self.late_100 = late;
        }
        Ok(())
    }

    /// UNIX sockets have no such thing; they are left alone.
    fn set_ip_tos(&mut self, tos: i64) -> HostResult<()> {
        if self.task.sess.listener.path.is_some() {
            return Ok(());
        }
        let fd = self.tx.as_fd();
        let socket = socket2::SockRef::from(&fd);
        // A client that is gone is noticed elsewhere.
        let _ = if self.task.sess.local.addr.is_ipv4() {
            socket.set_tos_v4(tos as u32)
        } else {
            socket.set_tclass_v6(tos as u32)
        };
        Ok(())
    }

    fn cache_req_body(&mut self, limit: u64) -> HostResult<LocalFuture<'_, i64>> {
        Ok(Box::pin(body::cache(self, limit)))
    }

    fn cached_req_body(&mut self) -> Option<Vec<u8>> {
        self.body.cached().map(|body| crate::extra::body_of(&body))
    }

    fn peer_credentials(&mut self) -> Option<(u32, u32)> {
        self.task.sess.credentials
    }

    fn proxy_tlv(&mut self, kind: u8) -> Option<Vec<u8>> {
        self.task.proxy_tlv(kind)
    }

    fn tcp_congestion(&mut self, algorithm: &str) -> bool {
        let fd = self.tx.as_fd();
        socket2::SockRef::from(&fd).set_tcp_congestion(algorithm.as_bytes()).is_ok()
    }

    fn tcp_pace(&mut self, kilobytes: i64) -> bool {
        crate::sys::set_pace(self.tx.as_fd(), kilobytes)
    }

    fn tcp_info(&mut self) -> Option<TcpInfo> {
        crate::sys::tcp_info(self.tx.as_fd())
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

    fn top_privates(&mut self) -> &mut PrivateMap {
        &mut self.top_privates
    }
}
