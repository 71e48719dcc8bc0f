//! A working directory that was removed while we run is made anew, with what belongs into it: the lock, the secret
//! and the manager's shared memory. The worker's shared memory comes back with the next worker.

use std::path::Path;

use lacquer_shm::vsm::{CHILD_DIRNAME, MGT_DIRNAME};

use crate::complain::Level;
use crate::fault::Outcome;
use crate::manager::Manager;
use crate::workdir::{self, PidFile};
use crate::worker::Worker;

impl Manager {
    /// Makes anew what is missing of the working directory. Looks at a few names and does nothing if all is there.
    pub(crate) fn renew_workdir(&mut self) {
        if self.shm.is_none() {
            return;
        }
        if !self.workdir_is_whole() {
            let shown = self.workdir.display();
            let text = format!("Working directory '{shown}' was removed or emptied: making it anew");
            if !self.renewal.failed {
                self.complain.say(Level::Error, &text);
            }
            let outcome = self.renew();
            if let Err(fault) = &outcome
                && !self.renewal.failed
            {
                self.complain.say(Level::Error, fault.to_string().trim_end());
            }
            self.renewal.failed = outcome.is_err();
        }
        if let Some(secret) = &self.secret
            && let Err(error) = secret.restore(&self.jail)
        {
            self.complain.say(Level::Debug, &format!("Cannot restore the secret-file: {error}"));
        }
        self.say_that_the_log_is_unseen();
    }

    fn workdir_is_whole(&self) -> bool {
        let _root = self.jail.raise();
        workdir::is_current(&self.workdir)
            && Path::new(MGT_DIRNAME).join("_.index").exists()
            && self.pid_files.iter().all(PidFile::is_there)
    }

    fn renew(&mut self) -> Outcome<()> {
        workdir::make(&self.workdir, &self.jail, &self.complain)?;
        // The lock first: another daemon may have taken the place.
        for file in &mut self.pid_files {
            file.renew(&self.jail)?;
        }
        workdir::enter(&self.workdir, &self.jail, &self.complain)?;
        if let Some(shm) = &mut self.shm {
            shm.renew(&self.jail)?;
            shm.show_worker(self.worker.as_ref().map(Worker::pid));
        }
        Ok(())
    }

    fn say_that_the_log_is_unseen(&mut self) {
        let unseen = {
            let _root = self.jail.raise();
            self.worker.is_some() && !Path::new(CHILD_DIRNAME).exists()
        };
        if unseen && !self.renewal.worker_unseen {
            let text = "Log and counters of the running child cannot be read until it is restarted: its \
                        shared memory was removed";
            self.complain.say(Level::Error, text);
        }
        self.renewal.worker_unseen = unseen;
    }
}
