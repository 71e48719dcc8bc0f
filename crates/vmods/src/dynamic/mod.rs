//! Module dynamic: backends for names that a request decides.

mod director;
mod resolver;
mod service;

use lacquer_vcl_runtime::{Func, ObjectType};

use crate::support::Table;

const METHODS: &[(&str, Func)] =
    &[("backend", director::backend), ("service", service::service), ("debug", director::debug)];

pub(crate) static MODULE: Table = Table {
    name: "dynamic",
    functions: &[],
    objects: &[
        ObjectType { name: "director", new: director::new, methods: METHODS },
        ObjectType { name: "resolver", new: resolver::new, methods: resolver::METHODS },
    ],
    suspends: &["director.backend", "director.service"],
};
