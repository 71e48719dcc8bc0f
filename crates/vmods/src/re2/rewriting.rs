//! Texts with groups of a match: `sub`, `suball`, `extract`, and groups by number and name. The functions of the module
//! and the methods of its objects share them.

use lacquer_vcl_runtime::{Args, Ctx, ModuleError, Value};
use regex_automata::util::captures::Captures;

use super::pattern::Pattern;
use crate::support::{CallResult, copy_if_room};

/// Number of bytes of a text in messages.
const SHOWN: usize = 40;

pub(super) fn failure(text: impl std::fmt::Display) -> ModuleError {
    ModuleError(format!("vmod re2 failure: {text}"))
}

/// Returns the beginning of a text, for messages.
pub(super) fn brief(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(SHOWN)]).into_owned()
}

#[derive(Clone, Copy)]
pub(super) enum Rewriting {
    Sub,
    Suball,
    Extract,
}

impl Rewriting {
    pub fn name(self) -> &'static str {
        match self {
            Rewriting::Sub => "sub",
            Rewriting::Suball => "suball",
            Rewriting::Extract => "extract",
        }
    }
}

/// The arguments of `sub`, `suball` and `extract`, all defined.
pub(super) struct Texts<'a> {
    pub text: &'a [u8],
    pub rewrite: &'a [u8],
    pub fallback: &'a [u8],
}

impl<'a> Texts<'a> {
    /// Reads text, rewrite and fallback from argument `at` on. Fails if one is undefined.
    pub fn read(args: &Args<'a>, at: usize, call: &str) -> Result<Texts<'a>, ModuleError> {
        let fallback = args.str(at + 2).ok_or_else(|| failure(format!("{call}(): fallback is undefined")))?;
        let shown = brief(fallback);
        let text = args.str(at).ok_or_else(|| {
            failure(format!("{call}(text=<undefined>, fallback=\"{shown}\"): text is undefined"))
        })?;
        let rewrite = args.str(at + 1).ok_or_else(|| {
            let text = brief(text);
            failure(format!(
                "{call}(text=\"{text}\", rewrite=<undefined>, fallback=\"{shown}\"): rewrite is undefined"
            ))
        })?;
        Ok(Texts { text, rewrite, fallback })
    }

    /// Returns the rewritten text, or the fallback if nothing matches.
    pub fn rewritten(
        &self,
        ctx: &mut Ctx<'a>,
        pattern: &Pattern,
        rewriting: Rewriting,
        call: &str,
    ) -> CallResult<'a> {
        let made = match rewriting {
            Rewriting::Sub => pattern.replaced(self.text, self.rewrite, false),
            Rewriting::Suball => pattern.replaced(self.text, self.rewrite, true),
            Rewriting::Extract => pattern.extracted(self.text, self.rewrite),
        };
        let Some(made) = made else { return Ok(Value::Str(Some(self.fallback))) };
        let copied = copy_if_room(ctx, &made).ok_or_else(|| {
            let (text, rewrite, fallback) = (brief(self.text), brief(self.rewrite), brief(self.fallback));
            failure(format!(
                "{call}(text=\"{text}\", rewrite=\"{rewrite}\", fallback=\"{fallback}\"): workspace overflow, \
                 out of space"
            ))
        })?;
        Ok(Value::Str(Some(copied)))
    }
}

/// Returns a group of a match, or the fallback if it did not take part.
pub(super) fn group<'a>(
    ctx: &mut Ctx<'a>,
    (pattern, subject): (&Pattern, &[u8]),
    number: usize,
    fallback: &'a [u8],
    call: &str,
) -> CallResult<'a> {
    let groups = pattern.groups(subject, 0);
    let found = groups.as_ref().and_then(|groups: &Captures| groups.get_group(number));
    let Some(span) = found else { return Ok(Value::Str(Some(fallback))) };
    let copied = copy_if_room(ctx, &subject[span.range()]);
    let copied = copied.ok_or_else(|| failure(format!("{call}: copying the group, out of space")))?;
    Ok(Value::Str(Some(copied)))
}
