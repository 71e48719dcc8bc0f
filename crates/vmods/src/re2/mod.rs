//! Module re2: regular expressions that match in linear time, and sets of them.

mod functions;
mod literals;
mod multi;
mod object;
mod options;
mod pattern;
mod rewriting;
mod set;
mod syntax;

use crate::support::{Finished, Table};

pub(crate) static MODULE: Finished = Finished {
    table: Table {
        name: "re2",
        signatures: include_str!("../../vcc/re2.vcc"),
        functions: functions::FUNCTIONS,
        objects: &[object::TYPE, set::TYPE],
        suspends: &[],
    },
    finish: set::compile_all,
};
