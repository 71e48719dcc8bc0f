//! Heads are scanned a machine word at a time, parsed in place and stored in packed form. A reference that reads a byte
//! at a time, by the definition, agrees about every head, however the network splits it.
#![no_main]

use lacquer_http::h1::{BogoKind, H2_PREFACE, HeadScan, head_complete, parse_request, parse_response};
use lacquer_http::pack::{PackedHead, pack, unpack};
use lacquer_http::{Filter, HeaderName, Message, Slot, Workspace};
use libfuzzer_sys::fuzz_target;

/// Small, so that the limit is reached.
const HDR_LEN: usize = 60;
const MAX_HDR: usize = 12;

fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

fn is_ctl(b: u8) -> bool {
    b < b' ' || b == 0x7f
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// The bytes of a line end at `at`, if there is one.
fn line_end(head: &[u8], at: usize) -> Option<usize> {
    [&b"\r\n"[..], b"\n"].iter().find(|end| head[at..].starts_with(end)).map(|end| end.len())
}

/// Returns whether the head is complete, or `None` if there are only blanks.
fn is_complete(bytes: &[u8]) -> Option<bool> {
    let start = bytes.iter().position(|b| !b" \t\r\n".contains(b))?;
    let ends = |at: &usize| bytes[*at] == b'\n' && line_end(bytes, at + 1).is_some();
    Some((start..bytes.len()).any(|at| ends(&at)))
}

/// The three fields of a first line, and the header lines, unfolded and without trailing blanks.
type Head = ([Vec<u8>; 3], Vec<Vec<u8>>);

fn parse(head: &[u8]) -> Option<Head> {
    let mut at = head.iter().position(|b| !b" \t\r\n".contains(b))?;
    let first: Vec<u8> = head[at..].iter().copied().take_while(|&b| !is_blank(b) && !is_ctl(b)).collect();
    at += first.len();
    if !is_blank(*head.get(at)?) {
        return None;
    }
    at += 1;
    at += head[at..].iter().take_while(|&&b| b == b' ').count();
    let second: Vec<u8> = head[at..].iter().copied().take_while(|&b| b != b' ' && !is_ctl(b)).collect();
    at += second.len();
    at += head[at..].iter().take_while(|&&b| b == b' ').count();
    if second.is_empty() || head.get(at) == Some(&b'\t') {
        return None;
    }
    let third: Vec<u8> = head[at..].iter().copied().take_while(|&b| b == b'\t' || !is_ctl(b)).collect();
    at += third.len();
    at += line_end(head, at)?;
    let mut lines = Vec::new();
    loop {
        if let Some(_end) = line_end(head, at) {
            return Some(([first, second, third], lines));
        }
        let mut line = Vec::new();
        loop {
            let piece = head[at..].iter().copied().take_while(|&b| b == b'\t' || !is_ctl(b));
            let before = line.len();
            line.extend(piece);
            at += line.len() - before;
            let end = line_end(head, at)?;
            at += end;
            let blanks = head[at..].iter().take_while(|&&b| is_blank(b)).count();
            if blanks == 0 {
                break;
            }
            line.resize(line.len() + end + blanks, b' ');
            at += blanks;
        }
        let too_long = line.len() > HDR_LEN;
        while line.last().is_some_and(|&b| is_blank(b)) {
            line.pop();
        }
        let name = line.iter().take_while(|&&b| is_token(b)).count();
        if too_long || name == 0 || line.get(name) != Some(&b':') || lines.len() == MAX_HDR {
            return None;
        }
        lines.push(line);
    }
}

fn check_scan(bytes: &[u8], cut: usize) {
    let kind = |scan| match scan {
        HeadScan::Empty => None,
        HeadScan::More { .. } => Some(false),
        HeadScan::Complete | HeadScan::H2Preface => Some(true),
    };
    let whole = head_complete(bytes, 0);
    if !bytes.starts_with(b"P") || !bytes.starts_with(H2_PREFACE) && !H2_PREFACE.starts_with(bytes) {
        assert_eq!(kind(whole), is_complete(bytes));
    }
    if let HeadScan::More { scanned } = head_complete(&bytes[..cut], 0) {
        assert!(scanned <= cut);
        assert_eq!(kind(head_complete(bytes, scanned)), kind(whole));
    }
}

/// Returns whether a length is rewritten in its canonical form, or several lengths become one line.
fn has_odd_length(lines: &[Vec<u8>]) -> bool {
    let is_length = |line: &&Vec<u8>| line.to_ascii_lowercase().starts_with(b"content-length:");
    let mut values = lines.iter().filter(is_length).map(|line| line["content-length:".len()..].trim_ascii());
    let is_odd = |value: &[u8]| value.len() > 1 && value.starts_with(b"0");
    values.next().is_some_and(is_odd) || values.next().is_some()
}

/// Checks that every header is found by its name, and no other.
fn check_fields(ws: &Workspace, msg: &Message, lines: &[Vec<u8>]) {
    assert!(msg.lines(ws).eq(lines.iter().map(|line| &line[..])));
    for line in lines {
        let colon = line.iter().position(|&b| b == b':').expect("every line has a colon");
        let name = HeaderName::new(&line[..colon]);
        let same = |other: &&Vec<u8>| {
            other.get(colon) == Some(&b':') && other[..colon].eq_ignore_ascii_case(&line[..colon])
        };
        let value = |line: &Vec<u8>| {
            line[colon + 1..].iter().copied().skip_while(|&b| is_blank(b)).collect::<Vec<u8>>()
        };
        let expected: Vec<_> = lines.iter().filter(same).map(value).collect();
        assert!(msg.get_all(ws, name).eq(expected.iter().map(|value| &value[..])));
        assert_eq!(msg.count(ws, name), expected.len());
    }
}

fn check_packed(ws: &Workspace, msg: &Message) {
    let mut block = Vec::new();
    pack(msg, ws, Filter::INSERT, &mut block);
    let packed = PackedHead::new(&block).expect("the head is complete");
    let kept: Vec<_> = msg.fields().iter().filter(|field| !field.is_filtered(Filter::INSERT)).collect();
    assert!(packed.lines().eq(kept.iter().map(|field| field.line(ws))));
    let (mut to_ws, mut to) = (Workspace::new(64 * 1024), Message::new(64));
    unpack(&block, &mut to_ws, &mut to).expect("the workspace has room");
    for slot in [Slot::Proto, Slot::Status, Slot::Reason] {
        assert_eq!(to_ws.get(to.text(slot)), ws.get(msg.text(slot)));
    }
    assert_eq!(to.fields().len(), kept.len());
    for (field, kept) in to.fields().iter().zip(kept) {
        assert_eq!(
            (field.line(&to_ws), field.name(&to_ws), field.value(&to_ws)),
            (kept.line(ws), kept.name(ws), kept.value(ws))
        );
        let name = HeaderName::new(kept.name(ws));
        assert_eq!(packed.header(name), to.get(&to_ws, name));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    check_scan(bytes, cut as usize % (bytes.len() + 1));
    let expected = parse(bytes);

    let mut ws = Workspace::new(64 * 1024);
    let mut msg = Message::new(MAX_HDR + 5);
    let rx = ws.copy(bytes).expect("the workspace has room");
    let read = parse_request(&mut ws, rx, &mut msg, HDR_LEN);
    match (&read, &expected) {
        (Ok(head), Some((fields, lines))) if head.rehosted.is_none() => {
            assert_eq!([msg.method(&ws), msg.url(&ws), msg.proto(&ws)], *fields);
            if !has_odd_length(lines) {
                check_fields(&ws, &msg, lines);
            }
        }
        // A well-formed head may still be an invalid request.
        (Err(_), _) | (_, Some(_)) => {}
        (Ok(_), None) => panic!("accepted a malformed head"),
    }
    if let (Err(bad), Some(([method, target, _], _))) = (&read, &expected)
        && let Some(bogo) = &bad.bogo
    {
        let is_path = target.starts_with(b"/") && method != b"CONNECT";
        let blames_target = matches!(bogo.kind, BogoKind::Target(_));
        assert!(blames_target && !is_path, "rejected a valid head: {bogo:?}");
    }

    let mut ws = Workspace::new(64 * 1024);
    let rx = ws.copy(bytes).expect("the workspace has room");
    if parse_response(&mut ws, rx, &mut msg, HDR_LEN, 11).is_ok() {
        let (_, lines) = expected.expect("accepted a malformed head");
        if !has_odd_length(&lines) {
            check_fields(&ws, &msg, &lines);
        }
        check_packed(&ws, &msg);
    }
});
