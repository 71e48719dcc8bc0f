//! The settings for TLS of the backends of a program.

use lacquer_tls::origin::{Authorities, Checks, Identity, OriginTls};
use lacquer_vcl::program::{Backend, BackendTls, Program, TlsFiles};

/// Returns the settings of each backend, in their order. A backend without settings that connects through another one
/// (`.via`) has those of the other.
pub fn settings(program: &Program) -> Result<Vec<Option<OriginTls>>, String> {
    let via = |backend: &Backend| {
        backend.via.and_then(|via| program.origins.backends.get(via as usize)?.tls.as_ref())
    };
    let of = |backend: &Backend| {
        let tls = backend.tls.as_ref().or(via(backend)).cloned();
        let offer = |tls: OriginTls| if backend.http2 { tls.offering_http2() } else { tls };
        let made = tls.map(|tls| make(&tls, &program.origins.tls).map(offer)).transpose();
        made.map_err(|why| {
            format!("The settings for TLS of backend {} cannot be used: {why}\n", backend.name)
        })
    };
    program.origins.backends.iter().map(of).collect()
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
