//! Reads the files of a certificate, as root if the manager can become it.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lacquer_cli::status;
use lacquer_tls::{Bundle, File, Files, Leaf, MAX_FILE};

use super::config::Paths;
use super::refusal::Refusal;
use crate::fault::os_error_text;
use crate::jail::Jail;

/// Reads a regular file. Of one that is too long, the beginning is enough for the fault that it is.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe without a writer would block.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("Not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn named_file((name, bytes): &(String, Vec<u8>)) -> File<'_> {
    File { name, bytes }
}

/// Reads and checks the files. The error has a text for the operator.
pub fn load(paths: &Paths, jail: &Jail) -> Result<(Bundle, Leaf), Refusal> {
    let _root = jail.raise();
    let read = |what: &str, path: &Path| {
        read(path).map_err(|error| {
            let why = os_error_text(&error);
            Refusal::new(format!("Unable to read {what} '{}' ({why})\n", path.display()))
        })
    };
    let more = |what: &str, path: Option<&PathBuf>| {
        let named = |path: &PathBuf| -> Result<_, Refusal> {
            Ok((path.to_string_lossy().into_owned(), read(what, path)?))
        };
        path.map(named).transpose()
    };
    let name = paths.certificate.to_string_lossy();
    let bytes = read("certificate file", &paths.certificate)?;
    let key = more("private key file", paths.key.as_ref())?;
    let dh = more("dh file", paths.dh.as_ref())?;
    let staple = more("OCSP response file", paths.staple.as_ref())?;
    if bytes.is_empty() {
        return Err(Refusal { status: status::PARAM, text: format!("File '{name}' is empty.\n") });
    }
    let files = Files {
        certificate: File { name: &name, bytes: &bytes },
        key: key.as_ref().map(named_file),
        dh: dh.as_ref().map(named_file),
        staple: staple.as_ref().map(named_file),
    };
    Bundle::load(files).map_err(|why| Refusal::new(format!("{name}: {why}\n")))
}
