//! A certificate with its chain and key, read from the bytes of files and checked.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use lacquer_sources::clock;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use serde::{Deserialize, Serialize};

use crate::leaf::{self, Leaf};
use crate::pem::{self, Section};
use crate::staple::{self, Statement};

/// The maximum size of a file in bytes. A certificate with a thousand names has some 60 kB.
pub const MAX_FILE: u64 = 1 << 20;

/// A file: its name for messages, and its content.
#[derive(Clone, Copy)]
pub struct File<'a> {
    pub name: &'a str,
    pub bytes: &'a [u8],
}

/// The files of a certificate.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// The certificate, its chain, and its key unless that has a file of its own.
    pub certificate: File<'a>,
    pub key: Option<File<'a>>,
    /// Parameters of a key exchange that TLS libraries have given up. They are checked and have no effect.
    pub dh: Option<File<'a>>,
    /// A response of the authority's OCSP server, in DER.
    pub staple: Option<File<'a>>,
}

/// The form of a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum KeyForm {
    Pkcs8,
    Pkcs1,
    Sec1,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Key {
    form: KeyForm,
    der: Vec<u8>,
}

impl Key {
    fn signing_key(&self) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        let der = self.der.clone();
        any_supported_type(&match self.form {
            KeyForm::Pkcs8 => PrivateKeyDer::Pkcs8(der.into()),
            KeyForm::Pkcs1 => PrivateKeyDer::Pkcs1(der.into()),
            KeyForm::Sec1 => PrivateKeyDer::Sec1(der.into()),
        })
    }
}

/// A certificate with its chain and key. The key is that of the certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    chain: Vec<Arc<[u8]>>,
    key: Arc<Key>,
    staple: Option<Arc<[u8]>>,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Bundle {
    /// Reads and checks the files. The error is a text for the operator, without the name of the certificate's file.
    pub fn load(files: Files<'_>) -> Result<(Bundle, Leaf), String> {
        let file = files.certificate;
        let fault = |why: &dyn fmt::Display| format!("Error loading certificate: {why}");
        let text = as_text(file).map_err(|why| fault(&why))?;
        let sections = pem::sections(&text).map_err(|why| fault(&why))?;
        let chain = chain(&sections).map_err(|why| fault(&why))?;
        let leaf = leaf::read(&chain[0]).map_err(|why| fault(&why))?;
        if leaf.names().is_empty() {
            return Err("Could not find valid SAN or CN in certificate".to_owned());
        }
        let (key, signing) = match files.key {
            None => private_key(&sections, file.name)?,
            Some(file) => {
                let fault =
                    |why: &dyn fmt::Display| format!("Error loading private key: {}: {why}", file.name);
                let text = as_text(file).map_err(|why| fault(&why))?;
                let sections = pem::sections(&text).map_err(|why| fault(&why))?;
                private_key(&sections, file.name)?
            }
        };
        let key_file = files.key.unwrap_or(file).name;
        check_key(&*signing, &chain, file.name, key_file)?;
        if let Some(file) = files.dh {
            check_dh(file)?;
        }
        let staple = files.staple.map(|file| checked_staple(file, &chain[0])).transpose()?.map(Arc::from);
        let chain = chain.into_iter().map(Arc::from).collect();
        Ok((Bundle { chain, key: Arc::new(key), staple }, leaf))
    }

    /// Replaces certificates and key by equal ones of the pool, so that thousands of certificates share those of their
    /// authority, and several uses of one certificate share that.
    pub fn share(&mut self, pool: &mut ChainPool) {
        match pool.keys.get(&self.key) {
            Some(known) => self.key = known.clone(),
            None => drop(pool.keys.insert(self.key.clone())),
        }
        for certificate in &mut self.chain {
            match pool.known.get(certificate) {
                Some(known) => *certificate = known.clone(),
                None => drop(pool.known.insert(certificate.clone())),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn certificates(&self) -> &[Arc<[u8]>] {
        &self.chain
    }

    /// Returns the facts of the certificate.
    pub fn leaf(&self) -> Result<Leaf, String> {
        leaf::read(self.chain.first().map_or(&[][..], |first| first))
    }

    /// Returns the parts of the certificate that identify it to an ACME server (RFC 9773): the identifier of its
    /// authority's key, and its serial number.
    pub fn renewal_id(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        leaf::renewal_id(self.chain.first()?)
    }

    /// Prepares the certificate for handshakes, without its OCSP response.
    pub fn certified_key(&self) -> Result<CertifiedKey, String> {
        let chain = self.chain.iter().map(|der| der.to_vec().into()).collect();
        Ok(CertifiedKey::new(chain, self.key.signing_key().map_err(|e| e.to_string())?))
    }

    /// Returns the statement of its OCSP response, if it has one.
    pub fn statement(&self) -> Option<Statement> {
        statement(self.staple.as_ref()?, self.chain.first()?).ok()
    }

    /// Prepares the certificate for handshakes, with its OCSP response as long as that is valid.
    pub fn stapled_key(&self) -> Result<StapledKey, String> {
        let plain = self.certified_key()?;
        let stapled = self.statement().zip(self.staple.as_ref()).map(|(statement, response)| {
            let mut key = plain.clone();
            key.ocsp = Some(response.to_vec());
            (statement, Arc::new(key))
        });
        Ok(StapledKey { plain: Arc::new(plain), stapled })
    }
}

/// A certificate that is ready for handshakes.
#[derive(Debug)]
pub struct StapledKey {
    plain: Arc<CertifiedKey>,
    stapled: Option<(Statement, Arc<CertifiedKey>)>,
}

impl StapledKey {
    pub(crate) fn at(&self, now: f64) -> &Arc<CertifiedKey> {
        let stapled = self.stapled.as_ref().filter(|(statement, _)| statement.serves_at(now));
        stapled.map_or(&self.plain, |(_, key)| key)
    }
}

impl ResolvesServerCert for StapledKey {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.at(clock::real()).clone())
    }
}

/// The certificates and keys that bundles share.
#[derive(Default)]
pub struct ChainPool {
    known: HashSet<Arc<[u8]>>,
    keys: HashSet<Arc<Key>>,
}

impl fmt::Debug for ChainPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (certificates, keys) = (self.known.len(), self.keys.len());
        f.debug_struct("ChainPool").field("certificates", &certificates).field("keys", &keys).finish()
    }
}

impl ChainPool {
    /// Removes the certificates and keys that no bundle uses.
    pub fn tidy(&mut self) {
        self.keys.retain(|key| Arc::strong_count(key) > 1);
        self.known.retain(|certificate| Arc::strong_count(certificate) > 1);
    }
}

/// Returns the content as text. Bytes that are not ASCII occur in comments only.
pub fn as_text(file: File<'_>) -> Result<String, String> {
    if file.bytes.len() as u64 > MAX_FILE {
        return Err(format!("the file has more than {} kB", MAX_FILE >> 10));
    }
    Ok(String::from_utf8_lossy(file.bytes).into_owned())
}

fn chain(sections: &[Section<'_>]) -> Result<Vec<Vec<u8>>, String> {
    let mut chain = Vec::new();
    for section in sections.iter().filter(|section| section.label == "CERTIFICATE") {
        let der = section.decode().map_err(|damage| damage.to_string())?;
        leaf::public_key(&der)
            .ok_or_else(|| format!("the certificate that begins in line {} is damaged", section.line))?;
        chain.push(der);
    }
    if !chain.is_empty() {
        return Ok(chain);
    }
    Err(match sections.iter().map(|section| section.label).next() {
        None => "the file has no section of PEM; convert DER with: openssl x509 -inform DER".to_owned(),
        Some(label) => format!("the file has no section CERTIFICATE, but {label}"),
    })
}

fn key_form(label: &str) -> Option<KeyForm> {
    match label {
        "PRIVATE KEY" => Some(KeyForm::Pkcs8),
        "RSA PRIVATE KEY" => Some(KeyForm::Pkcs1),
        "EC PRIVATE KEY" => Some(KeyForm::Sec1),
        _ => None,
    }
}

/// Reads the key, in the form in which it is kept and in the form that signs.
fn private_key(sections: &[Section<'_>], file: &str) -> Result<(Key, Arc<dyn SigningKey>), String> {
    let fault = |why: String| format!("Error loading private key: {file}: {why}");
    let is_key = |section: &&Section<'_>| section.label.ends_with("PRIVATE KEY");
    let section = sections.iter().find(is_key).ok_or_else(|| {
        fault("the file has no private key; add it to the file, or name its file".to_owned())
    })?;
    if section.is_encrypted() {
        let hint = "write it without: openssl pkey -in FILE -out NEW";
        return Err(fault(format!("the key is protected by a password; {hint}")));
    }
    let form = key_form(section.label)
        .ok_or_else(|| fault(format!("keys of the kind {} are not supported", section.label)))?;
    let key = Key { form, der: section.decode().map_err(|damage| fault(damage.to_string()))? };
    match key.signing_key() {
        Ok(signing) => Ok((key, signing)),
        Err(error) => {
            let kinds =
                "RSA of at least 2048 bits, ECDSA with P-256, P-384 or P-521, and Ed25519 are supported";
            Err(fault(format!("the key is damaged or of another kind ({error}); {kinds}")))
        }
    }
}

/// Checks that the key is that of the first certificate.
fn check_key(key: &dyn SigningKey, chain: &[Vec<u8>], file: &str, key_file: &str) -> Result<(), String> {
    let Some(own) = key.public_key() else {
        return Err(format!("Private key mismatch: the key in {key_file} has no public part"));
    };
    let is_own = |certificate: &Vec<u8>| leaf::public_key(certificate) == Some(own.as_ref());
    match chain.iter().position(is_own) {
        Some(0) => Ok(()),
        Some(other) => Err(format!(
            "Private key mismatch: the key is that of certificate {} in {file}; move this certificate to the front",
            other + 1
        )),
        None => Err(format!(
            "Private key mismatch: the key in {key_file} is not that of the certificate in {file}"
        )),
    }
}

fn check_dh(file: File<'_>) -> Result<(), String> {
    let text = as_text(file)?;
    let found =
        pem::sections(&text).is_ok_and(|all| all.iter().any(|section| section.label == "DH PARAMETERS"));
    if found { Ok(()) } else { Err(format!("Error: dhparams: No DH parameters found in {}", file.name)) }
}

/// Checks that the file is an OCSP response about this certificate.
fn checked_staple(file: File<'_>, certificate: &[u8]) -> Result<Vec<u8>, String> {
    let fault = |why: String| format!("Error loading OCSP response: {}: {why}", file.name);
    if file.bytes.len() as u64 > MAX_FILE {
        return Err(fault(format!("the file has more than {} kB", MAX_FILE >> 10)));
    }
    statement(file.bytes, certificate).map_err(fault)?;
    Ok(file.bytes.to_vec())
}

fn statement(response: &[u8], certificate: &[u8]) -> Result<Statement, String> {
    let parts = leaf::parts(certificate).ok_or("the certificate is damaged")?;
    staple::read(response, parts.serial.content)
}
