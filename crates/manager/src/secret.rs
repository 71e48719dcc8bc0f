//! The secret of the management port: the file that `-S` names, or one that the manager creates in the working
//! directory.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;

/// The file name of a secret that the manager creates.
pub const NAME: &str = "_.secret";
const LENGTH: usize = 256;

/// The path of the secret, and its content if the manager created it.
#[derive(Debug)]
pub struct Secret {
    path: PathBuf,
    made: Option<[u8; LENGTH]>,
}

/// Fills the buffer with random bytes from the kernel.
pub fn random(buffer: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < buffer.len() {
        at += rustix::rand::getrandom(&mut buffer[at..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

impl Secret {
    /// Uses a file of the user's. It is read again for each login, so that its content can be changed.
    pub fn given(path: PathBuf) -> Secret {
        Secret { path, made: None }
    }

    /// Returns the path, and the content if the manager created it.
    pub fn describe(&self) -> (PathBuf, Option<Vec<u8>>) {
        (self.path.clone(), self.made.map(|made| made.to_vec()))
    }

    /// Continues with a secret that [`describe`](Self::describe) returned in another process.
    pub fn adopt(path: PathBuf, made: Option<Vec<u8>>) -> Secret {
        Secret { path, made: made.and_then(|made| made.try_into().ok()) }
    }

    /// Creates a secret in the working directory.
    pub fn make(directory: &Path, jail: &Jail) -> Outcome<Secret> {
        let shown = directory.display();
        let cannot = |what: &str, error: &io::Error| {
            Fault::usage(format!("Cannot {what} secret-file in {shown} ({})", os_error_text(error)))
        };
        let mut bytes = [0; LENGTH];
        random(&mut bytes).map_err(|error| cannot("create", &error))?;
        let secret = Secret { path: directory.join(NAME), made: Some(bytes) };
        secret.clear(jail).map_err(|error| cannot("remove preexisting", &error))?;
        secret.write(jail).map_err(|error| cannot("create", &error))?;
        Ok(secret)
    }

    /// Removes the file, if there is one.
    fn clear(&self, jail: &Jail) -> io::Result<()> {
        let _root = jail.raise();
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a secret that the manager created to a new file.
    fn write(&self, jail: &Jail) -> io::Result<()> {
        let Some(bytes) = &self.made else { return Ok(()) };
        let _root = jail.raise();
        OpenOptions::new().write(true).create_new(true).mode(0o640).open(&self.path)?.write_all(bytes)
    }

    /// Writes a secret that the manager created again if its file was removed.
    pub fn restore(&self, jail: &Jail) -> io::Result<()> {
        if self.made.is_none() {
            return Ok(());
        }
        let found = {
            let _root = jail.raise();
            fs::symlink_metadata(&self.path)
        };
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.write(jail),
            found => found.map(drop),
        }
    }

    /// Returns the path of the secret.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the secret. One that the manager created is available without its file.
    pub fn read(&self, jail: &Jail) -> io::Result<Vec<u8>> {
        let _root = jail.raise();
        match (fs::read(&self.path), &self.made) {
            (Err(error), Some(made)) if error.kind() == io::ErrorKind::NotFound => Ok(made.to_vec()),
            (read, _) => read,
        }
    }

    /// Fails if the secret cannot be read or is empty.
    pub fn check(&self, jail: &Jail) -> Outcome<()> {
        let shown = self.path.display();
        match self.read(jail) {
            Ok(secret) if secret.is_empty() => Err(Fault::plain(format!("Empty secret-file \"{shown}\""))),
            Ok(_) => Ok(()),
            Err(error) => {
                Err(Fault::plain(format!("Cannot open secret-file \"{shown}\": {}", os_error_text(&error))))
            }
        }
    }

    /// Removes the file of a secret that the manager created.
    pub fn remove(&self, jail: &Jail) {
        if self.made.is_some() {
            let _ = self.clear(jail);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    use super::*;

    #[test]
    fn a_created_secret_survives_its_file() {
        let directory = std::env::temp_dir().join(format!("lacquer-secret-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let jail = Jail::none();
        let secret = Secret::make(&directory, &jail).unwrap();
        let bytes = secret.read(&jail).unwrap();
        assert_eq!((bytes.len(), fs::read(secret.path()).unwrap() == bytes), (LENGTH, true));
        fs::remove_file(secret.path()).unwrap();
        assert_eq!(secret.read(&jail).unwrap(), bytes);
        secret.restore(&jail).unwrap();
        assert_eq!(fs::read(secret.path()).unwrap(), bytes);
        secret.remove(&jail);
        fs::remove_dir(&directory).unwrap();
    }

    /// Only root can change its user. The change concerns only the thread of the test.
    #[test]
    fn a_secret_that_only_root_can_find_is_not_replaced() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = std::env::temp_dir().join(format!("lacquer-secret-hidden-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        let secret = Secret::make(&directory, &Jail::none()).unwrap();
        let number = || fs::metadata(directory.join(NAME)).unwrap().ino();
        let before = number();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let jail = Jail::enter(Some("unix,user=65530")).unwrap();
                assert!(!secret.path().exists(), "the user cannot see it");
                secret.restore(&jail).unwrap();
            });
        });
        assert_eq!(number(), before);
        fs::remove_dir_all(&directory).unwrap();
    }
}
