//! The addresses that clients connect to.

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;

use crate::failure::Failure;

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq)]
pub enum Listen {
    Tcp { host: String, port: u16 },
    Socket(PathBuf),
}

impl Listen {
    pub fn tcp(host: &str, port: u16) -> Listen {
        Listen::Tcp { host: host.to_owned(), port }
    }

    /// Parses the value of an option.
    pub fn parse(option: &str, text: &str) -> Result<Listen, Failure> {
        if text.starts_with('/') {
            return Ok(Listen::Socket(text.into()));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port: u16 = port.parse().ok().filter(|p| *p > 0).ok_or_else(|| {
            Failure::new(format_args!("--{option} {text}: `{port}` is not a port")).hint(
                "write a port from 1 to 65535, such as :8000 or 127.0.0.1:8000, or the path of a socket",
            )
        })?;
        Ok(Listen::Tcp { host: host.to_owned(), port })
    }

    /// Returns the argument of lacquerd's `-a`.
    pub fn argument(&self) -> String {
        match self {
            Self::Tcp { host, port } => format!("{host}:{port}"),
            Self::Socket(path) => path.display().to_string(),
        }
    }

    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp { port, .. } => Some(*port),
            Self::Socket(_) => None,
        }
    }

    /// Returns the arguments of curl for a request to this address.
    pub fn curl(&self) -> String {
        match self {
            Self::Tcp { host, port } => {
                let host = if matches!(host.as_str(), "" | "0.0.0.0" | "[::]") { "localhost" } else { host };
                format!("http://{host}:{port}/")
            }
            Self::Socket(path) => format!("--unix-socket {} http://localhost/", path.display()),
        }
    }

    /// Binds the address and releases it, so that common failures are reported before anything starts. `low` is a hint
    /// for a port that is reserved for root.
    pub fn check_free(&self, option: &str, low: &str) -> Result<(), Failure> {
        let Listen::Tcp { host, port } = self else { return Ok(()) };
        let name = if host.is_empty() { "0.0.0.0" } else { host.trim_matches(['[', ']']) };
        let Err(error) = TcpListener::bind((name, *port)) else { return Ok(()) };
        let failure = Failure::new(format_args!("cannot listen on {}: {error}", self.argument()));
        Err(match error.kind() {
            io::ErrorKind::AddrInUse => failure.hint(format_args!(
                "another program uses port {port}; choose one with --{option} {host}:{}",
                port.checked_add(1).unwrap_or(8080)
            )),
            io::ErrorKind::PermissionDenied => failure.hint(low),
            _ => failure.hint("the address must belong to this machine; :PORT means all addresses"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_parsed() {
        let parse = |text| Listen::parse("listen", text);
        assert_eq!(parse(":80"), Ok(Listen::tcp("", 80)));
        assert_eq!(parse("8000"), Ok(Listen::tcp("", 8000)));
        assert_eq!(parse("[::1]:8000"), Ok(Listen::tcp("[::1]", 8000)));
        assert_eq!(parse("/run/l.sock"), Ok(Listen::Socket("/run/l.sock".into())));
        assert!(parse("localhost").is_err());
        assert!(parse(":0").is_err());
    }
}
