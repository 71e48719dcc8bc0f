//! The message from the manager to the process of the admin listener, which it inherits a socket for.
//!
//! The process is `lacquerd` with the hidden argument [`ARGUMENT`]. The first message on its socket is the configuration.
//! From then on, the socket and a second one are connections of the management port that are logged in.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::link::Credentials;

/// The hidden first argument that makes the program an admin process: `--admin-link=FD`.
pub const ARGUMENT: &str = "--admin-link=";

/// The name of the process, which `ps` shows.
pub const NAME: &str = "lacquer-admin";

/// Everything that an admin process needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminConfig {
    /// The listening sockets.
    pub sockets: Vec<AdminSocket>,
    /// The collector of spans and metrics, if there is one.
    pub collector: Option<Collector>,
    /// The second connection to the manager: for commands that may take long.
    pub questions_fd: i32,
    /// A connection on which the manager sends other addresses of the collector, each time all of them.
    pub addresses_fd: i32,
    /// The working directory of the daemon.
    pub workdir: PathBuf,
    /// The user that it becomes, if the manager was started by root.
    pub credentials: Option<Credentials>,
    /// Whether others of its user may inspect it.
    pub is_dumpable: bool,
    /// Whether Landlock confines it to reading the working directory.
    pub has_file_rules: bool,
    /// Whether seccomp confines its system calls.
    pub has_call_rules: bool,
}

/// A collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collector {
    /// Its host and port, as the user has written them.
    pub host: String,
    /// The authorities that may have signed its certificate, in PEM; `None` without TLS.
    pub trusted: Option<Vec<u8>>,
    /// Its addresses; none as long as its host is not resolved.
    pub addresses: Vec<SocketAddr>,
    /// The path before those of OTLP, without a slash at its end.
    pub path: String,
    /// Seconds between two exports of metrics; 0 is none.
    pub interval: u64,
    /// The identity of the daemon.
    pub instance: String,
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminSocket {
    /// Its descriptor.
    pub fd: i32,
    /// Whether it is a UNIX socket, whose clients have no host name to check.
    pub is_unix: bool,
    /// The token that clients must send; `None` if the rights of the UNIX socket decide.
    pub token: Option<String>,
    /// The certificate with its key, for `lacquer_tls::single_config`; `None` without TLS.
    pub certificate: Option<Vec<u8>>,
    /// Names by which clients may call the server, besides addresses and `localhost`.
    pub hosts: Vec<String>,
}
