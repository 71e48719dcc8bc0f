//! The VCL host of a client's request: the operations by which VCL reads and changes it.

use std::net::SocketAddr;

use lacquer_flow::request;
use lacquer_http::{Message, Workspace, fixed_text_table};
use lacquer_shm::Tag;
use lacquer_sources::clock;
use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::instance::PrivateMap;
use lacquer_vcl_runtime::{
    BackendId, Blob, H2Setting, HeaderEdit, Host, HostResult, LocalFuture, PurgeMode, RegexLimits, Str,
    TcpInfo, TlsFact, instance,
};

use super::{Req, body, deliver, synth, variables as vars};
use crate::emulated::workspaces;
use crate::logged::Logged;
use crate::purge;
use crate::vars::task_methods::task_methods;
use crate::vars::{headers, keep, misplaced, object, session, storage, tls};
use crate::vcl_table::VclRef;

impl Req {
    fn message(&self, http: HttpId) -> Option<&Message> {
        match http {
            HttpId::Req | HttpId::ReqTop => Some(&self.request.http),
            HttpId::Resp => Some(&self.response.http),
            HttpId::Bereq => self.pipe.as_ref().map(|pipe| &pipe.bereq),
            _ => None,
        }
    }

    /// Returns a message and the workspace that contains its text.
    fn readable(&self, http: HttpId) -> Option<(&Message, &Workspace)> {
        if http == HttpId::ReqTop
            && let Some(top) = self.inclusion.top.as_ref().filter(|_| self.inclusion.level > 0)
        {
            return Some((&top.http, &top.ws));
        }
        self.message(http).map(|message| (message, self.task.ws()))
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
    task_methods!(Var::RespBody);

    fn get_ip(&self, var: Var) -> Option<&SocketAddr> {
        session::ip(self.task.sess(), var)
    }

    fn get_blob(&mut self, var: Var) -> Option<Blob<'_>> {
        vars::get_blob(self, var)
    }

    fn set_int(&mut self, var: Var, value: i64) -> HostResult<()> {
        match var {
            Var::RespStatus => headers::set_status(&mut self.resp_headers(), var, value),
            _ => misplaced(var),
        }
    }

    fn set_backend(&mut self, var: Var, value: BackendId) -> HostResult<()> {
        match (var, &mut self.pipe) {
            (Var::ReqBackendHint, _) => self.request.backend_hint = value,
            (Var::BereqBackend, Some(pipe)) => pipe.backend = value,
            _ => return misplaced(var),
        }
        Ok(())
    }

    fn set_stevedore(&mut self, var: Var, value: u32) -> HostResult<()> {
        if var != Var::ReqStorage {
            return misplaced(var);
        }
        self.request.storage = value;
        Ok(())
    }

    fn header(&mut self, http: HttpId, name: &instance::HeaderName) -> Option<&[u8]> {
        if http == HttpId::Obj {
            return self.found.object.as_ref().and_then(|o| object::header(o, name));
        }
        self.readable(http).and_then(|(message, ws)| message.get(ws, name.name.borrow()))
    }

    fn return_pass_for(&mut self, _seconds: f64) -> HostResult<()> {
        self.task.log_mut().put(Tag::Error, b"Note: Ignoring DURATION argument to return(pass);");
        Ok(())
    }

    /// Does nothing where `return (vcl(label))` is illegal; the step after `vcl_recv` logs the error.
    fn return_vcl(&mut self, label: &str) -> HostResult<()> {
        if request::switch_vcl(self.request.restarts, self.programs.label.is_some()).is_err() {
            return Ok(());
        }
        let entry = self.task.services().vcls().find(label);
        let entry = entry.ok_or_else(|| format!("There is no VCL {label}"))?;
        let next = VclRef::new(entry.program().clone());
        self.task.log_mut().put_fmt(Tag::VCL_use, format_args!("{} via {label}", next.name));
        self.programs.next = Some(next.into());
        self.programs.label = Some(label.to_owned());
        Ok(())
    }

    fn hash_data(&mut self, data: Option<&[u8]>) -> HostResult<()> {
        if !self.key.add(data.unwrap_or(&[0])) {
            return Err("hash_data() is not available here".to_owned());
        }
        if let Some(bytes) = data {
            self.task.log_mut().put(Tag::Hash, bytes);
        }
        Ok(())
    }

    /// Restores the request as it was received. In `vcl_deliver` and `vcl_synth`, also rebuilds the response.
    fn rollback(&mut self, http: HttpId) -> HostResult<()> {
        if self.task.method() == Method::Pipe {
            return Err("Cannot rollback in vcl_pipe {}".to_owned());
        }
        if http != HttpId::Req {
            return Err(no_message());
        }
        Req::rollback(self);
        match (self.task.method(), self.found.object.clone()) {
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

    fn purge(&mut self, mode: PurgeMode) -> HostResult<LocalFuture<'_, i64>> {
        if !matches!(self.task.method(), Method::Hit | Method::Miss) {
            return Err("purge can only happen in vcl_hit{} or vcl_miss{}".to_owned());
        }
        Ok(purge::of_hash(&self.task, self.key.digest(), mode, self.request.received))
    }

    fn purge_tags(&mut self, tags: &[&[u8]], mode: PurgeMode) -> HostResult<LocalFuture<'_, i64>> {
        Ok(purge::of_tags(&self.task, tags, mode))
    }

    fn late_100_continue(&mut self, late: bool) -> HostResult<()> {
        if self.request.expects.is_waiting {
            self.request.expects.is_late = late;
        }
        Ok(())
    }

    /// Does nothing on UNIX sockets and on transports without a socket, which have no such setting.
    fn set_ip_tos(&mut self, tos: i64) -> HostResult<()> {
        if self.task.sess().listener().is_unix() {
            return Ok(());
        }
        let Some(fd) = self.client.tx.as_fd() else { return Ok(()) };
        let socket = socket2::SockRef::from(&fd);
        // A failure means that the client is gone, which later reads and writes detect.
        let _ = if self.task.sess().ends().local.addr.is_ipv4() {
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
        self.request.body.cached().map(|body| body.copy_body())
    }

    fn cached_req_body_len(&mut self) -> Option<u64> {
        self.request.body.cached().map(|body| body.body_len())
    }

    fn tls_fact(&mut self, which: TlsFact) -> Option<Vec<u8>> {
        tls::fact(self.task.sess().tls(), which)
    }

    fn is_http2(&mut self) -> bool {
        self.client.tx.is_http2()
    }

    fn h2_setting(&mut self, which: H2Setting) -> Option<f64> {
        self.client.tx.http2_limit(which)
    }

    fn set_h2_setting(&mut self, which: H2Setting, value: f64) {
        self.client.tx.set_http2_limit(which, value, self.task.now());
    }

    fn tcp_congestion(&mut self, algorithm: &str) -> bool {
        let set = |fd| socket2::SockRef::from(&fd).set_tcp_congestion(algorithm.as_bytes()).is_ok();
        self.client.tx.as_fd().is_some_and(set)
    }

    fn tcp_pace(&mut self, kilobytes: i64) -> bool {
        self.client.tx.as_fd().is_some_and(|fd| lacquer_system::set_pace(fd, kilobytes))
    }

    fn tcp_info(&mut self) -> Option<TcpInfo> {
        self.client.tx.as_fd().and_then(lacquer_system::tcp_info)
    }

    fn top_privates(&mut self) -> &mut PrivateMap {
        &mut self.inclusion.top_privates
    }
}
