//! TLS towards origins: trusted authorities, client certificates, and the settings of connections.

mod authorities;
mod checks;
mod explain;
mod identity;
mod provider;
mod settings;
mod verifier;

pub use authorities::{Authorities, BUNDLES};
pub use checks::Checks;
pub use explain::{CLOSED, Failure, NOT_TLS, TRUNCATED, explain, explain_alert};
pub use identity::Identity;
pub use settings::OriginTls;
