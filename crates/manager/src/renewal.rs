//! Recreates a working directory that was removed while the daemon runs, with its contents: the lock, the secret and
//! the manager's shared memory. The next worker creates the worker's shared memory.

use std::path::Path;

use lacquer_shm::vsm::{CHILD_DIRNAME, MGT_DIRNAME};

use crate::complain::Level;
use crate::fault::Outcome;
use crate::manager::Manager;
use crate::workdir::{self, Owner, PidFile};
use crate::worker::Worker;

impl Manager {
    /// Recreates the missing parts of the working directory. Checks a few names, and does nothing if all exist.
    pub(crate) fn renew_workdir(&mut self) {
        if self.shm.is_none() {
            return;
        }
        if !self.workdir_is_whole() {
            let shown = self.instance.workdir.display();
            let text = format!("Working directory '{shown}' was removed or emptied: creating it again");
            if !self.renewal.failed {
                self.complain.report(Level::Error, &text);
            }
            let outcome = self.renew();
            if let Err(fault) = &outcome
                && !self.renewal.failed
            {
                self.complain.report(Level::Error, fault.to_string().trim_end());
            }
            self.renewal.failed = outcome.is_err();
        }
        if let Some(secret) = &self.instance.secret
            && let Err(error) = secret.restore(&self.jail)
        {
            self.complain.report(Level::Debug, &format!("Cannot restore the secret-file: {error}"));
        }
        self.report_unreadable_log();
    }

    fn workdir_is_whole(&self) -> bool {
        let _root = self.jail.raise();
        workdir::is_current(&self.instance.workdir)
            && Path::new(MGT_DIRNAME).join("_.index").exists()
            && self.instance.pid_files.iter().all(PidFile::is_there)
    }

    fn renew(&mut self) -> Outcome<()> {
        workdir::make(&self.instance.workdir, Owner::Trusted, &self.jail, &self.complain)?;
        // The lock comes first: another daemon may use the directory by now.
        for file in &mut self.instance.pid_files {
            file.renew(&self.jail)?;
        }
        workdir::enter(&self.instance.workdir, Owner::Trusted, &self.jail, &self.complain)?;
        if let Some(shm) = &mut self.shm {
            shm.renew(&self.jail)?;
            shm.show_worker(self.child.process.as_ref().map(Worker::pid));
        }
        Ok(())
    }

    fn report_unreadable_log(&mut self) {
        let unseen = {
            let _root = self.jail.raise();
            self.child.process.is_some() && !Path::new(CHILD_DIRNAME).exists()
        };
        if unseen && !self.renewal.worker_unseen {
            let text = "Log and counters of the running child cannot be read until it is restarted: its \
                        shared memory was removed";
            self.complain.report(Level::Error, text);
        }
        self.renewal.worker_unseen = unseen;
    }
}
