//! Module tls: properties of a connection's TLS session. TLS is not supported yet, so every result is that
//! of a plain connection, and programs for both kinds can be loaded.

use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::support::{CallResult, Table};

pub(crate) static MODULE: Table = Table {
    name: "tls",
    signatures: include_str!("../vcc/tls.vcc"),
    functions: &[
        ("is_tls", is_tls),
        ("version", nothing),
        ("ja3", nothing),
        ("cipher", nothing),
        ("authority", nothing),
        ("alpn", nothing),
        ("cert_sign", nothing),
        ("cert_key", nothing),
    ],
    objects: &[],
    suspends: &[],
};

fn is_tls<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(false))
}

fn nothing<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Str(None))
}
