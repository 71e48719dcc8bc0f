//! Module querysort: sorts the parameters of URLs by name, in a stable order.

use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::standard;
use crate::support::{CallResult, Table, free_workspace, overflow};

pub(crate) static MODULE: Table = Table {
    name: "querysort",
    functions: &[("querysort", querysort), ("sort", querysort)],
    objects: &[],
    suspends: &[],
};

fn querysort<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(url) = args.str(0) else { return Ok(Value::Str(None)) };
    let Some(sorted) = sorted(url) else { return Ok(Value::Str(Some(url))) };
    if sorted.len() >= free_workspace(ctx) {
        overflow(ctx);
        return Ok(Value::Str(Some(url)));
    }
    Ok(Value::Str(ctx.try_copy(&sorted).or(Some(url))))
}

/// Returns the name of a parameter, without the brackets of an array.
fn name(param: &[u8]) -> &[u8] {
    let end = param.iter().position(|b| matches!(b, b'=' | b'['));
    &param[..end.unwrap_or(param.len())]
}

fn sorted(url: &[u8]) -> Option<Vec<u8>> {
    standard::sorted(url, |a, b| name(a).cmp(name(b)))
}

#[cfg(test)]
mod tests {
    use super::sorted;

    #[test]
    fn parameters_are_sorted_by_name_in_a_stable_order() {
        for (url, expected) in [
            ("/a?c=3&b=2&a=1", "/a?a=1&b=2&c=3"),
            ("/a?b=2&a=9&b=1&a=1", "/a?a=9&a=1&b=2&b=1"),
            ("/?z&foo[]=2&foo[1]=1&foo=0&fon=1", "/?fon=1&foo[]=2&foo[1]=1&foo=0&z"),
            ("/a?&&b&&a&", "/a?a&b"),
            ("/a?b?x&a", "/a?a&b?x"),
            ("/?&", "/?"),
        ] {
            let found = sorted(url.as_bytes()).map(|v| String::from_utf8(v).expect("ASCII"));
            assert_eq!(found.as_deref(), Some(expected), "{url}");
        }
        for unchanged in ["/a", "/a?", "/a?b=1", ""] {
            assert_eq!(sorted(unchanged.as_bytes()), None);
        }
        let many: Vec<String> = (0..100_000).map(|i| format!("{}=1", i % 7)).collect();
        assert!(sorted(format!("/?{}", many.join("&")).as_bytes()).is_some());
    }
}
