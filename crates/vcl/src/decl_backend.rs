//! `backend name { .host = "..."; ... }` and `backend name none;`

use std::net::IpAddr;

use crate::compiler::{Compiler, Mention, Mode, Res, Stop};
use crate::decl_backend_tls::TlsFields;
use crate::decl_fields::Fields;
use crate::lexer::{Tok, blob_content};
use crate::literals::{is_host_name, split_port};
use crate::program::{Backend, HostName};
use crate::source::SocketKind;
use crate::symbols::{Fmt, Kind, Meaning, SymbolId, TokenId};

const FIELDS: &[&str] = &[
    "host",
    "port",
    "path",
    "host_header",
    "connect_timeout",
    "first_byte_timeout",
    "between_bytes_timeout",
    "probe",
    "max_connections",
    "proxy_header",
    "preamble",
    "proto",
    "via",
    "authority",
    "wait_timeout",
    "wait_limit",
    "max_age",
    "max_requests",
    "ssl",
    "ssl_sni",
    "ssl_nosni",
    "ssl_noverify",
    "ssl_verify_peer",
    "ssl_verify_host",
    "ssl_ca_file",
    "certificate",
    "private_key",
];

/// The tokens of fields that are checked together.
#[derive(Default)]
struct Seen {
    address: Option<TokenId>,
    host: Option<TokenId>,
    port: Option<TokenId>,
    path: Option<TokenId>,
    host_header: Option<TokenId>,
    authority: Option<TokenId>,
    http2: Option<TokenId>,
    tls: TlsFields,
}

impl Compiler<'_> {
    pub fn parse_backend(&mut self) -> Res<()> {
        let first = self.t;
        self.advance();
        self.want_name("backend")?;
        let name = self.t;
        let symbol = self.handle_symbol(Fmt::Backend)?;
        let slot = match symbol {
            Some(symbol) => {
                let slot = self.global_index(symbol);
                if self.program.origins.default_backend.is_none() {
                    self.defaults.first_backend = Some(symbol);
                    self.program.origins.default_backend = Some(slot);
                    self.symbols.list[symbol].mentions.may_be_unused = true;
                }
                slot
            }
            None => {
                if let Some(first) = self.defaults.first_backend.take() {
                    self.symbols.list[first].mentions.may_be_unused = false;
                    self.program.origins.default_backend = None;
                }
                if self.program.origins.default_backend.is_some() {
                    return self.fail("Only one default director possible.\n", first);
                }
                let slot = self.backend_slot("default");
                self.program.origins.default_backend = Some(slot);
                slot
            }
        };
        match self.backend_spec(symbol, slot, name) {
            Ok(backend) => {
                self.program.origins.backends[slot as usize] = backend;
                Ok(())
            }
            Err(Stop) => self.fail("\nIn backend specification starting at:\n", first),
        }
    }

    fn backend_spec(&mut self, symbol: Option<SymbolId>, slot: u32, name: TokenId) -> Res<Backend> {
        let mut backend =
            Backend { name: self.program.origins.backends[slot as usize].name.clone(), ..Backend::default() };
        if self.now() == Tok::Id && matches!(self.text(self.t), "none" | "None") {
            self.advance();
            self.skip(Tok::Semi)?;
            backend.none = true;
            return Ok(backend);
        }
        self.skip(Tok::LBrace)?;
        if self.is_word(self.t, "set") {
            self.add_text("NB: Backend Syntax has changed:\nRemove \"set\" and \"backend\" in front of backend fields.\n");
            let quoted = self.quoted(self.t);
            return self.fail(format!("{quoted} at "), self.t);
        }
        let mut fields = Fields::new(FIELDS);
        let mut seen = Seen::default();
        while self.now() != Tok::RBrace {
            let field = self.field(&mut fields)?;
            if self.text(field) == "probe" {
                self.probe_of_backend(&mut backend)?;
            } else {
                self.backend_field(field, symbol, &mut backend, &mut seen)?;
                self.skip(Tok::Semi)?;
            }
        }
        self.check_backend(&mut backend, &seen, name)?;
        self.advance();
        Ok(backend)
    }

    fn backend_field(
        &mut self,
        field: TokenId,
        symbol: Option<SymbolId>,
        backend: &mut Backend,
        seen: &mut Seen,
    ) -> Res<()> {
        match self.text(field) {
            "host" => {
                self.only_one("Address", &mut seen.address, field)?;
                let (token, host) = self.string_field()?;
                (seen.host, backend.address.host) = (Some(token), host);
            }
            "port" => {
                let (token, port) = self.string_field()?;
                (seen.port, backend.address.port) = (Some(token), Some(port));
            }
            "path" => {
                if self.syntax < 41 {
                    let quoted = self.quoted(self.t);
                    let message = "Unix socket backends only supported in VCL4.1 and higher.\n";
                    return self.fail(format!("{message}{quoted} at "), self.t);
                }
                self.only_one("Address", &mut seen.address, field)?;
                let (token, path) = self.string_field()?;
                (seen.path, backend.address.path) = (Some(token), Some(path));
            }
            "host_header" => {
                let (token, _) = self.string_field()?;
                (seen.host_header, backend.host_header) = (Some(token), Some(self.content(token).into()));
            }
            "authority" => {
                let (token, authority) = self.string_field()?;
                (seen.authority, backend.authority) = (Some(token), Some(authority));
            }
            "connect_timeout" => backend.limits.connect_timeout = Some(self.duration()?),
            "first_byte_timeout" => backend.limits.first_byte_timeout = Some(self.duration()?),
            "between_bytes_timeout" => backend.limits.between_bytes_timeout = Some(self.duration()?),
            "wait_timeout" => backend.limits.wait_timeout = Some(self.duration()?),
            "max_age" => backend.limits.max_age = Some(self.duration()?),
            "max_requests" => backend.limits.max_requests = Some(self.uint()? as u32),
            "max_connections" => backend.limits.max_connections = Some(self.uint()? as u32),
            "wait_limit" => backend.limits.wait_limit = Some(self.uint()? as u32),
            "proxy_header" => {
                let value = self.t;
                let version = self.uint()?;
                if !matches!(version, 1 | 2) {
                    return self.fail(".proxy_header must be 1 or 2\n", value);
                }
                backend.proxy_header = Some(version as u32);
            }
            "preamble" => {
                self.want(Tok::Cblob)?;
                backend.preamble = Some(blob_content(self.bytes(self.t)));
                self.advance();
            }
            "proto" => {
                let (token, name) = self.string_field()?;
                backend.http2 = match name.as_str() {
                    "h2" => true,
                    "http/1.1" => false,
                    _ => return self.fail(".proto must be \"h2\" or \"http/1.1\"\n", token),
                };
                seen.http2 = Some(token).filter(|_| backend.http2);
            }
            "via" => backend.via = Some(self.via(symbol)?),
            _ => self.tls_field(field, &mut seen.tls)?,
        }
        Ok(())
    }

    fn via(&mut self, symbol: Option<SymbolId>) -> Res<u32> {
        let via = self.some_symbol(Kind::Backend, Mode::Existing, Mention::Reference)?;
        if self.symbols.list[via].via {
            return self.fail("Cannot stack .via backends at\n", self.t);
        }
        let Meaning::Global(slot) = self.symbols.list[via].meaning else {
            return self.fail("Name the backend to connect via; 'default' is none.\n", self.t);
        };
        if let Some(symbol) = symbol {
            self.symbols.list[symbol].via = true;
        }
        Ok(slot)
    }

    fn probe_of_backend(&mut self, backend: &mut Backend) -> Res<()> {
        match self.now() {
            Tok::LBrace => {
                let probe = self.probe_spec(format!("{}:probe", backend.name))?;
                backend.probe = Some(self.program.origins.probes.len() as u32);
                self.program.origins.probes.push(probe);
                Ok(())
            }
            Tok::Id => {
                let token = self.t;
                let symbol = self.some_symbol(Kind::Probe, Mode::Existing, Mention::Reference)?;
                if self.symbols.list[symbol].fmt == Fmt::Default {
                    if self.defaults.probe.is_none() {
                        let quoted = self.quoted(token);
                        return self.fail(format!("No default probe defined\n{quoted} at\n"), token);
                    }
                    backend.probe = self.defaults.probe;
                } else {
                    backend.probe = Some(self.global_index(symbol));
                }
                self.skip(Tok::Semi)
            }
            _ => {
                let quoted = self.quoted(self.t);
                self.fail(format!("Expected '{{' or name of probe, got {quoted} at\n"), self.t)
            }
        }
    }

    fn check_backend(&mut self, backend: &mut Backend, seen: &Seen, name: TokenId) -> Res<()> {
        if seen.host.is_none() && seen.path.is_none() {
            return self.fail("Expected .host or .path.\n", name);
        }
        if backend.via.is_some() && seen.path.is_some() {
            return self.fail("Cannot set both .via and .path.\n", name);
        }
        if let Some(proto) = seen.http2.filter(|_| backend.proxy_header.is_some()) {
            // The header is for one client, and the connection would carry the requests of many.
            return self.fail(".proto = \"h2\" can not be used with .proxy_header\n", proto);
        }
        self.check_tls_fields(&seen.tls, seen.path.is_some())?;
        if let Some(path) = seen.path {
            // HTTP requires a Host header, and a UNIX socket has no host name.
            backend.host_header.get_or_insert_with(|| "0.0.0.0".into());
            return self.check_path(path);
        }
        let Some(host) = seen.host else { return Err(Stop) };
        // The default is the text of `.host`, with its port and brackets. It is no server name for TLS.
        if seen.host_header.is_none() {
            backend.host_header = Some(self.content(host).into());
        }
        if seen.tls.enabled().is_some() {
            let name = seen.host_header.unwrap_or(host);
            backend.tls = Some(self.backend_tls(&seen.tls, name)?);
            let has_port = split_port(&backend.address.host).is_ok_and(|(_, port)| port.is_some());
            backend.address.port =
                backend.address.port.take().or_else(|| (!has_port).then(|| "443".to_owned()));
        }
        let address = match &backend.address.port {
            Some(port) => format!("{} {port}", backend.address.host),
            None => backend.address.host.clone(),
        };
        backend.address.name = self.host_name(&address);
        if backend.address.name.is_none() || self.input.options.strict_hosts {
            self.resolve_backend(backend, &address, host)?;
        }
        if let Some(via) = backend.via {
            let via_tls = self.program.origins.backends[via as usize].tls.is_some();
            if let Some(field) = seen.tls.enabled().filter(|_| via_tls) {
                return self.fail(".ssl can not be used with .via of a backend with .ssl\n", field);
            }
            self.check_authority(backend, seen, host)?;
        }
        Ok(())
    }

    /// Returns the host and the port, if the host is a name that can be looked up later.
    fn host_name(&self, address: &str) -> Option<HostName> {
        let Ok((Some(host), port)) = split_port(address) else { return None };
        if !is_host_name(host) {
            return None;
        }
        let port = port.unwrap_or("80");
        // The name service also translates names of ports. If it fails, so does the resolution that follows.
        let number = port.parse().ok().or_else(|| {
            let found = self.input.options.resolver.resolve(None, port).ok()?;
            Some(found.first()?.port())
        });
        number.map(|port| HostName { host: host.to_owned(), port })
    }

    fn resolve_backend(&mut self, backend: &mut Backend, address: &str, host: TokenId) -> Res<()> {
        for address in self.resolve(address, host, "Backend host", 2)? {
            let family =
                if address.is_ipv4() { &mut backend.address.ipv4 } else { &mut backend.address.ipv6 };
            *family = Some(address);
        }
        Ok(())
    }

    /// Checks the authority. With `.via` it is the server name in TLS, where addresses are not allowed.
    fn check_authority(&mut self, backend: &mut Backend, seen: &Seen, host: TokenId) -> Res<()> {
        let (token, field) = match (seen.authority, seen.host_header) {
            (Some(token), _) => (token, "authority"),
            (None, Some(token)) => (token, "host_header"),
            (None, None) => (host, "host"),
        };
        let value = self.content_text(token);
        let bare = split_port(&value).ok().and_then(|(host, _)| host).unwrap_or(&value);
        if bare.parse::<IpAddr>().is_ok() {
            let message = if field == "authority" {
                ".authority can not be an ip address with .via.\n".to_owned()
            } else {
                format!(
                    ".{field} used as authority can not be an ip address with .via.\n\
                     Hint: configure .authority explicitly\n"
                )
            };
            return self.fail(message, token);
        }
        backend.authority = Some(value.split(':').next().unwrap_or_default().to_owned());
        Ok(())
    }

    fn check_path(&mut self, token: TokenId) -> Res<()> {
        let path = self.content_text(token);
        if !path.starts_with(['/', '@']) {
            return self.fail("Backend path: Must be a valid path or abstract socket:\n", token);
        }
        if path.len() > 107 {
            return self.fail("Backend path: Path too long for a Unix domain socket\n", token);
        }
        if path == "@" {
            return self.fail("Backend path: The empty abstract socket name is not supported\n", token);
        }
        if path.starts_with('@') {
            return Ok(());
        }
        match self.input.options.files.socket(&path) {
            SocketKind::Socket => Ok(()),
            SocketKind::NotASocket => self.fail("Backend path: Not a socket:\n", token),
            SocketKind::NotYet(error) => {
                self.add_text(format!("Backend path: Cannot stat: {error}\n"));
                self.show(token);
                self.finish_warning();
                Ok(())
            }
            SocketKind::Unusable(error) => self.fail(format!("Backend path: Cannot stat: {error}\n"), token),
        }
    }
}
