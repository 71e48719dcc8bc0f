//! The certificates of listeners with TLS.

use std::sync::Arc;

use lacquer_cli::status;
use lacquer_params::{FeatureBits, Params};
use lacquer_tls::{ChallengeCertificates, Change};

use super::Reply;
use crate::process::Process;

/// Applies a change of the certificates.
pub fn change(process: &Arc<Process>, change: &[u8]) -> Reply {
    let Some(store) = process.certificates() else {
        return Reply::error(status::CANT, "TLS has not been configured");
    };
    match Change::decode(change).and_then(|change| store.apply(change)) {
        Ok(()) => Reply::ok(""),
        Err(why) => Reply::error(status::CANT, why),
    }
}

/// Replaces the responses to challenges of an ACME server.
pub fn set_challenges(process: &Arc<Process>, pages: Vec<(String, String)>, certificates: &[u8]) -> Reply {
    let applied =
        ChallengeCertificates::decode(certificates).and_then(|certificates| match process.certificates() {
            Some(store) => store.set_challenges(certificates),
            None => Ok(()),
        });
    match applied {
        Ok(()) => {
            process.shared().challenges().set(pages);
            Reply::ok("")
        }
        Err(why) => Reply::error(status::CANT, why),
    }
}

/// Returns the names that clients have asked for in vain, and that may get certificates.
pub fn wanted_names(process: &Process) -> Reply {
    let names = process.certificates().map(lacquer_tls::Store::take_wanted);
    Reply::ok(names.unwrap_or_default().join("\n"))
}

/// Applies new parameters.
pub fn tune(process: &Process, params: &Params) {
    if let Some(store) = process.certificates() {
        store.offer_http2(params.feature.has(FeatureBits::HTTP2));
    }
}

/// Frees certificates that were removed, a part of them each time.
pub fn poll(process: &Process) {
    if let Some(store) = process.certificates() {
        store.release(process.shared().params().tls_cleanup_batch as usize);
    }
}
