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

/// Binds a UNIX socket, in place of one that was left at its path. A socket that another process uses remains, and so does
/// everything that is not a socket.
pub fn bind_unix(path: &str, permissions: &Permissions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = unix_address(path)?;
    if path.starts_with('/') {
        remove_unused(path, &address)?;
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

fn remove_unused(path: &str, address: &SockAddr) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            let text = "something that is not a socket is there; remove it, or choose another path";
            return Err(io::Error::new(ErrorKind::AlreadyExists, text));
        }
        Ok(_) => {}
    }
    // Only a socket that nobody has open any more, or on which nobody listens, refuses the connection.
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(address) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        _ => return Err(rustix::io::Errno::ADDRINUSE.into()),
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn only_a_socket_that_nobody_uses_is_replaced() {
        let folder = std::env::temp_dir().join(format!("lacquer-unix-socket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| -> PathBuf { folder.join(name) };
        let bind = |name: &str| bind_unix(path(name).to_str().unwrap(), &Permissions::default());
        fs::write(path("file"), "kept").unwrap();
        std::os::unix::fs::symlink(path("nothing"), path("link")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        for name in ["file", "link", "folder"] {
            assert_eq!(bind(name).unwrap_err().kind(), ErrorKind::AlreadyExists, "{name}");
        }
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "kept");

        let first = bind("socket").unwrap();
        first.listen(0).unwrap();
        for _ in 0..3 {
            // The first ones wait in its queue, which then is full.
            assert_eq!(bind("socket").unwrap_err().kind(), ErrorKind::AddrInUse);
        }
        drop(first);
        bind("socket").unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
