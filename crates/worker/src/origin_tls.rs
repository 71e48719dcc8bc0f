//! The settings for TLS of the backends of a program.

use lacquer_tls::origin::{Authorities, Checks, Identity, OriginTls};
use lacquer_vcl::program::{Backend, BackendTls, Program, TlsFiles};

/// The declared settings of the backends of a program, in their order.
pub struct DeclaredTls {
    of_backends: Vec<Option<BackendTls>>,
    files: TlsFiles,
}

impl DeclaredTls {
    /// Reads the declarations. A backend without settings that connects through another one (`.via`) has those of the
    /// other.
    pub fn of(program: &Program) -> DeclaredTls {
        let backends = &program.origins.backends;
        let via = |backend: &Backend| backend.via.and_then(|via| backends.get(via as usize)?.tls.as_ref());
        let of = |backend: &Backend| backend.tls.as_ref().or(via(backend)).cloned();
        DeclaredTls { of_backends: backends.iter().map(of).collect(), files: program.origins.tls.clone() }
    }

    /// Creates the settings of one backend. Each address needs its own.
    pub fn make(&self, index: usize, name: &str) -> Result<Option<OriginTls>, String> {
        let declared = self.of_backends.get(index).and_then(Option::as_ref);
        let made = declared.map(|tls| make(tls, &self.files)).transpose();
        made.map_err(|why| format!("The settings for TLS of backend {name} cannot be used: {why}\n"))
    }
}

fn make(tls: &BackendTls, files: &TlsFiles) -> Result<OriginTls, String> {
    let trusted = match tls.authorities.and_then(|index| files.authorities.get(index as usize)) {
        Some(authorities) => Some(Authorities::shared(&authorities.pem)?),
        None if tls.verifies_peer => Some(Authorities::shared(b"")?),
        None => None,
    };
    let checks = match trusted {
        Some(trusted) => Checks::Authorities { trusted, name: tls.verifies_host },
        None => Checks::None,
    };
    let identity = tls.identity.and_then(|index| files.identities.get(index as usize));
    let read = identity.map(|identity| Identity::read(&identity.pem.certificate, &identity.pem.key));
    OriginTls::new(&tls.server_name, tls.sends_name, checks, read.transpose()?)
}
