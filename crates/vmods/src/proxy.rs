//! Module proxy: the contents of a PROXY v2 header besides addresses, most of them about TLS.

use lacquer_http::proxy_protocol::tlv;
use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::support::{CallResult, Table, text};

pub(crate) static MODULE: Table = Table {
    name: "proxy",
    functions: &[
        ("alpn", |ctx, _| string(ctx, tlv::ALPN)),
        ("authority", |ctx, _| string(ctx, tlv::AUTHORITY)),
        ("is_ssl", |ctx, _| flag(ctx, CLIENT_SSL)),
        ("client_has_cert_sess", |ctx, _| flag(ctx, CLIENT_CERT_SESS)),
        ("client_has_cert_conn", |ctx, _| flag(ctx, CLIENT_CERT_CONN)),
        ("ssl_verify_result", ssl_verify_result),
        ("ssl_version", |ctx, _| string(ctx, tlv::SSL_VERSION)),
        ("client_cert_cn", |ctx, _| string(ctx, tlv::SSL_CN)),
        ("ssl_cipher", |ctx, _| string(ctx, tlv::SSL_CIPHER)),
        ("cert_sign", |ctx, _| string(ctx, tlv::SSL_SIG_ALG)),
        ("cert_key", |ctx, _| string(ctx, tlv::SSL_KEY_ALG)),
    ],
    objects: &[],
    suspends: &[],
};

const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERT_CONN: u8 = 0x02;
const CLIENT_CERT_SESS: u8 = 0x04;

fn string<'a>(ctx: &mut Ctx<'a>, kind: u8) -> CallResult<'a> {
    let Some(value) = ctx.host.proxy_tlv(kind) else { return Ok(Value::Str(None)) };
    match text(ctx, &value) {
        Ok(Value::Str(None)) => Err("proxy.TLV: out of workspace".into()),
        answer => answer,
    }
}

fn flag<'a>(ctx: &mut Ctx<'a>, flag: u8) -> CallResult<'a> {
    let flags = ctx.host.proxy_tlv(tlv::SSL).and_then(|v| v.first().copied());
    Ok(Value::Bool(flags.is_some_and(|f| f & flag == flag)))
}

fn ssl_verify_result<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let ssl = ctx.host.proxy_tlv(tlv::SSL);
    let result = ssl.and_then(|v| v.get(1..5).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes));
    Ok(Value::Int(result.map_or(0, i64::from)))
}
