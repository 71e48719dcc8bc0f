//! Changes to a message by VCL: the start line and the headers, with their log records.

use lacquer_http::ascii::is_valid_line;
use lacquer_http::{Field, HeaderName, Message, Slot, Workspace};
use lacquer_params::FeatureBits;
use lacquer_shm::Tag;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{HeaderEdit, HostResult, Str};

use crate::logged::Logged;

/// Returns an error if the value would end the start line, or contains another control character (feature
/// `validate_headers`). VCL may have decoded it from what a client sent.
pub fn check_start(features: FeatureBits, name: &str, value: &[u8]) -> HostResult<()> {
    if !features.has(FeatureBits::VALIDATE_HEADERS) || is_valid_line(value) {
        return Ok(());
    }
    Err(format!("Bad {name}: {}", value.escape_ascii()))
}

/// Sets a field of the start line.
pub fn set_start(
    to: &mut Logged<'_>,
    slot: Slot,
    var: Var,
    value: Option<&[u8]>,
    features: FeatureBits,
) -> HostResult<()> {
    let value = value.unwrap_or_default();
    if value.is_empty() {
        return Err(format!("Setting {} to empty string", var.name()));
    }
    check_start(features, var.name(), value)?;
    if to.message.put_copy(to.ws, slot, value).is_err() {
        return Err(format!("Workspace overflow ({})", var.name()));
    }
    let tag = match slot {
        Slot::Method => to.tags.method,
        Slot::Url => to.tags.url,
        Slot::Proto => to.tags.protocol,
        Slot::Status => to.tags.status,
        Slot::Reason => to.tags.reason,
    };
    to.log.put(tag, value);
    Ok(())
}

/// Returns an error if a number is not a valid status. Its last three digits must be at least 100.
fn status_fault(var: Var, status: i64) -> Option<String> {
    let name = var.name();
    match status {
        ..0 => Some(format!("{name} ({status}) is negative")),
        65536.. => Some(format!("{name} ({status}) > 65535")),
        _ if status % 1000 < 100 => Some(format!("illegal {name} ({status}) (..0##)")),
        _ => None,
    }
}

/// Sets the status and its standard reason.
pub fn set_status(to: &mut Logged<'_>, var: Var, status: i64) -> HostResult<()> {
    if let Some(fault) = status_fault(var, status) {
        return Err(fault);
    }
    if to.message.set_status(to.ws, status as u16).is_err() {
        crate::logged::out_of_workspace(to.ws, to.log);
        to.log.put(Tag::LostHeader, format!("{:03}", status % 1000).as_bytes());
        return Ok(());
    }
    to.log.put(to.tags.status, to.message.status_text(to.ws));
    to.log.put(to.tags.reason, to.message.reason(to.ws));
    Ok(())
}

fn check(features: FeatureBits, name: &[u8], value: &[u8]) -> HostResult<()> {
    if !features.has(FeatureBits::VALIDATE_HEADERS) || is_valid_line(value) && is_valid_line(name) {
        return Ok(());
    }
    Err(format!("Bad header {}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)))
}

/// Carries out `set`: removes all headers of the name, and adds one. A header that does not fit is lost, and the task
/// fails later.
pub fn set(
    to: &mut Logged<'_>,
    name: HeaderName<'_>,
    value: Option<&[u8]>,
    features: FeatureBits,
) -> HostResult<()> {
    let value = value.unwrap_or_default();
    check(features, name.as_bytes(), value)?;
    let (log, unset) = (&mut *to.log, to.tags.unset);
    let line = to.message.set(to.ws, name, value, |old| log.put(unset, old));
    log_line(to, line.ok(), name.as_bytes(), value);
    Ok(())
}

/// Like [`set`], with the joined parts as value.
pub fn set_parts(
    to: &mut Logged<'_>,
    name: HeaderName<'_>,
    parts: &[Str<'_>],
    features: FeatureBits,
) -> HostResult<()> {
    let parts = parts.iter().map(|part| part.or_empty());
    let joined = || parts.clone().collect::<Vec<_>>().concat();
    if features.has(FeatureBits::VALIDATE_HEADERS) && !parts.clone().all(is_valid_line) {
        return check(features, name.as_bytes(), &joined());
    }
    let (log, unset) = (&mut *to.log, to.tags.unset);
    let line = to.message.set_parts(to.ws, name, parts.clone(), |old| log.put(unset, old));
    match line {
        Ok(line) => to.log.put(to.tags.header, to.ws.get(line)),
        Err(_) => log_line(to, None, name.as_bytes(), &joined()),
    }
    Ok(())
}

/// Adds a line, and keeps other lines of its name.
pub fn append(to: &mut Logged<'_>, name: &[u8], value: &[u8], features: FeatureBits) -> HostResult<()> {
    check(features, name, value)?;
    let line = to.message.append(to.ws, HeaderName::new(name), value);
    log_line(to, line.ok(), name, value);
    Ok(())
}

/// Logs a new line, or its loss: the whole line if the message had no free slot, its name if the workspace was full.
fn log_line(to: &mut Logged<'_>, line: Option<lacquer_http::Text>, name: &[u8], value: &[u8]) {
    match line {
        Some(line) => to.log.put(to.tags.header, to.ws.get(line)),
        None if to.message.has_room() => to.log.put(Tag::LostHeader, &[name, b":"].concat()),
        None => to.log.put(Tag::LostHeader, &[name, b": ", value].concat()),
    }
}

/// Joins all headers of the name into the first one.
pub fn collect(to: &mut Logged<'_>, name: HeaderName<'_>, separator: &[u8]) {
    if to.ws.overflowed() {
        return;
    }
    let separator = if separator.is_empty() { b", " } else { separator };
    if to.message.collect(to.ws, name, separator).is_err() {
        to.log.put(Tag::LostHeader, &[name.as_bytes(), b":"].concat());
    }
}

/// Calls `edit` with every line, and applies the results. Keeps the order of the lines. Changes nothing if a new line
/// has a bad character.
pub fn edit(
    to: &mut Logged<'_>,
    edit: &mut dyn FnMut(&[u8]) -> HeaderEdit,
    features: FeatureBits,
) -> HostResult<()> {
    let fields: Vec<Field> = to.message.fields().to_vec();
    let edits: Vec<HeaderEdit> = fields.iter().map(|field| edit(field.line(to.ws))).collect();
    if edits.iter().all(|e| *e == HeaderEdit::Keep) {
        return Ok(());
    }
    for edit in &edits {
        if let HeaderEdit::Replace(line) = edit {
            check_start(features, "header", line)?;
        }
    }
    for field in &fields {
        to.message.unset(to.ws, HeaderName::new(field.name(to.ws)), |_| {});
    }
    for (field, edit) in fields.iter().zip(edits) {
        let placed = match &edit {
            HeaderEdit::Keep => to.message.append_line(to.ws, field.line),
            HeaderEdit::Remove => {
                to.log.put(to.tags.unset, field.line(to.ws));
                continue;
            }
            HeaderEdit::Replace(line) => {
                to.log.put(to.tags.unset, field.line(to.ws));
                let placed = to.message.append_line_copy(to.ws, line);
                if placed.is_ok() {
                    to.log.put(to.tags.header, line);
                }
                placed
            }
        };
        if placed.is_err() {
            to.log.put(Tag::LostHeader, field.line(to.ws));
        }
    }
    Ok(())
}

/// Calls `edit` with every line of a message that cannot be changed. Fails with the reason if a line would change.
pub fn inspect(
    message: &Message,
    ws: &Workspace,
    edit: &mut dyn FnMut(&[u8]) -> HeaderEdit,
    why: String,
) -> HostResult<()> {
    let mut changes = false;
    for field in message.fields() {
        changes |= edit(field.line(ws)) != HeaderEdit::Keep;
    }
    if changes { Err(why) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_checked_as_in_varnish() {
        let fault = |n| status_fault(Var::RespStatus, n).unwrap_or_default();
        assert_eq!(fault(-1), "resp.status (-1) is negative");
        assert_eq!(fault(65536), "resp.status (65536) > 65535");
        assert_eq!(fault(1099), "illegal resp.status (1099) (..0##)");
        assert_eq!(fault(1404), "");
    }
}
