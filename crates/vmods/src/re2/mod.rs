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

use lacquer_vcl_runtime::Event;

use crate::support::{Table, WithEvents};

pub(crate) static MODULE: WithEvents = WithEvents {
    table: Table {
        name: "re2",
        functions: functions::FUNCTIONS,
        objects: &[object::TYPE, set::TYPE],
        suspends: &[],
    },
    event: |vcl, event| if event == Event::Initialized { set::compile_all(vcl) } else { Ok(()) },
};

/// Compiles a pattern alone and as a set, which must agree, and rewrites a text with it.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(flags: u16, pattern: &[u8], text: &[u8]) {
    use options::Options;
    let options = Options::of_flags(flags, 64 << 10);
    let Ok(hir) = pattern::parse(pattern, options) else { return };
    let Ok(single) = pattern::Pattern::of(&hir, options) else { return };
    let _ = single.replaced(text, b"<\\0\\1>", true);
    if let Ok(set) = multi::Matcher::new(&[hir], options.max_mem) {
        assert_eq!(single.is_match(text), !set.matches(text).is_empty());
    }
}
