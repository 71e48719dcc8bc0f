//! The certificates of listeners with TLS.

use std::sync::Arc;

use lacquer_cli::status;
use lacquer_params::{FeatureBits, Params};
use lacquer_tls::Change;

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
