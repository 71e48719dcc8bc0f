//! The system's store of trusted authorities, in the places where distributions keep it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use lacquer_tls::origin::{Authorities, BUNDLES};

use crate::fault::os_error_text;
use crate::regular_file::read_vcl;

/// Returns the certificates of the system's authorities in PEM's format. As with OpenSSL, the environment variables
/// SSL_CERT_FILE and SSL_CERT_DIR replace the system's places.
pub fn read() -> Result<Vec<u8>, String> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let (file, folders) = (variable("SSL_CERT_FILE"), variable("SSL_CERT_DIR"));
    read_from(file.as_deref().map(Path::new), folders.as_deref())
}

fn read_from(file: Option<&Path>, folders: Option<&OsStr>) -> Result<Vec<u8>, String> {
    if file.is_none() && folders.is_none() {
        let found = BUNDLES.iter().map(Path::new).find(|path| path.exists());
        let path = found.ok_or_else(|| format!("there is no trust store such as {}", BUNDLES[0]))?;
        return bundle(path);
    }
    let mut pem = match file {
        Some(path) => bundle(path)?,
        None => Vec::new(),
    };
    for folder in folders.iter().flat_map(|folders| std::env::split_paths(folders)) {
        pem.extend(folder_contents(&folder)?);
    }
    Authorities::read(&pem).map_err(|error| format!("the trust store of SSL_CERT_DIR: {error}"))?;
    Ok(pem)
}

fn bundle(path: &Path) -> Result<Vec<u8>, String> {
    let named = |error: String| format!("the trust store {}: {error}", path.display());
    let pem = read_vcl(path).map_err(|error| named(os_error_text(&error)))?;
    Authorities::read(&pem).map_err(named)?;
    Ok(pem)
}

/// Returns the certificates in the files of a folder. Files without certificates are ignored.
fn folder_contents(folder: &Path) -> Result<Vec<u8>, String> {
    let named = |error: &std::io::Error| format!("{}: {}", folder.display(), os_error_text(error));
    let entries = fs::read_dir(folder).map_err(|error| named(&error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let texts = paths.iter().filter_map(|path| read_vcl(path).ok());
    let useful = texts.filter(|pem| Authorities::read(pem).is_ok());
    Ok(useful.flat_map(|pem| [pem, b"\n".to_vec()].concat()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_replaces_the_systems_store() {
        let folder = std::env::temp_dir().join(format!("lacquer-trust-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let params = rcgen::CertificateParams::default();
        let pem = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
        let (one, text) = (folder.join("one.pem"), folder.join("read.me"));
        fs::write(&one, &pem).unwrap();
        fs::write(&text, "no certificate").unwrap();
        assert_eq!(read_from(Some(&one), None), Ok(pem.clone().into_bytes()));
        assert_eq!(read_from(None, Some(folder.as_os_str())), Ok(format!("{pem}\n").into_bytes()));
        let missing = folder.join("missing");
        let error = read_from(Some(&missing), None).unwrap_err();
        assert_eq!(error, format!("the trust store {}: No such file or directory", missing.display()));
        let error = read_from(Some(&text), None).unwrap_err();
        assert!(error.contains("read.me: it contains no certificate"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
