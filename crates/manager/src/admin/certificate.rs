//! The certificate of an admin listener with TLS: the files of `cert=` and `key=`.

use std::path::{Path, PathBuf};

use lacquer_tls::{Bundle, File, Files};

use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::regular_file::read_pem;

/// The files.
#[derive(Debug)]
pub struct CertificateFiles {
    /// The certificate with its chain, and its key unless that has a file of its own.
    pub certificate: PathBuf,
    pub key: Option<PathBuf>,
}

impl CertificateFiles {
    /// Reads and checks the files, as root if the daemon was started by root. Returns what the process needs.
    pub fn read(&self, jail: &Jail) -> Outcome<Vec<u8>> {
        let _root = jail.raise();
        let read = |path: &Path| {
            read_pem(path).map_err(|error| {
                Fault::usage(format!("-w: cannot read {}: {}", path.display(), os_error_text(&error)))
            })
        };
        let bytes = read(&self.certificate)?;
        let key =
            self.key.as_deref().map(|path| Ok((path.display().to_string(), read(path)?))).transpose()?;
        let name = self.certificate.display().to_string();
        let files = Files {
            certificate: File { name: &name, bytes: &bytes },
            key: key.as_ref().map(|(name, bytes)| File { name, bytes }),
            dh: None,
            staple: None,
        };
        let (bundle, _) = Bundle::load(files).map_err(|why| Fault::usage(format!("-w: {name}: {why}")))?;
        Ok(bundle.encode())
    }
}
