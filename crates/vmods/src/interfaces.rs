//! The interfaces of all modules, apart from their code, so that a program that only checks VCL does not contain the code.

use std::sync::OnceLock;

use lacquer_vcl::signature::{Catalogue, ModuleSignatures, parse_module};

/// Makes a table of names and interfaces in the notation of vmod interface files, from the files in `vcc`.
macro_rules! interfaces {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), include_str!(concat!("../vcc/", stringify!($name), ".vcc")))),*]
    };
}

/// The modules of [`all`](crate::all), in the same order.
const INTERFACES: [(&str, &str); 39] = interfaces![
    accept,
    awsrest,
    basicauth,
    blob,
    bodyaccess,
    cookie,
    crypto,
    digest,
    directors,
    dynamic,
    fileserver,
    geoip,
    geoip2,
    h2,
    header,
    json,
    jwt,
    math,
    netmapper,
    proxy,
    purge,
    querysort,
    querystring,
    re2,
    redis,
    reqwest,
    s3,
    saintmode,
    selector,
    std,
    str,
    tcp,
    tls,
    unix,
    uuid,
    var,
    vsthrottle,
    vtc,
    xkey,
];

/// Provides the signatures of all modules to the checker.
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

/// Returns the parsed signatures of every module. They are parsed at the first call.
pub fn catalogue() -> &'static Signatures {
    static PARSED: OnceLock<Signatures> = OnceLock::new();
    PARSED.get_or_init(|| {
        let parsed = INTERFACES.iter().filter_map(|(name, text)| parse_module(name, text).ok());
        Signatures(parsed.collect())
    })
}
