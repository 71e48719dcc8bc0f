//! The addresses that clients connect to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The end of an address at which connections begin with a PROXY header.
const PROXY: &str = ",proxy";
/// The option for addresses with TLS, at which there are no PROXY headers.
pub const HTTPS: &str = "https-listen";

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    place: Place,
    /// Whether connections begin with a PROXY header, which names the client.
    has_proxy: bool,
    /// Whether HTTP/3 is served on the UDP port too.
    has_http3: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Place {
    Tcp { host: String, port: u16 },
    Socket(PathBuf),
}

impl Listen {
    pub fn tcp(host: &str, port: u16) -> Listen {
        Listen { place: Place::Tcp { host: host.to_owned(), port }, has_proxy: false, has_http3: false }
    }

    /// Parses the value of an option.
    pub fn parse(option: &str, text: &str) -> Result<Listen, Failure> {
        let bare = text.len().checked_sub(PROXY.len()).and_then(|at| text.split_at_checked(at));
        let (text, has_proxy) = match bare {
            Some((bare, end)) if end.eq_ignore_ascii_case(PROXY) => (bare, true),
            _ => (text, false),
        };
        if has_proxy && option == HTTPS {
            let hint = "--listen can read PROXY headers, for a proxy that ends TLS itself";
            return Err(
                Failure::new(format_args!("--{option} {text}{PROXY}: https has no PROXY headers")).hint(hint)
            );
        }
        Ok(Listen { place: Place::parse(option, text)?, has_proxy, has_http3: false })
    }

    /// Returns the argument of lacquerd's `-a`.
    pub fn argument(&self) -> String {
        let end = if self.has_proxy { ",PROXY" } else { "" };
        match &self.place {
            Place::Tcp { host, port } => format!("{host}:{port}{end}"),
            Place::Socket(path) => format!("{}{end}", path.display()),
        }
    }

    /// Serves HTTP/3 too, unless this is the path of a socket. Fails if the UDP port cannot be bound, with the reason.
    pub fn add_http3(&mut self) -> Result<(), String> {
        let Place::Tcp { host, port } = &self.place else { return Ok(()) };
        let addresses: Vec<_> = match host.as_str() {
            "" => vec![("0.0.0.0", *port), ("::", *port)],
            host => vec![(host.trim_matches(['[', ']']), *port)],
        };
        let addresses = addresses.iter().filter_map(|address| address.to_socket_addrs().ok()).flatten();
        // The daemon reports other faults, which TCP has too, or listens on the other family.
        let is_fault = |kind| matches!(kind, io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied);
        let fault = |address| UdpSocket::bind(address).err().filter(|error| is_fault(error.kind()));
        if let Some(error) = addresses.into_iter().find_map(fault) {
            return Err(format!("cannot listen on UDP port {port}: {error}"));
        }
        self.has_http3 = true;
        Ok(())
    }

    pub fn has_http3(&self) -> bool {
        self.has_http3
    }

    /// Returns a name for the directory of the daemon that listens here.
    pub fn id(&self) -> String {
        match &self.place {
            Place::Tcp { port, .. } => port.to_string(),
            Place::Socket(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

    /// Returns whether connections to an address arrive here.
    pub fn is_reached_at(&self, address: SocketAddr) -> bool {
        let Place::Tcp { host, port } = &self.place else { return false };
        if *port != address.port() {
            return false;
        }
        let is_here = || is_own(address);
        match host.trim_matches(['[', ']']) {
            "" => is_here(),
            name => (name, *port).to_socket_addrs().is_ok_and(|mut all| {
                all.any(|own| own.ip() == address.ip() || (own.ip().is_unspecified() && is_here()))
            }),
        }
    }

    /// Returns whether this is the socket with a path.
    pub fn is_socket(&self, path: &Path) -> bool {
        matches!(&self.place, Place::Socket(own) if own == path)
    }

    pub fn port(&self) -> Option<u16> {
        match self.place {
            Place::Tcp { port, .. } => Some(port),
            Place::Socket(_) => None,
        }
    }

    /// Returns the arguments of curl for a request to this address.
    pub fn curl(&self) -> String {
        let header = if self.has_proxy { "--haproxy-protocol " } else { "" };
        match &self.place {
            Place::Tcp { host, port } => {
                let host = if matches!(host.as_str(), "" | "0.0.0.0" | "[::]") { "localhost" } else { host };
                format!("{header}http://{host}:{port}/")
            }
            Place::Socket(path) => format!("{header}--unix-socket {} http://localhost/", path.display()),
        }
    }

    /// Returns the arguments of `lacquer why` for a request to this address.
    pub fn why(&self) -> String {
        let header = if self.has_proxy { "--proxy-header " } else { "" };
        match &self.place {
            Place::Tcp { .. } => {
                let place = Listen { has_proxy: false, ..self.clone() };
                format!("{header}{}", place.curl())
            }
            Place::Socket(path) => format!("{header}--to {} http://localhost/", path.display()),
        }
    }

    /// Binds the address and releases it, so that common failures are reported before anything starts. `low` is a hint
    /// for a port that is reserved for root.
    pub fn check_free(&self, option: &str, low: &str) -> Result<(), Failure> {
        let Place::Tcp { host, port } = &self.place else { return Ok(()) };
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

/// Returns whether an address is this machine's: then packets to it also come from it.
fn is_own(address: SocketAddr) -> bool {
    let ip = address.ip();
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        Ok(socket.local_addr()?.ip())
    };
    ip.is_loopback() || ip.is_unspecified() || source().is_ok_and(|source| source == ip)
}

impl Place {
    fn parse(option: &str, text: &str) -> Result<Place, Failure> {
        if text.starts_with('/') {
            return Ok(Place::Socket(text.into()));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port: u16 = port.parse().ok().filter(|p| *p > 0).ok_or_else(|| {
            Failure::new(format_args!("--{option} {text}: `{port}` is not a port")).hint(
                "write a port from 1 to 65535, such as :8000 or 127.0.0.1:8000, or the path of a socket",
            )
        })?;
        Ok(Place::Tcp { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_recognized() {
        let reaches = |listen: &str, address: &str| {
            Listen::parse("listen", listen).expect("valid").is_reached_at(address.parse().expect("valid"))
        };
        for (listen, address, expected) in [
            ("127.0.0.1:8000", "127.0.0.1:8000", true),
            (":8000", "127.0.0.1:8000", true),
            ("0.0.0.0:8000", "127.0.0.2:8000", true),
            ("localhost:8000", "127.0.0.1:8000", true),
            (":8000", "127.0.0.1:8001", false),
            (":8000", "192.0.2.1:8000", false),
            ("127.0.0.1:8000", "127.0.0.2:8000", false),
            ("/run/x", "127.0.0.1:8000", false),
        ] {
            assert_eq!(reaches(listen, address), expected, "{listen} {address}");
        }
        let why = |text| Listen::parse("listen", text).expect("valid").why();
        assert_eq!(why("/run/x,proxy"), "--proxy-header --to /run/x http://localhost/");
        assert_eq!(why(":80"), "http://localhost:80/");
        let socket = Listen::parse("listen", "/run/x").expect("valid");
        assert!(socket.is_socket(Path::new("/run/x")) && !socket.is_socket(Path::new("/run/y")));
    }

    #[test]
    fn listen_addresses_are_parsed() {
        let parse = |text| Listen::parse("listen", text);
        assert_eq!(parse(":80"), Ok(Listen::tcp("", 80)));
        assert_eq!(parse("8000"), Ok(Listen::tcp("", 8000)));
        assert_eq!(parse("[::1]:8000"), Ok(Listen::tcp("[::1]", 8000)));
        let argument = |text| parse(text).map(|listen| listen.argument());
        assert_eq!(argument("/run/l.sock").as_deref(), Ok("/run/l.sock"));
        assert_eq!(argument(":81,proxy").as_deref(), Ok(":81,PROXY"));
        assert_eq!(argument("/run/l.sock,PROXY").as_deref(), Ok("/run/l.sock,PROXY"));
        assert!(parse(":81,").is_err() && parse(",proxy").is_err() && parse(":81,proxy,proxy").is_err());
        assert!(Listen::parse(HTTPS, ":443,proxy").is_err());
        assert!(parse("localhost").is_err());
        assert!(parse(":0").is_err());
    }
}
