//! The MD5 password hash of crypt(3) (`$1$`) and of Apache (`$apr1$`), with a thousand rounds.

use md5::{Digest, Md5};

const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The bytes of the digest that form each group of 24 bits.
const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// Returns the complete stored form: magic, salt and digits.
pub fn hash(password: &[u8], salt: &[u8], magic: &[u8]) -> Vec<u8> {
    let salt = &salt[..salt.len().min(8)];
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut first = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for part in password.chunks(16) {
        first.update(&inner[..part.len()]);
    }
    let mut length = password.len();
    while length > 0 {
        first.update(if length & 1 == 1 { &[0][..] } else { &password[..1] });
        length >>= 1;
    }
    let mut digest = first.finalize();
    for round in 0..1000 {
        let mut next = Md5::new();
        next.update(if round % 2 == 1 { password } else { &digest });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if round % 2 == 1 { &digest } else { password });
        digest = next.finalize();
    }
    let mut out = [magic, salt, b"$"].concat();
    for [a, b, c] in GROUPS {
        let bits = u32::from(digest[a]) << 16 | u32::from(digest[b]) << 8 | u32::from(digest[c]);
        push(&mut out, bits, 4);
    }
    push(&mut out, u32::from(digest[11]), 2);
    out
}

/// Appends digits, the lowest six bits first.
pub fn push(out: &mut Vec<u8>, bits: u32, digits: usize) {
    out.extend((0..digits).map(|i| DIGITS[(bits >> (6 * i)) as usize & 63]));
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn hashes_match_known_values() {
        assert_eq!(hash(b"myPassword", b"r31.....", b"$apr1$"), b"$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/");
    }
}
