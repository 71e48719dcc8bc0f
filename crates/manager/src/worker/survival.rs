//! The objects that a later daemon may take over, from storages in files.

use crate::complain::Level;
use crate::fault::os_error_text;
use crate::manager::Manager;
use crate::storage::Storage;

impl Manager {
    /// Lets the first worker take over the objects of an earlier daemon, if there are any.
    pub(crate) fn find_objects(&mut self) {
        if let Some(early_deaths) = self.storages.iter().filter_map(Storage::found).max() {
            self.child.relaunch.inheritance().found(early_deaths);
        }
    }

    /// Records that a worker uses the storages, whose objects a later daemon may take over.
    pub(crate) fn allow_survival(&mut self) -> std::io::Result<()> {
        let _root = self.jail.raise();
        let early_deaths = self.child.relaunch.inheritance_ref().early_deaths();
        self.storages.iter_mut().try_for_each(|storage| storage.allow_survival(early_deaths))
    }

    /// Lets the objects of the worker outlive the daemon again, after an upgrade has failed.
    pub(crate) fn resume_survival(&mut self) {
        let is_kept = self.child.process.is_some() && self.child.relaunch.inheritance_ref().is_kept();
        if is_kept && let Err(error) = self.allow_survival() {
            self.report_state(&error);
        }
    }

    /// Records that no later daemon may take over the objects.
    pub(crate) fn forbid_survival(&mut self) {
        if let Err(error) = self.storages.iter_mut().try_for_each(Storage::forbid_survival) {
            self.report_state(&error);
        }
    }

    /// Records the early deaths of workers for later daemons.
    pub(super) fn record_early_deaths(&mut self) {
        let early_deaths = self.child.relaunch.inheritance_ref().early_deaths();
        let record = |storage: &mut Storage| storage.set_early_deaths(early_deaths);
        if let Err(error) = self.storages.iter_mut().try_for_each(record) {
            self.report_state(&error);
        }
    }

    /// Writes the storages to their devices, at the end of the daemon.
    pub(crate) fn settle_storages(&mut self) {
        self.kill_retiring();
        if self.child.process.is_some() {
            return;
        }
        let _root = self.jail.raise();
        for storage in &mut self.storages {
            if let Err(error) = storage.settle() {
                let text = format!(
                    "storage {} cannot be written to its device: {}",
                    storage.name(),
                    os_error_text(&error)
                );
                self.complain.report(Level::Error, &text);
            }
        }
    }

    fn report_state(&self, error: &std::io::Error) {
        let text = format!("The state of a storage cannot be written: {}", os_error_text(error));
        self.complain.report(Level::Error, &text);
    }
}
