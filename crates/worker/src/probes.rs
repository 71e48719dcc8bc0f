//! The probe of an origin: how it stands, and the task on some reactor that asks again and again.
//!
//! It runs while the origin's VCL is warm. Each warming and cooling begins a new history.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use lacquer_backend::endpoint::Holddown;
use lacquer_backend::poke::{Call, poke};
use lacquer_backend::probe::{Attempt, Fact, History, Settings, Wanted};
use lacquer_shm::{Log, Tag, Vxid};
use lacquer_vcl::Text;
use lacquer_vcl::program::Probe;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::backends::Origin;
use crate::clock;
use crate::shared::Shared;

/// The reactors, for tasks that any of them can do.
#[derive(Default)]
pub struct Runtimes {
    handles: Mutex<Vec<Handle>>,
    next: AtomicUsize,
}

impl Runtimes {
    pub fn add(&self, handle: Handle) {
        self.handles.lock().push(handle);
    }

    /// Gives the task to the reactors in turn.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        let handles = self.handles.lock();
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let handle = handles.get(turn % handles.len().max(1))?;
        Some(handle.spawn(work).abort_handle())
    }
}

pub struct Prober {
    settings: Settings,
    request: Vec<u8>,
    history: Mutex<History>,
    sick: AtomicBool,
    /// When it last changed between sick and healthy: a double's bits.
    changed: AtomicU64,
    task: Mutex<Option<AbortHandle>>,
}

impl Prober {
    pub fn new(probe: &Probe, host: &Text, now: f64) -> Prober {
        let settings = Settings::new(Wanted {
            timeout: probe.timeout,
            interval: probe.interval,
            window: probe.window,
            threshold: probe.threshold,
            initial: probe.initial,
            status: probe.expected_response,
            expect_close: probe.expect_close,
        });
        let request = probe.request.clone().unwrap_or_else(|| {
            let url = probe.url.as_deref().unwrap_or(b"/");
            let parts = [b"GET ", url, b" HTTP/1.1\r\nHost: ", host, b"\r\nConnection: close\r\n\r\n"];
            parts.concat().into()
        });
        Prober {
            history: Mutex::new(History::new(&settings)),
            settings,
            request: request.0,
            sick: AtomicBool::new(false),
            changed: AtomicU64::new(now.to_bits()),
            task: Mutex::new(None),
        }
    }

    pub fn is_sick(&self) -> bool {
        self.sick.load(Ordering::Relaxed)
    }

    pub fn changed(&self) -> f64 {
        f64::from_bits(self.changed.load(Ordering::Relaxed))
    }

    /// For `backend.list`.
    pub fn list(&self, details: bool, json: bool) -> String {
        let history = self.history.lock();
        let (good, window) = (history.good, self.settings.window);
        let word = if self.is_sick() { "sick" } else { "healthy" };
        match (details, json) {
            (false, false) => format!("{good}/{window}\t{word}"),
            (false, true) => format!("[{good}, {window}, \"{word}\"]"),
            (true, false) => history.details(&self.settings),
            (true, true) => history.json(&self.settings),
        }
    }

    /// Forgets what was and says how things stand.
    fn reset(&self, origin: &Origin, log: &Log) {
        *self.history.lock() = History::new(&self.settings);
        self.report(origin, log);
    }

    /// Draws the conclusion from the history, for requests, counters and the log.
    pub fn report(&self, origin: &Origin, log: &Log) {
        let (sick, happy, text) = {
            let history = self.history.lock();
            let sick = history.is_sick(&self.settings);
            (sick, history.map(Fact::Happy), history.log_text(&self.settings))
        };
        let went = self.sick.swap(sick, Ordering::Relaxed) != sick;
        if went {
            self.changed.store(clock::real().to_bits(), Ordering::Relaxed);
        }
        if went && sick {
            origin.wake_all();
        }
        let name = &origin.spec.name;
        let how = if went { "Went" } else { "Still" };
        let state = if sick { "sick" } else { "healthy" };
        log.write_fmt(Tag::Backend_health, Vxid::NONE, format_args!("{name} {how} {state} {text}"));
        origin.count(|c| c.happy.set(happy));
    }

    fn add(&self, attempt: &Attempt) {
        self.history.lock().add(attempt, &self.settings);
    }

    pub fn start(&self, origin: &Arc<Origin>, shared: &Arc<Shared>) {
        self.reset(origin, &shared.log);
        let work = run(origin.clone(), shared.clone());
        if let Some(before) = std::mem::replace(&mut *self.task.lock(), shared.runtimes.spawn(work)) {
            before.abort();
        }
    }

    pub fn stop(&self, origin: &Origin, log: &Log) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        self.reset(origin, log);
    }
}

async fn run(origin: Arc<Origin>, shared: Arc<Shared>) {
    let Some(prober) = &origin.prober else { return };
    loop {
        let params = shared.params();
        let call = Call {
            endpoint: &origin.endpoint,
            request: &prober.request,
            proxy: origin.spec.proxy_header.unwrap_or(0),
            prefer_ipv6: params.prefer_ipv6,
            holddown: Holddown {
                local: params.backend_local_error_holddown,
                remote: params.backend_remote_error_holddown,
            },
            error_text: crate::sys::error_text,
        };
        let (attempt, refused) = poke(&call, &prober.settings).await;
        if let Some(errno) = refused {
            origin.count_failure(errno);
        }
        prober.add(&attempt);
        prober.report(&origin, &shared.log);
        tokio::time::sleep(clock::seconds(prober.settings.interval)).await;
    }
}
