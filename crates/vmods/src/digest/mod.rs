//! Module digest: hashes, keyed hashes and base 64, as text.

mod checksum;
mod haval;
mod snefru;
mod snefru_table;

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, Func, Value};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::blob::base64;
use crate::support::{CallResult, Table, log, text};

pub(crate) static MODULE: Table = Table { name: "digest", functions: FUNCTIONS, objects: &[], suspends: &[] };

/// Defines a function of a text.
macro_rules! of_text {
    ($f:expr) => {{
        fn call<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            let made: Vec<u8> = $f(args.str(0).unwrap_or_default());
            text(ctx, &made)
        }
        call as Func
    }};
}

macro_rules! hashed {
    ($hash:ty) => {
        of_text!(|s: &[u8]| hex(&<$hash>::digest(s)))
    };
}

/// Defines a keyed hash. Without a key the result is undefined, so that a missing key is noticed.
macro_rules! keyed {
    ($hash:ty, $block:literal) => {{
        fn call<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            let Some(key) = args.str(0) else { return Ok(Value::Str(None)) };
            let mac = hmac::<$hash, $block>(key, args.str(1).unwrap_or_default());
            text(ctx, &[b"0x", &hex(&mac)[..]].concat())
        }
        call as Func
    }};
}

macro_rules! decoded {
    ($alphabet:expr) => {{
        fn call<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            match decode(&$alphabet, args.str(0).unwrap_or_default()) {
                Some(bytes) => text(ctx, &bytes),
                None => {
                    log(ctx, Tag::VCL_Error, "digest: Base64 input contains invalid characters");
                    Ok(Value::Str(Some(b"")))
                }
            }
        }
        call as Func
    }};
}

const FUNCTIONS: &[(&str, Func)] = &[
    ("hmac_sha256", keyed!(Sha256, 64)),
    ("hmac_sha1", keyed!(Sha1, 64)),
    ("hmac_md5", keyed!(Md5, 64)),
    ("base64", of_text!(|s: &[u8]| base64::STANDARD.encode(s))),
    ("base64_hex", of_text!(|s| base64::STANDARD.encode(&from_hex(s)))),
    ("base64_decode", decoded!(base64::STANDARD)),
    ("base64url", of_text!(|s: &[u8]| base64::URL.encode(s))),
    ("base64url_hex", of_text!(|s| base64::URL.encode(&from_hex(s)))),
    ("base64url_decode", decoded!(base64::URL)),
    ("base64url_nopad", of_text!(|s: &[u8]| base64::URL_NO_PADDING.encode(s))),
    ("base64url_nopad_hex", of_text!(|s| base64::URL_NO_PADDING.encode(&from_hex(s)))),
    ("base64url_nopad_decode", decoded!(base64::URL_NO_PADDING)),
    ("hash_sha1", hashed!(Sha1)),
    ("hash_sha224", hashed!(Sha224)),
    ("hash_sha256", hashed!(Sha256)),
    ("hash_sha384", hashed!(Sha384)),
    ("hash_sha512", hashed!(Sha512)),
    ("hash_md5", hashed!(Md5)),
    ("hash_md2", hashed!(md2::Md2)),
    ("hash_md4", hashed!(md4::Md4)),
    ("hash_ripemd128", hashed!(ripemd::Ripemd128)),
    ("hash_ripemd160", hashed!(ripemd::Ripemd160)),
    ("hash_ripemd256", hashed!(ripemd::Ripemd256)),
    ("hash_ripemd320", hashed!(ripemd::Ripemd320)),
    ("hash_tiger", of_text!(|s| hex(&tiger(s)))),
    ("hash_tiger128", of_text!(|s| hex(&tiger(s)[..16]))),
    ("hash_tiger160", of_text!(|s| hex(&tiger(s)[..20]))),
    ("hash_haval128", of_text!(|s| hex(&haval::haval128(s)))),
    ("hash_haval160", of_text!(|s| hex(&haval::haval160(s)))),
    ("hash_haval192", of_text!(|s| hex(&haval::haval192(s)))),
    ("hash_haval224", of_text!(|s| hex(&haval::haval224(s)))),
    ("hash_haval256", of_text!(|s| hex(&haval::haval256(s)))),
    ("hash_snefru128", of_text!(|s| hex(&snefru::snefru128(s)))),
    ("hash_snefru256", of_text!(|s| hex(&snefru::snefru256(s)))),
    ("hash_whirlpool", hashed!(whirlpool::Whirlpool)),
    ("hash_gost", hashed!(gost94::Gost94Test)),
    ("hash_crc32", of_text!(|s| hex(&checksum::crc32(s).to_le_bytes()))),
    ("hash_crc32b", of_text!(|s| hex(&checksum::crc32b(s).to_le_bytes()))),
    ("hash_adler32", of_text!(|s| hex(&checksum::adler32(s).to_le_bytes()))),
    ("version", of_text!(|_| env!("CARGO_PKG_VERSION").as_bytes().to_vec())),
];

pub(crate) fn hex(bytes: &[u8]) -> Vec<u8> {
    crate::blob::encode_hex(bytes)
}

/// Computes Tiger in the byte order of its paper and of libmhash: each word with the most significant byte first. The
/// shorter forms are prefixes.
fn tiger(text: &[u8]) -> Vec<u8> {
    let digest = tiger::Tiger::digest(text);
    digest.chunks(8).flat_map(|word| word.iter().rev().copied()).collect()
}

/// Decodes pairs of digits, with or without a leading `0x`. Other characters count as 0, and half a pair is ignored.
fn from_hex(digits: &[u8]) -> Vec<u8> {
    let digits = if digits.len() > 2 { digits.strip_prefix(b"0x").unwrap_or(digits) } else { digits };
    let value = |d: u8| (d as char).to_digit(16).unwrap_or(0) as u8;
    digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

/// Decodes a string, which ends at the first NUL. Returns `None` for characters outside of the alphabet.
fn decode(alphabet: &base64::Alphabet, encoded: &[u8]) -> Option<Vec<u8>> {
    let end = encoded.iter().rposition(|b| !alphabet.is_padding(*b)).map_or(0, |at| at + 1);
    let padding = encoded.len() - end;
    let whole = if padding > 2 { encoded } else { &encoded[..end] };
    let mut bytes = alphabet.decode(&[whole], usize::MAX).ok()?;
    bytes.truncate(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
    Some(bytes)
}

pub(crate) fn hmac<D: Digest, const BLOCK: usize>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        let digest = D::digest(key);
        block[..digest.len()].copy_from_slice(&digest);
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = D::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message).finalize();
    D::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner).finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn shown(bytes: &[u8]) -> String {
        String::from_utf8(hex(bytes)).unwrap()
    }

    #[test]
    fn keyed_hashes_are_those_of_rfc_2202_and_4231() {
        let fox = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(shown(&hmac::<Md5, 64>(b"key", fox)), "80070713463e7749b90c2dc24911e275");
        assert_eq!(shown(&hmac::<Sha1, 64>(b"key", fox)), "de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9");
        let long = [0xaa; 131];
        assert_eq!(
            shown(&hmac::<Sha256, 64>(&long, b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn old_hashes_match_their_papers() {
        let of_abc = |name: &str| match name {
            "md2" => shown(&md2::Md2::digest(b"abc")),
            "md4" => shown(&md4::Md4::digest(b"abc")),
            "ripemd160" => shown(&ripemd::Ripemd160::digest(b"abc")),
            "tiger" => shown(&tiger(b"abc")),
            "gost" => shown(&gost94::Gost94Test::digest(b"abc")),
            _ => shown(&whirlpool::Whirlpool::digest(b"abc"))[..32].to_owned(),
        };
        for (name, hash) in [
            ("md2", "da853b0d3f88d99b30283a69e6ded6bb"),
            ("md4", "a448017aaf21d8525fc10ae87aa6729d"),
            ("ripemd160", "8eb208f7e05d987a9b044a8e98c6b087f15a0bfc"),
            ("tiger", "f258c1e88414ab2a527ab541ffc5b8bf935f7b951c132951"),
            ("gost", "f3134348c44fb1b2a277729e2285ebb5cb5e0f29c975bc753b70497c06a4d51d"),
            ("whirlpool", "4e2448a4c6f486bb16b6562c73b4020b"),
        ] {
            assert_eq!(of_abc(name), hash, "{name}");
        }
    }

    #[test]
    fn base64_converts_from_and_to_hex() {
        assert_eq!(base64::STANDARD.encode(&from_hex(b"0x54655354")), b"VGVTVA==");
        assert_eq!(decode(&base64::STANDARD, b"VGVTVA=="), Some(b"TeST".to_vec()));
        assert_eq!(decode(&base64::STANDARD, b"VGVTVA"), Some(b"TeST".to_vec()));
        assert_eq!(decode(&base64::STANDARD, b"\xff"), None);
        assert_eq!(decode(&base64::STANDARD, b"ZgBm"), Some(b"f".to_vec()));
    }
}
