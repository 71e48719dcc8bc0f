//! The manager's state and the commands that it runs itself.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lacquer_cli::check::{CheckResult, Checked};
use lacquer_cli::collector::Command;
use lacquer_cli::command_table::Process;
use lacquer_cli::help::{self, HelpContext};
use lacquer_cli::link::{AddressSpace, Request, ToWorker};
use lacquer_cli::{json, status};
use lacquer_params::{Effect, Listing, ParamSet, SetError};
use lacquer_vcl::Text;

use crate::address_space::{self, Needs, TooLittle};
use crate::complain::{Complain, Level};
use crate::jail::Jail;
use crate::listen::Listeners;
use crate::secret::Secret;
use crate::shm::{Shm, now};
use crate::storage::{self, Storage};
use crate::vcl::{Catalogue, Compilation};
use crate::version;
use crate::workdir::{PidFile, Renewal};
use crate::worker::inheritance::Inheritance;
use crate::worker::{Relaunch, RequestResult, State, Worker};

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status of the CLI.
    pub status: u16,
    /// Text for the user.
    pub text: Text,
}

impl Reply {
    /// Creates a successful reply.
    pub fn ok(text: impl Into<Text>) -> Reply {
        Reply { status: status::OK, text: text.into() }
    }

    /// Creates a reply with another status.
    pub fn no(status: u16, text: impl Into<Text>) -> Reply {
        Reply { status, text: text.into() }
    }
}

impl<T: Into<Text>> From<Result<T, Reply>> for Reply {
    fn from(done: Result<T, Reply>) -> Reply {
        done.map_or_else(|reply| reply, Reply::ok)
    }
}

impl From<SetError> for Reply {
    fn from(error: SetError) -> Reply {
        Reply { status: error.status, text: error.text.into() }
    }
}

/// The result of a command.
#[derive(Debug)]
pub enum Answer {
    /// The reply is ready.
    Now(Reply),
    /// [`Manager::finish_load`] returns the reply when this compilation has ended.
    Compiling(Compilation),
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer::Now(reply)
    }
}

/// The whole state of the manager.
#[derive(Debug)]
pub struct Manager {
    pub(crate) complain: Complain,
    pub(crate) program: OsString,
    pub(crate) jail: Jail,
    pub(crate) params: ParamSet,
    pub(crate) listeners: Listeners,
    pub(crate) storages: Vec<Storage>,
    pub(crate) identity: String,
    pub(crate) platform: String,
    pub(crate) workdir: PathBuf,
    pub(crate) secret: Option<Secret>,
    pub(crate) pid_files: Vec<PidFile>,
    pub(crate) renewal: Renewal,
    pub(crate) shm: Option<Shm>,
    pub(crate) catalogue: Catalogue,
    pub(crate) state: State,
    pub(crate) worker: Option<Worker>,
    pub(crate) relaunch: Relaunch,
    pub(crate) inheritance: Inheritance,
    pub(crate) panic_file: Option<std::fs::File>,
    pub(crate) panic: Option<String>,
    pub(crate) exit_status: u8,
    pub(crate) started: Instant,
}

impl Manager {
    /// Returns the seconds since the start (monotonic).
    pub(crate) fn uptime(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Returns whether there is a worker process.
    pub(crate) fn running(&self) -> bool {
        self.worker.is_some()
    }

    /// Divides the address space of a worker. Fails if the limit on it is too low.
    pub(crate) fn address_space(&self) -> Result<AddressSpace, TooLittle> {
        let sizes = || self.storages.iter().map(Storage::size);
        let needs = Needs {
            log: self.params.values().vsl_space,
            storage: sizes().flatten().fold(0, u64::saturating_add),
            unlimited: sizes().filter(Option::is_none).count() as u64,
            reactors: self.params.values().reactor_count() as u64,
        };
        needs.divide(address_space::limit(), address_space::memory())
    }

    pub(crate) fn cli_timeout(&self) -> Duration {
        seconds(self.params.values().cli_timeout)
    }

    /// Sends a request to the worker and returns its reply. Kills a worker that does not reply in time.
    pub(crate) fn request(&mut self, body: Request) -> Reply {
        let timeout = self.cli_timeout();
        let complain = &self.complain;
        let Some(worker) = self.worker.as_mut() else {
            return Reply::no(status::CANT, "");
        };
        let pid = worker.pid();
        let on_line = |line: &str| Manager::report_output(complain, Level::Info, pid, line);
        match worker.request(body, timeout, on_line) {
            RequestResult::Reply { status, text } => Reply { status, text: text.into() },
            RequestResult::NoReply => {
                self.give_up_on_worker();
                Reply::no(status::COMMS, "CLI communication error (hdr)")
            }
        }
    }

    /// Sends a request to the worker. Any status but success is an error.
    pub(crate) fn request_success(&mut self, body: Request) -> Result<Reply, Reply> {
        let reply = self.request(body);
        if matches!(reply.status, status::OK | status::TRUNCATED) { Ok(reply) } else { Err(reply) }
    }

    /// Runs a command of the CLI that `check` has parsed.
    pub fn run(&mut self, checked: CheckResult, command: &Command, authenticated: bool) -> Answer {
        let checked = match checked {
            Ok(Some(checked)) => checked,
            Ok(None) if self.running() => {
                return Reply::no(status::UNKNOWN, "Unknown request.\nType 'help' for more info.\n").into();
            }
            Ok(None) => return worker_needed().into(),
            Err((status, text)) => return Reply { status, text: text.into() }.into(),
        };
        let Ok(words) = &command.words else { return Reply::no(status::SYNTAX, "").into() };
        if matches!(checked.spec.name, "vcl.inline" | "vcl.load") {
            return self.begin_load(words, command).map_or_else(Answer::Now, Answer::Compiling);
        }
        if checked.spec.process == Process::Worker {
            return if self.running() {
                self.request(Request::Cli { argv: words.clone() }).into()
            } else {
                worker_needed().into()
            };
        }
        self.run_here(checked, words, authenticated).into()
    }

    fn run_here(&mut self, checked: Checked, words: &[String], authenticated: bool) -> Reply {
        let args = &words[1 + usize::from(checked.json)..];
        let json = checked.json;
        let in_envelope = |elements: &str| Reply::ok(json::reply(2, words, now(), elements));
        match checked.spec.name {
            "banner" => Reply::ok(self.banner()),
            "debug.panic.master" => panic!("You asked for it"),
            "help" => {
                let context = HelpContext { authenticated, worker_runs: self.running() };
                if json {
                    return in_envelope(&help::show_json(context));
                }
                let (status, text) = help::show(args, context);
                Reply { status, text: text.into() }
            }
            "panic.clear" => self.panic_clear(args).into(),
            "panic.show" => match &self.panic {
                None => Reply::no(status::CANT, "Child has not panicked or panic has been cleared"),
                Some(text) if json => in_envelope(&json::string(text)),
                Some(text) => Reply::ok(format!("{text}\n")),
            },
            "param.reset" => self.param_change(words, json, None),
            "param.set" => {
                let value = args.get(1).cloned().unwrap_or_default();
                self.param_change(words, json, Some(&value))
            }
            "param.show" => self.param_show(&words[1..], words),
            "pid" => self.pid_command(json, words),
            "ping" if json => Reply::ok(json::reply(2, words, now(), "\"PONG\"")),
            "ping" => Reply::ok(format!("PONG {} 1.0", now() as u64)),
            "quit" => Reply::no(status::CLOSE, "Closing CLI connection"),
            "start" => self.start_command(),
            "status" if json => in_envelope(&json::string(&self.status_text())),
            "status" => Reply::ok(format!("Child in state {}", self.status_text())),
            "stop" => self.stop_command(),
            "storage.list" if json => in_envelope(&storage::list_json(&self.storages)),
            "storage.list" => Reply::ok(storage::list(&self.storages)),
            "vcl.deps" if json => Reply::ok(json::reply(1, words, now(), &self.catalogue.deps_json())),
            "vcl.deps" => Reply::ok(self.catalogue.deps()),
            "vcl.discard" => self.vcl_discard(args).into(),
            "vcl.label" => self.vcl_label(&args[0], &args[1]).into(),
            "vcl.list" if self.running() => self.request(Request::Cli { argv: words.to_vec() }),
            "vcl.list" if json => in_envelope(&self.catalogue.list_json()),
            "vcl.list" => Reply::ok(self.catalogue.list()),
            "vcl.show" => self.vcl_show(args).into(),
            "vcl.state" => self.vcl_state(&args[0], &args[1]).into(),
            "vcl.symtab" => Reply::ok(self.catalogue.symtab()),
            "vcl.use" => self.vcl_use(&args[0]).into(),
            name => Reply::no(status::UNIMPLEMENTED, format!("{name} is not available\n")),
        }
    }

    /// Returns the banner of a new connection.
    pub fn banner(&self) -> String {
        let start = if self.running() { "" } else { "Type 'start' to launch worker process.\n" };
        format!(
            "-----------------------------\nVarnish Cache CLI 1.0\n-----------------------------\n\
             {}\n{}\n\nType 'help' for command list.\nType 'quit' to close CLI session.\n{start}",
            self.platform,
            version::SHORT
        )
    }

    fn panic_clear(&mut self, args: &[String]) -> Result<String, Reply> {
        let zero = match args.first().map(String::as_str) {
            None => false,
            Some("-z") => true,
            Some(other) => {
                return Err(Reply::no(status::PARAM, format!("Unknown parameter \"{other}\".")));
            }
        };
        if zero && let Some(shm) = &self.shm {
            shm.counters.child_panic.set(0);
        }
        if self.panic.take().is_none() && !zero {
            return Err(Reply::no(status::CANT, "No panic to clear"));
        }
        Ok(String::new())
    }

    /// Sets or resets a parameter and sends the parameters to the worker.
    pub(crate) fn set_param(&mut self, name: &str, value: Option<&str>) -> Result<Effect, SetError> {
        let effect = match value {
            Some(value) => self.params.set(name, value),
            None => self.params.reset(name),
        }?;
        self.complain.tune(self.params.values());
        self.send_params();
        Ok(effect)
    }

    /// Sends the parameters to the worker and waits for the reply to a request sent after them. The worker handles
    /// messages in order, so the new value is in effect when the client gets its reply.
    fn send_params(&mut self) {
        let message = ToWorker::Param(Box::new(self.params.values().clone()));
        let timeout = self.cli_timeout();
        let Some(worker) = self.worker.as_mut() else { return };
        if worker.notify(&message, timeout).is_ok() {
            self.request(Request::Settle);
        } else {
            self.give_up_on_worker();
        }
    }

    fn param_change(&mut self, words: &[String], json: bool, value: Option<&str>) -> Reply {
        let name = &words[1 + usize::from(json)];
        let effect = match self.set_param(name, value) {
            Ok(effect) => effect,
            Err(error) => return error.into(),
        };
        if json {
            let listing = Listing { name: Some(name), json: true, ..Listing::default() };
            return match self.params.show(&listing) {
                Ok(elements) => Reply::ok(json::reply(2, &words[..3], now(), &elements)),
                Err(error) => error.into(),
            };
        }
        Reply::ok(match effect {
            Effect::AtRestart if self.running() => "\nChange will take effect when child is restarted",
            Effect::AtReload => "\nChange will take effect when VCL script is reloaded",
            _ => "",
        })
    }

    fn param_show(&self, args: &[String], words: &[String]) -> Reply {
        let shown = Listing::parse(args).and_then(|listing| Ok((listing.json, self.params.show(&listing)?)));
        match shown {
            Ok((true, elements)) => Reply::ok(json::reply(2, words, now(), &elements)),
            Ok((false, text)) => Reply::ok(text),
            Err(error) => error.into(),
        }
    }

    fn pid_command(&self, json: bool, words: &[String]) -> Reply {
        let ours = std::process::id();
        let worker = self.worker.as_ref().map(Worker::pid);
        if json {
            let worker = worker.map(|pid| format!(", \"worker\": {pid}")).unwrap_or_default();
            return Reply::ok(json::reply(2, words, now(), &format!("  {{\"master\": {ours}{worker}}}")));
        }
        let worker = worker.map(|pid| format!("Worker: {pid:10}\n")).unwrap_or_default();
        Reply::ok(format!("Master: {ours:10}\n{worker}"))
    }
}

fn worker_needed() -> Reply {
    Reply::no(
        status::UNKNOWN,
        "Unknown request in manager process (child not running).\nType 'help' for more info.",
    )
}

/// Converts a parameter's seconds to a duration. An infinite or overlong time becomes a year.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_hours(8760))
}
