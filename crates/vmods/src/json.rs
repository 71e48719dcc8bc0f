//! Module json: values of a JSON document, by their paths.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, Func, Value};
use serde_json::Value as Json;

use crate::blocking::BODIES;
use crate::support::{CallResult, DONE, Table, log, text};

pub(crate) static MODULE: Table =
    Table { name: "json", functions: FUNCTIONS, objects: &[], suspends: &["parse", "parse_req_body"] };

const FUNCTIONS: &[(&str, Func)] = &[
    ("parse", parse_text),
    ("parse_req_body", parse_req_body),
    ("contains", contains),
    ("get", get),
    ("length", length),
    ("is_valid", |ctx, _| is(ctx, |_| true)),
    ("is_object", |ctx, _| is(ctx, Json::is_object)),
    ("is_array", |ctx, _| is(ctx, Json::is_array)),
    ("is_string", |ctx, _| is(ctx, Json::is_string)),
    ("is_number", |ctx, _| is(ctx, Json::is_number)),
    ("is_bool", |ctx, _| is(ctx, Json::is_boolean)),
    ("is_null", |ctx, _| is(ctx, Json::is_null)),
];

/// Limit on the size of a document, in bytes.
const LARGEST: usize = 1 << 20;
/// Limits on the memory of the values of a document, and of those of all tasks, in bytes. Small objects within each other
/// need 130 times the size of their text.
const MOST_MEMORY: usize = 64 << 20;
const MOST_MEMORY_OF_ALL: usize = 256 << 20;
/// The size in bytes of a document that is parsed at once. Larger ones would hold the reactor.
const PARSED_AT_ONCE: usize = 32 << 10;

/// The memory of the documents of all tasks.
static MEMORY: AtomicUsize = AtomicUsize::new(0);

/// The document of a task.
#[derive(Default)]
struct Document(Option<Parsed>);

impl Document {
    fn value(&self) -> Option<&Json> {
        self.0.as_ref().map(|parsed| &parsed.value)
    }
}

/// A document, whose memory counts towards the limit of all.
struct Parsed {
    value: Json,
    memory: usize,
}

impl Parsed {
    fn new(bytes: &[u8]) -> Result<Parsed, String> {
        let memory = memory(bytes)?;
        let mut parsed = Parsed { value: Json::Null, memory };
        if MEMORY.fetch_add(memory, Ordering::Relaxed) + memory > MOST_MEMORY_OF_ALL {
            return Err(format!("the documents of all requests need more than {MOST_MEMORY_OF_ALL} bytes"));
        }
        parsed.value = from_slice(bytes)?;
        Ok(parsed)
    }
}

impl Drop for Parsed {
    fn drop(&mut self) {
        MEMORY.fetch_sub(self.memory, Ordering::Relaxed);
    }
}

/// Returns the memory that the values of a document need at most, in bytes. Fails beyond the limits.
fn memory(bytes: &[u8]) -> Result<usize, String> {
    if bytes.len() > LARGEST {
        return Err(format!("larger than {LARGEST} bytes"));
    }
    let mut memory = bytes.len();
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in bytes {
        if in_string {
            (in_string, is_escaped) = (is_escaped || *byte != b'"', !is_escaped && *byte == b'\\');
            continue;
        }
        memory += match byte {
            // The allocation of a string.
            b'"' => {
                in_string = true;
                32
            }
            // With one colon, a leaf of a tree. With a colon and a comma for each member, its nodes when least filled.
            b'{' => 544,
            b':' => 96,
            // The capacity of an array is at least four, and at most twice its length.
            b'[' => 4 * size_of::<Json>(),
            b',' => 2 * size_of::<Json>(),
            _ => 0,
        };
    }
    if memory > MOST_MEMORY {
        return Err(format!("its values need more than {MOST_MEMORY} bytes"));
    }
    Ok(memory)
}

fn from_slice(bytes: &[u8]) -> Result<Json, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// Parses a document. The parser limits the nesting.
pub(crate) fn parse(bytes: &[u8]) -> Result<Json, String> {
    memory(bytes)?;
    from_slice(bytes)
}

/// Returns the value under a path, such as `a.b[0]["c.d"]`. The empty path is the document.
pub(crate) fn find<'j>(document: &'j Json, path: &str) -> Option<&'j Json> {
    let mut at = document;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (name, behind) = quoted.split_once("\"]")?;
            (at, rest) = (at.get(name)?, behind);
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, behind) = index.split_once(']')?;
            let digits = !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit());
            (at, rest) = (at.get(index.parse::<usize>().ok().filter(|_| digits)?)?, behind);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            (at, rest) = (at.get(&rest[..end])?, &rest[end..]);
        }
        // A dot stands between two names; a bracket needs none.
        if let Some(behind) = rest.strip_prefix('.') {
            if behind.is_empty() || behind.starts_with('[') {
                return None;
            }
            rest = behind;
        } else if !rest.is_empty() && !rest.starts_with('[') {
            return None;
        }
    }
    Some(at)
}

/// Returns the text of a value. Strings have no quotes unless `quoted`. A string with a NUL has no text, and neither has a
/// number that may have lost digits.
pub(crate) fn shown(value: &Json, quoted: bool) -> Option<String> {
    match value {
        Json::String(text) if !quoted => (!text.contains('\0')).then(|| text.clone()),
        value => is_exact(value).then(|| value.to_string()),
    }
}

/// Returns whether all numbers of a value have the digits of the document. The parser keeps integers of 64 bits; larger
/// ones become fractions, of which 53 bits are exact. The parser has limited the nesting.
fn is_exact(value: &Json) -> bool {
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Json::Number(number) if number.is_f64() => number.as_f64().is_some_and(|number| number.abs() < MOST),
        Json::Array(elements) => elements.iter().all(is_exact),
        Json::Object(members) => members.values().all(is_exact),
        _ => true,
    }
}

/// Replaces the task's document.
fn store<'a>(ctx: &mut Ctx<'a>, bytes: Cow<'_, [u8]>) -> CallResult<'a> {
    ctx.task::<Document>(0).0 = None;
    let parsed = if bytes.len() <= PARSED_AT_ONCE {
        Parsed::new(&bytes)
    } else {
        let bytes = bytes.into_owned();
        BODIES.run(ctx, move || Parsed::new(&bytes))?
    };
    match parsed {
        Ok(parsed) => ctx.task::<Document>(0).0 = Some(parsed),
        Err(error) => log(ctx, Tag::Error, format!("json.parse: {error}")),
    }
    DONE
}

fn parse_text<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    store(ctx, Cow::Borrowed(args.str(0).unwrap_or_default()))
}

fn parse_req_body<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    if let Some(body) = ctx.host.cached_req_body() {
        return store(ctx, Cow::Owned(body));
    }
    ctx.task::<Document>(0).0 = None;
    log(ctx, Tag::Error, "json.parse_req_body: the body is not cached; call std.cache_req_body() first");
    DONE
}

/// Calls `read` with the value under the path in the first argument.
fn with_value<R>(ctx: &mut Ctx<'_>, args: &Args<'_>, read: impl FnOnce(&Json) -> Option<R>) -> Option<R> {
    let path = std::str::from_utf8(args.str(0)?).ok()?;
    read(find(ctx.task::<Document>(0).value()?, path)?)
}

fn contains<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(with_value(ctx, args, |_| Some(())).is_some()))
}

fn get<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    match with_value(ctx, args, |value| shown(value, args.bool(2))) {
        Some(found) => text(ctx, found.as_bytes()),
        None => Ok(Value::Str(args.str(1))),
    }
}

fn length<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let length = match ctx.task::<Document>(0).value() {
        Some(Json::Object(names)) => names.len(),
        Some(Json::Array(elements)) => elements.len(),
        _ => 0,
    };
    Ok(Value::Int(length as i64))
}

fn is<'a>(ctx: &mut Ctx<'a>, test: fn(&Json) -> bool) -> CallResult<'a> {
    Ok(Value::Bool(ctx.task::<Document>(0).value().is_some_and(test)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> Option<String> {
        let document =
            br#"{"a": {"b": [1, {"c": "x\"y"}, [true]], "d.e": null, "": 7}, "n": 1.5, "z": "a\u0000b"}"#;
        shown(find(&parse(document).expect("valid"), path)?, false)
    }

    #[test]
    fn values_are_found_by_path() {
        for (path, value) in [
            ("a.b[0]", "1"),
            ("a.b[1].c", "x\"y"),
            ("a.b[2][0]", "true"),
            ("a[\"d.e\"]", "null"),
            ("[\"a\"].b[1]", r#"{"c":"x\"y"}"#),
            ("n", "1.5"),
        ] {
            assert_eq!(at(path).as_deref(), Some(value), "{path}");
        }
        for missing in [
            "b",
            "a.b[3]",
            "a.b[-1]",
            "a.b[+0]",
            "a.b[]",
            "a.b[0",
            "a..b",
            "a.",
            ".a",
            "a.[0]",
            "a.b[0]c",
            "n[0]",
            "n.x",
            "[0]",
            "a[\"b",
            "z",
            "a.b[99999999999999999999]",
        ] {
            assert_eq!(at(missing), None, "{missing}");
        }
    }

    /// A value that has lost digits counts as missing, alone and within another one.
    #[test]
    fn numbers_keep_their_digits_or_have_no_text() {
        let text = |json: &str| shown(&parse(json.as_bytes()).expect("valid"), false);
        for exact in [
            "0",
            "-9223372036854775808",
            "9223372036854775808",
            "18446744073709551615",
            "9007199254740991.0",
            "-1.5",
            "0.1",
            "[1,{\"a\":18446744073709551615}]",
        ] {
            assert_eq!(text(exact).as_deref(), Some(exact));
        }
        assert_eq!(text("1.5e3").as_deref(), Some("1500.0"));
        for lossy in [
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "9007199254740993.0",
            "1e300",
            "-1e16",
            "[1,{\"a\":18446744073709551616}]",
        ] {
            assert_eq!(text(lossy), None, "{lossy}");
        }
    }

    #[test]
    fn documents_of_any_size_and_depth_are_parsed_or_refused() {
        for deep in ["[".repeat(500_000), "{\"a\":".repeat(200_000), "[".repeat(129) + &"]".repeat(129)] {
            assert!(parse(deep.as_bytes()).is_err());
        }
        assert!(parse(("[".repeat(100) + &"]".repeat(100)).as_bytes()).is_ok());
        let large = format!("[{}0]", "0,".repeat(LARGEST / 2 - 2));
        assert!(parse(large.as_bytes()).is_ok());
        assert!(parse(format!("[{}0]", "0,".repeat(LARGEST / 2)).as_bytes()).is_err());
        for invalid in ["", "{", "01", "1e999999", "\"\\ud800\"", "nul", "\u{feff}{}", "[1,]", "{\"a\":1}x"] {
            assert!(parse(invalid.as_bytes()).is_err(), "{invalid}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }

    /// Returns the bytes that the values occupy at least.
    fn occupied(value: &Json) -> usize {
        const LEAF: usize = 11 * (size_of::<String>() + size_of::<Json>());
        match value {
            Json::Array(elements) => {
                elements.capacity() * size_of::<Json>() + elements.iter().map(occupied).sum::<usize>()
            }
            Json::Object(members) => {
                let names: usize =
                    members.iter().map(|(name, value)| name.capacity() + occupied(value)).sum();
                names + members.len().div_ceil(11) * LEAF
            }
            Json::String(text) => text.capacity(),
            _ => 0,
        }
    }

    #[test]
    fn documents_that_need_much_memory_are_refused() {
        let nested = "{\"\":".repeat(126) + "0" + &"}".repeat(126);
        let bomb = |count: usize| format!("[{}0]", format!("{nested},").repeat(count));
        let refused = Parsed::new(bomb(1000).as_bytes()).err();
        assert_eq!(refused.as_deref(), Some("its values need more than 67108864 bytes"));
        let rows = |row: &str| format!("[{row}{}]", format!(",{row}").repeat(LARGEST / (row.len() + 1) - 2));
        for usual in [
            bomb(100),
            rows("{\"id\":1,\"v\":2}"),
            rows("[0,1]"),
            rows("\"\\\\\""),
            rows("0"),
            format!(
                "{{{}\"a\":0}}",
                (0..60_000).map(|i| format!("\"{i:x}\":[],")).collect::<Vec<_>>().concat()
            ),
            format!("\"{}\"", "[{,:\\\"".repeat(1000)),
        ] {
            let parsed = Parsed::new(usual.as_bytes()).expect("within the limits");
            assert!(occupied(&parsed.value) <= parsed.memory, "{usual:.40}");
        }

        let large = format!("[{}0]", "0,".repeat(LARGEST / 2 - 2));
        let mut held = Vec::new();
        let refused = loop {
            match Parsed::new(large.as_bytes()) {
                Ok(parsed) if held.len() < 100 => held.push(parsed),
                Ok(_) => panic!("there is no limit"),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, "the documents of all requests need more than 268435456 bytes");
        assert!(Parsed::new(b"[]").is_ok(), "a refused document holds nothing");
        held.pop();
        assert!(Parsed::new(large.as_bytes()).is_ok());
    }
}
