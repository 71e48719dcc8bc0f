//! Module awsrest: signatures version 4 of AWS in the header of a request, with headers that the program lists.

use lacquer_vcl_runtime::{Args, Ctx, ModuleError, Value};

use crate::s3::{EMPTY, Keys, Scope, read, write};
use crate::support::{CallResult, DONE, Table};

pub(crate) static MODULE: Table = Table {
    name: "awsrest",
    functions: &[("v4_generic", v4_generic), ("lf", lf)],
    objects: &[],
    suspends: &[],
};

fn lf<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Str(Some(b"\n")))
}

/// Returns the headers of the lines. Each must have its name in the list, and be without control characters.
fn headers(names: &[u8], lines: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let names: Vec<&[u8]> = names.split(|&b| b == b';').filter(|name| !name.is_empty()).collect();
    let lines: Vec<&[u8]> = lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()).collect();
    if names.len() != lines.len() {
        let (lines, names) = (lines.len(), names.len());
        return Err(format!("canonical_headers has {lines} lines for the {names} names of signed_headers"));
    }
    let pair = |(name, line): (&&[u8], &&[u8])| {
        let value = line.strip_prefix(*name).and_then(|rest| rest.strip_prefix(b":"));
        let name = String::from_utf8_lossy(name).into_owned();
        let is_name =
            name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b));
        let value = value.filter(|value| is_name && !value.iter().any(u8::is_ascii_control));
        match value {
            Some(value) => Ok((name, value.to_vec())),
            None => {
                Err(format!("canonical_headers has no valid line for {name:?}, which signed_headers names"))
            }
        }
    };
    names.iter().zip(&lines).map(pair).collect()
}

fn v4_generic<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let bytes = |i| args.str(i).unwrap_or_default();
    let signed = Scope::new(bytes(1), bytes(0)).and_then(|scope| {
        let keys = Keys::new(bytes(2), bytes(3), bytes(4))?;
        let headers = headers(bytes(5), bytes(6))?;
        let (http, message) = read(ctx)?;
        Ok((http, message.sign_these((&keys, &scope), headers, EMPTY, ctx.host.real_now())?))
    });
    let (http, signed) = signed.map_err(|why| ModuleError(format!("awsrest.v4_generic(): {why}")))?;
    write(ctx, http, &signed)?;
    DONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_must_belong_to_the_names() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        assert_eq!(headers(b"host;", b"host:h\n"), Ok(vec![pair("host", "h")]));
        assert_eq!(headers(b"host;x-a", b"host:h\nx-a:1"), Ok(vec![pair("host", "h"), pair("x-a", "1")]));
        assert_eq!(headers(b"", b""), Ok(Vec::new()));
        let table: [(&[u8], &[u8]); 7] = [
            (b"host;", b"host:h\nx-amz-acl:public-read\n"),
            (b"host;x-a;", b"host:h\n"),
            (b"host;", b"host h\n"),
            (b"host;", b"hostile:h\n"),
            (b"Host;", b"Host:h\n"),
            (b"host;", b"host:a\rb\n"),
            (b"ho st;", b"ho st:a\n"),
        ];
        for (names, lines) in table {
            assert!(headers(names, lines).is_err(), "{lines:?}");
        }
    }
}
