//! Reads the files of a certificate, as root if the manager can become it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lacquer_cli::status;
use lacquer_tls::{Bundle, File, Files, Leaf};

use super::config::Paths;
use super::refusal::Refusal;
use crate::fault::os_error_text;
use crate::jail::Jail;
use crate::regular_file::read_pem;

fn named_file((name, bytes): &(String, Vec<u8>)) -> File<'_> {
    File { name, bytes }
}

/// The last certificate that was loaded, with the content of its files, because an operator may use one for thousands of
/// listeners or names.
#[derive(Debug, Default)]
pub struct Recent {
    loaded: Option<(Contents, (Bundle, Arc<Leaf>))>,
}

/// The names and the contents of a certificate's files.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: (String, Vec<u8>),
    key: Option<(String, Vec<u8>)>,
    dh: Option<(String, Vec<u8>)>,
    staple: Option<(String, Vec<u8>)>,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents").field("certificate", &self.certificate.0).finish_non_exhaustive()
    }
}

impl Contents {
    fn read(paths: &Paths, jail: &Jail) -> Result<Contents, Refusal> {
        let _root = jail.raise();
        let read = |what: &str, path: &Path| {
            read_pem(path).map_err(|error| {
                let why = os_error_text(&error);
                Refusal::new(format!("Unable to read {what} '{}' ({why})\n", path.display()))
            })
        };
        let named = |what: &str, path: &PathBuf| -> Result<_, Refusal> {
            Ok((path.to_string_lossy().into_owned(), read(what, path)?))
        };
        let more = |what: &str, path: Option<&PathBuf>| path.map(|path| named(what, path)).transpose();
        Ok(Contents {
            certificate: named("certificate file", &paths.certificate)?,
            key: more("private key file", paths.key.as_ref())?,
            dh: more("dh file", paths.dh.as_ref())?,
            staple: more("OCSP response file", paths.staple.as_ref())?,
        })
    }

    fn check(&self) -> Result<(Bundle, Leaf), Refusal> {
        let name = &self.certificate.0;
        if self.certificate.1.is_empty() {
            return Err(Refusal { status: status::PARAM, text: format!("File '{name}' is empty.\n") });
        }
        let files = Files {
            certificate: named_file(&self.certificate),
            key: self.key.as_ref().map(named_file),
            dh: self.dh.as_ref().map(named_file),
            staple: self.staple.as_ref().map(named_file),
        };
        Bundle::load(files).map_err(|why| Refusal::new(format!("{name}: {why}\n")))
    }
}

/// Reads and checks the files. The error has a text for the operator.
pub fn load(paths: &Paths, jail: &Jail, recent: &mut Recent) -> Result<(Bundle, Arc<Leaf>), Refusal> {
    let contents = Contents::read(paths, jail)?;
    if let Some((known, loaded)) = &recent.loaded
        && *known == contents
    {
        return Ok(loaded.clone());
    }
    let (bundle, leaf) = contents.check()?;
    let loaded = (bundle, Arc::new(leaf));
    recent.loaded = Some((contents, loaded.clone()));
    Ok(loaded)
}
