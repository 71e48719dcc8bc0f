//! The replacement of the worker without the loss of a request or an object. The new worker starts while the old one
//! serves. When it is ready, it accepts connections, and the old one serves the requests that it has, and ends.

use std::time::Instant;

use lacquer_cli::link::{Request, ToWorker};
use lacquer_cli::status;

use super::process::Worker;
use super::retiring::{REPORT_EVERY, Retiring};
use super::state::State;
use crate::complain::Level;
use crate::manager::{Manager, Reply};
use crate::shm::Shm;
use crate::storage::Storage;

impl Manager {
    /// Fails if the worker cannot be replaced.
    pub(crate) fn may_replace_worker(&self) -> Result<(), String> {
        if self.child.state != State::Running {
            return Err(format!("Child in state {}", self.status_text()));
        }
        if self.child.retiring.is_some() {
            return Err("the worker before this one still serves its last requests".to_owned());
        }
        if !self.child.relaunch.inheritance_ref().is_kept() {
            return Err("keep_memory was off when the worker started: its objects would be lost".to_owned());
        }
        self.storages.iter().try_for_each(Storage::may_share)
    }

    /// Replaces the worker. If that fails, the old worker continues, and the error contains the reason.
    pub(crate) fn replace_worker(&mut self) -> Result<(), String> {
        self.may_replace_worker()?;
        self.request_success(Request::HandOver).map_err(|reply| reply.text.lossy().into_owned())?;
        let Some(mut old) = self.child.process.take() else { return Err("the worker died".to_owned()) };
        let panic_file = self.child.panic_file.take();
        let outcome = self.launch_beside(&mut old);
        let now = Instant::now();
        match outcome {
            Ok(()) => {
                self.child.relaunch.inheritance().share(now);
                self.child.retiring =
                    Some(Retiring { worker: old, panic_file, since: now, next_report: now + REPORT_EVERY });
                Ok(())
            }
            Err(reply) => {
                self.discard_next();
                (self.child.process, self.child.panic_file) = (Some(old), panic_file);
                self.child.state = State::Running;
                self.request(Request::Resume);
                Err(reply.text.lossy().into_owned())
            }
        }
    }

    fn launch_beside(&mut self, old: &mut Worker) -> Result<(), Reply> {
        let cannot = |error: std::io::Error| Reply::no(status::CANT, error.to_string());
        let share = |storage: &mut Storage| storage.share(&self.jail, &self.complain);
        self.storages.iter_mut().try_for_each(share).map_err(cannot)?;
        self.child.state = State::Starting;
        self.launch_steps(Some(old))?;
        let early_deaths = self.child.relaunch.inheritance_ref().early_deaths();
        for storage in &mut self.storages {
            if let Err(error) = storage.taken_over(early_deaths, &self.jail) {
                let text = format!("storage {} does not outlive the daemon: {error}", storage.name());
                self.complain.report(Level::Error, &text);
            }
        }
        old.close_peer();
        // If this fails, it ends when its time is over.
        let _ = old.notify(&ToWorker::Retire, self.cli_timeout());
        if let Err(error) = Shm::show_next(&self.jail) {
            self.complain.report(Level::Error, &format!("Cannot show the log of the new child: {error}"));
        }
        if let Some(shm) = &mut self.shm {
            shm.show_worker(self.child.process.as_ref().map(Worker::pid));
        }
        Ok(())
    }

    /// Ends a worker that was to replace another one.
    fn discard_next(&mut self) {
        if let Some(mut next) = self.child.process.take() {
            let pid = next.pid();
            next.hang_up();
            let end = self.await_end(&mut next, pid);
            self.record_end(pid, end);
            self.record_panic(pid);
        }
        self.storages.iter_mut().for_each(|storage| storage.unshare(&self.jail));
        Shm::remove_next(&self.jail);
        if let Some(shm) = &mut self.shm {
            shm.show_worker(None);
        }
    }
}
