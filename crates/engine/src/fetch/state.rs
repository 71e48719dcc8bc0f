//! A fetch: its state, and the operations that several steps share.

use std::mem;
use std::sync::Arc;

use lacquer_cache::{BodyState, Object};
use lacquer_http::SessClose;
use lacquer_params::Params;
use lacquer_shm::Tag;
use lacquer_vcl::types::{Action, Method};

use super::events::Started;
use super::parts::{Attempt, Exchange, Product, Purpose, Request, Response, Retries, Target, Waiter};
use crate::task::{BEREQ, BERESP, Logged, Task, VclTask, run_vcl};
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
}

impl Transaction for Fetch {
    fn workspace(params: &Params) -> u64 {
        params.workspace_backend
    }

    fn take_buffers(&mut self) -> TransactionBuffers {
        TransactionBuffers {
            ws: mem::take(&mut self.task.ws),
            log: mem::take(&mut self.task.log),
            request: mem::take(&mut self.request.http),
            request0: mem::take(&mut self.request.original),
            response: mem::take(&mut self.response.http),
            out: mem::take(&mut self.exchange.out),
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
        Logged {
            message: &mut self.request.http,
            ws: &mut self.task.ws,
            log: &mut self.task.log,
            tags: BEREQ,
        }
    }

    pub fn beresp_headers(&mut self) -> Logged<'_> {
        Logged {
            message: &mut self.response.http,
            ws: &mut self.task.ws,
            log: &mut self.task.log,
            tags: BERESP,
        }
    }

    pub fn vcl(&mut self, method: Method) -> impl Future<Output = Action> {
        run_vcl(self, method)
    }

    /// Logs a failure of the fetch.
    pub fn fetch_error(&mut self, text: &str) {
        self.task.log.put(Tag::FetchError, text.as_bytes());
    }

    /// Logs that the fetch ends early because nobody waits for it.
    pub(super) fn log_abandoned(&mut self) {
        self.fetch_error("abandoned, the client is gone");
        self.task.services.counters().fetch_abandoned.add(1);
    }

    /// Returns the request's body, which the fetch does not need any more.
    pub fn release_request(&mut self) {
        if let Some(body) = self.request.body.take() {
            self.waiter.events.body.set(Some(body));
        }
    }

    /// Sends the event that the object can be delivered to the waiting request.
    pub fn announce(&mut self, object: Option<Arc<Object>>) {
        self.release_request();
        if !mem::replace(&mut self.waiter.is_notified, true) {
            self.waiter.events.started.set(Some(Started(object)));
        }
    }

    pub(super) fn fail(&mut self) {
        self.close_origin(Some(SessClose::RxBody));
        self.product.writer = None;
        if let Some(object) = &self.product.object {
            self.task.services.cache().fail(object);
        }
        // Dropping the right to fetch wakes the requests that wait for it.
        self.product.target = Target::Delivered;
        let object = self.product.object.take();
        drop(object);
        self.announce(None);
    }

    pub(super) fn finish(&mut self) {
        if let Some(object) = &self.product.object
            && object.state() == BodyState::Complete
        {
            let length = object.body_len();
            self.task.log.put_numbers(Tag::Length, [length]);
        }
        self.task.log.put_numbers(Tag::BereqAcct, self.exchange.account.numbers());
        self.task.log.end();
        if self.task.ws.overflowed() {
            self.task.services.counters().ws_backend_overflow.add(1);
        }
        self.announce(None);
    }
}
