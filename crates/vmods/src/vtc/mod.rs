//! Module vtc: functions for test cases. Waiting happens on the reactor; if VCL cannot be
//! suspended (vcl_init), the thread itself waits.

mod vsl;
mod wait;
mod workspace;

use std::net::SocketAddr;

use lacquer_http::proxy_protocol::extensions::authority as authority_extension;
use lacquer_http::proxy_protocol::write_header;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, Value};

use crate::support::{CallResult, Table, shown, word};

pub(crate) static MODULE: Table = Table {
    name: "vtc",
    functions: &[
        ("barrier_sync", wait::barrier_sync),
        ("no_backend", no_backend),
        ("no_stevedore", no_stevedore),
        ("no_ip", no_ip),
        ("panic", panic),
        ("sleep", wait::sleep),
        ("workspace_alloc", workspace::alloc),
        ("workspace_reserve", workspace::reserve),
        ("workspace_free", workspace::free),
        ("workspace_snapshot", workspace::snapshot),
        ("workspace_reset", workspace::reset),
        ("workspace_overflowed", workspace::overflowed),
        ("workspace_overflow", workspace::overflow),
        ("workspace_dump", workspace::dump),
        ("typesize", typesize),
        ("proxy_header", proxy_header),
        ("vsl", vsl::vsl),
        ("vsl_replay", vsl::vsl_replay),
    ],
    objects: &[],
    suspends: &["barrier_sync", "sleep"],
};

fn no_backend<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Backend(BackendId::NONE))
}

fn no_stevedore<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Stevedore(None))
}

fn no_ip<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Ip(None))
}

/// Ends the process, which is its purpose.
fn panic<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    panic!("Panic from VCL:\n  PANIC:{}", shown(Some(&args.joined(0))));
}

fn typesize<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(struct_size(args.str(0).unwrap_or_default()).unwrap_or(-1)))
}

/// Returns the size of a C struct with fields of these types, including padding.
fn struct_size(fields: &[u8]) -> Option<i64> {
    let (mut size, mut largest) = (0_i64, 1);
    for field in fields {
        let length = match field {
            b'c' => 1,
            b's' => 2,
            b'f' | b'i' | b'u' => 4,
            b'd' | b'j' | b'l' | b'o' | b'p' | b'z' => 8,
            _ => return None,
        };
        largest = largest.max(length);
        size = (size + length - 1) / length * length + length;
    }
    Some((size + largest - 1) / largest * largest)
}

const PROXY_BLOB: u32 = 0xc8f3_4f78;

fn proxy_header<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let address = |i| args.ip(i).copied().ok_or("proxy_header: an address is missing");
    let (client, server): (SocketAddr, SocketAddr) = (address(1)?, address(2)?);
    if client.is_ipv4() != server.is_ipv4() {
        return Err("proxy_header: the addresses are not of one family".into());
    }
    let version = if word(args, 0) == "v1" { 1 } else { 2 };
    let mut header = Vec::new();
    let authority = String::from_utf8_lossy(args.str(3).unwrap_or_default());
    write_header(version, client, server, &authority_extension(&authority), &mut header);
    let blob = ctx.blob(&header, PROXY_BLOB).ok_or("proxy_header: out of workspace")?;
    Ok(Value::Blob(Some(blob)))
}

#[cfg(test)]
mod tests {
    use super::struct_size;

    #[test]
    fn structs_are_padded_as_in_c() {
        for (fields, size) in
            [("p", 8), ("uzp", 24), ("zc", 16), ("ic", 8), ("sc", 4), ("cc", 2), ("czc", 24), ("csc", 6)]
        {
            assert_eq!(struct_size(fields.as_bytes()), Some(size), "{fields}");
        }
        assert_eq!(struct_size(b"*"), None);
    }
}
