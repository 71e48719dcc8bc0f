//! A certificate in the folder.

use std::path::{Path, PathBuf};

use lacquer_tls::{Bundle, File, Files, Leaf};

use crate::folder;
use crate::name::Names;

/// A certificate with its chain and key, read from its file and checked.
#[derive(Debug)]
pub struct Stored {
    path: PathBuf,
    leaf: Leaf,
    bundle: Bundle,
}

impl Stored {
    /// Checks the content of a file. The error is a text for the operator.
    pub fn parse(path: &Path, bytes: &[u8], names: &Names) -> Result<Stored, String> {
        let name = path.to_string_lossy();
        let file = File { name: &name, bytes };
        let files = Files { certificate: file, key: None, dh: None, staple: None };
        let (bundle, leaf) = Bundle::load(files)?;
        if let Some(missing) = names.all().iter().find(|name| !leaf.names().contains(name)) {
            return Err(format!("it is not for {missing}"));
        }
        Ok(Stored { path: path.to_owned(), leaf, bundle })
    }

    /// Reads a file. Returns `None` if there is none.
    pub fn read(path: &Path, names: &Names) -> Result<Option<Stored>, String> {
        let bytes = folder::read(path).map_err(|error| error.to_string())?;
        bytes.map(|bytes| Stored::parse(path, &bytes, names)).transpose()
    }

    /// Returns the path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its facts.
    pub fn leaf(&self) -> &Leaf {
        &self.leaf
    }

    /// Returns the parts that identify it to the server (RFC 9773): the key of its authority and its serial number.
    pub fn renewal_id(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.bundle.renewal_id()
    }
}
