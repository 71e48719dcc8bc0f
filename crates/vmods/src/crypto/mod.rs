//! Module crypto: hashes, keyed hashes, and signatures by public keys.

mod hashes;
mod keys;
mod objects;

use lacquer_vcl_runtime::ObjectType;

use crate::support::Table;

pub(crate) static MODULE: Table = Table {
    name: "crypto",
    functions: hashes::FUNCTIONS,
    objects: &[
        ObjectType { name: "key", new: objects::new_key, methods: objects::KEY_METHODS },
        ObjectType { name: "verifier", new: objects::new_verifier, methods: objects::VERIFIER_METHODS },
        ObjectType { name: "signer", new: objects::new_signer, methods: objects::SIGNER_METHODS },
    ],
    suspends: &["signer.final"],
};
