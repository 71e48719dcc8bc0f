//! Module basicauth: HTTP Basic authentication with a file of htpasswd.

mod md5crypt;
mod shacrypt;

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, ModuleError, Value};
use sha1::{Digest, Sha1};
use sha2::Sha256;

use crate::blob::base64::STANDARD;
use crate::blocking::{FILES, HASHES};
use crate::support::{CallResult, Table, log, shown, text};

pub(crate) static MODULE: Table = Table {
    name: "basicauth",
    functions: &[("match", matches), ("getuser", getuser), ("setbasicauth", setbasicauth)],
    objects: &[],
    suspends: &["match"],
};

/// Maximum length in bytes of a name and password with the colon. The time of a hash grows with the password.
const MAX_CREDENTIALS: usize = 1023;

/// Returns the name and password of an Authorization header.
fn credentials(header: Option<&[u8]>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = header?.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let plain = STANDARD.decode(&[rest.trim_ascii()], usize::MAX).ok()?;
    if plain.len() > MAX_CREDENTIALS {
        return None;
    }
    let colon = plain.iter().position(|b| *b == b':')?;
    Some((plain[..colon].to_vec(), plain[colon + 1..].to_vec()))
}

/// Compares in a time that does not depend on the position of a difference.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}

/// Cached results for passwords whose hashes are slow by design, because every request of a user contains its password.
/// The key is a hash of password and stored form.
static CACHED_RESULTS: LazyLock<Mutex<HashMap<[u8; 32], bool>>> = LazyLock::new(Mutex::default);
/// Maximum number of results. When it is exceeded, all are removed.
const MAX_CACHED_RESULTS: usize = 4096;

fn cached_results() -> MutexGuard<'static, HashMap<[u8; 32], bool>> {
    CACHED_RESULTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the cache key of a result.
fn cache_key(password: &[u8], stored: &[u8]) -> [u8; 32] {
    let length = (password.len() as u64).to_le_bytes();
    Sha256::new().chain_update(length).chain_update(password).chain_update(stored).finalize().into()
}

/// Caches the result of `fits` for a password whose hash is slow.
fn cache_result(key: [u8; 32], result: Option<bool>) {
    let Some(fits) = result else { return };
    let mut known = cached_results();
    if known.len() >= MAX_CACHED_RESULTS {
        known.clear();
    }
    known.insert(key, fits);
}

fn fits_bcrypt(password: &[u8], stored: &[u8]) -> Option<bool> {
    bcrypt::verify(password, std::str::from_utf8(stored).ok()?).ok()
}

fn fits_sha(password: &[u8], stored: &[u8]) -> Option<bool> {
    let wanted = stored.rsplit(|b| *b == b'$').next().unwrap_or_default();
    Some(is_equal(&shacrypt::digits(password, stored)?, wanted))
}

/// Returns whether a password matches an entry of htpasswd, or `None` for an unknown kind of hash.
fn fits(password: &[u8], stored: &[u8]) -> Option<bool> {
    if let Some(hash) = stored.strip_prefix(b"{SHA}") {
        return Some(is_equal(&STANDARD.encode(&Sha1::digest(password)), hash));
    }
    for magic in [&b"$apr1$"[..], b"$1$"] {
        if let Some(rest) = stored.strip_prefix(magic) {
            let salt = rest.split(|b| *b == b'$').next().unwrap_or_default();
            return Some(is_equal(&md5crypt::hash(password, salt, magic), stored));
        }
    }
    if is_bcrypt(stored) {
        return fits_bcrypt(password, stored);
    }
    if stored.starts_with(b"$5$") || stored.starts_with(b"$6$") {
        return fits_sha(password, stored);
    }
    if stored.starts_with(b"$") { None } else { Some(is_equal(password, stored)) }
}

fn is_bcrypt(stored: &[u8]) -> bool {
    [&b"$2y$"[..], b"$2a$", b"$2b$"].iter().any(|magic| stored.starts_with(magic))
}

/// Checks like [`fits`]. Hashes that are slow by design are computed on a separate thread, once for each password.
fn fits_on_pool(ctx: &mut Ctx<'_>, password: Vec<u8>, stored: Vec<u8>) -> Result<Option<bool>, ModuleError> {
    if !stored.starts_with(b"$") {
        return Ok(fits(&password, &stored));
    }
    let key = cache_key(&password, &stored);
    if let Some(fits) = cached_results().get(&key) {
        return Ok(Some(*fits));
    }
    HASHES.run(ctx, move || {
        let result = fits(&password, &stored);
        cache_result(key, result);
        result
    })
}

/// Returns the stored form of a user's password. Lines that begin with `#` are comments.
fn stored<'f>(file: &'f [u8], user: &[u8]) -> Option<&'f [u8]> {
    file.split(|b| *b == b'\n').find_map(|line| {
        let line = line.trim_ascii();
        if line.starts_with(b"#") {
            return None;
        }
        let rest = line.strip_prefix(user)?.strip_prefix(b":")?;
        rest.split(|b| *b == b':').next()
    })
}

fn matches<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some((user, password)) = credentials(args.str(1)) else { return Ok(Value::Bool(false)) };
    let name = shown(args.str(0));
    let (path, wanted) = (name.clone().into_owned(), user.clone());
    let found =
        FILES.run(ctx, move || std::fs::read(path).map(|file| stored(&file, &wanted).map(<[u8]>::to_vec)));
    let stored = match found? {
        Ok(stored) => stored,
        Err(error) => {
            log(ctx, Tag::VCL_Error, format!("basicauth.match(): cannot read {name}: {error}"));
            return Ok(Value::Bool(false));
        }
    };
    let fits = stored.map(|stored| fits_on_pool(ctx, password, stored)).transpose()?;
    if fits == Some(None) {
        let user = shown(Some(&user)).into_owned();
        log(
            ctx,
            Tag::VCL_Error,
            format!(
                "basicauth.match(): the password of {user} in {name} has an unknown kind of hash; use htpasswd -B"
            ),
        );
    }
    Ok(Value::Bool(fits.flatten().unwrap_or(false)))
}

fn getuser<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    credentials(args.str(0)).map_or(Ok(Value::Str(None)), |(user, _)| text(ctx, &user))
}

fn setbasicauth<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (user, password) = (args.str(0).unwrap_or_default(), args.str(1).unwrap_or_default());
    let encoded = STANDARD.encode(&[user, b":", password].concat());
    text(ctx, &[b"Basic ", &encoded[..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_match_entries_of_htpasswd() {
        let file = b"joe:$apr1$hRY7OJWH$km1EYH.UIRjp6CzfZQz/g1\nsha:{SHA}58VR8KbbdEGN/n4bAkDUIhZ/xRw=\nplain:secret\nnew:$2y$05$x\n\
            b:$2y$05$abcdefghijklmnopqrstuuhKF09ZYWwH2zP/0fwE1X8e/Q1YNx/hO\n\
            s:$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5\n";
        let check = |user: &[u8], password: &[u8]| stored(file, user).map(|s| fits(password, s));
        assert_eq!(check(b"plain", b"secret"), Some(Some(true)));
        assert_eq!(check(b"plain", b"wrong"), Some(Some(false)));
        assert_eq!(check(b"sha", b"apassword"), Some(Some(true)));
        assert_eq!(check(b"new", b"x"), Some(None));
        assert_eq!(check(b"nobody", b"x"), None);
        for _ in 0..2 {
            assert_eq!(check(b"b", b"x"), Some(Some(true)));
            assert_eq!(check(b"b", b"y"), Some(Some(false)));
            assert_eq!(check(b"s", b"Hello world!"), Some(Some(true)));
            assert_eq!(check(b"s", b"Hello world"), Some(Some(false)));
        }
    }

    #[test]
    fn comments_are_no_entries() {
        let file = b"#joe:old\n # ann:old\n\t#bob:old\nann:new\n#:x\n";
        assert_eq!(stored(file, b"ann"), Some(&b"new"[..]));
        for user in [&b"#joe"[..], b"joe", b"# ann", b"#bob", b"#", b""] {
            assert_eq!(stored(file, user), None, "{user:?}");
        }
    }

    #[test]
    fn long_passwords_are_refused() {
        let header = |length: usize| {
            let plain = [b"joe:".to_vec(), vec![b'x'; length - 4]].concat();
            [b"Basic ".to_vec(), STANDARD.encode(&plain)].concat()
        };
        let length = |header: &[u8]| credentials(Some(header)).map(|(_, password)| password.len());
        assert_eq!(length(&header(MAX_CREDENTIALS)), Some(MAX_CREDENTIALS - 4));
        assert_eq!(length(&header(MAX_CREDENTIALS + 1)), None);
    }

    #[test]
    fn headers_contain_name_and_password() {
        let expected = Some((b"Aladdin".to_vec(), b"open sesame".to_vec()));
        assert_eq!(credentials(Some(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")), expected);
        for header in [&b"Bearer x"[..], b"Basic", b"Basic !", b"Basic Zg=="] {
            assert_eq!(credentials(Some(header)), None);
        }
    }
}
