//! Functions for hashes and keyed hashes of texts, in hexadecimal digits.

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, Func, Value};
use md4::Md4;
use md5::Md5;
use ripemd::Ripemd160;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use whirlpool::Whirlpool;

use crate::digest::{hex, hmac};
use crate::support::{CallResult, log, text};

macro_rules! hashed {
    ($name:literal, $hash:ty) => {{
        fn call<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            let Some(message) = args.str(0) else {
                log(ctx, Tag::Error, concat!("crypto.hash_", $name, ": No input"));
                return Ok(Value::Str(None));
            };
            text(ctx, &hex(&<$hash>::digest(message)))
        }
        (concat!("hash_", $name), call as Func)
    }};
}

macro_rules! keyed {
    ($name:literal, $hash:ty, $block:literal) => {{
        fn call<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
            let (Some(key), Some(message)) = (args.str(0), args.str(1)) else {
                let missing = if args.str(0).is_none() { "key" } else { "message" };
                log(ctx, Tag::Error, format!(concat!("crypto.hmac_", $name, ": Missing {}"), missing));
                return Ok(Value::Str(None));
            };
            text(ctx, &[b"0x", &hex(&hmac::<$hash, $block>(key, message))[..]].concat())
        }
        (concat!("hmac_", $name), call as Func)
    }};
}

pub(super) const FUNCTIONS: &[(&str, Func)] = &[
    hashed!("md4", Md4),
    hashed!("md5", Md5),
    hashed!("sha1", Sha1),
    hashed!("sha224", Sha224),
    hashed!("sha256", Sha256),
    hashed!("sha384", Sha384),
    hashed!("sha512", Sha512),
    hashed!("ripemd160", Ripemd160),
    hashed!("whirlpool", Whirlpool),
    keyed!("md5", Md5, 64),
    keyed!("sha1", Sha1, 64),
    keyed!("sha224", Sha224, 64),
    keyed!("sha256", Sha256, 64),
    keyed!("sha384", Sha384, 128),
    keyed!("sha512", Sha512, 128),
];
