//! The verification of clients by their certificates.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, StoresServerSessions, VerifierBuilderError, WebPkiClientVerifier};
use serde::{Deserialize, Serialize};

use crate::bundle::{File, as_text};
use crate::pem;
use crate::sessions::{Context, Sessions, SessionsOf};
use crate::ticketer::{TicketSecret, Ticketer};

/// How a listener verifies its clients.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientVerification {
    /// Whether clients without a certificate are refused.
    required: bool,
    authorities: Vec<Vec<u8>>,
    revoked: Vec<Vec<u8>>,
}

impl fmt::Debug for ClientVerification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientVerification")
            .field("required", &self.required)
            .field("authorities", &self.authorities.len())
            .finish_non_exhaustive()
    }
}

/// Decodes the sections of a file that have this label.
fn decode(file: File<'_>, label: &str) -> Result<Vec<Vec<u8>>, String> {
    let text = as_text(file)?;
    let sections = pem::sections(&text).map_err(|damage| damage.to_string())?;
    let found: Result<Vec<_>, _> =
        sections.iter().filter(|section| section.label == label).map(pem::Section::decode).collect();
    let found = found.map_err(|damage| damage.to_string())?;
    if found.is_empty() {
        return Err(format!("the file has no section {label}"));
    }
    Ok(found)
}

impl ClientVerification {
    /// Reads the authorities and the lists of revoked certificates. Fails with the reason if they cannot be used.
    pub fn load(required: bool, ca: File<'_>, crl: Option<File<'_>>) -> Result<ClientVerification, String> {
        let authorities = decode(ca, "CERTIFICATE").map_err(|why| format!("{}: {why}", ca.name))?;
        let revoked = match crl {
            Some(file) => decode(file, "X509 CRL").map_err(|why| format!("{}: {why}", file.name))?,
            None => Vec::new(),
        };
        let verification = ClientVerification { required, authorities, revoked };
        match verification.verifier() {
            Ok(_) => Ok(verification),
            Err(why) => {
                let name = crl.filter(|_| verification.roots().is_ok()).unwrap_or(ca).name;
                Err(format!("{name}: {why}"))
            }
        }
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for (at, der) in self.authorities.iter().enumerate() {
            let added = roots.add(CertificateDer::from(der.as_slice()));
            added.map_err(|error| format!("certificate {} cannot be used: {error}", at + 1))?;
        }
        Ok(roots)
    }

    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let roots = Arc::new(self.roots()?);
        let crls = self.revoked.iter().map(|der| CertificateRevocationListDer::from(der.clone()));
        let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::new(default_provider()));
        let mut builder = builder.with_crls(crls).enforce_revocation_expiration();
        if !self.required {
            builder = builder.allow_unauthenticated();
        }
        builder.build().map_err(|error| match error {
            VerifierBuilderError::InvalidCrl(why) => format!("a revocation list cannot be used: {why:?}"),
            other => other.to_string(),
        })
    }

    /// Returns a digest of everything that decides whether a client is accepted.
    fn digest(&self) -> Context {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&[u8::from(self.required)]);
        for part in [&self.authorities, &self.revoked] {
            context.update(&(part.len() as u64).to_be_bytes());
            for der in part {
                context.update(&(der.len() as u64).to_be_bytes());
                context.update(der);
            }
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.finish().as_ref());
        bytes
    }
}

/// A verification in use. Its tickets are sealed with keys of its own: a session that began under another verification,
/// or under none, is not resumed, because resumption does not verify the client again.
pub struct Verifying {
    context: Context,
    verifier: Result<Option<Arc<dyn ClientCertVerifier>>, String>,
    ticketer: Arc<Ticketer>,
    /// The place of sessions, if clients may send early data. They then get no tickets.
    sessions: Option<Arc<Sessions>>,
}

impl Verifying {
    /// Creates one that does not ask clients for certificates.
    pub fn none(secret: TicketSecret, sessions: Option<Arc<Sessions>>) -> Verifying {
        let context = Context::default();
        let ticketer = Arc::new(Ticketer::new(secret, &context));
        Verifying { context, verifier: Ok(None), ticketer, sessions }
    }

    /// Creates another one, with tickets that follow from the same secret.
    pub fn with(&self, verification: &ClientVerification) -> Verifying {
        let context = verification.digest();
        let ticketer = Arc::new(Ticketer::new(self.ticketer.secret(), &context));
        let (verifier, sessions) = (verification.verifier().map(Some), self.sessions.clone());
        Verifying { context, verifier, ticketer, sessions }
    }

    pub fn context(&self) -> Context {
        self.context
    }

    pub fn ticketer(&self) -> Arc<dyn ProducesTickets> {
        self.ticketer.clone()
    }

    /// Returns the place of sessions, if clients may send early data.
    pub fn sessions(&self) -> Option<Arc<dyn StoresServerSessions>> {
        let all = self.sessions.clone()?;
        Some(Arc::new(SessionsOf { all, context: self.context }))
    }

    /// Returns the verifier, or `None` if clients are not asked for certificates.
    pub fn verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        self.verifier.clone()
    }
}

impl fmt::Debug for Verifying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifying").finish_non_exhaustive()
    }
}
