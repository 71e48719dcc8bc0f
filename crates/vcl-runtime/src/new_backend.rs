//! Backends that modules create while a program is loaded or runs.

use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use lacquer_names::Refresh;
use lacquer_vcl::program::{Backend, Probe};

use crate::backend::BackendId;

/// A backend to create. It has the addresses of `spec`, the name of `spec` that is looked up as `lookup` says, or a
/// server within this process.
#[derive(Clone, Default)]
pub struct NewBackend {
    pub spec: Backend,
    pub probe: Option<Probe>,
    /// The backend through which connections are made.
    pub via: BackendId,
    pub lookup: HostLookup,
    pub local: Option<OpenLocal>,
}

/// How the addresses of a name are looked up.
#[derive(Clone, Default)]
pub struct HostLookup {
    pub refresh: Refresh,
    /// Selects the addresses that may be used.
    pub filter: Option<Arc<dyn Fn(&IpAddr) -> bool + Send + Sync>>,
}

/// Opens a connection to a server within this process. It must not block.
pub type OpenLocal = Arc<dyn Fn() -> io::Result<UnixStream> + Send + Sync>;
