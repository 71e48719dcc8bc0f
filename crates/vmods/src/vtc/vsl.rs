//! vtc's functions that write log records of any transaction.

use lacquer_shm::{Tag, Vxid};
use lacquer_vcl_runtime::{Args, Ctx, ModuleError};

use crate::support::{CallResult, DONE, shown, word};

const INTEGER_MAX: i64 = 999_999_999_999_999;

fn write(ctx: &mut Ctx<'_>, id: i64, tag: &[u8], side: u8, text: &[u8]) -> Result<(), ModuleError> {
    let found = Tag::ALL.iter().find(|t| t.name().as_bytes() == tag);
    let tag = *found.ok_or_else(|| format!("No such tag: {}", shown(Some(tag))))?;
    let id = u64::try_from(id).ok().filter(|_| id <= INTEGER_MAX).ok_or("id out of bounds")?;
    let vxid = if side == b'c' { Vxid::client(id) } else { Vxid::backend(id) };
    ctx.host.log_as(vxid.raw(), tag as u8, text);
    Ok(())
}

pub fn vsl<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let side = word(args, 2).bytes().next().unwrap_or(b'c');
    write(ctx, args.int(0), args.str(1).unwrap_or_default(), side, &args.joined(3))?;
    DONE
}

pub fn vsl_replay<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    for line in args.joined(0).split(|b| *b == b'\r' || *b == b'\n') {
        if let Some((id, tag, side, text)) = parse(line) {
            write(ctx, id, tag, side, text)?;
        }
    }
    DONE
}

/// Parses number, tag, side and text of a line of `varnishlog -g raw` or of varnishtest's log.
fn parse(line: &[u8]) -> Option<(i64, &[u8], u8, &[u8])> {
    let mut rest = line;
    if rest.first() == Some(&b'*') {
        rest = &rest[rest.windows(4).position(|w| w == b"vsl|")? + 4..];
    }
    let (id, rest) = take_word(rest)?;
    let digits = id.iter().take_while(|b| b.is_ascii_digit()).count();
    let id = std::str::from_utf8(&id[..digits]).ok()?.parse().ok()?;
    let (tag, rest) = take_word(rest)?;
    let (side, rest) = take_word(rest)?;
    let side = *side.first().filter(|s| matches!(s, b'b' | b'c'))?;
    Some((id, tag, side, rest.get(1..).unwrap_or_default()))
}

fn take_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_blank = |b: &u8| *b == b' ' || *b == b'\t';
    let text = &text[text.iter().position(|b| !is_blank(b))?..];
    Some(text.split_at(text.iter().position(is_blank).unwrap_or(text.len())))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn both_kinds_of_lines_are_parsed() {
        let expected = Some((1000, &b"Link"[..], b'c', &b"req 1001 rxreq"[..]));
        assert_eq!(parse(b"**** v1    vsl|       1000 Link            c req 1001 rxreq"), expected);
        assert_eq!(parse(b"      1000 Link            c req 1001 rxreq"), expected);
        assert_eq!(parse(b"1001 End c"), Some((1001, &b"End"[..], b'c', &b""[..])));
        for line in ["", "   ", "* v1 other", "x End c", "1 End -"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
