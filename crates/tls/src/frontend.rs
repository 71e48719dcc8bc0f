//! A listener's certificates as its handshakes see them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustls::ServerConfig;
use rustls::server::ClientHello;

use crate::change::FrontendSetup;
use crate::on_demand::WaitPermit;
use crate::protocols::Protocols;
use crate::refused::Refused;
use crate::settings::Alpn;
use crate::shared::Shared;

/// The certificates of a listener. A clone shares them.
#[derive(Clone)]
pub struct Frontend {
    source: Source,
}

#[derive(Clone)]
enum Source {
    Fixed(Arc<ServerConfig>),
    Store(Arc<Listener>),
}

struct Listener {
    shared: Arc<Shared>,
    at: usize,
    protocols: Protocols,
    sni_nomatch_abort: bool,
    match_global: bool,
}

impl Frontend {
    pub(crate) fn new(shared: Arc<Shared>, at: usize, setup: &FrontendSetup) -> Frontend {
        let listener = Listener {
            at,
            protocols: setup.protocols.or(shared.protocols),
            sni_nomatch_abort: setup.sni_nomatch_abort,
            match_global: setup.match_global,
            shared,
        };
        Frontend { source: Source::Store(Arc::new(listener)) }
    }

    /// Creates one that chooses `config` for every client.
    pub fn fixed(config: Arc<ServerConfig>) -> Frontend {
        Frontend { source: Source::Fixed(config) }
    }

    /// Returns the settings and the certificate for a client by what it has sent.
    pub fn choose(&self, hello: &ClientHello<'_>) -> Result<Arc<ServerConfig>, Refused> {
        match &self.source {
            Source::Fixed(config) => Ok(config.clone()),
            Source::Store(listener) => {
                let alpn = Alpn::for_client(hello, listener.shared.http2.load(Ordering::Relaxed));
                listener.choose(hello, alpn)
            }
        }
    }

    /// Permits a handshake to wait for a certificate that is being obtained, unless too many wait already.
    pub fn wait_permit(&self) -> Option<WaitPermit> {
        match &self.source {
            Source::Fixed(_) => None,
            Source::Store(listener) => listener.shared.on_demand.wait_permit(),
        }
    }

    /// Returns the settings and the certificate for a client of QUIC, which negotiates HTTP/3.
    pub fn choose_http3(&self, hello: &ClientHello<'_>) -> Result<Arc<ServerConfig>, Refused> {
        match &self.source {
            Source::Fixed(config) => Ok(config.clone()),
            Source::Store(listener) => listener.choose(hello, Alpn::Http3),
        }
    }
}

impl Listener {
    fn choose(&self, hello: &ClientHello<'_>, alpn: Alpn) -> Result<Arc<ServerConfig>, Refused> {
        // An ACME server verifies names over TCP, where its connection carries no data (RFC 8737).
        if alpn != Alpn::Http3
            && let Some(config) = self.shared.challenges.find(hello)
        {
            return Ok(config);
        }
        let tables = self.shared.tables.read().clone();
        let local = &tables.local[self.at];
        let default = local.default_certificate().or(tables.global.default_certificate());
        let global = self.match_global.then_some(&tables.global);
        let found = hello.server_name().map(|name| {
            let name = name.strip_suffix('.').unwrap_or(name);
            local.find(name).or_else(|| global?.find(name)).ok_or(name)
        });
        let certificate = match found {
            Some(Ok(certificate)) => certificate,
            Some(Err(name)) if self.match_global && self.shared.on_demand.want(name) => {
                return Err(Refused::Pending(name.to_owned()));
            }
            Some(Err(name)) if self.sni_nomatch_abort && default.is_some() => {
                return Err(Refused::UnknownName(name.to_owned()));
            }
            Some(Err(_)) | None => default.ok_or(Refused::NoCertificates)?,
        };
        certificate
            .config(self.protocols, alpn, &tables.clients[self.at], &self.shared.configs)
            .map_err(Refused::Unusable)
    }
}

impl fmt::Debug for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frontend").finish_non_exhaustive()
    }
}
