//! Module selector: fixed strings with values, found by the whole text or as its prefixes.

mod methods;
mod strings;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lacquer_vcl_runtime::{Args, BackendId, Ctx, Instance, ModuleError, ObjectState, ObjectType, Value};

use crate::support::{Answer, Finished, Table, shown};
use strings::{Fault, Strings};

pub(crate) static MODULE: Finished = Finished {
    table: Table {
        name: "selector",
        signatures: include_str!("../../vcc/selector.vcc"),
        functions: &[("version", version)],
        objects: &[ObjectType { name: "set", new, methods: methods::METHODS }],
        suspends: &[],
    },
    finish: finish_all,
};

struct Set {
    name: String,
    case_sensitive: bool,
    allow_overlaps: bool,
    added: Mutex<Vec<Member>>,
    finished: OnceLock<Elements>,
}

/// The content of a set after vcl_init.
struct Elements {
    strings: Strings,
    members: Vec<Member>,
}

/// A string and its values.
struct Member {
    text: Vec<u8>,
    string: Option<Vec<u8>>,
    /// The regex's index in the program.
    regex: Option<usize>,
    backend: Option<BackendId>,
    integer: Option<i64>,
    boolean: Option<bool>,
    sub: Option<u32>,
}

fn failure(text: impl std::fmt::Display) -> ModuleError {
    ModuleError(format!("vmod selector failure: {text}"))
}

impl Set {
    fn finish(&self, call: &str) -> Result<(), ModuleError> {
        let name = &self.name;
        let members = std::mem::take(&mut *self.added.lock().unwrap_or_else(PoisonError::into_inner));
        let texts = members.iter().map(|member| member.text.as_slice());
        let strings = Strings::new(texts, self.case_sensitive).map_err(|Fault::Twice(text)| {
            failure(format!("{name}{call}: \"{}\" added more than once", shown(Some(&text))))
        })?;
        if !self.allow_overlaps && strings.has_overlaps() {
            return Err(failure(format!(
                "{name}{call}: allow_overlaps is false but strings with common prefixes were added"
            )));
        }
        let _ = self.finished.set(Elements { strings, members });
        Ok(())
    }
}

fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(Set {
        name: args.object_name.to_owned(),
        case_sensitive: args.bool(0),
        allow_overlaps: args.bool(1),
        added: Mutex::default(),
        finished: OnceLock::new(),
    }))
}

/// Finishes the sets of a program at the end of its vcl_init.
fn finish_all(vcl: &Instance) -> Result<(), ModuleError> {
    let sets = vcl.objects.iter().filter_map(|state| state.get()?.downcast_ref::<Set>());
    sets.filter(|set| set.finished.get().is_none()).try_for_each(|set| set.finish(""))
}

fn version<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    Ok(Value::Str(Some(concat!("Lacquer ", env!("CARGO_PKG_VERSION")).as_bytes())))
}
