//! Carries out requests: as management commands, or by reading the shared memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lacquer_cli::status;
use lacquer_inspect::Fault;
use lacquer_inspect::counters;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::invalidation::{page, page_ban, pattern_ban, split};
use lacquer_inspect::log_line::Filter;
use lacquer_inspect::management::Reply as Response;
use lacquer_inspect::request::{Target, header, is_method};
use lacquer_inspect::request_log::{Needs, RequestLog};
use lacquer_inspect::why::{Question, ask_with};
use lacquer_inspect::wire::Means;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::body::Content;
use crate::connections::Connections;
use crate::events;
use crate::guard::Refusal;
use crate::health::Health;
use crate::limits::{COMMAND_TIME, LOG_LINES, STREAMS};
use crate::lists::{Lists, items_of};
use crate::live_log::LiveLog;
use crate::manager_link::{ManagerLink, NoReply};
use crate::metrics::{Format, Own, expose};
use crate::openapi;
use crate::otlp::{Exporter, nanoseconds};
use crate::page::Page;
use crate::reply::{Reply, TEXT};
use crate::request::Values;
use crate::routes_table::Action;
use crate::watch::Watch;

/// Requests of a reply about the log, unless the client asks for another number.
const LINES: u64 = 50;
/// Bytes of a list in JSON that are converted at once. More of them are converted on a thread where that may take long.
const LONG_LIST: usize = 1 << 20;
const SNAPSHOT_TIME: Duration = Duration::from_secs(4);

/// Everything that requests use.
pub struct App {
    pub manager: ManagerLink,
    /// The connection for commands that may take long.
    pub questions: ManagerLink,
    pub watch: Arc<Watch>,
    pub exporter: Option<Arc<Exporter>>,
    pub live_log: Arc<LiveLog>,
    pub lists: Arc<Lists>,
    pub page: Page,
    pub connections: Connections,
    pub health: Health,
    /// The streams that may still begin.
    pub streams: Arc<Semaphore>,
    /// Reads of all counters or of the whole log: one at a time.
    pub reads: Arc<Semaphore>,
    /// Refused requests, in the order of [`Refusal::ALL`].
    pub refused: [AtomicU64; Refusal::ALL.len()],
}

type Outcome = Result<Reply, Reply>;

impl App {
    pub fn refuse(&self, refusal: Refusal) -> Reply {
        self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
        refusal.into()
    }

    /// Carries out a request.
    pub async fn act(&self, action: Action, values: &Values, accept: &str) -> Reply {
        let done = match action {
            Action::Page => Ok(self.page.reply()),
            Action::Alive => Ok(Reply::new(200, TEXT, "alive\n")),
            Action::Ready => self.ready().await,
            Action::OpenApi => Ok(Reply::json(200, &openapi::document())),
            Action::Metrics => self.metrics(accept).await,
            Action::Snapshot => self.snapshot().await,
            Action::Events => self.events(values).await,
            Action::Counters => self.counters(values).await,
            Action::Log => self.log(values).await,
            Action::Why => self.why(values).await,
            Action::Purge => self.purge(values).await,
            _ => self.command(action, values).await,
        };
        done.unwrap_or_else(|failed| failed)
    }

    async fn ready(&self) -> Outcome {
        match self.health.obstacle(&self.manager).await {
            None => Ok(Reply::new(200, TEXT, "ready\n")),
            Some(why) => Err(Reply::new(503, TEXT, format!("{why}\n"))),
        }
    }

    async fn metrics(&self, accept: &str) -> Outcome {
        let format = Format::of(accept);
        let text = self.exposed(format).await?;
        Ok(Reply::new(200, format.media(), text))
    }

    /// Returns all metrics in a format.
    async fn exposed(&self, format: Format) -> Result<Vec<u8>, Reply> {
        self.watch.touch();
        let own = Own {
            is_ready: self.health.obstacle(&self.manager).await.is_none(),
            connections: self.connections.count() as u64,
            streams: (STREAMS - self.streams.available_permits()) as u64,
            refused: Refusal::ALL
                .map(|reason| (reason.name(), self.refused[reason as usize].load(Ordering::Relaxed)))
                .to_vec(),
            dropped: self.live_log.dropped(),
            overruns: self.watch.overruns(),
            access_log: self.watch.access_log(),
            exported: self.exporter.as_ref().map(|exporter| exporter.counts()),
        };
        let watch = Arc::clone(&self.watch);
        self.read(move || {
            let latencies = watch.latencies();
            watch.with_series(|series| expose(series, &latencies, &own, format))
        })
        .await
    }

    /// Gives the exporter all metrics at its interval, if it has one.
    pub async fn export_metrics(&self) {
        let Some(exporter) = &self.exporter else { return };
        let Some(interval) = exporter.interval() else { return };
        let began = nanoseconds();
        loop {
            // The log is read from now on, so that the first histograms are complete.
            self.watch.touch();
            sleep(interval).await;
            if let Ok(fields) = self.exposed(Format::Otlp { began, now: nanoseconds() }).await {
                exporter.set_metrics(fields);
            }
        }
    }

    /// Runs a function that reads much, on a thread where it may block. Others wait meanwhile.
    async fn read<T: Send + 'static>(
        &self,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Reply> {
        let busy = || Reply::error(503, "another request reads; repeat it");
        let permit = timeout(Duration::from_secs(5), Arc::clone(&self.reads).acquire_owned()).await;
        let permit = permit.map_err(|_| busy())?.map_err(|_| busy())?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            function()
        });
        done.await.map_err(|_| Reply::error(500, "the request failed"))
    }

    async fn snapshot(&self) -> Outcome {
        let mut snapshots = self.watch.subscribe();
        let _ = timeout(SNAPSHOT_TIME, snapshots.changed()).await;
        let json = snapshots.borrow().clone();
        if json.is_empty() {
            Err(Reply::error(503, "there is no snapshot yet"))
        } else {
            Ok(Reply::new(200, crate::reply::JSON, json))
        }
    }

    async fn events(&self, values: &Values) -> Outcome {
        let permit = Arc::clone(&self.streams).try_acquire_owned();
        let permit = permit.map_err(|_| Reply::error(503, "there are too many streams of events"))?;
        let log = values.is_set("log").then(|| filter(values)).transpose()?;
        let mut log = log.map(|filter| self.live_log.subscribe(filter));
        if let Some(log) = &mut log {
            log.begun().await;
        }
        let events = events::stream(self.watch.subscribe(), self.lists.subscribe(), log);
        let content = Content::Events { events, _permit: permit };
        Ok(Reply { status: 200, media: "text/event-stream", content, fields: Vec::new() }
            .with("x-accel-buffering", "no"))
    }

    async fn counters(&self, values: &Values) -> Outcome {
        let directory = self.watch.directory().clone();
        let patterns: Vec<String> = values.text("name").map(str::to_owned).into_iter().collect();
        let found =
            self.read(move || counters::read(&directory)).await?.map_err(|fault| unavailable(&fault))?;
        let wanted = found.iter().filter(|counter| counters::is_wanted(&counter.name, &patterns));
        let entry = |counter: &counters::Counter| {
            let value =
                json!({"value": counter.value, "type": counter.semantics, "description": counter.oneliner});
            (counter.name.clone(), value)
        };
        Ok(Reply::json(200, &Value::Object(wanted.map(entry).collect::<Map<_, _>>())))
    }

    async fn log(&self, values: &Values) -> Outcome {
        let limit = values.number("limit").unwrap_or(LINES).min(LOG_LINES as u64) as usize;
        let filter = filter(values)?;
        let directory = self.watch.directory().clone();
        let lines = self.read(move || last_requests(&directory, &filter, limit)).await?;
        Ok(Reply::json(200, &json!({"items": lines.map_err(|fault| unavailable(&fault))?})))
    }

    async fn why(&self, values: &Values) -> Outcome {
        let wrong = |fault: Fault| Reply::error(400, &format!("{}; {}", fault.what, fault.hint));
        let target = Target::parse(values.required("url")).map_err(wrong)?;
        let headers =
            values.list("headers").into_iter().map(header).collect::<Result<_, _>>().map_err(wrong)?;
        let method = values.text("method").unwrap_or("GET").to_owned();
        if !is_method(&method) {
            return Err(Reply::error(400, "method is not a method of HTTP"));
        }
        // The listener is this daemon's, so its certificate is not checked.
        let means = Means { tls: target.is_https.then(|| target.name().to_owned()), ..Means::default() };
        let question = Question { target, method, headers, to: None, means };
        let directory = self.watch.directory().clone();
        let answer = self
            .questions
            .run(COMMAND_TIME, move |management| ask_with(&directory, Some(management), None, &question))
            .await
            .map_err(no_reply)?
            .map_err(|fault| Reply::error(502, &fault.what))?;
        let mut json = answer.explanation.json();
        json["request"] = answer.exchange.into();
        json["status"] = answer.status.into();
        json["header"] = answer.header.into();
        Ok(Reply::json(200, &json))
    }

    async fn purge(&self, values: &Values) -> Outcome {
        let words = match (values.text("url"), values.text("pattern")) {
            (Some(url), None) if values.text("host").is_none() => {
                let target = page(url)
                    .map_err(|fault| Reply::error(400, &format!("{}: {}", fault.what, fault.hint)))?;
                page_ban(&target)
            }
            (None, Some(pattern)) => pattern_ban(values.text("host").unwrap_or_default(), pattern),
            _ => return Err(Reply::error(400, "give either url, or pattern and perhaps host")),
        };
        self.ban(&words).await
    }

    async fn ban(&self, words: &[String]) -> Outcome {
        let all: Vec<&str> = ["ban"].into_iter().chain(words.iter().map(String::as_str)).collect();
        self.run(&self.manager, &all).await?;
        // Objects are tested later, one by one.
        Ok(Reply::json(200, &json!({"ban": words.join(" "), "removed": null})))
    }

    /// Carries out what is one management command.
    async fn command(&self, action: Action, values: &Values) -> Outcome {
        let name = values.required("name");
        let tags = values.list("tags");
        // A word that begins with a dash would be an option.
        if [name, values.required("pattern")].iter().chain(&tags).any(|word| word.starts_with('-')) {
            return Err(Reply::error(400, "a name, a pattern or a tag begins with a dash"));
        }
        match action {
            Action::Bans => self.list(&["ban.list", "-j"]).await,
            Action::Vcls => self.list(&["vcl.list", "-j"]).await,
            Action::Params => self.list(&["param.show", "-j"]).await,
            Action::ParamShow => self.list(&["param.show", "-j", name]).await,
            Action::ParamSet => self.list(&["param.set", "-j", name, values.required("value")]).await,
            Action::ParamReset => self.list(&["param.reset", "-j", name]).await,
            Action::Backends => self.list(&["backend.list", "-j"]).await,
            Action::Storages => self.list(&["storage.list", "-j"]).await,
            Action::Ban => self.ban(&split(values.required("expression"))).await,
            Action::VclShow => self
                .run(&self.manager, &["vcl.show", "-v", name])
                .await
                .map(|text| Reply::new(200, TEXT, text)),
            Action::VclUse => self.done(&["vcl.use", name]).await,
            Action::VclDiscard => self.done(&["vcl.discard", name]).await,
            Action::VclLoad => self.load(name, values).await,
            Action::BackendHealth => {
                self.done(&["backend.set_health", values.required("pattern"), values.required("health")])
                    .await
            }
            Action::Tag => {
                let soft: &[&str] = if values.is_set("soft") { &["-s"] } else { &[] };
                let reply = self.run(&self.manager, &[&["tag.purge"], soft, &tags].concat()).await?;
                let purged: u64 =
                    reply.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
                Ok(Reply::json(200, &json!({"purged": purged})))
            }
            _ => Err(Reply::error(404, "there is no such page")),
        }
    }

    async fn load(&self, name: &str, values: &Values) -> Outcome {
        // It compiles a program, so it has the connection for what takes long.
        let warnings = self.run(&self.questions, &["vcl.inline", name, values.required("text")]).await?;
        if values.is_set("use") {
            self.run(&self.manager, &["vcl.use", name]).await?;
        }
        Ok(Reply::json(201, &json!({"name": name, "messages": warnings.trim()})))
    }

    async fn done(&self, words: &[&str]) -> Outcome {
        let text = self.run(&self.manager, words).await?;
        Ok(Reply::json(200, &json!({"messages": text.trim()})))
    }

    /// Runs a command whose reply is a list in JSON: version, words and time, and then the items.
    async fn list(&self, words: &[&str]) -> Outcome {
        let text = self.run(&self.manager, words).await?;
        // The long list of bans would keep all other requests waiting.
        if text.len() > LONG_LIST { self.read(move || items(&text)).await? } else { items(&text) }
    }

    /// Runs a command. A refusal is an error.
    async fn run(&self, link: &ManagerLink, words: &[&str]) -> Result<String, Reply> {
        let Response { status, text } = link.command(words, COMMAND_TIME).await.map_err(no_reply)?;
        match status {
            status::OK => Ok(text),
            status::TRUNCATED => Err(Reply::error(500, "the list is too long")),
            status::CANT => Err(Reply::error(409, text.trim())),
            status::COMMS => Err(Reply::error(503, text.trim())),
            _ if is_unknown_name(&text) => Err(Reply::error(404, text.trim())),
            _ => Err(Reply::error(400, text.trim())),
        }
    }
}

/// Returns a response with the items of a list that the manager replied.
fn items(text: &str) -> Outcome {
    let items = items_of(text).ok_or_else(|| Reply::error(502, "the manager's reply is not JSON"))?;
    Ok(Reply::json(200, &json!({"items": items})))
}

/// Returns whether a refusal is for a program, a parameter or a backend that does not exist.
fn is_unknown_name(text: &str) -> bool {
    ["No VCL name", "Unknown parameter", "No Backends matches"].iter().any(|begin| text.starts_with(begin))
}

fn no_reply(why: NoReply) -> Reply {
    match why {
        NoReply::Busy => Reply::error(503, "too many commands wait for the manager"),
        NoReply::Late => Reply::error(504, "the manager does not reply"),
    }
}

fn unavailable(fault: &Fault) -> Reply {
    Reply::error(503, &fault.what)
}

fn filter(values: &Values) -> Result<Filter, Reply> {
    let status = values.text("status").map(str::to_owned);
    let is_status =
        |word: &str| word.len() == 3 && word.chars().all(|c| c.is_ascii_digit() || matches!(c, 'x' | 'X'));
    if status.as_deref().is_some_and(|status| !is_status(status)) {
        return Err(Reply::error(400, "status is three digits, or a class such as 5xx"));
    }
    let (url, only_misses) = (values.text("url").map(str::to_owned), values.is_set("misses"));
    Ok(Filter { url, status, only_misses, vxid: None })
}

/// Reads the last requests in the log that a filter accepts.
fn last_requests(directory: &Directory, filter: &Filter, limit: usize) -> Result<Vec<Value>, Fault> {
    let mut requests = RequestLog::open(directory, Needs::default())?;
    let mut last = VecDeque::new();
    requests.read(&mut |line| {
        if filter.accepts(&line) {
            last.push_back(line);
            if last.len() > limit {
                last.pop_front();
            }
        }
    })?;
    Ok(last.iter().map(lacquer_inspect::log_line::LogLine::json).collect())
}
