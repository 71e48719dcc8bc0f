//! A fetch: from the request to the origin to the object in the cache, through vcl_backend_*.
//!
//! It runs for the request that started it, on the same reactor, and outlives it when need be. Two
//! messages go back to that request: its body's connection once the body is not needed any more, and the
//! object once there is something to deliver (or the news that there will be none).

mod abandon;
mod body;
mod connect;
mod connection;
mod ending;
mod error;
mod filters;
mod head;
mod host;
mod object;
mod pipe;
mod queue;
mod response;
mod runner;
mod start;
mod transit;
mod upload;

use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::{BodyState, BodyWriter, Busy, Object};
use lacquer_flow::Lifetime;
use lacquer_http::{Message, SessClose, Text};
use lacquer_params::Params;
use lacquer_shm::{Tag, Vxid};
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::BackendId;

use crate::admission::Permit;
use crate::client::{HalfClosed, Req, while_fetching, while_waiting};
use crate::deadlines::Deadline;
use crate::memory::Memory;
use crate::req_body::ReqBody;
use crate::seat::Seated;
use crate::task::{BEREQ, BERESP, Logged, Scene, Task, run_vcl};
use crate::turn::Place;
use lacquer_deliver::Pace;
use runner::{BodyNews, News, Started};

pub use connect::resolve;
pub use connection::{OriginConnection, log_close, send_cached};
pub use pipe::PipeCall;
pub use runner::Runner;

/// What the fetch is for.
pub enum Mode {
    Pass,
    Fetch { busy: Busy, stale: Option<Arc<Object>> },
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    pub bereq_header: u64,
    pub bereq_body: u64,
    pub beresp_header: u64,
    pub beresp_body: u64,
    /// In so many reads.
    pub beresp_reads: u64,
}

impl Account {
    /// As `BereqAcct` has them.
    fn numbers(&self) -> [u64; 6] {
        let (request, response) =
            (self.bereq_header + self.bereq_body, self.beresp_header + self.beresp_body);
        [self.bereq_header, self.bereq_body, request, self.beresp_header, self.beresp_body, response]
    }
}

/// Where the object under construction will go.
pub enum Target {
    /// Into the cache, by the right that the look-up gave.
    Cache(Busy),
    /// To the one request that asked for it.
    Private,
    /// It is out: streaming, complete or failed.
    Delivered,
}

/// The fetch's next step.
enum Step {
    Start,
    Retry,
    Body,
    Refresh,
    Error,
    Fail,
    Done,
}

/// What one attempt at the origin is told and finds out. A retry begins with a new one.
#[derive(Default)]
pub struct Attempt {
    /// VCL may choose none, which fails.
    pub storage: Option<u32>,
    pub do_stream: bool,
    pub do_esi: bool,
    pub was_304: bool,
    pub gzipped: bool,
    pub has_esi: bool,
    pub encoding_changed: bool,
    pub error_action: bool,
    /// The answer may be another's: nobody finds the object.
    pub is_foreign: bool,
    pub connect_timeout: Option<f64>,
    pub first_byte_timeout: Option<f64>,
    pub between_bytes_timeout: Option<f64>,
    /// Of the bytes that are stored and that its filters make.
    pace: Pace,
    /// Evictions that the pace has counted.
    nuked_before: u32,
}

impl Attempt {
    pub fn new() -> Attempt {
        Attempt { do_stream: true, ..Attempt::default() }
    }
}

pub struct Fetch {
    pub task: Task,
    pub bereq: Message,
    /// As it was before VCL saw it, for retries and rollback.
    pub bereq0: Message,
    pub beresp: Message,
    pub target: Target,
    pub object: Option<Arc<Object>>,
    pub writer: Option<BodyWriter>,
    pub stale: Option<Arc<Object>>,
    pub client_body: Option<ReqBody>,
    pub cached_body: Option<Arc<Object>>,
    news: Rc<News>,
    announced: bool,
    pub origin: Option<OriginConnection>,
    /// On its way back to the pool.
    leaving: Option<OriginConnection>,
    /// Of the last connection. VCL may still look at it when that is closed.
    pub origin_addr: Option<SocketAddr>,
    pub account: Account,
    pub digest: [u8; 32],
    pub is_pass: bool,
    pub is_bgfetch: bool,
    pub is_hitpass: bool,
    pub is_hitmiss: bool,
    pub uncacheable: bool,
    pub hit_for_pass: bool,
    pub retries: u32,
    pub attempt: Attempt,
    pub no_retry: Option<&'static str>,
    pub do_gzip: bool,
    pub do_gunzip: bool,
    /// Objects evicted for this one.
    pub nuked: u32,
    pub backend: BackendId,
    pub backend_resp: BackendId,
    pub lifetime: Lifetime,
    pub t_resp: f64,
    pub err_code: u16,
    pub err_reason: Text,
    pub filters: Text,
    pub bereq_filters: Text,
    pub synth_body: Vec<u8>,
    pub identity: Text,
    pub retry_connect: bool,
    pub transit_buffer: u64,
    pub snapshot: lacquer_http::Mark,
    /// For what is put together before it goes somewhere else.
    pub out: Vec<u8>,
    pub deadline: Rc<Deadline>,
    /// It counts as waiting for as long as it runs.
    _permit: Option<Permit>,
}

/// How a fetch ended for the request that waited for it.
pub enum Outcome {
    /// There is something to deliver.
    Object(Arc<Object>),
    /// There is nothing.
    Nothing,
    /// The client left before.
    ClientGone,
}

/// Fetches for a request and waits until it can be delivered, or until the client is gone.
pub async fn for_request(req: &mut Req, mode: Mode) -> Outcome {
    let is_pass = matches!(mode, Mode::Pass);
    let (mut runner, lent) = start(req, mode, if is_pass { "pass" } else { "fetch" }, false);
    let (tx, params, later) = (req.tx.clone(), req.task.params.clone(), runner.presence.clone());
    let shared = &req.task.reactor.shared;
    // Where many wait, a client that is gone is to make room at once.
    let is_pressed = shared.admission.is_pressed(shared.bound(&params));
    let treatment = HalfClosed::of(req, is_pass, is_pressed);
    let started = {
        let waiting = pin!(async {
            if lent {
                Box::pin(lend_body(req, &mut runner)).await;
            }
            runner.until(News::started).await
        });
        if is_pressed {
            // Rare, and the future is large.
            Box::pin(while_waiting(&tx, &params, treatment, waiting)).await
        } else {
            while_fetching(&tx, &params, treatment, &later, waiting).await
        }
    };
    let Some(started) = started else {
        runner.abandon().await;
        runner.leave(&req.task.reactor);
        return Outcome::ClientGone;
    };
    runner.leave(&req.task.reactor);
    req.task.stamp("Fetch");
    let object = started.and_then(|Started(object)| object);
    // What came with the head may have told already that the body is broken.
    match object.filter(|object| object.state() != BodyState::Failed) {
        Some(object) => Outcome::Object(object),
        None => Outcome::Nothing,
    }
}

/// Refreshes an object that is delivered meanwhile, if there is room for one more fetch.
pub async fn in_background(req: &mut Req, busy: Busy, stale: Arc<Object>) {
    let shared = &req.task.reactor.shared;
    let permit = shared.admission.enter(shared.bound(&req.task.params));
    let c = &req.task.reactor.counters;
    if permit.is_none() {
        c.bgfetch_no_thread.add(1);
        req.log_error("No room for a background fetch");
        return req.ignore_body().await;
    }
    c.s_fetch.add(1);
    c.s_bgfetch.add(1);
    req.permit = permit;
    let (mut runner, lent) = start(req, Mode::Fetch { busy, stale: Some(stale) }, "bgfetch", true);
    if lent {
        Box::pin(lend_body(req, &mut runner)).await;
    }
    // Who got the stale answer may look whether the origin was asked.
    runner.set_out().await;
    runner.leave(&req.task.reactor);
    req.ignore_body().await;
    req.task.stamp("Fetch");
}

/// The fetch has the request's body until it needs it no more.
async fn lend_body(req: &mut Req, runner: &mut Runner) {
    while let Some(news) = runner.until(News::body).await {
        match news {
            BodyNews::Begun => {
                req.begin_reading().await;
            }
            BodyNews::Back(body) => {
                req.body.give_back(body);
                if req.body.was_read()
                    && let Some(filters) = req.body.filters.take()
                {
                    req.show_body_filters(&filters);
                    req.body.filters = Some(filters);
                }
                return req.log_reading();
            }
        }
    }
}

/// Somebody who does the fetch, and whether the request's body is lent to it.
fn start(req: &mut Req, mode: Mode, how: &str, background: bool) -> (Runner, bool) {
    let vxid = Vxid::backend(req.task.reactor.vxid());
    let reactor = req.task.reactor.clone();
    let (runner, params) = (reactor.take_runner(), reactor.params());
    let mut seat = runner.seat();
    seat.prepare(&reactor.shared.log, &params);
    let made = seat.occupy(|memory| start::from_request(req, mode, vxid, params, memory, &runner));
    let Some(fetch) = made else { return (runner, false) };
    fetch.is_bgfetch = background;
    fetch.task.log.put_relation(Tag::Begin, "bereq", req.task.vxid(), how);
    fetch.task.log.put(Tag::VCL_use, fetch.task.vcl.name.as_bytes());
    req.task.link("bereq", vxid, how);
    let lent = fetch.client_body.is_some();
    runner.begin(seat);
    (runner, lent)
}

async fn run(fetch: &mut Fetch) {
    let reactor = fetch.task.reactor.clone();
    let fault = crate::faults::caught(&reactor, (fetch.task.vxid(), Place::Fetch), pin!(fetch.steps())).await;
    if let Err(text) = fault {
        fetch.task.log.put(Tag::Error, format!("Fault in this fetch: {text}").as_bytes());
        fetch.fail();
    }
    fetch.finish();
}

impl Seated for Fetch {
    fn workspace(params: &Params) -> u64 {
        params.workspace_backend
    }

    fn take_memory(&mut self) -> Memory {
        Memory {
            ws: mem::take(&mut self.task.ws),
            log: mem::take(&mut self.task.log),
            request: mem::take(&mut self.bereq),
            request0: mem::take(&mut self.bereq0),
            response: mem::take(&mut self.beresp),
            out: mem::take(&mut self.out),
            synth_body: mem::take(&mut self.synth_body),
        }
    }
}

impl Scene for Fetch {
    fn task(&mut self) -> &mut Task {
        &mut self.task
    }
}

impl Fetch {
    async fn steps(&mut self) {
        let now = self.task.t_first;
        self.task.timestamp("Start", now);
        start::make_bereq(self);
        let mut step = Step::Start;
        loop {
            if self.is_abandoned() && !matches!(step, Step::Done) {
                step = Step::Fail;
            }
            step = match step {
                Step::Start => start::start(self).await,
                Step::Retry => start::retry(self),
                Step::Body => body::fetch(self).await,
                Step::Refresh => body::refresh(self).await,
                Step::Error => error::error(self).await,
                Step::Fail => {
                    self.fail();
                    Step::Done
                }
                Step::Done => break,
            };
        }
    }

    pub fn bereq_headers(&mut self) -> Logged<'_> {
        Logged { message: &mut self.bereq, ws: &mut self.task.ws, log: &mut self.task.log, tags: BEREQ }
    }

    pub fn beresp_headers(&mut self) -> Logged<'_> {
        Logged { message: &mut self.beresp, ws: &mut self.task.ws, log: &mut self.task.log, tags: BERESP }
    }

    pub fn vcl(&mut self, method: Method) -> impl Future<Output = Action> {
        run_vcl(self, method)
    }

    /// A failure in the way of the body, for the log.
    pub fn fetch_error(&mut self, text: &str) {
        self.task.log.put(Tag::FetchError, text.as_bytes());
    }

    /// The fetch ends early because nobody waits for it.
    fn log_abandoned(&mut self) {
        self.fetch_error("abandoned, the client is gone");
        self.task.reactor.counters.fetch_abandoned.add(1);
    }

    /// The request's body is not needed any more: its connection goes back.
    pub fn release_request(&mut self) {
        if let Some(body) = self.client_body.take() {
            self.news.body.set(Some(body));
        }
    }

    /// Tells the waiting request that there is something to deliver.
    pub fn announce(&mut self, object: Option<Arc<Object>>) {
        self.release_request();
        if !mem::replace(&mut self.announced, true) {
            self.news.started.set(Some(Started(object)));
        }
    }

    fn fail(&mut self) {
        self.close_origin(Some(SessClose::RxBody));
        self.writer = None;
        if let Some(object) = &self.object {
            self.task.reactor.shared.cache.fail(object);
        }
        // Dropping the right to fetch wakes those who waited for it.
        self.target = Target::Delivered;
        let object = self.object.take();
        drop(object);
        self.announce(None);
    }

    fn finish(&mut self) {
        if let Some(object) = &self.object
            && object.state() == BodyState::Complete
        {
            let length = object.body_len();
            self.task.log.put_numbers(Tag::Length, [length]);
        }
        self.task.log.put_numbers(Tag::BereqAcct, self.account.numbers());
        self.task.log.end();
        if self.task.ws.overflowed() {
            self.task.reactor.counters.ws_backend_overflow.add(1);
        }
        self.announce(None);
    }
}
