//! The attributes of a backend for TLS: `.ssl`, `.ssl_*`, `.certificate` and `.private_key`.

use std::net::IpAddr;

use crate::compiler::{Compiler, Res};
use crate::literals::split_port;
use crate::program::{Authorities, BackendTls, Identity};
use crate::symbols::TokenId;

/// A setting that two fields can set, one of which means the opposite.
#[derive(Clone, Copy, Default)]
struct Setting {
    /// The last field that set it, and the value.
    set: Option<(TokenId, bool)>,
}

/// The fields that were set, to be checked together.
#[derive(Default)]
pub(crate) struct TlsFields {
    ssl: Option<(TokenId, bool)>,
    sends_name: Setting,
    verifies_peer: Setting,
    verifies_host: Option<(TokenId, bool)>,
    /// The values of these fields.
    ca_file: Option<TokenId>,
    certificate: Option<TokenId>,
    private_key: Option<TokenId>,
}

impl TlsFields {
    /// Returns the field that enables TLS.
    pub fn enabled(&self) -> Option<TokenId> {
        self.ssl.filter(|(_, enabled)| *enabled).map(|(field, _)| field)
    }

    /// Returns whether a field other than `.ssl` differs from the default.
    fn has_settings(&self) -> bool {
        let is = |setting: Option<(TokenId, bool)>, value| setting.is_some_and(|(_, set)| set == value);
        is(self.sends_name.set, false) || is(self.verifies_peer.set, false) || is(self.verifies_host, true)
    }

    /// Returns a field that is set although it has an effect only with TLS.
    fn any(&self) -> Option<TokenId> {
        let flags = [self.sends_name.set, self.verifies_peer.set, self.verifies_host];
        flags.into_iter().flatten().map(|(field, _)| field).next()
    }
}

/// Returns whether TLS can carry the name (RFC 6066, section 3): labels of letters, digits, hyphens and underscores.
fn is_server_name(name: &str) -> bool {
    let labels = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    labels.len() <= 253 && labels.split('.').all(is_label)
}

impl Compiler<'_> {
    /// Parses the value of a field for TLS.
    pub fn tls_field(&mut self, field: TokenId, seen: &mut TlsFields) -> Res<()> {
        match self.text(field) {
            "ssl" => seen.ssl = Some((field, self.is_nonzero()?)),
            "ssl_sni" => seen.sends_name = self.set(seen.sends_name, field, true)?,
            "ssl_nosni" => seen.sends_name = self.set(seen.sends_name, field, false)?,
            "ssl_verify_peer" => seen.verifies_peer = self.set(seen.verifies_peer, field, true)?,
            "ssl_noverify" => seen.verifies_peer = self.set(seen.verifies_peer, field, false)?,
            "ssl_verify_host" => seen.verifies_host = Some((field, self.is_nonzero()?)),
            name => {
                let place = match name {
                    "ssl_ca_file" => &mut seen.ca_file,
                    "certificate" => &mut seen.certificate,
                    _ => &mut seen.private_key,
                };
                *place = Some(self.path_field(field)?);
            }
        }
        Ok(())
    }

    fn is_nonzero(&mut self) -> Res<bool> {
        Ok(self.uint()? != 0)
    }

    /// Parses a field that sets a setting to its value, or to the opposite. Fails if an earlier field disagrees.
    fn set(&mut self, setting: Setting, field: TokenId, positive: bool) -> Res<Setting> {
        let value = self.is_nonzero()? == positive;
        if let Some((other, _)) = setting.set.filter(|(_, before)| *before != value) {
            let (name, other_name) = (self.quoted(field), self.quoted(other));
            let message = format!("Setting of field {name} conflicts with field {other_name}.\n");
            return self.fail(message, field);
        }
        Ok(Setting { set: Some((field, value)) })
    }

    fn path_field(&mut self, field: TokenId) -> Res<TokenId> {
        let (token, path) = self.string_field()?;
        if !path.starts_with('/') {
            let name = self.text(field).to_owned();
            return self.fail(format!(".{name} must be an absolute path.\n"), token);
        }
        Ok(token)
    }

    /// Checks the fields against `.ssl` and `.path`.
    pub fn check_tls_fields(&mut self, seen: &TlsFields, has_path: bool) -> Res<()> {
        if let Some((field, true)) = seen.ssl {
            if has_path {
                return self.fail(".ssl can not be used with .path.\n", field);
            }
        } else {
            let files = [seen.ca_file, seen.certificate, seen.private_key];
            if let Some(file) = files.into_iter().flatten().next() {
                return self.fail("Certificates and keys can not be used without .ssl = 1\n", file);
            }
            if let Some((field, false)) = seen.ssl.filter(|_| seen.has_settings()) {
                return self.fail("ssl_* options can not be used without .ssl enabled\n", field);
            }
            if let Some(field) = seen.any().filter(|_| seen.ssl.is_none()) {
                self.add_text("ssl_* options have no effect without .ssl = 1\n");
                self.show(field);
                self.finish_warning();
            }
        }
        if let Some(key) = seen.private_key.filter(|_| seen.certificate.is_none()) {
            return self.fail(".private_key can not be used without .certificate\n", key);
        }
        Ok(())
    }

    /// Returns the settings of a backend with TLS. `name` is the token of the server name.
    pub fn backend_tls(&mut self, seen: &TlsFields, name: TokenId) -> Res<BackendTls> {
        let text = self.content_text(name);
        let server_name = split_port(&text).ok().and_then(|(host, _)| host).unwrap_or(&text).to_owned();
        let value = |set: Option<(TokenId, bool)>, default| set.map_or(default, |(_, value)| value);
        let mut tls = BackendTls {
            at: self.at(seen.enabled().unwrap_or(name)),
            sends_name: value(seen.sends_name.set, true),
            verifies_peer: value(seen.verifies_peer.set, true),
            verifies_host: value(seen.verifies_host, false),
            server_name,
            ..BackendTls::default()
        };
        let is_valid = tls.server_name.parse::<IpAddr>().is_ok() || is_server_name(&tls.server_name);
        if !is_valid && (tls.sends_name || tls.verifies_host) {
            let message = format!(
                "'{}' can not be a server name in TLS.\n\
                 Hint: configure .host_header with the name in the server's certificate\n",
                tls.server_name
            );
            return self.fail(message, name);
        }
        if tls.verifies_peer {
            tls.authorities = Some(self.authorities(seen.ca_file)?);
        } else if let Some(file) = seen.ca_file {
            return self.fail(".ssl_ca_file has no effect if .ssl_verify_peer is 0\n", file);
        }
        if let Some(certificate) = seen.certificate {
            tls.identity = Some(self.identity(certificate, seen.private_key)?);
        }
        Ok(tls)
    }

    /// Reads the certificates of trusted authorities, unless they were read before. A system without a trust store is a
    /// warning, because the connections fail, and VCL can handle that.
    fn authorities(&mut self, file: Option<TokenId>) -> Res<u32> {
        let path = file.map(|file| self.content_text(file).into_owned());
        let known = &self.program.origins.tls.authorities;
        if let Some(index) = known.iter().position(|authorities| authorities.path == path) {
            return Ok(index as u32);
        }
        let pem = match (self.input.options.files.authorities(path.as_deref()), file) {
            (Ok(pem), _) => pem,
            (Err(error), Some(file)) => {
                let path = path.unwrap_or_default();
                return self.fail(format!(".ssl_ca_file {path}: {error}\n"), file);
            }
            (Err(error), None) => {
                self.add_text(format!(
                    "The certificates of backends can not be verified: {error}\n\
                     Hint: install the package ca-certificates, or configure .ssl_ca_file\n"
                ));
                self.show(self.t);
                self.finish_warning();
                Vec::new()
            }
        };
        self.program.origins.tls.authorities.push(Authorities { path, pem });
        Ok(self.program.origins.tls.authorities.len() as u32 - 1)
    }

    /// Reads a client certificate and its key, unless they were read before.
    fn identity(&mut self, certificate: TokenId, key: Option<TokenId>) -> Res<u32> {
        let path = self.content_text(certificate).into_owned();
        let key = key.map(|key| self.content_text(key).into_owned());
        let known = &self.program.origins.tls.identities;
        if let Some(index) = known.iter().position(|known| known.certificate == path && known.key == key) {
            return Ok(index as u32);
        }
        match self.input.options.files.identity(&path, key.as_deref()) {
            Ok(pem) => self.program.origins.tls.identities.push(Identity { certificate: path, key, pem }),
            Err(error) => return self.fail(format!(".certificate {path}: {error}\n"), certificate),
        }
        Ok(self.program.origins.tls.identities.len() as u32 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::is_server_name;

    #[test]
    fn server_names_are_host_names() {
        let long = "a".repeat(64);
        for (name, valid) in [
            ("example.com", true),
            ("my_service", true),
            ("example.com.", true),
            ("xn--bcher-kva.example", true),
            ("", false),
            ("a..b", false),
            ("bücher.example", false),
            ("a b", false),
            ("-a", false),
            ("a\0", false),
            (long.as_str(), false),
        ] {
            assert_eq!(is_server_name(name), valid, "{name:?}");
        }
    }
}
