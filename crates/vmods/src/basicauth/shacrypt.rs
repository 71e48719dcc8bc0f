//! The SHA-2 password hashes of crypt(3), `$5$` and `$6$`: some thousand rounds of an algorithm similar to the
//! one for MD5.

use sha2::{Digest, Sha256, Sha512};

use super::md5crypt::push;

const SALT_MAX: usize = 16;
const ROUNDS: usize = 5000;
const MAX_ROUNDS: usize = 999_999_999;

/// Returns the digits for a stored form, which equal the text after its last dollar if the password is correct.
/// Returns `None` for other kinds of hashes.
pub fn digits(password: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
    if let Some(settings) = stored.strip_prefix(b"$5$") {
        let (salt, rounds) = salt_and_rounds(settings)?;
        let hash = stretch::<Sha256>(password, salt, rounds);
        let mut out = groups(&hash, 10, |[a, b, c]| [c + 1, a + 1, b + 1]);
        push(&mut out, u32::from(hash[31]) << 8 | u32::from(hash[30]), 3);
        return Some(out);
    }
    let (salt, rounds) = salt_and_rounds(stored.strip_prefix(b"$6$")?)?;
    let hash = stretch::<Sha512>(password, salt, rounds);
    let mut out = groups(&hash, 21, |[a, b, c]| [b + 1, c + 1, a + 1]);
    push(&mut out, u32::from(hash[63]), 2);
    Some(out)
}

/// Parses `[rounds=N$]salt$...`.
fn salt_and_rounds(settings: &[u8]) -> Option<(&[u8], usize)> {
    let (rounds, rest) = match settings.strip_prefix(b"rounds=") {
        None => (ROUNDS, settings),
        Some(rest) => {
            let end = rest.iter().position(|b| *b == b'$')?;
            let number: usize = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
            (number.clamp(1000, MAX_ROUNDS), &rest[end + 1..])
        }
    };
    let salt = rest.split(|b| *b == b'$').next().unwrap_or_default();
    Some((&salt[..salt.len().min(SALT_MAX)], rounds))
}

/// Repeats `block` up to a length.
fn repeat(block: &[u8], length: usize) -> Vec<u8> {
    block.iter().copied().cycle().take(length).collect()
}

fn stretch<D: Digest>(password: &[u8], salt: &[u8], rounds: usize) -> Vec<u8> {
    let inner = D::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut first = D::new().chain_update(password).chain_update(salt);
    first.update(repeat(&inner, password.len()));
    let mut length = password.len();
    while length > 0 {
        first.update(if length & 1 == 1 { &inner[..] } else { password });
        length >>= 1;
    }
    let mut digest = first.finalize();
    let all = D::digest(repeat(password, password.len() * password.len()));
    let password = repeat(&all, password.len());
    let all = D::digest(repeat(salt, salt.len() * (16 + usize::from(digest[0]))));
    let salt = repeat(&all, salt.len());
    for round in 0..rounds {
        let mut next = D::new();
        next.update(if round % 2 == 1 { &password[..] } else { &digest[..] });
        if round % 3 != 0 {
            next.update(&salt);
        }
        if round % 7 != 0 {
            next.update(&password);
        }
        next.update(if round % 2 == 1 { &digest[..] } else { &password[..] });
        digest = next.finalize();
    }
    digest.to_vec()
}

/// Returns the digits of groups of three bytes. The first group has one byte from each third of the digest; `next`
/// returns the positions of a group's bytes from those of the previous group.
fn groups(hash: &[u8], count: usize, next: impl Fn([usize; 3]) -> [usize; 3]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = [0, count, 2 * count];
    for _ in 0..count {
        let [a, b, c] = at.map(|i| u32::from(hash[i]));
        push(&mut out, a << 16 | b << 8 | c, 4);
        at = next(at);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn hashes_match_known_values() {
        for stored in [
            &b"$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"[..],
            b"$5$rounds=1400$anotherlongsalts$3qrvGONjJLD3nbbdMqiPU3HEkZj9mKxTAR68T172Rv9",
            b"$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
        ] {
            let digits = digits(b"Hello world!", stored).unwrap();
            assert!(stored.ends_with(&[b"$", &digits[..]].concat()), "{}", String::from_utf8_lossy(&digits));
        }
        assert_eq!(digits(b"x", b"$1$a$b"), None);
        assert_eq!(digits(b"x", b"$5$rounds=many$a$b"), None);
    }
}
