//! Module cookie: the Cookie header as a list that VCL can look up, filter and write back. The list
//! belongs to the task; the request does not change until VCL sets the header.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

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

/// The number of cookies in a header from which their names are found by hashes. Fewer are compared one by one.
const MANY: usize = 32;

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

    /// Replaces the cookies by those of a Cookie header. Returns the number of pairs.
    fn parse(&mut self, header: &[u8]) -> usize {
        self.0.clear();
        if header.split(|b| *b == b';').nth(MANY).is_none() {
            return pairs(header).inspect(|(name, value)| self.set(name, value)).count();
        }
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut count = 0;
        for (name, value) in pairs(header) {
            count += 1;
            if name.is_empty() || value.is_empty() {
                continue;
            }
            match places.entry(name) {
                Entry::Occupied(place) => self.0[*place.get()].value = value.to_vec(),
                Entry::Vacant(place) => {
                    place.insert(self.0.len());
                    self.0.push(Cookie { name: name.to_vec(), value: value.to_vec() });
                }
            }
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

/// Returns the names and values of a Cookie header, up to the first part without a value.
fn pairs(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = Some(header);
    std::iter::from_fn(move || {
        let pair = rest?.trim_ascii_start();
        let equals = pair.iter().position(|b| *b == b'=')?;
        let (name, after) = (&pair[..equals], &pair[equals + 1..]);
        let end = after.iter().position(|b| *b == b';');
        rest = end.map(|end| &after[end + 1..]);
        Some((name, &after[..end.unwrap_or(after.len())]))
    })
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
    let count = jar(ctx).parse(header);
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
    use std::time::{Duration, Instant};

    use lacquer_sources::random::Random;

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

    /// The cookies that are set one by one are the model.
    #[test]
    fn long_headers_are_parsed_like_short_ones() {
        let mut random = Random::new(1);
        let mut lengths = [0; 2];
        for _ in 0..1000 {
            let parts = random.below(4 * MANY as u64);
            let mut part = || match random.below(50) {
                0 => "junk".to_owned(),
                n => format!("{}={}", "n".repeat(n as usize % 9), "v".repeat(random.below(4) as usize)),
            };
            let header = (0..parts).map(|_| part()).collect::<Vec<_>>().join("; ");
            let mut one_by_one = Jar::default();
            let count = pairs(header.as_bytes()).inspect(|(name, value)| one_by_one.set(name, value)).count();
            let mut jar = Jar::default();
            assert_eq!(jar.parse(header.as_bytes()), count, "{header}");
            assert_eq!(jar.joined(), one_by_one.joined(), "{header}");
            lengths[usize::from(parts as usize > MANY)] += 1;
        }
        assert!(lengths.iter().all(|count| *count > 100), "{lengths:?}");
    }

    #[test]
    fn many_cookies_are_parsed_in_little_time() {
        let header = (0..50_000).map(|i| format!("n{i}=v")).collect::<Vec<_>>().join(";");
        let start = Instant::now();
        let mut jar = Jar::default();
        assert_eq!((jar.parse(header.as_bytes()), jar.0.len()), (50_000, 50_000));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}
