//! The part of a request's interface that fetches use: a fetch takes its inputs from the request, and returns the
//! body.

use std::sync::Arc;

use lacquer_cache::Object;
use lacquer_flow::upgrade::{self, Wish};
use lacquer_http::{BodyStatus, Message, header_table as h};
use lacquer_vcl_runtime::BackendId;

use super::{Req, handshake};
use crate::admission::Permit;
use crate::cache_key::CacheKey;
use crate::client_transport::ClientTransport;
use crate::req_body::ReqBody;
use crate::req_filters::BodyFilters;

/// The values that a fetch takes from its request. They contain no texts, because those are in the request's
/// workspace.
pub struct FetchInputs {
    pub key: CacheKey,
    pub backend: BackendId,
    pub is_hitpass: bool,
    pub is_hitmiss: bool,
    /// The body, if the client has yet to send it.
    pub body: Option<ReqBody>,
    pub cached_body: Option<Arc<Object>>,
    pub permit: Option<Permit>,
    /// A range that VCL requests for this request can be stored as a part.
    pub takes_part: bool,
}

impl Req {
    /// Moves the values that a fetch needs out of the request.
    pub(crate) fn take_fetch_inputs(&mut self) -> FetchInputs {
        let takes_part = self.takes_part();
        let body = &mut self.request.body;
        body.settle_empty();
        FetchInputs {
            key: self.key.clone(),
            backend: self.request.backend_hint,
            is_hitpass: self.found.is_hitpass,
            is_hitmiss: self.found.is_hitmiss,
            cached_body: body.cached(),
            body: body.is_available().then(|| body.take()),
            permit: self.client.permit.take(),
            takes_part,
        }
    }

    /// Takes back the body from a fetch that no longer needs it.
    pub(crate) fn take_body_back(&mut self, body: ReqBody) {
        self.request.body.give_back(body);
        if self.request.body.was_read()
            && let Some(filters) = self.request.body.filters.take()
        {
            filters.apply_to_head(&mut self.req_headers());
            self.request.body.filters = Some(filters);
        }
        self.log_reading();
    }

    /// Sets the permit that the next fetch takes from the request.
    pub(crate) fn set_permit(&mut self, permit: Permit) {
        self.client.permit = Some(permit);
    }

    /// Returns the request as VCL sees it.
    pub(crate) fn http(&self) -> &Message {
        &self.request.http
    }

    /// Returns the filters of the body, if it has any.
    pub(crate) fn body_filters(&self) -> Option<&BodyFilters> {
        self.request.body.filters.as_deref()
    }

    /// Returns `client.identity`, if VCL has set it.
    pub(crate) fn identity(&self) -> Option<&[u8]> {
        self.task.ws().get_opt(self.request.identity)
    }

    pub(crate) fn transport(&self) -> &ClientTransport {
        &self.client.tx
    }

    /// Returns the protocol that the client wishes to switch to, if the parameter `upgrade_protocols` lists it.
    #[inline]
    pub(crate) fn wanted_protocol(&self) -> Option<&[u8]> {
        if self.task.params().upgrade_protocols.is_empty() { None } else { self.listed_protocol() }
    }

    #[cold]
    fn listed_protocol(&self) -> Option<&[u8]> {
        let (request, ws) = (&self.request.http, self.task.ws());
        let wish = Wish {
            method: request.method(ws),
            version: self.request.original.version(),
            is_extended: self.client.is_extended,
            is_included: self.is_included(),
            has_body: self.request.body.status() != BodyStatus::None,
            connection: request.get(ws, h::CONNECTION),
            upgrade: request.get(ws, h::UPGRADE),
        };
        upgrade::wanted(&wish, self.task.params().upgrade_protocols.as_bytes())
    }

    /// Returns whether the request was an extended CONNECT.
    pub(crate) fn is_extended_connect(&self) -> bool {
        self.client.is_extended
    }

    /// Returns whether the request is early data, and was marked as such.
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        self.client.is_early
    }

    /// Waits for the end of the client's handshake, within its time. Returns false if it does not come.
    pub(crate) async fn awaits_handshake(&mut self) -> bool {
        handshake::await_handshake(self).await
    }

    /// Returns whether another request includes this one.
    pub(crate) fn is_included(&self) -> bool {
        self.inclusion.level > 0
    }
}
