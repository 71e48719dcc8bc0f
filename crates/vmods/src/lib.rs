//! The modules that VCL can import, one file or folder per module. One table serves the manager, which
//! checks programs against the signatures, and the worker, which calls the functions.
#![forbid(unsafe_code)]

mod accept;
mod apart;
mod basicauth;
mod blob;
mod bodyaccess;
mod cookie;
mod digest;
mod directors;
mod geoip2;
mod h2;
mod header;
mod math;
mod proxy;
mod purge;
mod querystring;
pub mod random;
mod saintmode;
mod standard;
mod str;
mod support;
mod tcp;
mod tls;
mod unix;
mod var;
mod vsthrottle;
mod vtc;
pub mod xkey;

use std::sync::OnceLock;

use lacquer_vcl::signature::{Catalogue, ModuleSignatures, parse_module};
use lacquer_vcl_runtime::Module;

/// Every module, by name.
pub fn all() -> &'static [&'static dyn Module] {
    static ALL: [&dyn Module; 24] = [
        &accept::MODULE,
        &basicauth::MODULE,
        &blob::MODULE,
        &bodyaccess::MODULE,
        &cookie::MODULE,
        &digest::MODULE,
        &directors::MODULE,
        &geoip2::MODULE,
        &h2::MODULE,
        &header::MODULE,
        &math::MODULE,
        &proxy::MODULE,
        &purge::MODULE,
        &querystring::MODULE,
        &saintmode::MODULE,
        &standard::MODULE,
        &str::MODULE,
        &tcp::MODULE,
        &tls::MODULE,
        &unix::MODULE,
        &var::MODULE,
        &vsthrottle::MODULE,
        &vtc::MODULE,
        &xkey::MODULE,
    ];
    &ALL
}

pub fn find(name: &str) -> Option<&'static dyn Module> {
    all().iter().copied().find(|m| m.name() == name)
}

/// Where the checker finds the signatures of [`all`].
pub struct Signatures(Vec<ModuleSignatures>);

impl Catalogue for Signatures {
    fn module(&self, name: &str) -> Option<ModuleSignatures> {
        self.0.iter().find(|m| m.name == name).cloned()
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(|m| m.name.as_str()).collect()
    }
}

impl Signatures {
    pub fn modules(&self) -> &[ModuleSignatures] {
        &self.0
    }
}

/// The parsed signatures of every module; parsed at the first use.
pub fn catalogue() -> &'static Signatures {
    static PARSED: OnceLock<Signatures> = OnceLock::new();
    PARSED.get_or_init(|| {
        let parsed = all().iter().filter_map(|m| parse_module(m.name(), m.signatures()).ok());
        Signatures(parsed.collect())
    })
}
