//! Module proxy: what a PROXY v2 header says beyond addresses, most of it about TLS.

use lacquer_http::proxy_protocol::tlv;
use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::support::{Answer, Table, text};

pub(crate) static MODULE: Table = Table {
    name: "proxy",
    signatures: include_str!("../vcc/proxy.vcc"),
    functions: &[
        ("alpn", alpn),
        ("authority", authority),
        ("is_ssl", is_ssl),
        ("client_has_cert_sess", client_has_cert_sess),
        ("client_has_cert_conn", client_has_cert_conn),
        ("ssl_verify_result", ssl_verify_result),
        ("ssl_version", ssl_version),
        ("client_cert_cn", client_cert_cn),
        ("ssl_cipher", ssl_cipher),
        ("cert_sign", cert_sign),
        ("cert_key", cert_key),
    ],
    objects: &[],
    suspends: &[],
};

const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERT_CONN: u8 = 0x02;
const CLIENT_CERT_SESS: u8 = 0x04;

fn string<'a>(ctx: &mut Ctx<'a>, kind: u8) -> Answer<'a> {
    let Some(value) = ctx.host.proxy_tlv(kind) else { return Ok(Value::Str(None)) };
    match text(ctx, &value) {
        Ok(Value::Str(None)) => Err("proxy.TLV: out of workspace".into()),
        answer => answer,
    }
}

fn flag<'a>(ctx: &mut Ctx<'a>, flag: u8) -> Answer<'a> {
    let flags = ctx.host.proxy_tlv(tlv::SSL).and_then(|v| v.first().copied());
    Ok(Value::Bool(flags.is_some_and(|f| f & flag == flag)))
}

fn is_ssl<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    flag(ctx, CLIENT_SSL)
}

fn client_has_cert_sess<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    flag(ctx, CLIENT_CERT_SESS)
}

fn client_has_cert_conn<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    flag(ctx, CLIENT_CERT_CONN)
}

fn ssl_verify_result<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    let ssl = ctx.host.proxy_tlv(tlv::SSL);
    let result = ssl.and_then(|v| v.get(1..5).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes));
    Ok(Value::Int(result.map_or(0, i64::from)))
}

fn alpn<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    string(ctx, tlv::ALPN)
}

fn authority<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    string(ctx, tlv::AUTHORITY)
}

fn ssl_version<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    string(ctx, tlv::SSL_VERSION)
}

fn client_cert_cn<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    string(ctx, tlv::SSL_CN)
}

fn ssl_cipher<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    string(ctx, tlv::SSL_CIPHER)
}

fn cert_sign<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    string(ctx, tlv::SSL_SIG_ALG)
}

fn cert_key<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Answer<'a> {
    string(ctx, tlv::SSL_KEY_ALG)
}
