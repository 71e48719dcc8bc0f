//! TLS towards servers: the trusted authorities, and the name in the server's certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lacquer_tls::origin::{Authorities, BUNDLES, Checks, Identity, OriginTls};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::location::Location;

/// Limit on a file with certificates.
const LARGEST: u64 = 4 << 20;
/// Limit on the files of a folder with authorities.
const MOST_FILES: usize = 1000;

/// The arguments of a database for TLS. Empty ones were not given.
#[derive(Default)]
pub(super) struct Files {
    pub authorities: String,
    pub folder: String,
    pub certificate: String,
    pub key: String,
    pub name: String,
}

/// The settings that all servers of a database share.
pub(super) struct Tls {
    trusted: Arc<Authorities>,
    identity: Option<Identity>,
    /// The name for the certificates of all servers, or empty for the host of each.
    name: String,
}

/// The settings for one server.
pub(super) struct ServerTls {
    pub connector: TlsConnector,
    pub name: ServerName<'static>,
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let named = |why: String| format!("{}: {why}", path.display());
    let size = fs::metadata(path).map_err(|error| named(error.to_string()))?.len();
    if size > LARGEST {
        return Err(named(format!("it is larger than {LARGEST} bytes")));
    }
    fs::read(path).map_err(|error| named(error.to_string()))
}

/// Returns the certificates of a file.
fn bundle(path: &Path) -> Result<Vec<u8>, String> {
    let pem = read(path)?;
    Authorities::read(&pem).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(pem)
}

/// Returns the certificates in the files of a folder. Files without certificates are ignored.
fn folder(path: &str) -> Result<Vec<u8>, String> {
    let entries = fs::read_dir(path).map_err(|error| format!("{path}: {error}"))?;
    let mut paths: Vec<PathBuf> = entries.flatten().take(MOST_FILES).map(|entry| entry.path()).collect();
    paths.sort();
    let pem: Vec<u8> = paths.iter().filter_map(|path| bundle(path).ok()).collect::<Vec<_>>().join(&b'\n');
    if pem.is_empty() {
        return Err(format!("{path}: the folder contains no certificates"));
    }
    Ok(pem)
}

impl Tls {
    /// Reads the files.
    pub(super) fn read(files: &Files) -> Result<Tls, String> {
        let mut pem = Vec::new();
        if !files.authorities.is_empty() {
            pem.extend(bundle(Path::new(&files.authorities))?);
        }
        if !files.folder.is_empty() {
            pem.push(b'\n');
            pem.extend(folder(&files.folder)?);
        }
        if pem.is_empty() {
            let found = BUNDLES.iter().map(Path::new).find(|path| path.exists());
            pem = bundle(found.ok_or("there are no trusted authorities; set tls_cafile")?)?;
        }
        let identity = match (files.certificate.as_str(), files.key.as_str()) {
            ("", "") => None,
            ("", _) => return Err("tls_keyfile needs tls_certfile".to_owned()),
            (certificate, key) => {
                let key = if key.is_empty() { certificate } else { key };
                let read = Identity::read(&read(Path::new(certificate))?, &read(Path::new(key))?);
                Some(read.map_err(|why| format!("{certificate}: {why}"))?)
            }
        };
        Ok(Tls { trusted: Authorities::shared(&pem)?, identity, name: files.name.clone() })
    }

    /// Returns the settings for a server.
    pub(super) fn for_server(&self, location: &Location) -> Result<ServerTls, String> {
        let host = location.host().filter(|_| self.name.is_empty());
        let name = host.unwrap_or(&self.name);
        if name.is_empty() {
            return Err("TLS over a UNIX socket needs the name of the server in tls_sni".to_owned());
        }
        let checks = Checks::Authorities { trusted: self.trusted.clone(), name: true };
        let settings = OriginTls::new(name, true, checks, self.identity.clone())?;
        // Those of origins, but for another protocol than HTTP.
        let mut config = ClientConfig::clone(settings.config());
        config.alpn_protocols.clear();
        config.enable_secret_extraction = false;
        Ok(ServerTls { connector: TlsConnector::from(Arc::new(config)), name: settings.name().clone() })
    }
}
