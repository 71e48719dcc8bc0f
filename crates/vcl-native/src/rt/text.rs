//! Strings: joining, comparison, matching, substitution, and the conversion of other types to STRING.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::net::SocketAddr;

use lacquer_vcl_runtime::regex::RegexError;
use lacquer_vcl_runtime::{BackendId, Blob, Ctx, ModuleError, Regex, Str, StrWords, convert};

use super::{guard, strands};

pub unsafe extern "C" fn join(ctx: &mut Ctx<'_>, parts: *const Str<'_>, count: u64) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| {
        // SAFETY: compiled code passes the list that it has just written.
        let parts = unsafe { strands(parts, count) };
        Ok(Str::new(ctx.join(parts)?).into_words())
    })
}

fn sign(order: Ordering) -> i32 {
    order as i32
}

/// Compares two single strings. Undefined is greater than anything, including itself.
pub unsafe extern "C" fn compare(_ctx: &mut Ctx<'_>, a: Str<'_>, b: Str<'_>) -> i32 {
    match (a.get(), b.get()) {
        (Some(a), Some(b)) => sign(a.cmp(b)),
        _ => 1,
    }
}

pub unsafe extern "C" fn same_bytes(_ctx: &mut Ctx<'_>, a: *const u8, b: *const u8, length: u64) -> u32 {
    // SAFETY: compiled code passes two strings of this length, which is not 0, so neither is null.
    let (a, b) = unsafe {
        (std::slice::from_raw_parts(a, length as usize), std::slice::from_raw_parts(b, length as usize))
    };
    u32::from(a == b)
}

/// Compares the joined strings of two lists; undefined parts are empty.
pub unsafe extern "C" fn compare_strands(
    ctx: &mut Ctx<'_>,
    a: *const Str<'_>,
    a_count: u64,
    b: *const Str<'_>,
    b_count: u64,
) -> i32 {
    guard(ctx, 0, |_| {
        // SAFETY: compiled code passes the lists that it has just written.
        let (a, b) = unsafe { (strands(a, a_count), strands(b, b_count)) };
        Ok(sign(a.iter().flat_map(|s| s.or_empty()).cmp(b.iter().flat_map(|s| s.or_empty()))))
    })
}

fn regex<'a>(ctx: &Ctx<'a>, number: u32) -> Result<&'a Regex, ModuleError> {
    let index = (number as usize).checked_sub(1).ok_or("Cannot match a null REGEX")?;
    ctx.vcl.regex(index).ok_or_else(|| "No such regular expression".into())
}

pub unsafe extern "C" fn matches(ctx: &mut Ctx<'_>, subject: Str<'_>, number: u32) -> u32 {
    guard(ctx, 0, |ctx| {
        let found = regex(ctx, number)?.is_match(subject.or_empty(), ctx.host.regex_limits());
        found.map(u32::from).map_err(|e| format!("Regexp matching failed: {e}").into())
    })
}

thread_local! {
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// `number` is the regex's number. If [`ALL`] is added, all matches are replaced.
pub unsafe extern "C" fn regsub(
    ctx: &mut Ctx<'_>,
    subject: Str<'_>,
    number: u64,
    replacement: Str<'_>,
) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| {
        let regex = regex(ctx, number as u32)?;
        let text = subject.get().unwrap_or_default();
        let limits = ctx.host.regex_limits();
        OUTPUT.with_borrow_mut(|out| {
            out.clear();
            let done = regex.substitute(text, replacement.or_empty(), number & ALL != 0, limits, out);
            match done {
                Ok(true) => {
                    let held = ctx.copy(out).map_err(|_| "regsub: Out of workspace")?;
                    Ok(Str::new(held).into_words())
                }
                Ok(false) => Ok(if subject.is_null() { Str::new(b"") } else { subject }.into_words()),
                Err(RegexError(code)) => Err(format!("regsub: Regexp matching returned {code}").into()),
            }
        })
    })
}

/// Flag in [`regsub`]'s number for regsuball.
pub const ALL: u64 = 1 << 32;

/// Implements `.upper()` and `.lower()`. A string without changes is not copied; the empty string
/// becomes undefined, as in Varnish.
pub unsafe extern "C" fn change_case(ctx: &mut Ctx<'_>, upper: u32, text: Str<'_>) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| {
        let bytes = text.or_empty();
        let (upper, change): (_, fn(&u8) -> bool) =
            if upper != 0 { (true, u8::is_ascii_lowercase) } else { (false, u8::is_ascii_uppercase) };
        if bytes.is_empty() {
            return Ok(StrWords::NULL);
        }
        if !bytes.iter().any(change) {
            return Ok(text.into_words());
        }
        OUTPUT.with_borrow_mut(|out| {
            out.clear();
            out.extend_from_slice(bytes);
            if upper {
                out.make_ascii_uppercase();
            } else {
                out.make_ascii_lowercase();
            }
            Ok(Str::new(ctx.copy(out)?).into_words())
        })
    })
}

pub unsafe extern "C" fn acl_match(ctx: &mut Ctx<'_>, acl: u32, ip: *const SocketAddr) -> u32 {
    // SAFETY: an IP value is null or points to an address of this task.
    let ip = unsafe { ip.as_ref() };
    guard(ctx, 0, |ctx| Ok(u32::from(ctx.acl_match(acl.checked_sub(1), ip)?)))
}

/// Compares addresses without ports.
pub unsafe extern "C" fn same_ip(ctx: &mut Ctx<'_>, a: *const SocketAddr, b: *const SocketAddr) -> u32 {
    guard(ctx, 0, |_| {
        // SAFETY: an IP value is null or points to an address of this task.
        let (a, b) = unsafe { (a.as_ref(), b.as_ref()) };
        match (a, b) {
            (Some(a), Some(b)) => Ok(u32::from(a.ip() == b.ip())),
            _ => Err("VRT_ipcmp: Illegal IP".into()),
        }
    })
}

/// Returns undefined if the workspace has no space for the text; the workspace records the overflow.
fn number(ctx: &mut Ctx<'_>, text: &convert::Text) -> StrWords {
    Str::from_option(ctx.try_copy(text.bytes())).into_words()
}

pub extern "C" fn int_text(ctx: &mut Ctx<'_>, value: i64) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| Ok(number(ctx, &convert::int(value)?)))
}

/// Converts a REAL or DURATION.
pub extern "C" fn real_text(ctx: &mut Ctx<'_>, value: f64) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| Ok(number(ctx, &convert::real(value)?)))
}

pub extern "C" fn time_text(ctx: &mut Ctx<'_>, value: f64) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| Ok(Str::new(ctx.text(convert::time(value))?).into_words()))
}

pub unsafe extern "C" fn ip_text(ctx: &mut Ctx<'_>, ip: *const SocketAddr) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| {
        // SAFETY: an IP value is null or points to an address of this task.
        let ip = unsafe { ip.as_ref() }.ok_or("VRT_IP_string: Illegal IP")?;
        Ok(Str::new(ctx.text(Ok(convert::ip(ip)))?).into_words())
    })
}

pub unsafe extern "C" fn blob_text(ctx: &mut Ctx<'_>, blob: *const Blob<'_>) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| {
        // SAFETY: a BLOB value is null or points to a blob of this task.
        match unsafe { blob.as_ref() } {
            Some(blob) => Ok(Str::new(ctx.copy(&convert::blob(blob.bytes()))?).into_words()),
            None => Ok(StrWords::NULL),
        }
    })
}

pub extern "C" fn backend_text(ctx: &mut Ctx<'_>, backend: u32) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| Ok(Str::from_option(ctx.backend_name(BackendId(backend))?).into_words()))
}

pub extern "C" fn stevedore_text(ctx: &mut Ctx<'_>, stevedore: u32) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| {
        let name = if stevedore == 0 { None } else { ctx.host.stevedore_name(stevedore) };
        Ok(Str::from_option(name).into_words())
    })
}

pub extern "C" fn acl_text(ctx: &mut Ctx<'_>, acl: u32) -> StrWords {
    let acls = &ctx.vcl.program.acls;
    let acl = acl.checked_sub(1).and_then(|i| acls.get(i as usize));
    Str::from_option(acl.map(|a| a.name.as_bytes())).into_words()
}
