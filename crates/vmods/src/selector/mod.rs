//! Module selector: fixed strings with values, found by the whole text or as its prefixes.

mod methods;
mod set;
mod strings;

use lacquer_vcl_runtime::{Args, Ctx, ObjectType, Value};

use crate::support::{Answer, Finished, Table};

pub(crate) static MODULE: Finished = Finished {
    table: Table {
        name: "selector",
        signatures: include_str!("../../vcc/selector.vcc"),
        functions: &[("version", version)],
        objects: &[ObjectType { name: "set", new: set::new, methods: methods::METHODS }],
        suspends: &[],
    },
    finish: set::finish_all,
};

fn version<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    Ok(Value::Str(Some(concat!("Lacquer ", env!("CARGO_PKG_VERSION")).as_bytes())))
}
