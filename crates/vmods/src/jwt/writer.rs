//! The object `writer`.

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, ModuleError, ObjectType, Value};
use serde_json::{Map, Value as Json};

use super::algorithm::Algorithm;
use super::encoding::encode;
use super::identity;
use super::token::Token;
use crate::blocking::HASHES;
use crate::json;
use crate::support::{CallResult, DONE, log, shown, text};

pub(super) const TYPE: ObjectType = ObjectType {
    name: "writer",
    new: identity::new,
    methods: &[
        ("set_alg", |ctx, args| set_header(ctx, args, "alg")),
        ("set_typ", |ctx, args| set_header(ctx, args, "typ")),
        ("set_kid", |ctx, args| set_header(ctx, args, "kid")),
        ("set_iss", |ctx, args| set_text(ctx, args, "iss")),
        ("set_sub", |ctx, args| set_text(ctx, args, "sub")),
        ("set_aud", |ctx, args| set_text(ctx, args, "aud")),
        ("set_jti", |ctx, args| set_text(ctx, args, "jti")),
        ("set_exp", |ctx, args| set_time(ctx, args, "exp")),
        ("set_nbf", |ctx, args| set_time(ctx, args, "nbf")),
        ("set_iat", |ctx, args| set_time(ctx, args, "iat")),
        ("set_payload", set_payload),
        ("from_string", from_string),
        ("generate", generate),
        ("error", error),
    ],
};

/// The state of a writer in a task.
#[derive(Default)]
struct Writing {
    header: Map<String, Json>,
    payload: Map<String, Json>,
    error: Option<String>,
}

fn writing<'c>(ctx: &'c mut Ctx<'_>, args: &Args<'_>) -> Result<&'c mut Writing, ModuleError> {
    identity::state(ctx, args)
}

fn set_header<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, name: &str) -> CallResult<'a> {
    let value = shown(args.str(0)).into_owned();
    writing(ctx, args)?.header.insert(name.to_owned(), Json::String(value));
    DONE
}

fn set_text<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, name: &str) -> CallResult<'a> {
    let value = shown(args.str(0)).into_owned();
    writing(ctx, args)?.payload.insert(name.to_owned(), Json::String(value));
    DONE
}

fn set_time<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, name: &str) -> CallResult<'a> {
    let seconds = args.real(0).floor() as i64;
    writing(ctx, args)?.payload.insert(name.to_owned(), Json::from(seconds));
    DONE
}

/// Records and logs an error.
fn failed(ctx: &mut Ctx<'_>, args: &Args<'_>, method: &str, why: String) -> Result<(), ModuleError> {
    log(ctx, Tag::Error, format!("jwt: {}.{method}: {why}", args.object_name));
    writing(ctx, args)?.error = Some(why);
    Ok(())
}

fn set_payload<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    match json::parse(args.str(0).unwrap_or_default()) {
        Ok(Json::Object(payload)) => writing(ctx, args)?.payload = payload,
        Ok(_) => failed(ctx, args, "set_payload", "the payload is not an object".to_owned())?,
        Err(why) => failed(ctx, args, "set_payload", why)?,
    }
    DONE
}

fn from_string<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    match Token::parse(args.str(0).unwrap_or_default()) {
        Ok(Token { header: Json::Object(header), payload: Json::Object(payload), .. }) => {
            let writing = writing(ctx, args)?;
            (writing.header, writing.payload) = (header, payload);
        }
        Ok(_) => failed(ctx, args, "from_string", "it is not a token".to_owned())?,
        Err(why) => failed(ctx, args, "from_string", why)?,
    }
    DONE
}

/// Returns the algorithm and the text that is signed. Fails after an error, so that no token lacks a claim.
fn unsigned(writing: &mut Writing) -> Result<(Algorithm, String), String> {
    if let Some(error) = &writing.error {
        return Err(error.clone());
    }
    writing.header.entry("typ").or_insert_with(|| Json::from("JWT"));
    let alg = writing.header.get("alg").and_then(Json::as_str).ok_or("no algorithm is set")?;
    let algorithm = Algorithm::find(alg).ok_or_else(|| format!("\"{alg:.16}\" is not a known algorithm"))?;
    let encoded = |map: &Map<String, Json>| serde_json::to_vec(map).map(|json| encode(&json));
    let parts = encoded(&writing.header).and_then(|header| Ok((header, encoded(&writing.payload)?)));
    let (header, payload) = parts.map_err(|error| error.to_string())?;
    Ok((algorithm, format!("{header}.{payload}")))
}

fn signed(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<String, String> {
    let key = args.str(0).ok_or("the key is undefined")?.to_vec();
    let (algorithm, message) = unsigned(writing(ctx, args).map_err(|error| error.0)?)?;
    let signature = if algorithm.signs_slowly() {
        let message = message.clone().into_bytes();
        HASHES.run(ctx, move || algorithm.sign(&key, &message)).map_err(|error| error.0)??
    } else {
        algorithm.sign(&key, message.as_bytes())?
    };
    Ok(format!("{message}.{}", encode(&signature)))
}

fn generate<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    match signed(ctx, args) {
        Ok(token) => text(ctx, token.as_bytes()),
        Err(why) => {
            failed(ctx, args, "generate", why)?;
            Ok(Value::Str(None))
        }
    }
}

fn error<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    match writing(ctx, args)?.error.clone() {
        Some(error) => text(ctx, error.as_bytes()),
        None => Ok(Value::Str(None)),
    }
}
