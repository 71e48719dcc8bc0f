//! A set: its strings while they are added, and its elements after vcl_init.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lacquer_shm::Segment;
use lacquer_shm::vsc::Selector;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, Event, Instance, ModuleError, ObjectState};

use super::strings::{Fault, Strings};
use crate::support::shown;

pub(super) struct Set {
    pub name: String,
    case_sensitive: bool,
    allow_overlaps: bool,
    pub added: Mutex<Vec<Member>>,
    pub finished: OnceLock<Elements>,
    /// The counters, if the program has asked for them.
    stats: OnceLock<Segment<Selector>>,
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

    /// Creates the counters. They get their values at the end of vcl_init, when the set is complete.
    pub fn create_stats(&self, vcl: &Instance) -> Result<(), ModuleError> {
        if self.stats.get().is_none() {
            let made = vcl.make_counters(&self.name);
            let made = made.map_err(|why| failure(format!("{}.create_stats(): {why}", self.name)))?;
            let _ = self.stats.set(made);
        }
        Ok(())
    }

    fn publish(&self) {
        let (Some(stats), Some(elements)) = (self.stats.get(), self.finished.get()) else { return };
        let lengths = || elements.members.iter().map(|member| member.text.len() as u64);
        stats.elements.set(elements.members.len() as u64);
        // In Varnish's module, each string has a terminator.
        stats.setsz.set(lengths().map(|length| length + 1).sum());
        stats.minlen.set(lengths().min().unwrap_or(0));
        stats.maxlen.set(lengths().max().unwrap_or(0));
    }

    fn show(&self, shown: bool) {
        match self.stats.get() {
            Some(stats) if shown => stats.reveal(),
            Some(stats) => stats.hide(),
            None => {}
        }
    }
}

pub(super) fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(Set {
        name: args.object_name.to_owned(),
        case_sensitive: args.bool(0),
        allow_overlaps: args.bool(1),
        added: Mutex::default(),
        finished: OnceLock::new(),
        stats: OnceLock::new(),
    }))
}

/// Finishes the sets of a program at the end of its vcl_init, and shows their counters while it is warm.
pub(super) fn event(vcl: &Instance, event: Event) -> Result<(), ModuleError> {
    let mut sets = vcl.objects.iter().filter_map(|state| state.get()?.downcast_ref::<Set>());
    match event {
        Event::Initialized => sets.try_for_each(|set| {
            if set.finished.get().is_none() {
                set.finish("")?;
            }
            set.publish();
            Ok(())
        }),
        Event::Warm | Event::Cold => {
            sets.for_each(|set| set.show(event == Event::Warm));
            Ok(())
        }
        Event::Load | Event::Discard => Ok(()),
    }
}
