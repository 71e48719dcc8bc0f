//! The settings of a listener that verifies its clients by their certificates, with the names of hitch.

use std::path::{Path, PathBuf};

use lacquer_tls::File;
pub use lacquer_tls::client::ClientVerification as Verification;

use crate::fault::os_error_text;
use crate::jail::Jail;
use crate::regular_file::read_pem;

/// Whether clients are asked for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verify {
    No,
    /// A client may have no certificate. One that is not valid is refused.
    Optional,
    Required,
}

/// The settings. Those that are `None` were not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    verify: Option<Verify>,
    authorities: Option<PathBuf>,
    revoked: Option<PathBuf>,
}

impl ClientOptions {
    /// Returns whether a setting with this name exists.
    pub fn has(key: &str) -> bool {
        matches!(key, "client-verify" | "client-verify-ca" | "client-verify-crl")
    }

    /// Sets one of the settings. Paths become absolute, because the daemon leaves the directory in which it was started.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let path = || std::path::absolute(value).map_err(|error| format!("{key}: {}", os_error_text(&error)));
        match (key, value) {
            ("client-verify", "none") => self.verify = Some(Verify::No),
            ("client-verify", "optional") => self.verify = Some(Verify::Optional),
            ("client-verify", "required") => self.verify = Some(Verify::Required),
            ("client-verify", _) => return Err("client-verify: use none, optional or required".to_owned()),
            ("client-verify-ca", _) => self.authorities = Some(path()?),
            ("client-verify-crl", _) => self.revoked = Some(path()?),
            _ => return Err(format!("{key} is unknown")),
        }
        Ok(())
    }

    /// Returns these settings, completed by others.
    #[must_use]
    pub fn or(&self, others: &ClientOptions) -> ClientOptions {
        ClientOptions {
            verify: self.verify.or(others.verify),
            authorities: self.authorities.as_ref().or(others.authorities.as_ref()).cloned(),
            revoked: self.revoked.as_ref().or(others.revoked.as_ref()).cloned(),
        }
    }

    /// Reads the files, as root if the manager can become it. Returns `None` if clients are not verified.
    pub fn load(&self, jail: &Jail) -> Result<Option<Verification>, String> {
        let required = match self.verify {
            None | Some(Verify::No) => return Ok(None),
            Some(verify) => verify == Verify::Required,
        };
        let authorities = self.authorities.as_deref().ok_or(
            "client-verify needs the authorities that sign the certificates of clients: set client-verify-ca",
        )?;
        let _root = jail.raise();
        let authorities = read("client-verify-ca", authorities)?;
        let revoked = self.revoked.as_deref().map(|path| read("client-verify-crl", path)).transpose()?;
        Verification::load(required, named(&authorities), revoked.as_ref().map(named)).map(Some)
    }
}

fn named((name, bytes): &(String, Vec<u8>)) -> File<'_> {
    File { name, bytes }
}

fn read(setting: &str, path: &Path) -> Result<(String, Vec<u8>), String> {
    let name = format!("{setting} {}", path.display());
    match read_pem(path) {
        Ok(bytes) => Ok((name, bytes)),
        Err(error) => Err(format!("{name}: {}", os_error_text(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(all: &[(&str, &str)]) -> ClientOptions {
        let mut options = ClientOptions::default();
        for (key, value) in all {
            options.set(key, value).unwrap();
        }
        options
    }

    #[test]
    fn settings_of_a_listener_win() {
        let file = options(&[("client-verify", "required"), ("client-verify-ca", "/ca.pem")]);
        let own = options(&[("client-verify", "none")]).or(&file);
        assert_eq!(own, options(&[("client-verify", "none"), ("client-verify-ca", "/ca.pem")]));
        assert_eq!(own.load(&Jail::none()), Ok(None));
    }

    #[test]
    fn faults_name_setting_and_file() {
        let load = |all: &[(&str, &str)]| options(all).load(&Jail::none()).unwrap_err();
        assert!(load(&[("client-verify", "optional")]).contains("set client-verify-ca"));
        let missing = load(&[("client-verify", "required"), ("client-verify-ca", "/no/such.pem")]);
        assert_eq!(missing, "client-verify-ca /no/such.pem: No such file or directory");
        let folder = load(&[("client-verify", "required"), ("client-verify-ca", "/")]);
        assert!(folder.starts_with("client-verify-ca /: Is a directory"), "{folder}");
        assert!(ClientOptions::default().set("client-verify", "yes").unwrap_err().contains("optional"));
    }
}
