//! Another attempt of a fetch that has failed before any byte of a response arrived, without VCL (`backend_retries`).

use std::sync::atomic::Ordering;

use lacquer_flow::retry::{self, Budget, Failure};
use lacquer_shm::Tag;
use lacquer_vcl_runtime::BackendId;

use super::Fetch;

impl Fetch {
    /// Counts a request to the backend or director that VCL has set, which pays for a part of a retry.
    #[inline]
    pub(super) fn pay_for_retries(&self) {
        if self.task.params().backend_retries != 0 {
            let percent = self.task.params().backend_retry_budget;
            self.change_budget(|budget| Some(budget.pay(percent)));
        }
    }

    /// Returns whether the fetch is made again after this failure of a backend. `before` is the number of retries so far.
    #[cold]
    pub(super) fn repeats(&mut self, failed: BackendId, failure: Failure, before: u32) -> bool {
        let most = self.task.params().backend_retries;
        let is_repeatable = self.retries.forbidden.is_none();
        let is_idempotent = || retry::is_idempotent(self.request.http.method(self.task.ws()));
        if before >= most || !failure.may_repeat(is_repeatable, is_idempotent) {
            return false;
        }
        if failure == Failure::NotAttempted && failed == self.exchange.backend {
            // No director chooses another backend, and this one would refuse again.
            return false;
        }
        let may_repeat = !failure.costs_retry() || self.change_budget(Budget::take);
        let counters = self.task.services().counters();
        if !may_repeat {
            counters.fetch_retry_denied.add(1);
            self.task.log_mut().put(Tag::Notice, b"no retry: the budget is used up (backend_retry_budget)");
            return false;
        }
        counters.fetch_retried.add(1);
        let text = format_args!("retry {} of {most} without a response (backend_retries)", before + 1);
        self.task.log_mut().put_fmt(Tag::Notice, text);
        true
    }

    /// Changes the budget of the backend or director. Returns false if `change` returns `None`.
    fn change_budget(&self, change: impl Fn(Budget) -> Option<Budget>) -> bool {
        let wanted: BackendId = self.exchange.backend;
        let Some(cell) = self.task.vcl().loaded.instance().directors.get(wanted) else { return false };
        let change = |debt| change(Budget::of_debt(debt)).map(Budget::debt);
        cell.retry_debt().fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }
}
