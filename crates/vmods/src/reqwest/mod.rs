//! Module reqwest: HTTP requests of VCL, and backends that follow redirects or use a proxy.

mod backend;
mod client;
mod exchange;
mod requests;
mod server;
mod settings;
#[cfg(test)]
mod tests;

use lacquer_vcl_runtime::ObjectType;

use crate::support::Table;

pub(crate) static MODULE: Table = Table {
    name: "reqwest",
    functions: &[],
    objects: &[ObjectType {
        name: "client",
        new: client::new,
        methods: &[
            ("backend", client::backend),
            ("init", requests::init),
            ("set_header", requests::set_header),
            ("set_body", requests::set_body),
            ("copy_headers_to_req", requests::copy_headers_to_req),
            ("send", requests::send),
            ("status", requests::status),
            ("header", requests::header),
            ("body_as_string", requests::body_as_string),
            ("error", requests::error),
        ],
    }],
    suspends: &["client.status", "client.header", "client.body_as_string", "client.error"],
};
