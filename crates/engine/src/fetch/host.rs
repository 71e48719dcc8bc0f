//! The VCL host of a fetch: the operations by which VCL reads and changes it.

use std::net::SocketAddr;

use lacquer_http::{BodyStatus, Message, SessClose, Text, Workspace, fixed_text_table};
use lacquer_sources::clock;
use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::instance::PrivateMap;
use lacquer_vcl_runtime::{
    BackendId, Blob, HeaderEdit, Host, HostResult, LocalFuture, PurgeMode, RegexLimits, Str, TlsFact,
    instance,
};

use super::Fetch;
use super::variables as vars;
use crate::emulated::workspaces;
use crate::logged::Logged;
use crate::vars::task_methods::task_methods;
use crate::vars::{HASH_BLOB, headers, keep, misplaced, object, storage, tls};

impl Fetch {
    fn message(&self, http: HttpId) -> Option<&Message> {
        match http {
            HttpId::Bereq => Some(&self.request.http),
            HttpId::Beresp => Some(&self.response.http),
            _ => None,
        }
    }

    /// Returns a message and the workspace that contains its text.
    fn readable(&self, http: HttpId) -> Option<(&Message, &Workspace)> {
        self.message(http).map(|message| (message, self.task.ws()))
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
    task_methods!(Var::BerespBody);

    fn tls_fact(&mut self, which: TlsFact) -> Option<Vec<u8>> {
        let connection = self.exchange.lent.as_ref()?;
        tls::fact(connection.facts().tls(), which)
    }

    fn get_ip(&self, var: Var) -> Option<&SocketAddr> {
        vars::get_ip(self, var)
    }

    fn get_blob(&mut self, var: Var) -> Option<Blob<'_>> {
        (var == Var::BereqHash).then(|| Blob::new(self.request.key.digest(), HASH_BLOB))
    }

    fn set_int(&mut self, var: Var, value: i64) -> HostResult<()> {
        match var {
            Var::BerespStatus => headers::set_status(&mut self.beresp_headers(), var, value),
            Var::BerespTransitBuffer => {
                self.product.transit_buffer = u64::try_from(value).unwrap_or(0);
                Ok(())
            }
            _ => misplaced(var),
        }
    }

    fn set_backend(&mut self, var: Var, value: BackendId) -> HostResult<()> {
        if var != Var::BereqBackend {
            return misplaced(var);
        }
        self.exchange.backend = value;
        Ok(())
    }

    fn set_stevedore(&mut self, var: Var, value: u32) -> HostResult<()> {
        if var != Var::BerespStorage {
            return misplaced(var);
        }
        self.attempt.storage = value.checked_sub(1);
        Ok(())
    }

    fn header(&mut self, http: HttpId, name: &instance::HeaderName) -> Option<&[u8]> {
        if http == HttpId::ObjStale {
            return self.product.stale.as_ref().and_then(|o| object::header(o, name));
        }
        self.readable(http).and_then(|(message, ws)| message.get(ws, name.name.borrow()))
    }

    fn return_pass_for(&mut self, seconds: f64) -> HostResult<()> {
        vars::pass_for(self, seconds);
        Ok(())
    }

    /// Restores the request to its state before VCL saw it. Closes a connection in use, and drops its response.
    fn rollback(&mut self, http: HttpId) -> HostResult<()> {
        if http != HttpId::Bereq {
            return Err("This message cannot be changed here".to_owned());
        }
        let unread = self.lent_framing() != BodyStatus::None;
        self.close_lent(unread.then_some(SessClose::RespClose));
        self.task.clear_privates();
        self.request.http.clone_from(&self.request.original);
        self.response.filters = Text::NONE;
        self.request.filters = Text::NONE;
        self.response.reason = Text::NONE;
        self.task.ws_mut().clear_overflowed();
        self.task.ws_mut().roll_back(self.request.snapshot);
        Ok(())
    }

    fn purge_tags(&mut self, tags: &[&[u8]], mode: PurgeMode) -> HostResult<LocalFuture<'_, i64>> {
        Ok(crate::purge::of_tags(&self.task, tags, mode))
    }

    fn rfc_ttl(&mut self) -> HostResult<()> {
        vars::rfc_ttl(self);
        Ok(())
    }

    fn cached_req_body(&mut self) -> Option<Vec<u8>> {
        self.request.cached_body.as_ref().map(|body| body.copy_body())
    }

    fn cached_req_body_len(&mut self) -> Option<u64> {
        self.request.cached_body.as_ref().map(|body| body.body_len())
    }
}
