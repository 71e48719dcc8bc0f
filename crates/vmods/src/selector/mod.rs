//! Module selector: fixed strings with values, found by the whole text or as its prefixes.

mod methods;
mod set;
mod strings;

use lacquer_vcl_runtime::ObjectType;

use crate::support::{Table, WithEvents, version};

pub(crate) static MODULE: WithEvents = WithEvents {
    table: Table {
        name: "selector",
        functions: &[("version", version)],
        objects: &[ObjectType { name: "set", new: set::new, methods: methods::METHODS }],
        suspends: &[],
    },
    event: set::event,
};
