//! The values that the module keeps: databases and rules for a VCL, the command for a task.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::database::{Database, Order};
use super::reply::Reply;
use super::request::Request;
use super::weights::Rule;

/// The maximum number of words of a command, its name included.
pub(super) const MOST_WORDS: usize = 128;

/// The databases of a VCL, and the rules for the weights of their servers.
#[derive(Default)]
pub(super) struct Program(Mutex<ProgramParts>);

#[derive(Default)]
pub(super) struct ProgramParts {
    pub databases: Vec<Weak<Database>>,
    pub rules: Arc<Vec<Rule>>,
}

impl Program {
    pub(super) fn parts(&self) -> MutexGuard<'_, ProgramParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a database by its name in VCL.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Database>> {
        let parts = self.parts();
        parts.databases.iter().filter_map(Weak::upgrade).find(|database| database.name == name)
    }
}

/// The values of a task.
#[derive(Default)]
pub(super) struct Task {
    /// The database of functions without the argument *db*.
    pub used: Option<Arc<Database>>,
    pub command: Option<Command>,
}

/// A command that is prepared or was executed.
pub(super) struct Command {
    pub database: Arc<Database>,
    pub words: Vec<Vec<u8>>,
    pub timeout: Duration,
    pub retries: u32,
    pub reply: Option<Reply>,
}

impl Task {
    /// Returns the command, if it is one of this database.
    pub(super) fn command_of(&mut self, database: &Arc<Database>) -> Option<&mut Command> {
        self.command.as_mut().filter(|command| Arc::ptr_eq(&command.database, database))
    }

    pub(super) fn reply_of(&mut self, database: &Arc<Database>) -> Option<&Reply> {
        self.command_of(database)?.reply.as_ref()
    }
}

impl Command {
    pub(super) fn new(database: &Arc<Database>, name: &[u8]) -> Command {
        Command {
            database: database.clone(),
            words: vec![name.to_vec()],
            timeout: database.settings.command_timeout,
            retries: database.settings.retries,
            reply: None,
        }
    }

    pub(super) fn order(&self, master: bool) -> Order {
        Order {
            request: Request::new(&self.words),
            timeout: self.timeout,
            retries: self.retries,
            master,
            lane: if self.database.settings.is_shared { 0 } else { own_lane() },
        }
    }
}

/// Returns the lane of this reactor's connections.
fn own_lane() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: Cell<u64> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    OWN.get()
}
