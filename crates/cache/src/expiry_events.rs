//! The events of objects that are added, changed or removed: the records that expiry logs for them, and the wake-up
//! of expiry when a deadline is earlier than its next run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::locks::Mutex;
use lacquer_flow::lookup::Limits;

use crate::object::Object;
use crate::stats::{CacheStats, bump};

/// The time base of the deadlines: hundredths of a second since the cache was created.
#[derive(Debug)]
pub(crate) struct Clock {
    base: f64,
    /// The tick of the next call of `expire`.
    due: AtomicU64,
}

const TICKS: f64 = 100.0;
/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

impl Clock {
    pub(crate) fn new(now: f64) -> Self {
        Self { base: now.floor(), due: AtomicU64::new(NEVER) }
    }

    /// Records the tick of the next call of `expire`.
    pub(crate) fn set_due(&self, tick: u64) {
        self.due.store(tick, Ordering::SeqCst);
    }

    /// Returns the first tick that is not before a time.
    pub(crate) fn ticks(&self, when: f64) -> u64 {
        // A time in the past is 0: the conversion saturates.
        (((when - self.base) * TICKS).ceil() as u64).min(NEVER - 1)
    }

    pub(crate) fn time(&self, ticks: u64) -> f64 {
        if ticks == NEVER { f64::INFINITY } else { self.base + ticks as f64 / TICKS }
    }
}

/// A log record, kept until the next run of expiry.
#[derive(Debug)]
enum Record {
    Text(String),
    Removed { vxid: u64, fresh_until: f64, hits: u32 },
}

/// The events since the last run of expiry.
pub(crate) struct ExpiryEvents {
    clock: Clock,
    records: Mutex<Vec<Record>>,
    /// Whether the records of expiry are logged.
    trace: AtomicBool,
    hook: Option<Box<dyn Fn() + Send + Sync>>,
    counters: Arc<CacheStats>,
}

pub(crate) fn address(object: &Arc<Object>) -> usize {
    Arc::as_ptr(object).addr()
}

impl ExpiryEvents {
    pub(crate) fn new(
        now: f64,
        hook: Option<Box<dyn Fn() + Send + Sync>>,
        counters: Arc<CacheStats>,
    ) -> Self {
        let (records, trace) = (Mutex::default(), AtomicBool::new(false));
        Self { clock: Clock::new(now), records, trace, hook, counters }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.trace.load(Ordering::Relaxed)
    }

    pub(crate) fn set_trace(&self, on: bool) {
        self.trace.store(on, Ordering::Relaxed);
    }

    /// Logs what was recorded since the last report.
    pub(crate) fn report(&self, now: f64, log: &mut dyn FnMut(fmt::Arguments<'_>)) {
        let records = std::mem::take(&mut *self.records.lock());
        for record in records {
            match record {
                Record::Text(text) => log(format_args!("{text}")),
                Record::Removed { vxid, fresh_until, hits } => {
                    log(format_args!("EXP_Removed x={vxid} t={:.0} h={hits}", fresh_until - now));
                }
            }
        }
    }

    fn add(&self, record: Record) {
        self.records.lock().push(record);
        self.notify();
    }

    /// Counts a change as mailed and as received. Varnish mails changes to its expiry thread; here the index has them
    /// at once.
    fn count_mail(&self) {
        bump(&self.counters.exp_mailed);
        bump(&self.counters.exp_received);
    }

    pub(crate) fn removed(&self, object: &Object) {
        self.count_mail();
        if self.is_traced() {
            let (vxid, fresh_until, hits) = (object.vxid(), object.fresh_until(Limits::NONE), object.hits());
            self.add(Record::Removed { vxid, fresh_until, hits });
        }
    }

    /// Records that an object's deadline was changed from `old`.
    pub(crate) fn rearmed(&self, object: &Arc<Object>, old: f64, when: u64) {
        if self.is_traced() {
            let (p, e, f) = (address(object), object.expires(), object.flags());
            self.add(Record::Text(format!("EXP_Rearm p={p:#x} E={old:.6} e={e:.6} f={f:#x}")));
        }
        self.inserted(object, when);
    }

    /// Records that an object's deadline is new or changed, and wakes expiry if it is earlier than the next run.
    pub(crate) fn inserted(&self, object: &Arc<Object>, when: u64) {
        self.count_mail();
        if self.is_traced() {
            let (p, e, f) = (address(object), object.expires(), object.flags());
            self.add(Record::Text(format!("EXP_When p={p:#x} e={e:.6} f={f:#x}")));
        }
        self.due_by(when);
    }

    fn due_by(&self, when: u64) {
        if when < self.clock.due.load(Ordering::SeqCst) {
            self.notify();
        }
    }

    fn notify(&self) {
        if let Some(hook) = &self.hook {
            hook();
        }
    }
}
