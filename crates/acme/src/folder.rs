//! The folder with the account and the certificates of one ACME server. Files are replaced as a whole, so that a crash
//! leaves the old or the new one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::name::Names;
use crate::settings::Directory;

const ACCOUNT: &str = "account.json";
/// The maximum size of a file in bytes.
const MAX_FILE: u64 = lacquer_tls::MAX_FILE;

/// The folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Returns the folder of a server below `root`. It need not exist.
    pub fn of(root: &Path, directory: &Directory) -> Folder {
        Folder { path: root.join(directory.folder_name()) }
    }

    /// Creates the folder, for this user only, if it does not exist.
    pub fn create(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file with the account.
    pub fn account(&self) -> PathBuf {
        self.path.join(ACCOUNT)
    }

    /// Returns the path of the file with a certificate, its chain and its key.
    pub fn certificate(&self, names: &Names) -> PathBuf {
        self.path.join(format!("{}.pem", names.id()))
    }

    /// Returns the names of the certificates with one name each in the folder, as far as they are wanted.
    pub fn single_names(&self, is_wanted: impl Fn(&Names) -> bool) -> Vec<Names> {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = files.filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let names = Names::parse(name.strip_suffix(".pem")?).ok()?;
            (format!("{}.pem", names.id()) == name).then_some(names)
        });
        let mut names: Vec<_> = names.filter(is_wanted).collect();
        names.sort_unstable();
        names
    }
}

/// Reads a file. Returns `None` if there is none.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other("it is too long"));
    }
    Ok(Some(bytes))
}

/// Replaces a file, which only this user may read.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    // A crash may have left one.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Renames a file that cannot be used, so that it can be examined. Returns its new path.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = with_suffix(path, ".bad");
    fs::rename(path, &aside).map(|()| aside)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_replaced_and_private() {
        let root = std::env::temp_dir().join(format!("lacquer-acme-folder-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let folder = Folder::of(&root, &Directory::parse("letsencrypt").unwrap());
        folder.create().unwrap();
        folder.create().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(folder.path()), 0o700);
        let path = folder.account();
        assert_eq!(read(&path).unwrap(), None);
        fs::write(with_suffix(&path, ".new"), "half").unwrap();
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!((read(&path).unwrap(), mode(&path)), (Some(b"two".to_vec()), 0o600));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        for name in ["b.example.pem", "a.example.pem", "_.a.example.pem", "a.pem.new", "A.example.pem"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found: Vec<_> = folder.single_names(|names| names.first() != "x").iter().map(Names::id).collect();
        assert_eq!(found, ["a.example", "b.example"]);
        assert!(folder.single_names(|_| false).is_empty());
        let aside = set_aside(&path).unwrap();
        assert_eq!((read(&path).unwrap(), read(&aside).unwrap()), (None, Some(b"two".to_vec())));
        assert!(read(folder.path()).is_err());
        fs::remove_dir_all(&root).unwrap();
    }
}
