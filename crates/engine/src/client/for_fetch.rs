//! The part of a request's interface that fetches use: a fetch takes its inputs from the request, and returns the
//! body.

use std::sync::Arc;

use lacquer_cache::Object;
use lacquer_http::Message;
use lacquer_vcl_runtime::BackendId;

use super::Req;
use crate::admission::Permit;
use crate::client_transport::ClientTransport;
use crate::req_body::ReqBody;
use crate::req_filters::BodyFilters;

/// The values that a fetch takes from its request. They contain no texts, because those are in the request's
/// workspace.
pub struct FetchInputs {
    pub digest: [u8; 32],
    pub backend: BackendId,
    pub is_hitpass: bool,
    pub is_hitmiss: bool,
    /// The body, if the client has yet to send it.
    pub body: Option<ReqBody>,
    pub cached_body: Option<Arc<Object>>,
    pub permit: Option<Permit>,
}

impl Req {
    /// Moves the values that a fetch needs out of the request.
    pub(crate) fn take_fetch_inputs(&mut self) -> FetchInputs {
        let body = &mut self.request.body;
        FetchInputs {
            digest: self.key.digest,
            backend: self.request.backend_hint,
            is_hitpass: self.found.is_hitpass,
            is_hitmiss: self.found.is_hitmiss,
            cached_body: body.cached(),
            body: body.is_available().then(|| body.take()),
            permit: self.client.permit.take(),
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

    /// Returns whether another request includes this one.
    pub(crate) fn is_included(&self) -> bool {
        self.inclusion.level > 0
    }
}
