//! The manager's state.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lacquer_cli::link::AddressSpace;
use lacquer_cli::status;
use lacquer_params::{ParamSet, SetError};
use lacquer_vcl::Text;

use crate::address_space::{self, Needs, TooLittle};
use crate::complain::Complain;
use crate::jail::Jail;
use crate::listen::Listeners;
use crate::secret::Secret;
use crate::shm::Shm;
use crate::storage::Storage;
use crate::tls;
use crate::upgrade::Upgrade;
use crate::vcl::Catalogue;
use crate::workdir::{PidFile, Renewal};
use crate::worker::{Addresses, Relaunch, Retiring, State, Worker};

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

impl From<tls::Refusal> for Reply {
    fn from(refusal: tls::Refusal) -> Reply {
        Reply { status: refusal.status, text: refusal.text.into() }
    }
}

impl From<SetError> for Reply {
    fn from(error: SetError) -> Reply {
        Reply { status: error.status, text: error.text.into() }
    }
}

/// The whole state of the manager.
#[derive(Debug)]
pub struct Manager {
    pub(crate) complain: Complain,
    pub(crate) jail: Jail,
    pub(crate) params: ParamSet,
    pub(crate) listeners: Listeners,
    pub(crate) storages: Vec<Storage>,
    pub(crate) tls: tls::Tls,
    pub(crate) instance: Instance,
    pub(crate) renewal: Renewal,
    pub(crate) shm: Option<Shm>,
    pub(crate) catalogue: Catalogue,
    pub(crate) child: Child,
    pub(crate) exit_status: u8,
}

/// The properties of this daemon that distinguish it from others on the machine.
#[derive(Debug)]
pub(crate) struct Instance {
    /// The path of the executable file.
    pub(crate) program: OsString,
    pub(crate) identity: String,
    pub(crate) platform: String,
    pub(crate) workdir: PathBuf,
    pub(crate) secret: Option<Secret>,
    pub(crate) pid_files: Vec<PidFile>,
    pub(crate) started: std::time::Instant,
    pub(crate) upgrade: Upgrade,
}

/// The worker process, and the state of its supervision.
#[derive(Debug, Default)]
pub(crate) struct Child {
    pub(crate) state: State,
    /// The process; `None` while there is none.
    pub(crate) process: Option<Worker>,
    /// The number of the last worker that was started.
    pub(crate) number: u8,
    pub(crate) relaunch: Relaunch,
    pub(crate) panic_file: Option<std::fs::File>,
    /// The panic message of the last worker that died with one.
    pub(crate) panic: Option<String>,
    /// The worker before this one, while it serves its last requests.
    pub(crate) retiring: Option<Retiring>,
    /// The addresses of hosts, for the next worker.
    pub(crate) addresses: Addresses,
}

impl Manager {
    /// Returns the seconds since the start (monotonic).
    pub(crate) fn uptime(&self) -> f64 {
        self.instance.started.elapsed().as_secs_f64()
    }

    /// Returns whether there is a worker process.
    pub(crate) fn running(&self) -> bool {
        self.child.process.is_some()
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
}

/// Converts a parameter's seconds to a duration. An infinite or overlong time becomes a year.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_hours(8760))
}
