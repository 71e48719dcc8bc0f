//! `-a`: the listening sockets. The manager binds them, because it has the privileges for low ports and for the
//! modes of UNIX sockets. It calls listen() when a worker is about to accept.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use lacquer_acme::Names;
use lacquer_cli::link::{ListenAddress, ListenSocket, Transport};
use socket2::{Domain, Socket, Type};

use crate::bound_sockets::{BoundSocket, BoundSockets};
use crate::client_certificates::ClientOptions;
use crate::datagrams::{Datagrams, new_socket};
use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::options::named::{self, NamedArgument};
use crate::resolve::resolve_range;
use crate::unix_socket::{Others, Permissions, bind_unix, unix_address};
use crate::upgrade::ListenerState;
use crate::users;

const DEFAULT_PORT: u16 = 80;
/// The sub-argument that asks for a certificate.
const ACME: &str = "acme=";

/// One bound socket.
#[derive(Debug)]
pub struct Listener {
    name: String,
    endpoint: String,
    transport: Transport,
    address: ListenAddress,
    permissions: Permissions,
    clients: ClientOptions,
    /// Its settings of TLS are in a file of `-A`.
    is_of_file: bool,
    socket: Socket,
    datagrams: Datagrams,
    listening: bool,
}

/// All bound sockets.
#[derive(Debug, Default)]
pub struct Listeners {
    all: Vec<Listener>,
    /// The certificates that `acme=` asks for, each once.
    acme: Vec<Names>,
    unnamed: usize,
    /// Sockets that are bound already.
    bound: BoundSockets,
}

/// Returns whether an endpoint is the path or name of a UNIX socket.
pub fn is_unix(endpoint: &str) -> bool {
    endpoint.starts_with(['/', '@'])
}

/// Binds a TCP socket.
pub fn bind_tcp(address: SocketAddr) -> io::Result<Socket> {
    let socket = new_socket(address, Type::STREAM)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The sub-argument of `-a` for HTTP/3.
const H3: &str = "h3";

/// Returns whether the listener has HTTP/3 beside the protocols over TCP.
fn has_http3(endpoint: &str, transport: Transport, fields: &[String]) -> Outcome<bool> {
    if !fields.iter().any(|field| field.eq_ignore_ascii_case(H3)) {
        return Ok(false);
    }
    if transport != Transport::Tls || is_unix(endpoint) {
        let text = format!("h3 in -a requires an IP address and https, without PROXY ({endpoint})");
        return Err(Fault::usage(text));
    }
    Ok(true)
}

fn transport(fields: &[String]) -> Outcome<Transport> {
    let mut found = None;
    let is_protocol = |field: &&String| !field.contains('=') && !field.eq_ignore_ascii_case(H3);
    for field in fields.iter().filter(is_protocol) {
        let given = match field.to_ascii_lowercase().as_str() {
            "http" => Transport::Http,
            "proxy" => Transport::Proxy,
            "https" | "tls" => Transport::Tls,
            _ if found.is_some() => return Err(too_many(field)),
            _ => return Err(Fault::usage(format!("Unknown protocol '{field}'"))),
        };
        found = Some(match (found, given) {
            (None, given) => given,
            // The PROXY header always comes first. Varnish has no such listeners.
            (Some(Transport::Proxy), Transport::Tls) | (Some(Transport::Tls), Transport::Proxy) => {
                Transport::ProxyTls
            }
            _ => return Err(too_many(field)),
        });
    }
    Ok(found.unwrap_or(Transport::Http))
}

fn too_many(field: &str) -> Fault {
    Fault::usage(format!("Too many protocol sub-args in -a ({field})"))
}

fn file_mode(value: &str) -> Outcome<u32> {
    let (negative, digits) = value.strip_prefix('-').map_or((false, value), |digits| (true, digits));
    let octal = digits.bytes().take_while(|b| (b'0'..=b'7').contains(b)).count();
    if value.is_empty() {
        return Err(Fault::usage("Empty mode sub-arg in -a"));
    }
    if octal != digits.len() || octal == 0 {
        return Err(Fault::usage(format!("Invalid mode sub-arg {value} in -a")));
    }
    let Ok(mode) = i64::from_str_radix(digits, 8) else {
        let text = "Numerical result out of range";
        return Err(Fault::usage(format!("Cannot parse mode sub-arg {value} in -a: {text}")));
    };
    if negative || mode == 0 || mode > 0o777 {
        return Err(Fault::usage(format!("Mode sub-arg {value} out of range in -a")));
    }
    Ok(mode as u32)
}

/// Returns the settings of client certificates, which only listeners with TLS have.
fn clients(transport: Transport, fields: &[String]) -> Outcome<ClientOptions> {
    let mut options = ClientOptions::default();
    for field in fields {
        let Some((key, value)) = field.split_once('=').filter(|(key, _)| ClientOptions::has(key)) else {
            continue;
        };
        if !transport.is_tls() {
            return Err(Fault::usage(format!("Invalid sub-arg {field} in -a: the listener has no https")));
        }
        options
            .set(key, value)
            .map_err(|why| Fault::usage(format!("Invalid sub-arg {field} in -a: {why}")))?;
    }
    Ok(options)
}

/// Parses the sub-arguments `user=`, `group=` and `mode=` of a UNIX socket.
pub fn permissions(endpoint: &str, fields: &[String]) -> Outcome<Permissions> {
    let mut given = Permissions::default();
    let is_other = |field: &&String| field.split_once('=').is_some_and(|(key, _)| !ClientOptions::has(key));
    for field in fields.iter().filter(is_other) {
        let invalid = || Fault::usage(format!("Invalid sub-arg {field} in -a"));
        let many = |what: &str| Fault::usage(format!("Too many {what} sub-args in -a ({field})"));
        if !endpoint.starts_with('/') {
            return Err(invalid());
        }
        match field.split_once('=') {
            Some(("user", _)) if given.user.is_some() => return Err(many("user")),
            Some(("user", name)) => {
                let user = users::user(name);
                let user = user.ok_or_else(|| Fault::usage(format!("Unknown user {name} in -a")))?;
                given.user = Some(user.uid);
            }
            Some(("group", _)) if given.group.is_some() => return Err(many("group")),
            Some(("group", name)) => {
                let group = users::group(name);
                let group = group.ok_or_else(|| Fault::usage(format!("Unknown group {name} in -a")))?;
                given.group = Some(group);
            }
            Some(("mode", _)) if given.mode.is_some() => return Err(many("mode")),
            Some(("mode", value)) => given.mode = Some(file_mode(value)?),
            _ => return Err(invalid()),
        }
    }
    Ok(given)
}

impl Listeners {
    /// Adds a listener of a file of `-A`, whose settings of TLS are there.
    pub fn add_of_file(&mut self, argument: &str, jail: &Jail) -> Outcome<()> {
        let before = self.all.len();
        self.add(argument, jail)?;
        self.all[before..].iter_mut().for_each(|listener| listener.is_of_file = true);
        Ok(())
    }

    /// Parses one `-a` and binds its addresses.
    pub fn add(&mut self, argument: &str, jail: &Jail) -> Outcome<()> {
        let NamedArgument { name, fields } = named::parse(argument, "-a")?;
        let name = name.unwrap_or_else(|| {
            self.unnamed += 1;
            format!("a{}", self.unnamed - 1)
        });
        let (endpoint, rest) = fields.split_first().expect("a named argument has at least one field");
        if !is_unix(endpoint) && endpoint.contains('/') {
            return Err(Fault::usage(format!(
                "Unix domain socket addresses must be absolute paths in -a ({endpoint})"
            )));
        }
        let (acme, rest): (Vec<String>, Vec<String>) =
            rest.iter().cloned().partition(|field| field.starts_with(ACME));
        let rest = &rest[..];
        let transport = transport(rest)?;
        self.want_certificates(&acme, transport)?;
        let (permissions, clients) = (permissions(endpoint, rest)?, clients(transport, rest)?);
        let http3 = has_http3(endpoint, transport, rest)?;
        let before = self.all.len();
        if is_unix(endpoint) {
            self.add_unix(name, endpoint, transport, permissions, jail)?;
        } else {
            self.add_internet(&name, endpoint, transport, jail)?;
        }
        for listener in &mut self.all[before..] {
            listener.clients.clone_from(&clients);
            if http3 && listener.datagrams.numbers().is_empty() {
                listener.datagrams = listener.bind_datagrams(jail)?;
            }
        }
        Ok(())
    }

    fn add_internet(&mut self, name: &str, endpoint: &str, transport: Transport, jail: &Jail) -> Outcome<()> {
        let addresses = resolve_range(endpoint, DEFAULT_PORT)
            .map_err(|fault| Fault::usage(format!("Got no socket(s) for {name}={endpoint} ({fault})")))?;
        let before = self.all.len();
        for address in addresses {
            self.add_tcp(name, endpoint, transport, address, jail)?;
        }
        if self.all.len() == before {
            return Err(Fault::usage(format!("Got no socket(s) for {name}={endpoint}")));
        }
        Ok(())
    }

    /// Records the certificates of `acme=` sub-arguments.
    fn want_certificates(&mut self, fields: &[String], transport: Transport) -> Outcome<()> {
        for names in fields.iter().filter_map(|field| field.strip_prefix(ACME)) {
            if !transport.is_tls() {
                return Err(Fault::usage(format!("{ACME}{names} in -a needs the protocol https beside it")));
            }
            let names =
                Names::parse(names).map_err(|why| Fault::usage(format!("{ACME}{names} in -a: {why}")))?;
            if !self.acme.contains(&names) {
                self.acme.push(names);
            }
        }
        Ok(())
    }

    /// Returns the names of the certificates that listeners ask for.
    pub fn acme(&self) -> &[Names] {
        &self.acme
    }

    /// Returns whether a TCP socket has no TLS.
    pub fn any_plain(&self) -> bool {
        let is_plain = |listener: &Listener| {
            matches!(listener.address, ListenAddress::Ip(_)) && !listener.transport.is_tls()
        };
        self.all.iter().any(is_plain)
    }

    fn clash(&self, endpoint: &str, is_same: impl Fn(&ListenAddress) -> bool) -> Outcome<()> {
        match self.all.iter().find(|other| is_same(&other.address)) {
            Some(other) => {
                Err(Fault::usage(format!("-a arguments {} and {endpoint} have same address", other.endpoint)))
            }
            None => Ok(()),
        }
    }

    fn add_tcp(
        &mut self,
        name: &str,
        endpoint: &str,
        transport: Transport,
        address: SocketAddr,
        jail: &Jail,
    ) -> Outcome<()> {
        self.clash(endpoint, |other| *other == ListenAddress::Ip(address))?;
        let adopted = self.bound.take_tcp(name, address);
        let (listening, datagrams, bound) = match adopted {
            Some(BoundSocket { socket, datagrams, is_listening, .. }) => {
                (is_listening, datagrams, Ok(socket))
            }
            None => {
                let _root = jail.raise();
                (false, Datagrams::default(), bind_tcp(address))
            }
        };
        let socket = match bound {
            Ok(socket) => socket,
            // A system without IPv6 (or IPv4) listens on the other family.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) => {
                return Ok(());
            }
            Err(error) => {
                return Err(Fault::usage(format!(
                    "Could not get socket {endpoint}: {}",
                    os_error_text(&error)
                )));
            }
        };
        let bound = socket.local_addr().ok().and_then(|bound| bound.as_socket()).unwrap_or(address);
        let endpoint = if address.port() == 0 { bound.to_string() } else { endpoint.to_owned() };
        self.all.push(Listener {
            name: name.to_owned(),
            endpoint,
            transport,
            address: ListenAddress::Ip(bound),
            permissions: Permissions::default(),
            datagrams,
            clients: ClientOptions::default(),
            is_of_file: false,
            socket,
            listening,
        });
        Ok(())
    }

    fn add_unix(
        &mut self,
        name: String,
        endpoint: &str,
        transport: Transport,
        permissions: Permissions,
        jail: &Jail,
    ) -> Outcome<()> {
        if endpoint == "@" || unix_address(endpoint).is_err() {
            let why = match endpoint {
                "@" => "The empty abstract socket name is not supported",
                _ => "Path too long for a Unix domain socket",
            };
            return Err(Fault::usage(format!("Got no socket(s) for {name}={endpoint} ({why})")));
        }
        self.clash(endpoint, |other| matches!(other, ListenAddress::Unix(path) if path == endpoint))?;
        let (listening, socket) = match self.bound.take_unix(&name, endpoint) {
            Some(bound) => (bound.is_listening, bound.socket),
            None => {
                let _root = jail.raise();
                let fault =
                    |e| Fault::usage(format!("Could not get socket {endpoint}: {}", os_error_text(&e)));
                (false, bind_unix(endpoint, &permissions, Others::Replaced).map_err(fault)?)
            }
        };
        self.all.push(Listener {
            name,
            endpoint: endpoint.to_owned(),
            transport,
            address: ListenAddress::Unix(endpoint.to_owned()),
            permissions,
            clients: ClientOptions::default(),
            is_of_file: false,
            socket,
            datagrams: Datagrams::default(),
            listening,
        });
        Ok(())
    }

    /// Uses these sockets for the listeners that are added.
    pub fn adopt(&mut self, bound: BoundSockets) {
        self.bound = bound;
    }

    /// Returns the sockets for the program that replaces this one.
    pub fn describe(&self) -> Vec<ListenerState> {
        let describe = |listener: &Listener| ListenerState {
            name: listener.name.clone(),
            address: listener.address.clone(),
            fd: listener.socket.as_raw_fd(),
            datagrams: listener.datagrams.numbers(),
            is_listening: listener.listening,
        };
        self.all.iter().map(describe).collect()
    }

    /// Returns whether there was no `-a`.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the names of the sockets with TLS of `-a`, and their settings of client certificates.
    pub fn tls_names(&self) -> impl Iterator<Item = (&str, &ClientOptions)> {
        let with_tls = self.all.iter().filter(|listener| listener.transport.is_tls() && !listener.is_of_file);
        with_tls.map(|listener| (listener.name.as_str(), &listener.clients))
    }

    /// Returns whether one is a UNIX socket, which VCL 4.0 does not support.
    pub fn any_unix(&self) -> bool {
        self.all.iter().any(|listener| matches!(listener.address, ListenAddress::Unix(_)))
    }

    /// Opens the UDP sockets of listeners with HTTP/3: one for each reactor of the next worker.
    pub fn prepare_datagrams(&mut self, reactors: usize, jail: &Jail) -> Result<(), String> {
        let _root = jail.raise();
        for listener in &mut self.all {
            listener.datagrams.resize(reactors).map_err(|error| {
                format!("Could not get UDP sockets for {}: {}", listener.endpoint, os_error_text(&error))
            })?;
        }
        Ok(())
    }

    /// Closes UDP sockets whose worker has failed to start.
    pub fn drop_unbound(&mut self) {
        self.all.iter_mut().for_each(|listener| listener.datagrams.drop_unbound());
    }

    /// Calls listen() on every socket, with an accept queue of `depth`, and binds the UDP sockets.
    pub fn listen(&mut self, depth: u32, jail: &Jail) -> io::Result<()> {
        let _root = jail.raise();
        for listener in &mut self.all {
            listener.datagrams.bind_all()?;
            listener.socket.listen(i32::try_from(depth).unwrap_or(i32::MAX))?;
            listener.listening = true;
        }
        Ok(())
    }

    /// Binds every listening socket again, so that the kernel refuses connections. The error names a socket that was
    /// lost.
    pub fn refuse(&mut self, jail: &Jail) -> Result<(), String> {
        let _root = jail.raise();
        for listener in self.all.iter_mut().filter(|listener| listener.listening) {
            // The address must be released before it can be bound again.
            let placeholder = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(|e| e.to_string())?;
            drop(std::mem::replace(&mut listener.socket, placeholder));
            let bound = match &listener.address {
                ListenAddress::Ip(address) => bind_tcp(*address),
                ListenAddress::Unix(path) => bind_unix(path, &listener.permissions, Others::Replaced),
            };
            listener.socket = bound.map_err(|error| {
                format!("Could not reopen listen socket {}: {}", listener.endpoint, os_error_text(&error))
            })?;
            listener.listening = false;
            listener.datagrams.close();
        }
        Ok(())
    }

    /// Returns the descriptions of the sockets for the worker.
    pub fn for_worker(&self) -> Vec<ListenSocket> {
        let describe = |listener: &Listener| ListenSocket {
            fd: listener.socket.as_raw_fd(),
            name: listener.name.clone(),
            endpoint: listener.endpoint.clone(),
            address: listener.address.clone(),
            transport: listener.transport,
            datagrams: listener.datagrams.numbers(),
        };
        self.all.iter().map(describe).collect()
    }

    /// Returns the descriptors that the worker inherits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.all.iter().flat_map(|listener| {
            std::iter::once(listener.socket.as_fd()).chain(listener.datagrams.descriptors())
        })
    }
}

impl Listener {
    /// Binds the first UDP socket, so that a port in use is reported at once.
    fn bind_datagrams(&self, jail: &Jail) -> Outcome<Datagrams> {
        let ListenAddress::Ip(address) = self.address else { return Ok(Datagrams::default()) };
        let _root = jail.raise();
        Datagrams::bind(address).map_err(|error| {
            Fault::usage(format!("Could not get UDP socket {}: {}", self.endpoint, os_error_text(&error)))
        })
    }
}

/// Returns whether the argument of `-b` is a path.
pub fn is_backend_path(text: &str) -> bool {
    is_unix(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(argument: &str) -> String {
        Listeners::default().add(argument, &Jail::none()).unwrap_err().to_string()
    }

    #[test]
    fn bad_arguments() {
        let path = "/tmp/lacquer-never-bound.sock";
        for (argument, text) in [
            ("127.0.0.1:80000,FOO".to_owned(), "Unknown protocol 'FOO'"),
            ("127.0.0.1:80000,HTTP/1".to_owned(), "Unknown protocol 'HTTP/1'"),
            ("127.0.0.1:80000,PROXY,FOO".to_owned(), "Too many protocol sub-args"),
            ("127.0.0.1:80000,https,TLS".to_owned(), "Too many protocol sub-args"),
            ("127.0.0.1:80000,https,PROXY,HTTP".to_owned(), "Too many protocol sub-args"),
            ("127.0.0.1:80000,h3".to_owned(), "h3 in -a requires an IP address and https"),
            ("127.0.0.1:80000,PROXY,https,h3".to_owned(), "without PROXY"),
            (format!("{path},https,h3"), "h3 in -a requires an IP address"),
            ("foo/bar.sock".to_owned(), "Unix domain socket addresses must be absolute paths"),
            ("127.0.0.1:80000,user=u".to_owned(), "Invalid sub-arg user=u"),
            ("@abstract,mode=660".to_owned(), "Invalid sub-arg mode=660"),
            ("127.0.0.1:80000,acme=example.org".to_owned(), "needs the protocol https"),
            ("127.0.0.1:80000,https,acme=".to_owned(), "acme= in -a: \"\": the name is empty"),
            ("127.0.0.1:80000,https,acme=127.0.0.1".to_owned(), "an address is not supported"),
            (format!("{path},mode=660,mode=600"), "Too many mode sub-args"),
            (format!("{path},mode="), "Empty mode sub-arg"),
            (format!("{path},mode=666devilish"), "Invalid mode sub-arg 666devilish"),
            (format!("{path},mode=999"), "Invalid mode sub-arg 999"),
            (format!("{path},mode=77777777777777777777777777777777"), "Cannot parse mode sub-arg 7"),
            (format!("{path},mode=1666"), "Mode sub-arg 1666 out of range"),
            (format!("{path},mode=-1"), "Mode sub-arg -1 out of range"),
            (format!("{path},foo=bar"), "Invalid sub-arg foo=bar"),
            (format!("{path},=foo"), "Invalid sub-arg =foo"),
            ("127.0.0.1:0,client-verify=required".to_owned(), "the listener has no https"),
            ("127.0.0.1:0,https,client-verify=maybe".to_owned(), "use none, optional or required"),
            ("127.0.0.1:0,https,client-verify-foo=x".to_owned(), "Invalid sub-arg client-verify-foo=x"),
            (format!("/{}", "x".repeat(200)), "Got no socket(s)"),
        ] {
            assert!(complaint(&argument).contains(text), "{argument}: {}", complaint(&argument));
        }
    }

    #[test]
    fn names_and_ports() {
        let mut listeners = Listeners::default();
        listeners.add("127.0.0.1:0,PROXY", &Jail::none()).unwrap();
        listeners.add("two=127.0.0.1:0", &Jail::none()).unwrap();
        let told = listeners.for_worker();
        assert_eq!((told[0].name.as_str(), told[0].transport), ("a0", Transport::Proxy));
        assert_eq!((told[1].name.as_str(), told[1].transport), ("two", Transport::Http));
        assert!(!told[0].endpoint.ends_with(":0"));
        listeners.add("three=127.0.0.1:0,Https", &Jail::none()).unwrap();
        listeners.add("four=127.0.0.1:0,tls,proxy", &Jail::none()).unwrap();
        assert_eq!(listeners.for_worker()[3].transport, Transport::ProxyTls);
        assert_eq!(listeners.tls_names().map(|(name, _)| name).collect::<Vec<_>>(), ["three", "four"]);
        listeners.add("five=127.0.0.1:0,https,h3", &Jail::none()).unwrap();
        for reactors in [2, 3, 1] {
            listeners.prepare_datagrams(reactors, &Jail::none()).unwrap();
            let told = listeners.for_worker();
            assert_eq!((told[3].datagrams.len(), told[4].datagrams.len()), (0, reactors));
        }
        assert_eq!(listeners.descriptors().count(), 6);
        listeners.listen(5, &Jail::none()).unwrap();
        listeners.refuse(&Jail::none()).unwrap();
        assert_eq!(listeners.for_worker()[0].address, told[0].address);
        assert!(listeners.for_worker()[4].datagrams.is_empty());
    }
}
