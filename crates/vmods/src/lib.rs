//! The modules that VCL can import, one file or folder per module. One table serves the manager, which
//! checks programs against the signatures, and the worker, which calls the functions.
#![forbid(unsafe_code)]

mod blob;
mod cookie;
mod directors;
mod h2;
mod math;
mod proxy;
mod purge;
pub mod random;
mod standard;
mod support;
mod unix;
mod vtc;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use lacquer_vcl::signature::{Catalogue, ModuleSignatures, parse_module};
use lacquer_vcl_runtime::Module;

/// Every module, by name.
pub fn all() -> &'static [&'static dyn Module] {
    static ALL: [&dyn Module; 10] = [
        &blob::MODULE,
        &cookie::MODULE,
        &directors::MODULE,
        &h2::MODULE,
        &math::MODULE,
        &proxy::MODULE,
        &purge::MODULE,
        &standard::MODULE,
        &unix::MODULE,
        &vtc::MODULE,
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
