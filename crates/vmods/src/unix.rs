//! Module unix: the peer of a UNIX socket. Names come from /etc/passwd and /etc/group;
//! other name services are not used.

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::blocking::FILES;
use crate::support::{CallResult, Table, log, text};

pub(crate) static MODULE: Table = Table {
    name: "unix",
    functions: &[("user", user), ("group", group), ("uid", uid), ("gid", gid)],
    objects: &[],
    suspends: &["group", "user"],
};

fn credentials(ctx: &mut Ctx<'_>) -> Option<(u32, u32)> {
    let found = ctx.host.peer_credentials();
    if found.is_none() {
        log(ctx, Tag::VCL_Error, "vmod unix error: not listening on a Unix domain socket");
    }
    found
}

fn uid<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(credentials(ctx).map_or(-1, |(uid, _)| i64::from(uid))))
}

fn gid<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(credentials(ctx).map_or(-1, |(_, gid)| i64::from(gid))))
}

fn user<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let id = credentials(ctx).map(|(uid, _)| uid);
    name(ctx, "/etc/passwd", id)
}

fn group<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let id = credentials(ctx).map(|(_, gid)| gid);
    name(ctx, "/etc/group", id)
}

fn name<'a>(ctx: &mut Ctx<'a>, file: &'static str, id: Option<u32>) -> CallResult<'a> {
    let Some(id) = id else { return Ok(Value::Str(None)) };
    let find = move || name_in(&std::fs::read_to_string(file).unwrap_or_default(), id).map(str::to_owned);
    match FILES.run(ctx, find)? {
        Some(name) => text(ctx, name.as_bytes()),
        None => {
            let message = format!("vmod unix error: could not read peer credentials: {id} is not in {file}");
            log(ctx, Tag::VCL_Error, message);
            Ok(Value::Str(None))
        }
    }
}

/// Returns the name of an id. Both files consist of lines of `name:password:number:…`.
fn name_in(file: &str, id: u32) -> Option<&str> {
    file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_found_by_number() {
        let file = "root:x:0:0:root:/root:/bin/sh\n\nbroken\nwww-data:x:33:33::/var/www:\n";
        assert_eq!(super::name_in(file, 33), Some("www-data"));
        assert_eq!(super::name_in(file, 1), None);
    }
}
