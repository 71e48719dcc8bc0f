//! Certificates of clients: their verification, their facts, and the reasons for which they are refused.

mod certificate;
mod explain;
mod verification;

pub use certificate::ClientCertificate;
pub use explain::{NO_CERTIFICATE, explain};
pub use verification::ClientVerification;
pub(crate) use verification::Verifying;
