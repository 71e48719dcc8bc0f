//! The departure of a worker that was replaced: it serves its last requests, and leaves its memory to the next one.

use std::time::Instant;

use lacquer_cli::link::Request;
use lacquer_cli::status;

use super::process::RequestResult;
use super::retiring::{REPORT_EVERY, Retiring};
use super::state::State;
use crate::complain::Level;
use crate::manager::{Manager, seconds};
use crate::storage::Storage;

impl Manager {
    /// Reads the output of the old worker, and handles its end.
    pub(crate) fn listen_to_retiring(&mut self) {
        let complain = &self.complain;
        let Some(retiring) = &mut self.child.retiring else { return };
        let pid = retiring.worker.pid();
        if !retiring.worker.listen(|line| Manager::report_output(complain, Level::Routine, pid, line)) {
            self.reap_retiring();
        }
    }

    /// Ends the old worker at once.
    pub(crate) fn kill_retiring(&mut self) {
        if let Some(retiring) = &mut self.child.retiring {
            retiring.worker.hang_up();
            self.reap_retiring();
        }
    }

    fn reap_retiring(&mut self) {
        let Some(Retiring { mut worker, panic_file, .. }) = self.child.retiring.take() else { return };
        let pid = worker.pid();
        worker.hang_up();
        let end = self.await_end(&mut worker, pid);
        self.record_end(pid, end);
        let current = std::mem::replace(&mut self.child.panic_file, panic_file);
        self.record_panic(pid);
        self.child.panic_file = current;
        self.storages.iter_mut().for_each(Storage::unpin);
        if self.child.state == State::Running {
            self.request(Request::ReleaseMemory { all: true });
        }
    }

    /// Lets the new worker use the memory that the old one does not use anymore, and ends the old one when its time is
    /// over.
    pub(crate) fn follow_retiring(&mut self, now: Instant) {
        let (timeout, complain) = (self.cli_timeout(), &self.complain);
        let limit = seconds(self.params.values().retire_timeout);
        let Some(retiring) = &mut self.child.retiring else { return };
        if retiring.next_report > now {
            return;
        }
        retiring.next_report = now + REPORT_EVERY;
        if now.duration_since(retiring.since) > limit {
            complain.report(Level::Info, "The replaced child has not ended in time (retire_timeout)");
            self.kill_retiring();
            return;
        }
        let pid = retiring.worker.pid();
        let on_line = |line: &str| Manager::report_output(complain, Level::Routine, pid, line);
        let asked = Instant::now();
        match retiring.worker.request(Request::ReportUse, timeout, on_line) {
            RequestResult::Reply { status: status::OK, .. } if self.child.state == State::Running => {
                self.request(Request::ReleaseMemory { all: false });
            }
            // Each further question would stop the manager for as long again.
            RequestResult::NoReply if asked.elapsed() >= timeout => self.give_up_on_retiring(),
            // Without a reply, it has closed the link, and is about to end.
            RequestResult::Reply { .. } | RequestResult::NoReply => {}
        }
    }

    /// Kills an old worker that does not reply.
    fn give_up_on_retiring(&mut self) {
        let Some(retiring) = &mut self.child.retiring else { return };
        {
            let _root = self.jail.raise();
            // The second signal also ends a process that is stopped. If both fail, `reap_retiring` tries again.
            let _ = retiring.worker.kill_harder();
            let _ = retiring.worker.kill_harder();
        }
        let pid = retiring.worker.pid();
        let text = format!("The replaced child ({pid}) not responding to CLI, killed it.");
        self.complain.report(Level::Error, &text);
        self.reap_retiring();
    }
}
