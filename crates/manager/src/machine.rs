//! Gives the VCL compiler access to this machine's files and host names.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use lacquer_cli::glob;
use lacquer_tls::origin::{Authorities, Identity};
use lacquer_vcl::program::IdentityPem;
use lacquer_vcl::{Files, Resolver, SocketKind};

use crate::fault::os_error_text;
use crate::jail::Jail;
use crate::regular_file::read_vcl;
use crate::resolve::{lookup, port_number};
use crate::trust_store;

/// The local machine.
#[derive(Clone, Debug)]
pub struct Machine {
    jail: Jail,
}

impl Machine {
    /// Returns the machine with the rights of the process.
    pub fn new() -> Machine {
        Machine::with_jail(Jail::none())
    }

    /// Returns the machine for a manager in this jail, which becomes root to read private keys.
    pub(crate) fn with_jail(jail: Jail) -> Machine {
        Machine { jail }
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

fn has_pattern(part: &str) -> bool {
    part.contains(['*', '?', '['])
}

/// Appends all paths in `folder` that match `parts`, one part for each level.
fn expand(folder: &str, parts: &[&str], found: &mut Vec<String>) -> io::Result<()> {
    let Some((part, rest)) = parts.split_first() else {
        found.push(folder.to_owned());
        return Ok(());
    };
    let below = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    if !has_pattern(part) {
        let path = if part.is_empty() { format!("{folder}/") } else { below(part) };
        if rest.is_empty() && !Path::new(&path).exists() {
            return Ok(());
        }
        return expand(path.trim_end_matches('/'), rest, found);
    }
    let entries = match fs::read_dir(if folder.is_empty() { "." } else { folder }) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| glob::matches_name(part, name)).collect();
    names.sort();
    names.iter().try_for_each(|name| expand(&below(name), rest, found))
}

impl Files for Machine {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        read_vcl(Path::new(path)).map_err(|error| os_error_text(&error))
    }

    fn exists(&self, path: &str) -> bool {
        Path::new(path).exists()
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let (root, rest) = pattern.strip_prefix('/').map_or(("", pattern), |rest| ("/", rest));
        let parts: Vec<&str> = rest.split('/').collect();
        // An absolute pattern starts in the root directory, whose name is a slash.
        let expanded = match root {
            "" => expand("", &parts, &mut found),
            _ => {
                let result = expand("/.", &parts, &mut found);
                for path in &mut found {
                    *path = path.replacen("/./", "/", 1);
                }
                result
            }
        };
        expanded.map_err(|error| os_error_text(&error))?;
        Ok(found)
    }

    fn socket(&self, path: &str) -> SocketKind {
        match fs::metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => SocketKind::Socket,
            Ok(_) => SocketKind::NotASocket,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                    SocketKind::NotYet(os_error_text(&error))
                }
                _ => SocketKind::Unusable(os_error_text(&error)),
            },
        }
    }

    fn authorities(&self, path: Option<&str>) -> Result<Vec<u8>, String> {
        match path {
            Some(path) => {
                let pem = self.read(path)?;
                Authorities::read(&pem).map(|_| pem)
            }
            None => trust_store::read(),
        }
    }

    fn identity(&self, certificate: &str, key: Option<&str>) -> Result<IdentityPem, String> {
        let _root = self.jail.raise();
        let chain = self.read(certificate)?;
        let key = match key {
            Some(path) => self.read(path).map_err(|error| format!("private key {path}: {error}"))?,
            None => chain.clone(),
        };
        Identity::read(&chain, &key).map(|_| IdentityPem { certificate: chain, key })
    }
}

impl Resolver for Machine {
    fn resolve(&self, host: Option<&str>, port: &str) -> Result<Vec<SocketAddr>, String> {
        let port = port_number(port)?;
        match host {
            Some(host) => lookup(Some(host), port),
            None => Ok(vec![
                SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
                SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
            ]),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode};

    use super::*;
    use crate::regular_file::LONGEST_VCL;

    #[test]
    fn patterns_in_any_part() {
        let here = env!("CARGO_MANIFEST_DIR");
        let found = Machine::new().glob(&format!("{here}/s*c/m[a]ch*.rs")).unwrap();
        assert_eq!(found, [format!("{here}/src/machine.rs")]);
        assert_eq!(Machine::new().glob("/nonexistent/*.vcl").unwrap(), Vec::<String>::new());
        assert!(Machine::new().glob("/et?").unwrap().contains(&"/etc".to_owned()));
    }

    /// An endless device, a pipe without a writer, a directory and a file that is too large fail at once.
    #[test]
    fn only_regular_files_are_read_as_vcl() {
        let dir = std::env::temp_dir().join(format!("lacquer-vcl-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (pipe, large, good) = (dir.join("pipe"), dir.join("large"), dir.join("good"));
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        fs::File::create(&large).unwrap().set_len(LONGEST_VCL + 1).unwrap();
        fs::write(&good, "vcl 4.1;").unwrap();
        let table = [
            (Path::new("/dev/zero"), Err("Not a regular file".to_owned())),
            (&pipe, Err("Not a regular file".to_owned())),
            (&dir, Err("Is a directory".to_owned())),
            (&large, Err("File too large".to_owned())),
            (&good, Ok(b"vcl 4.1;".to_vec())),
        ];
        for (path, expected) in table {
            assert_eq!(Machine::new().read(&path.to_string_lossy()), expected, "{path:?}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
