//! Module cookie: the Cookie header as a list that VCL can look up, filter and write back. The list
//! belongs to the task; the request does not change until VCL sets the header.

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::support::{CallResult, DONE, Table, is_match, log, shown, text};

pub(crate) static MODULE: Table = Table {
    name: "cookie",
    functions: &[
        ("clean", clean),
        ("delete", delete),
        ("filter", filter),
        ("filter_re", filter_re),
        ("keep", keep),
        ("keep_re", keep_re),
        ("format_date", format_date),
        ("get", get),
        ("get_re", get_re),
        ("get_string", get_string),
        ("isset", isset),
        ("parse", parse),
        ("set", set),
    ],
    objects: &[],
    suspends: &[],
};

#[derive(Default)]
struct Jar(Vec<Cookie>);

struct Cookie {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Jar {
    fn set(&mut self, name: &[u8], value: &[u8]) {
        if name.is_empty() || value.is_empty() {
            return;
        }
        match self.0.iter_mut().find(|c| c.name == name) {
            Some(cookie) => cookie.value = value.to_vec(),
            None => self.0.push(Cookie { name: name.to_vec(), value: value.to_vec() }),
        }
    }

    fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.iter().find(|c| c.name == name).map(|c| &c.value[..])
    }

    /// Adds the cookies of a Cookie header. Returns the number of pairs.
    fn parse(&mut self, header: &[u8]) -> usize {
        let mut count = 0;
        let mut rest = header;
        loop {
            rest = rest.trim_ascii_start();
            let Some(equals) = rest.iter().position(|b| *b == b'=') else { break };
            let (name, after) = (&rest[..equals], &rest[equals + 1..]);
            let end = after.iter().position(|b| *b == b';');
            self.set(name, &after[..end.unwrap_or(after.len())]);
            count += 1;
            let Some(end) = end else { break };
            rest = &after[end + 1..];
        }
        count
    }

    fn joined(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for cookie in &self.0 {
            if !out.is_empty() {
                out.extend_from_slice(b"; ");
            }
            out.extend_from_slice(&cookie.name);
            out.push(b'=');
            out.extend_from_slice(&cookie.value);
        }
        out
    }
}

fn jar<'c>(ctx: &'c mut Ctx<'_>) -> &'c mut Jar {
    ctx.task(0)
}

/// Returns the names in a list such as "a, b,c".
fn names(list: Option<&[u8]>) -> Vec<&[u8]> {
    let all = list.unwrap_or_default().split(|b| *b == b',');
    all.map(<[u8]>::trim_ascii_start).filter(|name| !name.is_empty()).collect()
}

fn parse<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let header = args.str(0).unwrap_or_default();
    if header.is_empty() {
        log(ctx, Tag::Debug, "cookie: nothing to parse");
        return DONE;
    }
    let jar = jar(ctx);
    jar.0.clear();
    let count = jar.parse(header);
    log(ctx, Tag::Debug, format!("cookie: parsed {count} cookies."));
    DONE
}

fn set<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    jar(ctx).set(args.str(0).unwrap_or_default(), args.str(1).unwrap_or_default());
    DONE
}

fn isset<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(args.str(0).is_some_and(|name| jar(ctx).get(name).is_some())))
}

fn get<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = args.str(0).and_then(|name| jar(ctx).get(name)).map(<[u8]>::to_vec);
    found.map_or(Ok(Value::Str(None)), |value| text(ctx, &value))
}

fn get_re<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (regex, limits) = (args.regex(0)?, ctx.host.regex_limits());
    let all = std::mem::take(&mut jar(ctx).0);
    let mut found = Ok(None);
    for cookie in &all {
        log(ctx, Tag::Debug, format!("cookie: checking {}", shown(Some(&cookie.name))));
        found = is_match(regex, &cookie.name, limits).map(|matches| matches.then(|| cookie.value.clone()));
        if !matches!(found, Ok(None)) {
            break;
        }
    }
    jar(ctx).0 = all;
    found?.map_or(Ok(Value::Str(None)), |value| text(ctx, &value))
}

fn get_string<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let joined = jar(ctx).joined();
    let answer = text(ctx, &joined)?;
    if matches!(answer, Value::Str(None)) {
        log(ctx, Tag::Error, "cookie: Workspace overflow");
    }
    Ok(answer)
}

fn clean<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    jar(ctx).0.clear();
    DONE
}

fn delete<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let name = args.str(0).unwrap_or_default();
    jar(ctx).0.retain(|c| c.name != name);
    DONE
}

fn keep<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let names = names(args.str(0));
    jar(ctx).0.retain(|c| names.contains(&&c.name[..]));
    DONE
}

fn filter<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let names = names(args.str(0));
    jar(ctx).0.retain(|c| !names.contains(&&c.name[..]));
    DONE
}

fn keep_re<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    retain_re(ctx, args, true)
}

fn filter_re<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    retain_re(ctx, args, false)
}

fn retain_re<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, matching: bool) -> CallResult<'a> {
    let what = if matching { "cookie" } else { "matching cookie" };
    let (regex, limits) = (args.regex(0)?, ctx.host.regex_limits());
    let mut all = std::mem::take(&mut jar(ctx).0);
    let mut done = DONE;
    all.retain(|c| {
        let stays = match done.is_ok().then(|| is_match(regex, &c.name, limits)) {
            Some(Ok(matches)) => matches == matching,
            Some(Err(fault)) => {
                done = Err(fault);
                true
            }
            None => true,
        };
        if !stays {
            let (name, value) = (shown(Some(&c.name)), shown(Some(&c.value)));
            log(ctx, Tag::Debug, format!("Removing {what} {name} (value: {value})"));
        }
        stays
    });
    jar(ctx).0 = all;
    done
}

fn format_date<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    text(ctx, &lacquer_http::date::format(args.real(0) + args.real(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(header: &str) -> String {
        let mut jar = Jar::default();
        jar.parse(header.as_bytes());
        String::from_utf8(jar.joined()).unwrap()
    }

    #[test]
    fn real_headers_are_parsed() {
        assert_eq!(parsed("a=1; b=2;c=3"), "a=1; b=2; c=3");
        assert_eq!(parsed("a=1;="), "a=1");
        assert_eq!(parsed("empty="), "");
        assert_eq!(parsed("a=x=y; junk"), "a=x=y");
        assert_eq!(parsed("a=1; b=2; a=3"), "a=3; b=2");
        assert_eq!(parsed(""), "");
    }

    #[test]
    fn lists_of_names_skip_spaces_and_empty_parts() {
        assert_eq!(names(Some(b" a,,  b,c")), [&b"a"[..], b"b", b"c"]);
        assert!(names(None).is_empty());
    }
}
