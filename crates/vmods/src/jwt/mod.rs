//! Module jwt: JSON Web Tokens, read, verified and written.

mod algorithm;
mod encoding;
mod identity;
mod reader;
#[cfg(test)]
mod tests;
mod token;
mod verified;
mod writer;

use crate::support::Table;

pub(crate) use encoding::pem;

pub(crate) static MODULE: Table = Table {
    name: "jwt",
    functions: &[],
    objects: &[reader::TYPE, writer::TYPE],
    suspends: &["writer.generate"],
};

/// Verifies a token with a key in JSON, by the algorithm that it names.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(key: &[u8], token: &[u8]) {
    let Ok(token) = token::Token::parse(token) else { return };
    let _ = token.check(1e9, 0.0);
    if let Some(algorithm) = token.alg().and_then(algorithm::Algorithm::find) {
        let signed = algorithm::Signed { message: token.signed(), signature: &token.signature, kid: None };
        let _ = algorithm.verify(&algorithm::Key::Jwk(key.to_vec()), &signed);
        let _ = algorithm.verify(&algorithm::Key::Text(key.to_vec()), &signed);
    }
}
