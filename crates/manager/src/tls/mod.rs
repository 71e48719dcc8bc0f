//! TLS towards clients: the listeners and certificates of `-A` and `-a`, and the commands `tls.cert.*`. The manager reads
//! and checks certificates, keeps them for the next worker, and sends them to the worker over the link.

mod catalogue;
mod commands;
mod config;
mod files;
mod refusal;
mod startup;
mod tokens;

use std::path::Path;

pub use catalogue::Catalogue;
pub use commands::{Context, Step, complete, run};
use lacquer_http::date;
use lacquer_tls::Leaf;
pub use refusal::Refusal;
pub use startup::Startup;

use crate::complain::{Complain, Level};
use crate::shm::now;

/// Reports a certificate that is not valid now. It is used nevertheless, like in Varnish.
fn report_validity(complain: &Complain, path: &Path, leaf: &Leaf) {
    let (what, when) = if (leaf.not_after() as f64) < now() {
        ("has expired on", leaf.not_after())
    } else if (leaf.not_before() as f64) > now() {
        ("is not valid before", leaf.not_before())
    } else {
        return;
    };
    let date = date::format(when as f64);
    let text = format!("Certificate {} {what} {}", path.display(), String::from_utf8_lossy(&date));
    complain.report(Level::Error, &text);
}
