//! Module xkey: purges by the tags that origins send in the headers `xkey` and `X-HashTwo`.
//! The cache stores the tags; this module only parses the lists that VCL passes.

use lacquer_shm::Tag;
use lacquer_shm::vsl::notices::TAGS_PURGED;
use lacquer_vcl_runtime::{Args, Ctx, PurgeMode, Value};

use crate::support::{CallResult, Table, log, shown};

pub(crate) static MODULE: Table = Table {
    name: "xkey",
    functions: &[("purge", purge), ("softpurge", softpurge)],
    objects: &[],
    suspends: &["purge", "softpurge"],
};

/// Returns the tags of a header or argument, separated by spaces and commas.
pub fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| matches!(b, b',' | b' ' | b'\t')).filter(|tag| !tag.is_empty())
}

fn purge_by<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, mode: PurgeMode) -> CallResult<'a> {
    let tags: Vec<&[u8]> = args.str(0).map(|list| tags(list).collect()).unwrap_or_default();
    if tags.is_empty() {
        return Ok(Value::Int(0));
    }
    let count = ctx.block_on_host(|host| host.purge_tags(&tags, mode))?;
    if count > 0 && matches!(mode, PurgeMode::Hard) {
        log(ctx, Tag::Notice, format!("{TAGS_PURGED}{}", shown(args.str(0))));
    }
    Ok(Value::Int(count))
}

fn purge<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    purge_by(ctx, args, PurgeMode::Hard)
}

fn softpurge<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    purge_by(ctx, args, PurgeMode::Soft { ttl: 0.0, grace: None, keep: None })
}
