//! TLS towards clients: the listeners and certificates of `-A` and `-a`, and the commands `tls.cert.*`. The manager reads
//! and checks certificates, keeps them for the next worker, and sends them to the worker over the link.

mod acme;
mod catalogue;
mod commands;
mod config;
mod files;
mod on_demand;
mod refusal;
mod secrets;
mod startup;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use acme::{Acme, PARAMETERS, Plan, Responses, check_contacts};
pub use catalogue::Catalogue;
use catalogue::Wanted;
pub use commands::{Context, Step, complete, run};
use lacquer_acme::Names;
use lacquer_http::date;
use lacquer_tls::{Bundle, Leaf, Verdict};
pub use on_demand::OnDemand;
pub use refusal::Refusal;
pub use secrets::Secrets;
pub use startup::Startup;

use crate::complain::{Complain, Level};
use crate::jail::Jail;
use crate::shm::now;

/// The certificates, and the client that obtains some of them.
#[derive(Debug, Default)]
pub struct Tls {
    pub catalogue: Catalogue,
    /// `None` if no listener asks for certificates.
    pub acme: Option<Acme>,
    /// Starts the client as soon as a worker runs.
    pub plan: Option<Plan>,
}

impl Tls {
    /// Warns of listeners that can serve nobody until somebody loads a certificate. Those that are obtained are reported
    /// by their client.
    pub fn warn_of_missing_certificates(&self, workdir: &Path, complain: &Complain) {
        if self.plan.is_some() || self.acme.is_some() || self.catalogue.on_demand().is_some() {
            return;
        }
        let cli = format!("lacquer cli -n {}", workdir.display());
        for name in self.catalogue.without_certificates() {
            let text = format!(
                "Listener {name} has no certificate: all its TLS handshakes fail until one is loaded, by \
                 `{cli} tls.cert.load FILE` and `{cli} tls.cert.commit`"
            );
            complain.report(Level::Error, &text);
        }
    }
}

/// Returns the certificate with these names that the client has written to a file.
pub fn obtained(names: &Names, path: PathBuf) -> Wanted {
    acme::wanted(names, path)
}

/// Reads and checks the files of a certificate.
pub fn load(wanted: &Wanted, jail: &Jail) -> Result<(Bundle, Arc<Leaf>), Refusal> {
    files::load(&wanted.paths, jail, &mut files::Recent::default())
}

/// Reports a certificate that is not valid now, or whose OCSP response clients do not get. It is used nevertheless, like in
/// Varnish.
fn report_validity(complain: &Complain, path: &Path, (bundle, leaf): &(Bundle, Arc<Leaf>)) {
    if let Some(statement) = bundle.statement().filter(|statement| !statement.serves_at(now())) {
        let why = match (statement.verdict(), statement.until()) {
            (Verdict::Good, Some(until)) => {
                format!("has expired on {}", String::from_utf8_lossy(&date::format(until as f64)))
            }
            (Verdict::Revoked, _) => "says that the certificate is revoked".to_owned(),
            (Verdict::Good | Verdict::Unknown, _) => "does not know the certificate".to_owned(),
        };
        let text =
            format!("Certificate {}: its OCSP response {why}, so clients do not get it", path.display());
        complain.report(Level::Error, &text);
    }
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

/// Parses a file of `-A`, for the fuzz target.
#[cfg(feature = "fuzzing")]
pub fn parse_file(text: &str) -> Option<String> {
    config::parse(text).err().map(|fault| fault.text(text))
}
