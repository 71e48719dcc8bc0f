//! Module tls: properties of a connection's TLS session. Those of the origin's connection are available in
//! vcl_backend_response only, because a fetch has no connection elsewhere.

use lacquer_vcl_runtime::{Args, ClientFact, Ctx, TlsFact, Value};

use crate::support::{CallResult, Table, is_backend_side, text};

pub(crate) static MODULE: Table = Table {
    name: "tls",
    functions: &[
        ("is_tls", is_tls),
        ("version", |ctx, _| fact(ctx, TlsFact::Version)),
        ("ja3", ja3),
        ("cipher", |ctx, _| fact(ctx, TlsFact::Cipher)),
        ("authority", |ctx, _| fact(ctx, TlsFact::Authority)),
        ("alpn", |ctx, _| fact(ctx, TlsFact::Alpn)),
        ("cert_sign", |ctx, _| fact(ctx, TlsFact::CertSign)),
        ("cert_key", |ctx, _| fact(ctx, TlsFact::CertKey)),
        ("client_verified", client_verified),
        ("client_subject", |ctx, _| client_fact(ctx, ClientFact::Subject)),
        ("client_cn", |ctx, _| client_fact(ctx, ClientFact::CommonName)),
        ("client_issuer", |ctx, _| client_fact(ctx, ClientFact::Issuer)),
        ("client_serial", |ctx, _| client_fact(ctx, ClientFact::Serial)),
        ("client_fingerprint", |ctx, _| client_fact(ctx, ClientFact::Fingerprint)),
        ("client_not_before", |ctx, _| client_time(ctx, ClientFact::NotBefore)),
        ("client_not_after", |ctx, _| client_time(ctx, ClientFact::NotAfter)),
        ("client_pem", |ctx, _| client_fact(ctx, ClientFact::Pem)),
        ("client_cert", |ctx, _| client_fact(ctx, ClientFact::Header)),
    ],
    objects: &[],
    suspends: &[],
};

fn is_tls<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(ctx.host.tls_fact(TlsFact::Version).is_some()))
}

fn fact<'a>(ctx: &mut Ctx<'a>, which: TlsFact) -> CallResult<'a> {
    let Some(value) = ctx.host.tls_fact(which) else { return Ok(Value::Str(None)) };
    match text(ctx, &value) {
        Ok(Value::Str(None)) => Err("vmod_tls: Out of workspace".into()),
        answer => answer,
    }
}

fn ja3<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    if is_backend_side(ctx.method()) {
        return Err("tls.ja3() can only be used in client context".into());
    }
    fact(ctx, TlsFact::Ja3)
}

fn client_verified<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(ctx.host.tls_fact(TlsFact::Client(ClientFact::Fingerprint)).is_some()))
}

fn client_fact<'a>(ctx: &mut Ctx<'a>, which: ClientFact) -> CallResult<'a> {
    fact(ctx, TlsFact::Client(which))
}

/// Returns a moment, or the epoch if there is no certificate.
fn client_time<'a>(ctx: &mut Ctx<'a>, which: ClientFact) -> CallResult<'a> {
    let seconds = ctx.host.tls_fact(TlsFact::Client(which));
    let seconds = seconds.and_then(|text| String::from_utf8(text).ok()?.parse::<f64>().ok());
    Ok(Value::Time(seconds.unwrap_or_default()))
}
