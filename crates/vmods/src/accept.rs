//! Module accept: reduces Accept headers to one of a site's values, which limits the variants in the cache.

use std::sync::{Arc, PoisonError, RwLock};

use lacquer_vcl_runtime::{Args, Ctx, ModuleError, ObjectState, ObjectType};

use crate::support::{CallResult, DONE, Table, text};

pub(crate) static MODULE: Table = Table {
    name: "accept",
    functions: &[],
    objects: &[ObjectType {
        name: "rule",
        new,
        methods: &[("add", add), ("remove", remove), ("filter", filter)],
    }],
    suspends: &[],
};

struct Rule {
    fallback: Vec<u8>,
    known: RwLock<Vec<Vec<u8>>>,
}

fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(Rule { fallback: args.str(0).unwrap_or_default().to_vec(), known: RwLock::default() }))
}

fn add<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(value) = args.str(0).filter(|v| !v.is_empty()) else { return DONE };
    let mut known = args.this::<Rule>()?.known.write().unwrap_or_else(PoisonError::into_inner);
    if !known.iter().any(|k| k.eq_ignore_ascii_case(value)) {
        known.push(value.to_vec());
    }
    DONE
}

fn remove<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let value = args.str(0).unwrap_or_default();
    let mut known = args.this::<Rule>()?.known.write().unwrap_or_else(PoisonError::into_inner);
    known.retain(|k| !k.eq_ignore_ascii_case(value));
    DONE
}

fn filter<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let rule = args.this::<Rule>()?;
    let known = rule.known.read().unwrap_or_else(PoisonError::into_inner);
    let chosen = args.str(0).and_then(|header| choose(header, &known)).unwrap_or(&rule.fallback);
    text(ctx, chosen)
}

/// Returns the known value of the highest quality, the first of equals. Returns `None` for a malformed header too.
fn choose<'k>(header: &[u8], known: &'k [Vec<u8>]) -> Option<&'k [u8]> {
    let mut best = (0.0, None);
    let mut rest = Some(header);
    while let Some(header) = rest {
        let end = header.iter().position(|b| *b == b',');
        let (element, after) = end.map_or((header, None), |at| (&header[..at], Some(&header[at + 1..])));
        rest = after;
        if after.is_none() && element.trim_ascii().is_empty() {
            break;
        }
        let (value, quality) = parse(element)?;
        if let Some(found) = known.iter().find(|k| k.eq_ignore_ascii_case(value))
            && quality > best.0
        {
            best = (quality, Some(&found[..]));
        }
    }
    best.1
}

/// Parses `value; parameter=value; q=0.5`. Only a first parameter named q is the quality.
fn parse(element: &[u8]) -> Option<(&[u8], f64)> {
    let mut parts = element.split(|b| *b == b';');
    let value = parts.next().map(<[u8]>::trim_ascii).filter(|v| is_token(v))?;
    let mut quality = 1.0;
    for (i, part) in parts.enumerate() {
        let equals = part.iter().position(|b| *b == b'=')?;
        let (name, argument) = (part[..equals].trim_ascii_start(), part[equals + 1..].trim_ascii_end());
        if !is_token(name) || !is_token(argument) {
            return None;
        }
        if i == 0 && name == b"q" {
            let number = std::str::from_utf8(argument).ok()?.parse::<f64>().ok()?;
            quality = Some(number).filter(|q| (0.0..=1.0).contains(q))?;
        }
    }
    Some((value, quality))
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && !text.iter().any(|b| b.is_ascii_whitespace() || *b == b'=')
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn values_are_chosen_by_quality_and_order() {
        let known = [b"bar".to_vec(), b"baz".to_vec()];
        for (header, expected) in [
            ("foo", None),
            ("BaR", Some("bar")),
            ("qux;q=1 ; level=15,bar;baz=no", Some("bar")),
            ("baza; baz=0.2    ,  bar, baz", Some("bar")),
            ("this , is; a=tricky/one , but,   bar  , is)what$we; want=!", Some("bar")),
            ("bar; q = 1", None),
            ("bar; q= 0.5", None),
            ("bar; q=0", None),
            ("bar; quick=0.2, baz; q=0.3", Some("bar")),
            ("bar; level=1; q=0.3, baz;q=0.5", Some("bar")),
            ("bar; q=0.3, baz;q=0.5", Some("baz")),
        ] {
            assert_eq!(choose(header.as_bytes(), &known), expected.map(str::as_bytes), "{header}");
        }
    }
}
