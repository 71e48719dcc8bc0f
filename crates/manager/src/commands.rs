//! The management commands that the manager runs itself.

use lacquer_cli::check::{CheckResult, Checked};
use lacquer_cli::collector::Command;
use lacquer_cli::command_table::Process;
use lacquer_cli::help::{self, HelpContext};
use lacquer_cli::link::{Request, ToWorker};
use lacquer_cli::{json, status};
use lacquer_params::{Effect, Listing, SetError};

use crate::manager::{Manager, Reply};
use crate::shm::now;
use crate::storage;
use crate::tls;
use crate::vcl::Compilation;
use crate::version;
use crate::worker::Worker;

/// The result of a command.
#[derive(Debug)]
pub enum CommandResult {
    /// The reply is ready.
    Now(Reply),
    /// [`Manager::finish_load`] returns the reply when this compilation has ended.
    Compiling(Compilation),
}

impl From<Reply> for CommandResult {
    fn from(reply: Reply) -> CommandResult {
        CommandResult::Now(reply)
    }
}

impl Manager {
    /// Runs a command of the CLI that `check` has parsed.
    pub fn run(&mut self, checked: CheckResult, command: &Command, authenticated: bool) -> CommandResult {
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
            return self.begin_load(words, command).map_or_else(CommandResult::Now, CommandResult::Compiling);
        }
        if checked.spec.process == Process::Worker {
            return if self.running() {
                self.request(Request::Cli { argv: command.all_bytes() }).into()
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
            "acme.list" => self.acme_list(words, json),
            "acme.renew" => self.acme_renew(args.first().map(String::as_str)),
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
            "panic.show" => match &self.child.panic {
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
            "storage.list" if self.running() => {
                let methods = self.storages.iter().map(|storage| storage.method().to_owned()).collect();
                self.request(Request::ListStorages { argv: words.to_vec(), methods })
            }
            "storage.list" if json => in_envelope(&storage::list_json(&self.storages)),
            "storage.list" => Reply::ok(storage::list(&self.storages)),
            name if name.starts_with("tls.cert.") => self.tls_command(name, args, json).into(),
            "upgrade" => self.upgrade_command(),
            "upgrade.show" => Reply::ok(self.upgrade_show()),
            "vcl.deps" if json => Reply::ok(json::reply(1, words, now(), &self.catalogue.deps_json())),
            "vcl.deps" => Reply::ok(self.catalogue.deps()),
            "vcl.discard" => self.vcl_discard(args).into(),
            "vcl.label" => self.vcl_label(&args[0], &args[1]).into(),
            "vcl.list" if self.running() => {
                let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
                self.request(Request::Cli { argv: words })
            }
            "vcl.list" if json => in_envelope(&self.catalogue.list_json()),
            "vcl.list" => Reply::ok(self.catalogue.list()),
            "vcl.show" => self.vcl_show(args).into(),
            "vcl.state" => self.vcl_state(&args[0], &args[1]).into(),
            "vcl.symtab" => Reply::ok(self.catalogue.symtab()),
            "vcl.use" => self.vcl_use(&args[0]).into(),
            name => Reply::no(status::UNIMPLEMENTED, format!("{name} is not available\n")),
        }
    }

    fn tls_command(&mut self, name: &str, args: &[String], json: bool) -> Result<String, Reply> {
        let unique = self.params.values().tls_err_dup_servername;
        let context = tls::Context { jail: &self.jail, complain: &self.complain, unique };
        match tls::run(&mut self.tls.catalogue, context, name, args, json) {
            tls::Step::Done(done) => Ok(done?),
            tls::Step::Send(change, completion) => {
                self.send_certificates(&change)?;
                tls::complete(&mut self.tls.catalogue, completion);
                Ok(String::new())
            }
        }
    }

    /// Returns the banner of a new connection.
    pub fn banner(&self) -> String {
        let start = if self.running() { "" } else { "Type 'start' to launch worker process.\n" };
        format!(
            "-----------------------------\nVarnish Cache CLI 1.0\n-----------------------------\n\
             {}\n{}\n\nType 'help' for command list.\nType 'quit' to close CLI session.\n{start}",
            self.instance.platform,
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
        if self.child.panic.take().is_none() && !zero {
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
        let Some(worker) = self.child.process.as_mut() else { return };
        if worker.notify(&message, timeout).is_ok() {
            self.request(Request::Barrier);
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
        let worker = self.child.process.as_ref().map(Worker::pid);
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
