//! A fetch: its state, and the operations that several steps share.

use std::mem;
use std::sync::Arc;

use lacquer_cache::Object;
use lacquer_flow::rfc9111::freshness::Times;
use lacquer_flow::rfc9111::status::proxy_error;
use lacquer_flow::rfc9111::{self, storing};
use lacquer_flow::{Lifetime, partial};
use lacquer_http::BodyStatus;
use lacquer_http::freshness::{self, Defaults, Freshness};
use lacquer_http::range::PartialCheck;
use lacquer_params::Params;
use lacquer_params::bits::FeatureBits;
use lacquer_shm::Tag;
use lacquer_vcl::types::{Action, Method};

use super::events::Started;
use super::parts::{Attempt, Completion, Exchange, Product, Purpose, Request, Response, Retries, Waiter};
use crate::logged::{BEREQ, BERESP, Logged};
use crate::task::{Task, TaskBuffers, VclTask, run_vcl};
use crate::transaction_buffers::TransactionBuffers;
use crate::transaction_slot::Transaction;

pub struct Fetch {
    pub(crate) task: Task,
    pub(super) request: Request,
    pub(crate) response: Response,
    pub(super) exchange: Exchange,
    pub(super) product: Product,
    pub(super) purpose: Purpose,
    pub(super) waiter: Waiter,
    pub(super) attempt: Attempt,
    pub(super) retries: Retries,
    pub(super) completion: Completion,
}

impl Transaction for Fetch {
    fn workspace(params: &Params) -> u64 {
        params.workspace_backend
    }

    fn take_buffers(&mut self) -> TransactionBuffers {
        let TaskBuffers { ws, log, out } = self.task.take_buffers();
        TransactionBuffers {
            ws,
            log,
            request: mem::take(&mut self.request.http),
            request0: mem::take(&mut self.request.original),
            response: mem::take(&mut self.response.http),
            out,
            synth_body: mem::take(&mut self.response.body),
        }
    }
}

impl VclTask for Fetch {
    fn task(&mut self) -> &mut Task {
        &mut self.task
    }
}

impl Fetch {
    pub fn bereq_headers(&mut self) -> Logged<'_> {
        self.task.logged(&mut self.request.http, BEREQ)
    }

    pub fn beresp_headers(&mut self) -> Logged<'_> {
        self.task.logged(&mut self.response.http, BERESP)
    }

    pub fn vcl(&mut self, method: Method) -> impl Future<Output = Action> {
        run_vcl(self, method)
    }

    /// Logs a failure of the fetch.
    pub fn fetch_error(&mut self, text: &str) {
        self.exchange.failure = proxy_error(text);
        self.task.note(|notes| notes.failure = Some(text.to_owned()));
        self.task.log_mut().put(Tag::FetchError, text.as_bytes());
    }

    /// Logs that the fetch ends early, because nobody waits for it.
    pub(super) fn log_abandoned(&mut self) {
        self.fetch_error("abandoned, the client is gone");
        self.task.services().counters().fetch_abandoned.add(1);
    }

    /// Returns the request's body to the request. The fetch no longer needs it.
    pub fn release_request(&mut self) {
        if let Some(body) = self.request.body.take() {
            self.waiter.events.body.set(Some(body));
        }
    }

    /// Sends the event that the object can be delivered, or that there is none, to the waiting request. Later calls
    /// have no effect.
    pub fn announce(&mut self, object: Option<Arc<Object>>) {
        self.release_request();
        if !mem::replace(&mut self.waiter.is_notified, true) {
            self.waiter.events.started.set(Some(Started(object)));
        }
    }

    /// Returns whether responses are cached as RFC 9111 defines it.
    #[inline]
    pub(super) fn follows_rfc9111(&self) -> bool {
        self.task.params().feature.has(FeatureBits::RFC9111)
    }

    /// Derives the lifetime of the response, which arrived at `now`.
    pub(super) fn rfc9111_freshness(&self, now: f64, defaults: &Defaults) -> Freshness {
        let times = Times { request: self.exchange.requested, response: now };
        let is_for_range =
            storing::is_for_range(self.response.http.status(), self.completion.sent().is_some());
        rfc9111::freshness::freshness(
            &self.response.http,
            self.task.ws(),
            times,
            defaults,
            (self.purpose.is_pass, is_for_range),
        )
    }

    /// Returns the value of `beresp.is_storable`.
    pub(super) fn is_storable(&self) -> bool {
        storing::is_storable(storing::Facts {
            request: &self.request.http,
            response: &self.response.http,
            ws: self.task.ws(),
            lifetime: self.response.lifetime,
            is_ttl_set: self.product.is_ttl_set,
            is_part: self.completion.sent().is_some(),
            now: self.task.now(),
        })
    }

    /// Sets the lifetimes of the response from its headers and the parameters.
    pub fn set_lifetimes(&mut self, now: f64) -> Freshness {
        let p = self.task.params();
        let defaults = Defaults {
            ttl: p.default_ttl,
            grace: p.default_grace,
            keep: p.default_keep,
            clock_skew: f64::from(p.clock_skew),
            stale_if_error: Some(p.stale_if_error).filter(|seconds| seconds.is_finite()),
        };
        let fresh = if self.follows_rfc9111() {
            self.rfc9111_freshness(now, &defaults)
        } else {
            freshness::freshness(&self.response.http, self.task.ws(), now, &defaults, self.purpose.is_pass)
        };
        self.response.lifetime = Lifetime::of_headers(&fresh);
        self.product.is_ttl_set = false;
        self.product.stale_if_error = fresh.stale_if_error;
        fresh
    }

    pub fn log_lifetimes(&mut self, now: f64, fresh: &Freshness) {
        let mut text = self.task.take_output();
        fresh.write_log(now, self.response.is_uncacheable, &mut text);
        self.task.log_mut().put(Tag::TTL, &text);
        self.task.return_output(text);
    }

    /// Returns the default storage for the next object, by round robin. VCL may set another.
    pub fn storage_choice(&self) -> u32 {
        self.task.services().stevedores().next()
    }

    /// Returns the framing of the response that VCL sees; that of a response without a body if there is none.
    pub fn lent_framing(&self) -> BodyStatus {
        self.exchange.lent.as_ref().map_or(BodyStatus::None, |connection| connection.reply().framing().status)
    }

    /// Returns whether the origin's Content-Range matches the range that VCL has requested. After a rollback there is no
    /// response, and its texts may have been overwritten.
    pub fn check_range(&mut self, has_response: bool) -> bool {
        // The field has no meaning with other statuses (RFC 9110 section 14.4).
        let is_meant = !self.follows_rfc9111() || matches!(self.response.http.status(), 206 | 416);
        let has_response = has_response && is_meant;
        let response = has_response.then_some(&self.response.http);
        let is_supported = self.task.params().http_range_support;
        match partial::check(is_supported, &self.request.http, response, self.task.ws()) {
            PartialCheck::Fine => true,
            PartialCheck::Odd(note) => {
                self.task.log_mut().put(Tag::Debug, note.as_bytes());
                true
            }
            PartialCheck::Refused(why) => {
                self.task.log_mut().put(Tag::Error, why.as_bytes());
                false
            }
        }
    }
}
