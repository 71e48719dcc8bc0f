//! The modules that VCL can import, one file or folder for each. The manager checks programs against the signatures in
//! their table, and the worker calls the functions in it.
#![forbid(unsafe_code)]

mod accept;
mod async_thread;
mod awsrest;
mod basicauth;
mod blob;
mod blocking;
mod bodyaccess;
mod cookie;
mod crypto;
mod digest;
mod directors;
mod dynamic;
mod fileserver;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod geoip;
mod geoip2;
mod h2;
mod header;
mod interfaces;
mod json;
mod jwt;
mod local_end;
mod math;
mod netmapper;
mod proxy;
mod purge;
mod querysort;
mod querystring;
pub mod random;
mod re2;
mod redis;
mod reqwest;
mod s3;
mod saintmode;
mod selector;
mod standard;
mod str;
mod support;
mod tcp;
mod tls;
mod unix;
mod uuid;
mod var;
mod vsthrottle;
mod vtc;
pub mod xkey;

pub use interfaces::{Signatures, catalogue};

use lacquer_vcl_runtime::Module;

/// Returns every module, by name.
pub fn all() -> &'static [&'static dyn Module] {
    static ALL: [&dyn Module; 39] = [
        &accept::MODULE,
        &awsrest::MODULE,
        &basicauth::MODULE,
        &blob::MODULE,
        &bodyaccess::MODULE,
        &cookie::MODULE,
        &crypto::MODULE,
        &digest::MODULE,
        &directors::MODULE,
        &dynamic::MODULE,
        &fileserver::MODULE,
        &geoip::MODULE,
        &geoip2::MODULE,
        &h2::MODULE,
        &header::MODULE,
        &json::MODULE,
        &jwt::MODULE,
        &math::MODULE,
        &netmapper::MODULE,
        &proxy::MODULE,
        &purge::MODULE,
        &querysort::MODULE,
        &querystring::MODULE,
        &re2::MODULE,
        &redis::MODULE,
        &reqwest::MODULE,
        &s3::MODULE,
        &saintmode::MODULE,
        &selector::MODULE,
        &standard::MODULE,
        &str::MODULE,
        &tcp::MODULE,
        &tls::MODULE,
        &unix::MODULE,
        &uuid::MODULE,
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
