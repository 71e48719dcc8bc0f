//! A set: its strings while they are added, and its elements after vcl_init.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lacquer_vcl_runtime::{Args, BackendId, Ctx, Instance, ModuleError, ObjectState};

use super::strings::{Fault, Strings};
use crate::support::shown;

pub(super) struct Set {
    pub name: String,
    case_sensitive: bool,
    allow_overlaps: bool,
    pub added: Mutex<Vec<Member>>,
    pub finished: OnceLock<Elements>,
}

/// The content of a set after vcl_init.
pub(super) struct Elements {
    pub strings: Strings,
    pub members: Vec<Member>,
}

/// A string and its values.
pub(super) struct Member {
    pub text: Vec<u8>,
    pub string: Option<Vec<u8>>,
    /// The regex's index in the program.
    pub regex: Option<usize>,
    pub backend: Option<BackendId>,
    pub integer: Option<i64>,
    pub boolean: Option<bool>,
    pub sub: Option<u32>,
}

pub(super) fn failure(text: impl std::fmt::Display) -> ModuleError {
    ModuleError(format!("vmod selector failure: {text}"))
}

impl Set {
    pub fn finish(&self, call: &str) -> Result<(), ModuleError> {
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

pub(super) fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(Set {
        name: args.object_name.to_owned(),
        case_sensitive: args.bool(0),
        allow_overlaps: args.bool(1),
        added: Mutex::default(),
        finished: OnceLock::new(),
    }))
}

/// Finishes the sets of a program at the end of its vcl_init.
pub(super) fn finish_all(vcl: &Instance) -> Result<(), ModuleError> {
    let sets = vcl.objects.iter().filter_map(|state| state.get()?.downcast_ref::<Set>());
    sets.filter(|set| set.finished.get().is_none()).try_for_each(|set| set.finish(""))
}
