//! An authority of this user's own, for localhost: it signs certificates that browsers accept once they trust it.

use std::fmt;
use std::fs::DirBuilder;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lacquer_http::date::Civil;
use lacquer_sources::clock;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PublicKeyData, SanType,
    date_time_ymd,
};

use crate::folder;

const CERTIFICATE: &str = "authority.pem";
const KEY: &str = "authority.key";
const LEAF: &str = "localhost.pem";
const NAME: &str = "localhost";
const DAY: f64 = 86_400.0;
/// The life of the authority, in days.
const AUTHORITY_LIFE: f64 = 3650.0;
/// The life of a certificate, in days. A new one is made at each start.
const LIFE: f64 = 90.0;

/// The files of the authority and of the certificate that it has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFiles {
    /// The authority's certificate, which browsers and systems can trust.
    pub authority: PathBuf,
    /// The certificate for localhost, 127.0.0.1 and ::1, its chain and its key.
    pub certificate: PathBuf,
    /// Whether the authority was made now.
    pub is_new: bool,
}

fn during(path: &Path) -> impl Fn(&dyn fmt::Display) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// Returns the files of a folder, whether they exist or not.
pub fn files(path: &Path) -> LocalFiles {
    LocalFiles { authority: path.join(CERTIFICATE), certificate: path.join(LEAF), is_new: false }
}

/// Makes the authority if the folder has none, and a certificate for localhost. The error is a text for the user.
pub fn make(path: &Path) -> Result<LocalFiles, String> {
    let failed = during(path);
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|error| failed(&error))?;
    let files = files(path);
    let (key, is_new) = authority_key(&path.join(KEY))?;
    let params = authority_params(&key);
    // Both files are needed: a crash between them leaves the key only.
    let is_new = is_new || !files.authority.exists();
    if is_new {
        let pem = params.self_signed(&key).map_err(|error| failed(&error))?.pem();
        folder::write(&files.authority, pem.as_bytes()).map_err(|error| during(&files.authority)(&error))?;
    }
    let chain = std::fs::read_to_string(&files.authority);
    let chain = chain.map_err(|error| during(&files.authority)(&error))?;
    let leaf_key = KeyPair::generate().map_err(|error| failed(&error))?;
    let issuer = Issuer::new(params, key);
    let leaf = leaf_params().signed_by(&leaf_key, &issuer).map_err(|error| failed(&error))?;
    let pem = [leaf.pem(), chain, leaf_key.serialize_pem()].concat();
    folder::write(&files.certificate, pem.as_bytes()).map_err(|error| during(&files.certificate)(&error))?;
    Ok(LocalFiles { is_new, ..files })
}

/// Reads the authority's key, or makes one. Returns whether it is new.
fn authority_key(path: &Path) -> Result<(KeyPair, bool), String> {
    let failed = during(path);
    let hint = |error: &dyn fmt::Display| {
        format!("{}: {error}; remove the folder of the file, and trust the new authority", path.display())
    };
    if let Some(bytes) = folder::read(path).map_err(|error| failed(&error))? {
        let text = String::from_utf8(bytes).map_err(|error| hint(&error))?;
        return Ok((KeyPair::from_pem(&text).map_err(|error| hint(&error))?, false));
    }
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    folder::write(path, key.serialize_pem().as_bytes()).map_err(|error| failed(&error))?;
    Ok((key, true))
}

fn set_validity(params: &mut CertificateParams, days: f64) {
    let at = |seconds: f64| {
        let civil = Civil::at(seconds as i64);
        date_time_ymd(civil.year as i32, civil.month as u8, civil.day as u8)
    };
    // The clock of another machine may be behind.
    params.not_before = at(clock::real() - DAY);
    params.not_after = at(clock::real() + days * DAY);
}

/// Returns the parameters of the authority. They follow from the key, apart from the times. The authority can sign
/// nothing but localhost, so that its key is worth little to a thief.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let last = key.der_bytes().last_chunk().copied().map_or(0, u32::from_be_bytes);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Lacquer's local authority {last:08x}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            GeneralSubtree::DnsName(NAME.to_owned()),
            GeneralSubtree::IpAddress(CidrSubnet::V4([127, 0, 0, 0], [255, 0, 0, 0])),
            GeneralSubtree::IpAddress(CidrSubnet::V6(Ipv6Addr::LOCALHOST.octets(), [255; 16])),
        ],
        excluded_subtrees: Vec::new(),
    });
    set_validity(&mut params, AUTHORITY_LIFE);
    params
}

fn leaf_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAME);
    let address = |ip: IpAddr| SanType::IpAddress(ip);
    params.subject_alt_names = vec![address(Ipv4Addr::LOCALHOST.into()), address(Ipv6Addr::LOCALHOST.into())];
    params.subject_alt_names.extend(NAME.try_into().map(SanType::DnsName));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, LIFE);
    params
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::name::Names;
    use crate::stored::Stored;

    #[test]
    fn the_authority_is_made_once() {
        let path = std::env::temp_dir().join(format!("lacquer-local-{}", std::process::id()));
        let names = Names::parse(NAME).unwrap();
        let first = make(&path).unwrap();
        let authority = fs::read(&first.authority).unwrap();
        assert!(Stored::read(&first.certificate, &names).unwrap().is_some());
        let second = make(&path).unwrap();
        assert_eq!((first.is_new, second.is_new), (true, false));
        assert_eq!(fs::read(&second.authority).unwrap(), authority);
        fs::write(path.join(KEY), "").unwrap();
        assert!(make(&path).unwrap_err().contains("authority.key: "));
        fs::remove_dir_all(&path).unwrap();
    }
}
