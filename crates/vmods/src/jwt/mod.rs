//! Module jwt: JSON Web Tokens, read, verified and written.

mod algorithm;
mod encoding;
mod reader;
#[cfg(test)]
mod tests;
mod token;
mod verified;
mod writer;

use crate::support::Table;

pub(crate) static MODULE: Table = Table {
    name: "jwt",
    signatures: include_str!("../../vcc/jwt.vcc"),
    functions: &[],
    objects: &[reader::TYPE, writer::TYPE],
    suspends: &["writer.generate"],
};
