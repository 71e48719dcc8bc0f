//! Messages to the service manager that started the daemon: systemd, or another one that implements the protocol of
//! `sd_notify`. A message is a datagram to the socket that the environment names.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const SOCKET: &str = "NOTIFY_SOCKET";
/// The time to wait for a service manager that does not read.
const PATIENCE: Duration = Duration::from_secs(1);

/// A change of the daemon's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Clients are served.
    Ready,
    /// The program is about to be replaced; `Ready` follows.
    Reloading,
    /// The daemon ends. The text describes what it waits for.
    Stopping(String),
}

impl Change {
    fn message(&self) -> String {
        match self {
            Change::Ready => "READY=1\nSTATUS=Serving clients".to_owned(),
            Change::Reloading => {
                let now = clock_gettime(ClockId::Monotonic);
                let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
                format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=Replacing the program")
            }
            Change::Stopping(text) => format!("STOPPING=1\nSTATUS={text}"),
        }
    }
}

/// Reports a change. Does nothing if no service manager asks for reports. A failure has no effect: the service manager
/// has timeouts of its own.
pub fn notify(change: &Change) {
    let Some(address) = std::env::var_os(SOCKET).and_then(|name| address(&name)) else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let _ = socket.set_write_timeout(Some(PATIENCE));
    let _ = socket.send_to_addr(change.message().as_bytes(), &address);
}

/// Returns the address of a socket: an absolute path, or `@` and a name that is not in the file system.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] if !name.is_empty() => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_or_abstract_names() {
        let parse = |text: &[u8]| address(OsStr::from_bytes(text));
        assert_eq!(parse(b"/run/s").and_then(|a| Some(a.as_pathname()?.to_owned())), Some("/run/s".into()));
        assert_eq!(parse(b"@s").and_then(|a| Some(a.as_abstract_name()?.to_owned())), Some(b"s".to_vec()));
        let long = [b"/".as_slice(), &[b'x'; 200]].concat();
        for wrong in [b"".as_slice(), b"@", b"s", b"vsock:2:1", b"/a\0b", &long, b"\xff"] {
            assert!(parse(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn messages_are_lines_of_assignments() {
        assert!(Change::Ready.message().starts_with("READY=1\n"));
        assert_eq!(Change::Stopping("x".to_owned()).message(), "STOPPING=1\nSTATUS=x");
        let reloading = Change::Reloading.message();
        let micros = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(micros.is_some_and(|micros| micros.parse::<u64>().is_ok()), "{reloading}");
    }
}
