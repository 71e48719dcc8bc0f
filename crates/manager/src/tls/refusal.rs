//! Why a certificate cannot be loaded.

use lacquer_cli::status;

/// A status of the CLI and a text for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub text: String,
}

impl Refusal {
    pub fn new(text: impl Into<String>) -> Refusal {
        Refusal { status: status::CANT, text: text.into() }
    }
}
