//! Module s3: signatures of requests and URLs for services with AWS's signature version 4.

mod canonical;
mod presigned;
mod request;
mod signature;
mod signer;

pub(crate) use signature::{EMPTY, Keys, Scope};
pub(crate) use signer::{read, write};

use lacquer_vcl_runtime::ObjectType;

use crate::support::Table;

pub(crate) static MODULE: Table = Table {
    name: "s3",
    functions: &[],
    objects: &[ObjectType {
        name: "signer",
        new: signer::new,
        methods: &[("set_keys", signer::set_keys), ("sign", signer::sign), ("presign", signer::presign)],
    }],
    suspends: &[],
};
