//! The files, sockets and names of this machine, as the VCL compiler asks for them.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use lacquer_vcl::{Files, Resolver, SocketKind};

/// This machine as the compiler sees it.
pub struct Machine;

impl Files for Machine {
    fn read(&self, path: &str) -> Result<String, String> {
        let bytes = fs::read(path).map_err(|e| words(&e))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn exists(&self, path: &str) -> bool {
        Path::new(path).exists()
    }

    /// Patterns stand in the last part of the path only, which is how `include +glob` is used.
    fn glob(&self, pattern: &str) -> Result<Vec<String>, String> {
        let (folder, last) = pattern.rsplit_once('/').unwrap_or((".", pattern));
        let entries = match fs::read_dir(if folder.is_empty() { "/" } else { folder }) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(words(&error)),
        };
        let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
        let hidden = |name: &str| name.starts_with('.') && !last.starts_with('.');
        let matching = names.filter(|name| !hidden(name) && matches(last.as_bytes(), name.as_bytes()));
        let mut found: Vec<String> = matching.map(|name| format!("{folder}/{name}")).collect();
        found.sort();
        Ok(found)
    }

    fn socket(&self, path: &str) -> SocketKind {
        match fs::metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => SocketKind::Socket,
            Ok(_) => SocketKind::NotASocket,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                    SocketKind::NotYet(words(&error))
                }
                _ => SocketKind::Unusable(words(&error)),
            },
        }
    }
}

impl Resolver for Machine {
    fn resolve(&self, host: Option<&str>, port: &str) -> Result<Vec<SocketAddr>, String> {
        let port: u16 = match port {
            "http" | "" => 80,
            "https" => 443,
            digits => digits.parse().map_err(|_| "Servname not supported for ai_socktype".to_owned())?,
        };
        let Some(host) = host else { return Ok(vec![(Ipv4Addr::UNSPECIFIED, port).into()]) };
        let found = (host, port).to_socket_addrs().map_err(|_| "Name or service not known".to_owned())?;
        Ok(found.collect())
    }
}

/// The system's words for an error, without the number the standard library adds.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// A shell pattern of `*` and `?`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, name) || name.split_first().is_some_and(|(_, n)| matches(pattern, n))
        }
        (Some((b'?', p)), Some((_, n))) => matches(p, n),
        (Some((a, p)), Some((b, n))) => a == b && matches(p, n),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn shell_patterns() {
        assert!(matches(b"*.vcl", b"a.vcl") && matches(b"a?c*", b"abc"));
        assert!(!matches(b"*.vcl", b"a.vcl~") && !matches(b"?", b""));
    }
}
