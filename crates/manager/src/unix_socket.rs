//! UNIX sockets that listen.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use socket2::{Domain, SockAddr, Socket, Type};

/// Owner, group and mode of a UNIX socket, which decide who may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub mode: Option<u32>,
}

/// Returns the address of a path, or of an abstract name after `@`.
pub fn unix_address(path: &str) -> io::Result<SockAddr> {
    let name = match path.strip_prefix('@') {
        Some(name) => format!("\0{name}"),
        None => path.to_owned(),
    };
    SockAddr::unix(name)
}

/// Whether a new socket takes the place of one on which another process listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// New clients no longer reach that process, as with Varnish.
    Replaced,
    /// It stays, and the new socket is refused.
    Kept,
}

/// Binds a UNIX socket, in place of one that was left at its path. Everything that is not a socket remains.
pub fn bind_unix(path: &str, permissions: &Permissions, others: Others) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = unix_address(path)?;
    if path.starts_with('/') {
        remove(path, &address, others)?;
    }
    socket.bind(&address)?;
    if let Some(mode) = permissions.mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    if permissions.user.is_some() || permissions.group.is_some() {
        std::os::unix::fs::chown(path, permissions.user, permissions.group)?;
    }
    Ok(socket)
}

fn remove(path: &str, address: &SockAddr, others: Others) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            let text = "something that is not a socket is there; remove it, or choose another path";
            return Err(io::Error::new(ErrorKind::AlreadyExists, text));
        }
        Ok(_) => {}
    }
    if others == Others::Kept && is_used(address)? {
        return Err(rustix::io::Errno::ADDRINUSE.into());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether a process listens on a socket. One that nobody has open any more refuses the connection.
fn is_used(address: &SockAddr) -> io::Result<bool> {
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    let gone = [ErrorKind::ConnectionRefused, ErrorKind::NotFound];
    Ok(!probe.connect(address).is_err_and(|error| gone.contains(&error.kind())))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn only_sockets_are_replaced() {
        let folder = std::env::temp_dir().join(format!("lacquer-unix-socket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| -> PathBuf { folder.join(name) };
        let bind_as =
            |name: &str, others| bind_unix(path(name).to_str().unwrap(), &Permissions::default(), others);
        let bind = |name: &str| bind_as(name, Others::Kept);
        fs::write(path("file"), "kept").unwrap();
        std::os::unix::fs::symlink(path("nothing"), path("link")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        for name in ["file", "link", "folder"] {
            for others in [Others::Kept, Others::Replaced] {
                assert_eq!(bind_as(name, others).unwrap_err().kind(), ErrorKind::AlreadyExists, "{name}");
            }
        }
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "kept");

        let first = bind("socket").unwrap();
        first.listen(0).unwrap();
        for _ in 0..3 {
            // The first ones wait in its queue, which then is full.
            assert_eq!(bind("socket").unwrap_err().kind(), ErrorKind::AddrInUse);
        }
        let second = bind_as("socket", Others::Replaced).unwrap();
        second.listen(0).unwrap();
        drop((first, second));
        bind("socket").unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
