//! The object `reader`.

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, ModuleError, ObjectType, Value};
use serde_json::Value as Json;

use super::algorithm::{Algorithm, Key, Signed};
use super::identity;
use super::token::Token;
use super::verified;
use crate::json;
use crate::support::{CallResult, log, shown, text};

pub(super) const TYPE: ObjectType = ObjectType {
    name: "reader",
    new: identity::new,
    methods: &[
        ("parse", parse),
        ("set_key", |ctx, args| set_key(ctx, args, Key::Text)),
        ("set_jwk", |ctx, args| set_key(ctx, args, Key::Jwk)),
        ("verify", verify),
        ("is_jwt", is_jwt),
        ("get_alg", |ctx, args| member(ctx, args, |token| token.header.get("alg"))),
        ("get_typ", |ctx, args| member(ctx, args, |token| token.header.get("typ"))),
        ("get_b64", get_b64),
        ("get_iss", |ctx, args| member(ctx, args, |token| token.payload.get("iss"))),
        ("get_sub", |ctx, args| member(ctx, args, |token| token.payload.get("sub"))),
        ("get_aud", |ctx, args| member(ctx, args, |token| token.payload.get("aud"))),
        ("get_jti", |ctx, args| member(ctx, args, |token| token.payload.get("jti"))),
        ("get_claim", get_claim),
        ("has_exp", |ctx, args| Ok(Value::Bool(has(ctx, args, "exp")?))),
        ("has_nbf", |ctx, args| Ok(Value::Bool(has(ctx, args, "nbf")?))),
        ("get_header", |ctx, args| member(ctx, args, |token| Some(&token.header))),
        ("get_payload", |ctx, args| member(ctx, args, |token| Some(&token.payload))),
        ("get_header_encoded", |ctx, args| bytes(ctx, args, |token| token.part(0))),
        ("get_payload_encoded", |ctx, args| bytes(ctx, args, |token| token.part(1))),
        ("get_signature", |ctx, args| bytes(ctx, args, |token| token.part(2))),
        ("to_string", |ctx, args| bytes(ctx, args, Token::text)),
    ],
};

/// The state of a reader in a task.
#[derive(Default)]
struct Reading {
    token: Option<Token>,
    key: Option<Key>,
}

fn reading<'c>(ctx: &'c mut Ctx<'_>, args: &Args<'_>) -> Result<&'c mut Reading, ModuleError> {
    identity::state(ctx, args)
}

fn parse<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let parsed = Token::parse(args.str(0).unwrap_or_default());
    let valid = parsed.is_ok();
    if let Err(why) = &parsed {
        log(ctx, Tag::Error, format!("jwt: {}.parse: {why}", args.object_name));
    }
    reading(ctx, args)?.token = parsed.ok();
    Ok(Value::Bool(valid))
}

fn set_key<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, kind: fn(Vec<u8>) -> Key) -> CallResult<'a> {
    let key = args.str(0).filter(|key| !key.is_empty());
    reading(ctx, args)?.key = key.map(|key| kind(key.to_vec()));
    Ok(Value::Bool(key.is_some()))
}

/// Returns the reason why the token is not valid.
fn refusal(reading: &Reading, alg: &str, now: f64, leeway: f64) -> Result<(), String> {
    let token = reading.token.as_ref().ok_or("there is no token")?;
    let key = reading.key.as_ref().ok_or("there is no key")?;
    let algorithm = Algorithm::find(alg).ok_or_else(|| format!("\"{alg:.16}\" is not a known algorithm"))?;
    if token.alg() != Some(alg) {
        return Err(format!("the token is not signed with {alg}"));
    }
    token.check(now, leeway)?;
    let kid = token.header.get("kid").and_then(Json::as_str);
    verified::verify(algorithm, key, &Signed { message: token.signed(), signature: &token.signature, kid })
}

fn verify<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let now = ctx.host.real_now();
    let alg = shown(args.str(0));
    let verified = refusal(reading(ctx, args)?, &alg, now, args.real(1).max(0.0));
    if let Err(why) = &verified {
        log(ctx, Tag::Error, format!("jwt: {}.verify: {why}", args.object_name));
    }
    Ok(Value::Bool(verified.is_ok()))
}

fn is_jwt<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let token = reading(ctx, args)?.token.as_ref();
    let kind = token.and_then(|token| token.header.get("typ")).and_then(Json::as_str);
    Ok(Value::Bool(kind.is_some_and(|kind| kind.eq_ignore_ascii_case("JWT"))))
}

fn get_b64<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let token = reading(ctx, args)?.token.as_ref();
    let b64 = token.and_then(|token| token.header.get("b64"));
    Ok(Value::Bool(b64.is_none_or(|b64| *b64 == Json::Bool(true))))
}

fn has(ctx: &mut Ctx<'_>, args: &Args<'_>, claim: &str) -> Result<bool, ModuleError> {
    Ok(reading(ctx, args)?.token.as_ref().is_some_and(|token| token.payload.get(claim).is_some()))
}

/// Returns a value of the token as text, undefined if there is none.
fn member<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, find: fn(&Token) -> Option<&Json>) -> CallResult<'a> {
    let token = reading(ctx, args)?.token.as_ref();
    match token.and_then(find).and_then(|value| json::shown(value, false)) {
        Some(found) => text(ctx, found.as_bytes()),
        None => Ok(Value::Str(None)),
    }
}

fn get_claim<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let path = shown(args.str(0));
    let token = reading(ctx, args)?.token.as_ref();
    let claim = token.and_then(|token| json::find(&token.payload, &path));
    match claim.and_then(|claim| json::shown(claim, false)) {
        Some(found) => text(ctx, found.as_bytes()),
        None => Ok(Value::Str(args.str(1))),
    }
}

fn bytes<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, read: fn(&Token) -> &[u8]) -> CallResult<'a> {
    match reading(ctx, args)?.token.as_ref().map(|token| read(token).to_vec()) {
        Some(found) => text(ctx, &found),
        None => Ok(Value::Str(None)),
    }
}
