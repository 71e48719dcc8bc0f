//! The settings of clients, and the clients of the library that have them.

use std::time::Duration;

use lacquer_sources::clock;
use lacquer_vcl_runtime::Args;
use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder, Proxy};
use rustls::RootCertStore;

use super::server;
use crate::support::shown;

/// The limit for a request of VCL if the client has none.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Clients of the library with the same settings, and the limit for a request of VCL.
#[derive(Clone)]
pub(super) struct Http {
    any: reqwest::Client,
    http1: reqwest::Client,
    pub timeout: Duration,
}

impl Http {
    /// Returns the client for a request. With a `Host` of its own, that is HTTP/1: in HTTP/2, servers refuse a `Host` that
    /// is not the URL's.
    pub fn client(&self, has_host: bool) -> &reqwest::Client {
        if has_host { &self.http1 } else { &self.any }
    }
}

/// The settings of a client.
pub(super) struct Settings {
    /// The maximum number of redirects that are followed.
    pub follow: usize,
    pub timeout: Option<Duration>,
    pub connect_timeout: Option<Duration>,
    /// Whether compressed bodies are asked for and decompressed: gzip, deflate, brotli.
    pub decompress: [bool; 3],
    pub accept_invalid_certs: bool,
    pub accept_invalid_hostnames: bool,
    pub http_proxy: Option<String>,
    pub https_proxy: Option<String>,
}

pub(super) fn given(args: &Args<'_>, i: usize) -> Option<String> {
    args.is_given(i).then(|| shown(args.str(i)).into_owned())
}

impl Settings {
    pub fn of(args: &Args<'_>) -> Settings {
        let duration = |i| args.is_given(i).then(|| clock::seconds(args.real(i)));
        Settings {
            follow: usize::try_from(args.int(2)).unwrap_or(0),
            timeout: duration(3),
            connect_timeout: duration(4),
            decompress: [5, 6, 7].map(|i| args.bool(i)),
            accept_invalid_certs: args.bool(8),
            accept_invalid_hostnames: args.bool(9),
            http_proxy: given(args, 10),
            https_proxy: given(args, 11),
        }
    }

    pub fn build(&self) -> Result<Http, String> {
        // Connections belong to the thread of the servers.
        let _entered = server::THREAD.runtime()?.enter();
        let made = |builder: ClientBuilder| builder.build().map_err(|error| text_of(&error));
        let timeout = self.timeout.unwrap_or(TIMEOUT);
        Ok(Http { any: made(self.builder()?)?, http1: made(self.builder()?.http1_only())?, timeout })
    }

    fn builder(&self) -> Result<ClientBuilder, String> {
        let [gzip, deflate, brotli] = self.decompress;
        let mut builder = ClientBuilder::new()
            .no_proxy()
            .referer(false)
            .redirect(if self.follow == 0 { Policy::none() } else { Policy::limited(self.follow) })
            .gzip(gzip)
            .deflate(deflate)
            .brotli(brotli)
            .tls_certs_only(authorities())
            .tls_danger_accept_invalid_certs(self.accept_invalid_certs)
            .tls_danger_accept_invalid_hostnames(self.accept_invalid_hostnames);
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        if let Some(timeout) = self.connect_timeout {
            builder = builder.connect_timeout(timeout);
        }
        if let Some(proxy) = &self.http_proxy {
            builder = builder.proxy(Proxy::http(proxy).map_err(|e| format!("http_proxy: {}", text_of(&e)))?);
        }
        if let Some(proxy) = &self.https_proxy {
            builder =
                builder.proxy(Proxy::https(proxy).map_err(|e| format!("https_proxy: {}", text_of(&e)))?);
        }
        Ok(builder)
    }
}

/// Returns the system's trusted authorities. Those that cannot be parsed are left out.
fn authorities() -> Vec<Certificate> {
    let found = rustls_native_certs::load_native_certs().certs;
    let usable = found.into_iter().filter(|der| RootCertStore::empty().add(der.clone()).is_ok());
    usable.filter_map(|der| Certificate::from_der(&der).ok()).collect()
}

/// Returns why a request has no response. URLs may contain secrets.
pub(super) fn failure(error: reqwest::Error) -> String {
    text_of(&error.without_url())
}

/// Returns the text of an error with its causes.
pub(super) fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
