//! The arguments of `-w`, and the sockets that they name.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use lacquer_cli::admin::{AdminSocket, Collector};
use socket2::Socket;

use super::certificate::CertificateFiles;
use super::collector::{self, Exported};
use super::token;
use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::listen::{bind_tcp, is_unix, permissions};
use crate::options::named;
use crate::resolve::resolve;
use crate::unix_socket::{Others, Permissions, bind_unix};
use crate::workdir::absolute;

const DEFAULT_PORT: u16 = 6083;
const BACKLOG: i32 = 1024;
/// The rights of a UNIX socket without `mode=`: they are all that protects it.
const MODE: u32 = 0o600;

/// One `-w`.
#[derive(Debug)]
struct Argument {
    endpoint: String,
    permissions: Permissions,
    token: Option<PathBuf>,
    files: Option<CertificateFiles>,
    /// The content of the files, encoded for the admin process.
    certificate: Option<Vec<u8>>,
    hosts: Vec<String>,
    bound: Vec<Socket>,
}

impl Argument {
    /// Returns whether its token is that of the working directory, which the manager makes.
    fn has_made_token(&self) -> bool {
        self.token.is_none() && !is_unix(&self.endpoint)
    }
}

/// All sockets of the admin listener, and the collector to which its process sends data.
#[derive(Debug)]
pub struct AdminSockets {
    arguments: Vec<Argument>,
    config: Vec<AdminSocket>,
    collector: Option<Exported>,
}

impl AdminSockets {
    /// Parses the arguments. Returns `None` if there are none.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Outcome<Option<AdminSockets>> {
        let mut sockets = AdminSockets { arguments: Vec::new(), config: Vec::new(), collector: None };
        for text in arguments {
            match collector::parse(text)? {
                Some(_) if sockets.collector.is_some() => {
                    return Err(Fault::usage(format!("-w {text}: there is a collector already")));
                }
                Some(found) => sockets.collector = Some(found),
                None => sockets.arguments.push(parse(text)?),
            }
        }
        Ok((!sockets.arguments.is_empty() || sockets.collector.is_some()).then_some(sockets))
    }

    /// Returns the collector, whose host is looked up.
    pub fn exported(&mut self) -> Option<&mut Exported> {
        self.collector.as_mut()
    }

    /// Returns the time of the next step of a lookup, if there is one.
    pub fn next_step(&self) -> Option<Instant> {
        self.collector.as_ref().and_then(Exported::next_step)
    }

    /// Reads the authorities of the collector again. Fails if none are known.
    pub fn prepare_collector(&mut self, jail: &Jail) -> Outcome<()> {
        self.collector.as_mut().map_or(Ok(()), |collector| collector.prepare(jail))
    }

    /// Binds the sockets and reads the tokens, unless that was done. Reads the certificates; if that fails, those that are
    /// known remain.
    pub fn bind(&mut self, jail: &Jail) -> Outcome<()> {
        for argument in &mut self.arguments {
            let Some(files) = &argument.files else { continue };
            match files.read(jail) {
                Ok(certificate) => argument.certificate = Some(certificate),
                Err(fault) if argument.certificate.is_none() => return Err(fault),
                Err(_) => {}
            }
        }
        if !self.config.is_empty() {
            let sockets = self.arguments.iter().flat_map(|a| a.bound.iter().map(|_| &a.certificate));
            for (socket, certificate) in self.config.iter_mut().zip(sockets) {
                socket.certificate.clone_from(certificate);
            }
            return Ok(());
        }
        let mut config = Vec::new();
        for argument in &mut self.arguments {
            let is_unix = is_unix(&argument.endpoint);
            let token = match &argument.token {
                Some(path) => Some(token::read(path, jail)?),
                None if is_unix => None,
                None => Some(token::of_directory(jail)?),
            };
            if argument.bound.is_empty() {
                argument.bound = bind(argument, jail)?;
            }
            config.extend(argument.bound.iter().map(|socket| AdminSocket {
                fd: socket.as_raw_fd(),
                is_unix,
                token: token.clone(),
                certificate: argument.certificate.clone(),
                hosts: argument.hosts.clone(),
            }));
        }
        self.config = config;
        Ok(())
    }

    /// Writes the token of the working directory again if it was removed.
    pub fn restore_token(&self, jail: &Jail) -> io::Result<()> {
        let owners = self.arguments.iter().flat_map(|a| a.bound.iter().map(|_| a.has_made_token()));
        let made = self.config.iter().zip(owners).find(|(_, is_made)| *is_made);
        let token = made.and_then(|(socket, _)| socket.token.as_deref());
        token.map_or(Ok(()), |token| token::restore(Path::new(token::NAME), token, jail))
    }

    /// Returns the sockets as the process gets them.
    pub fn config(&self) -> &[AdminSocket] {
        &self.config
    }

    /// Returns the collector as the process gets it.
    pub fn collector(&self) -> Option<&Collector> {
        self.collector.as_ref().map(Exported::collector)
    }

    /// Returns the descriptors that the process inherits.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.arguments.iter().flat_map(|argument| &argument.bound).map(|socket| socket.as_fd())
    }

    /// Returns the addresses, each on a line: a URL, or the path of a UNIX socket.
    pub fn addresses(&self) -> String {
        let mut text = String::new();
        for argument in &self.arguments {
            let scheme = if argument.files.is_some() { "https" } else { "http" };
            for socket in &argument.bound {
                match socket.local_addr().ok().and_then(|address| address.as_socket()) {
                    Some(address) => drop(writeln!(text, "{scheme}://{address}/")),
                    None => drop(writeln!(text, "{}", argument.endpoint)),
                }
            }
        }
        text
    }

    /// Removes the files that were made.
    pub fn remove(&self, jail: &Jail) {
        if self.arguments.iter().any(Argument::has_made_token) {
            token::remove(jail);
        }
        let _root = jail.raise();
        for path in
            self.arguments.iter().map(|argument| &argument.endpoint).filter(|path| path.starts_with('/'))
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn parse(text: &str) -> Outcome<Argument> {
    let fields = named::parse(text, "-w").ok().filter(|argument| argument.name.is_none());
    let fields = fields.map(|argument| argument.fields).unwrap_or_default();
    let Some((endpoint, rest)) = fields.split_first().filter(|(endpoint, _)| !endpoint.is_empty()) else {
        return Err(Fault::usage(format!(
            "-w {text}: write an address such as 127.0.0.1:6083, or /path/socket"
        )));
    };
    let mut argument = Argument {
        endpoint: endpoint.clone(),
        permissions: Permissions::default(),
        token: None,
        files: None,
        certificate: None,
        hosts: Vec::new(),
        bound: Vec::new(),
    };
    let (mut rights, mut certificate, mut key) = (Vec::new(), None, None);
    for field in rest {
        match field.split_once('=') {
            Some(("token", path)) if !path.is_empty() && argument.token.is_none() => {
                argument.token = Some(absolute(path));
            }
            Some(("cert", path)) if !path.is_empty() && certificate.is_none() && !is_unix(endpoint) => {
                certificate = Some(absolute(path));
            }
            Some(("key", path)) if !path.is_empty() && key.is_none() && !is_unix(endpoint) => {
                key = Some(absolute(path));
            }
            Some(("host", names)) => argument.hosts.extend(names.split(';').map(str::to_ascii_lowercase)),
            Some(("user" | "group" | "mode", _)) if is_unix(endpoint) => rights.push(field.clone()),
            _ => return Err(Fault::usage(format!("Invalid sub-arg {field} in -w"))),
        }
    }
    argument.files = match (certificate, key) {
        (Some(certificate), key) => Some(CertificateFiles { certificate, key }),
        (None, None) => None,
        (None, Some(_)) => {
            return Err(Fault::usage(format!("-w {text}: key= needs cert= with the certificate")));
        }
    };
    argument.permissions = permissions(endpoint, &rights)?;
    argument.permissions.mode.get_or_insert(MODE);
    Ok(argument)
}

fn bind(argument: &Argument, jail: &Jail) -> Outcome<Vec<Socket>> {
    let endpoint = &argument.endpoint;
    let cannot = |why: &str| Fault::usage(format!("-w {endpoint} cannot be listened on: {why}"));
    let failed = |error: io::Error| cannot(&os_error_text(&error));
    let bound = if is_unix(endpoint) {
        let _root = jail.raise();
        vec![bind_unix(endpoint, &argument.permissions, Others::Kept).map_err(failed)?]
    } else {
        let addresses = resolve(endpoint, DEFAULT_PORT).map_err(|why| cannot(&why))?;
        let _root = jail.raise();
        addresses.into_iter().map(bind_tcp).collect::<io::Result<_>>().map_err(failed)?
    };
    for socket in &bound {
        socket.listen(BACKLOG).and_then(|()| socket.set_nonblocking(true)).map_err(failed)?;
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_addresses_and_what_protects_them() {
        let argument = parse("127.0.0.1:6083,token=/etc/t,host=Cache.Example;b").unwrap();
        assert_eq!((argument.endpoint.as_str(), argument.token), ("127.0.0.1:6083", Some("/etc/t".into())));
        assert_eq!(argument.hosts, ["cache.example", "b"]);
        assert_eq!(parse("/run/x").unwrap().permissions.mode, Some(0o600));
        assert_eq!(parse("/run/x,mode=660").unwrap().permissions.mode, Some(0o660));
        let files = parse(":1,cert=/c.pem,key=/k.pem").unwrap().files.unwrap();
        assert_eq!((files.certificate, files.key), ("/c.pem".into(), Some("/k.pem".into())));
        for wrong in [":1,key=/k", ":1,cert=", "/run/x,cert=/c", ":1,cert=/a,cert=/b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", ",token=/x", ":1,token=", ":1,x=y", ":1,mode=600", "a=b", ":1,proxy"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
