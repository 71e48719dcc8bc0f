//! Backends that modules create while a program is loaded or runs.

use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use lacquer_names::Refresh;
use lacquer_vcl::program::{Backend, Probe};

use crate::backend::BackendId;
use crate::private_map::PrivateMap;

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

/// Why a module has returned no backend, as a value of the task. The log names it if a fetch then has none.
#[derive(Clone, Debug, Default)]
pub struct NoBackend(String);

impl NoBackend {
    /// Returns the text for the log.
    pub fn text(privates: &PrivateMap) -> String {
        match privates.peek::<NoBackend>(0) {
            Some(NoBackend(why)) => format!("No backend ({why})"),
            None => "No backend".to_owned(),
        }
    }

    /// Sets the reason of a task.
    pub fn explain(privates: &mut PrivateMap, why: String) {
        privates.get::<NoBackend>(0).0 = why;
    }

    /// Copies the reason of a request to its fetch.
    pub fn pass_on(from: &PrivateMap, to: &mut PrivateMap) {
        if let Some(why) = from.peek::<NoBackend>(0) {
            to.get::<NoBackend>(0).clone_from(why);
        }
    }
}

/// Opens a connection to a server within this process. It must not block. Instead of a response, the server may send
/// [`local_failure`], and then end its stream.
pub type OpenLocal = Arc<dyn Fn() -> io::Result<UnixStream> + Send + Sync>;

/// The beginning of a head by which a server within this process states why it has no response.
const FAILURE: &str = "FAILED ";

/// Returns the head by which a server within this process states why it has no response.
pub fn local_failure(reason: &str) -> Vec<u8> {
    /// The most bytes of a reason: the least value of `http_resp_size` has room for them.
    const LONGEST: usize = 200;
    let shown = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut head = FAILURE.to_owned();
    for c in shown {
        if head.len() + c.len_utf8() > LONGEST {
            break;
        }
        head.push(c);
    }
    head.push_str("\r\n\r\n");
    head.into_bytes()
}

/// Returns the reason of [`local_failure`].
pub fn local_failure_reason(head: &[u8]) -> Option<&[u8]> {
    head.strip_prefix(FAILURE.as_bytes()).map(<[u8]>::trim_ascii_end)
}

#[cfg(test)]
mod tests {
    use super::{local_failure, local_failure_reason};

    #[test]
    fn reasons_stay_within_one_head() {
        assert_eq!(local_failure_reason(&local_failure("no\r\n\r\nfile")), Some(&b"no    file"[..]));
        let long = local_failure(&"\u{20ac}".repeat(1000));
        assert!(long.len() <= 204 && std::str::from_utf8(&long).is_ok(), "{}", long.len());
        assert_eq!(local_failure_reason(b"HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}
