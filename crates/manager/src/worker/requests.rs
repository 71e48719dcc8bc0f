//! Requests to the worker. A worker that does not reply is killed.

use std::time::Instant;

use lacquer_cli::link::Request;
use lacquer_cli::status;
use lacquer_tls::Change;

use super::process::{RequestResult, Worker};
use super::state::State;
use crate::complain::{Complain, Level};
use crate::manager::{Manager, Reply};

impl Manager {
    pub(crate) fn report_output(complain: &Complain, level: Level, pid: u32, line: &str) {
        complain.report(level, &format!("Child ({pid}) said {line}"));
    }

    /// Sends a request to the worker and returns its reply. Kills a worker that does not reply in time.
    pub(crate) fn request(&mut self, body: Request) -> Reply {
        let timeout = self.cli_timeout();
        let complain = &self.complain;
        let Some(worker) = self.child.process.as_mut() else {
            return Reply::no(status::CANT, "");
        };
        let pid = worker.pid();
        let on_line = |line: &str| Manager::report_output(complain, Level::Routine, pid, line);
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

    /// Passes the health of backends to the new worker, which would have to probe them first.
    pub(super) fn pass_health(&mut self, old: &mut Worker) {
        if let RequestResult::Reply { status: status::OK, text } = self.request_to_old(old, Request::Health) {
            self.request(Request::TakeHealth { text: String::from_utf8_lossy(&text).into_owned() });
        }
    }

    /// Lets the old worker stop to receive datagrams, before the new one begins: clients must not connect to the old one
    /// anymore, and the new one passes on the packets of its connections.
    pub(super) fn take_datagrams(&self, old: &mut Worker) {
        let sockets = self.params.values().reactor_count();
        // Without a reply, the old worker is stuck or gone.
        self.request_to_old(old, Request::LeaveDatagrams { sockets });
    }

    /// Sends a request to the worker that is being replaced.
    fn request_to_old(&self, old: &mut Worker, body: Request) -> RequestResult {
        let (complain, pid) = (&self.complain, old.pid());
        let on_line = |line: &str| Manager::report_output(complain, Level::Routine, pid, line);
        old.request(body, self.cli_timeout(), on_line)
    }

    /// Asks the worker for new addresses of hosts, if it is time to.
    pub(crate) fn keep_addresses(&mut self, now: Instant) {
        if self.child.state != State::Running {
            return;
        }
        let Some(question) = self.child.addresses.question_if_due(now) else { return };
        if let Ok(reply) = self.request_success(question) {
            self.child.addresses.take(&reply.text.lossy());
        }
    }

    /// Passes the addresses of hosts to a new worker, which has no programs yet. `beside` is the one that serves.
    pub(super) fn pass_addresses(&mut self, beside: Option<&mut Worker>) {
        let question = self.child.addresses.question();
        if let Some(old) = beside
            && let RequestResult::Reply { status: status::OK, text } = self.request_to_old(old, question)
        {
            self.child.addresses.take(&String::from_utf8_lossy(&text));
        }
        if let Some(message) = self.child.addresses.for_next() {
            self.request(message);
        }
    }

    /// Sends a change of certificates to the worker, if one runs. A worker that starts later gets all certificates.
    pub(crate) fn send_certificates(&mut self, change: &Change) -> Result<(), Reply> {
        if self.running() && !change.is_empty() {
            self.request_success(Request::Certificates { change: change.encode() })?;
        }
        Ok(())
    }

    /// Sends SIGQUIT, and SIGKILL the second time: a stopped process reacts only to the latter.
    pub(super) fn kill_worker(&mut self) -> std::io::Result<()> {
        let _root = self.jail.raise();
        self.child.process.as_mut().map_or(Ok(()), Worker::kill_harder)
    }

    /// Kills a worker that does not reply. The end of its output then shows that it has ended.
    pub(crate) fn give_up_on_worker(&mut self) {
        if !matches!(self.child.state, State::Running | State::Starting) {
            return;
        }
        let Some(pid) = self.child.process.as_ref().map(Worker::pid) else { return };
        let text = match self.kill_worker() {
            Ok(()) => format!("Child ({pid}) not responding to CLI, killed it."),
            Err(error) => format!("Failed to kill child with PID {pid}: {error}"),
        };
        self.complain.report(Level::Error, &text);
    }
}
