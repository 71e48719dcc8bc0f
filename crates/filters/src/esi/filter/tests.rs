//! Tests of the text that clients receive for ESI bodies. The programs are executed without includes.

use lacquer_testing::Random;

use super::super::{EsiNote, Step, Steps};
use super::*;
use crate::gzip::unpack;
use crate::splice;

/// Feeds a body in pieces. Returns the stored bytes, the program and the notes.
fn fed(filter: &mut dyn Filter, body: &[u8], step: usize) -> (Vec<u8>, Option<Vec<u8>>, Vec<EsiNote>) {
    let mut stored = Vec::new();
    for mut piece in body.chunks(step) {
        while filter.push(&mut piece, false, &mut stored, 1 << 24).unwrap() == Flow::Full {}
    }
    while filter.push(&mut &[][..], true, &mut stored, 1 << 24).unwrap() == Flow::Full {}
    let mut report = Report::default();
    filter.report(&mut report);
    (stored, report.program, report.notes)
}

fn esi(body: &[u8], step: usize, options: Options) -> (Vec<u8>, Option<Vec<u8>>, Vec<EsiNote>) {
    let mut filter = Esi::new(b"/dir/page?a=/b", options);
    let (stored, program, notes) = fed(&mut filter, body, step);
    assert_eq!(stored, body);
    (stored, program, notes)
}

/// Returns the text that a client receives, with `[url host]` for an include, or `[url host!]` if its failure ends
/// the response.
fn shown(stored: &[u8], program: &[u8]) -> String {
    let mut out = Vec::new();
    let mut at = 0;
    for step in Steps::new(program) {
        match step {
            Step::Send { length, .. } => {
                out.extend_from_slice(&stored[at..at + length as usize]);
                at += length as usize;
            }
            Step::Skip { length } => at += length as usize,
            Step::Include { base, url, host, or_fail } => {
                let mark = if or_fail { "!" } else { "" };
                let url = [base, url].concat();
                let (url, host) = (String::from_utf8_lossy(&url), String::from_utf8_lossy(host));
                out.extend_from_slice(format!("[{url} {host}{mark}]").as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn seen(body: &str) -> String {
    let (stored, program, _) = esi(body.as_bytes(), 1 << 20, Options::default());
    program.map_or_else(|| format!("as is: {body}"), |program| shown(&stored, &program))
}

fn errors(body: &str) -> Vec<String> {
    esi(body.as_bytes(), 1 << 20, Options::default()).2.iter().map(ToString::to_string).collect()
}

#[test]
fn elements_are_interpreted() {
    assert_eq!(seen("<a/>x<esi:include src=\"/i?a&amp;b\"/>y"), "<a/>x[/i?a&b !]y");
    assert_eq!(seen("<a/><esi:include src='rel' onerror=\"continue\"/>"), "<a/>[/dir/rel ]");
    assert_eq!(seen("<a/><esi:include src=http://h:8/x />"), "<a/>[/x Host: h:8!]");
    assert_eq!(seen("<a/>1<esi:remove>2<b>3</esi:remove>4"), "<a/>14");
    assert_eq!(seen("<a/>1<esi:comment text='<b'/>2"), "<a/>12");
    assert_eq!(seen("<a/>1<!--esi 2<esi:include src='/x'/> -->3"), "<a/>1 2[/x !] 3");
    assert_eq!(
        seen("<!-- <esi:include src='/x'/> --><![CDATA[<esi:remove>]]><esi:remove></esi:remove>"),
        "<!-- <esi:include src='/x'/> --><![CDATA[<esi:remove>]]>"
    );
}

/// Program and notes stay short, however long the client's URL and an attribute are, and however many errors there
/// are.
#[test]
fn programs_and_notes_are_bounded() {
    let url = [b"/".as_slice(), &vec![b'u'; 60_000], b"/page"].concat();
    let page = "<a/>".to_owned() + &"<esi:include src=\"x\"/>".repeat(1000);
    let mut filter = Esi::new(&url, Options::default());
    let (stored, program, _) = fed(&mut filter, page.as_bytes(), 4096);
    let program = program.unwrap();
    assert!(program.len() < 70_000, "{} bytes of program", program.len());
    let first = Steps::new(&program).find(|step| matches!(step, Step::Include { .. })).unwrap();
    let Step::Include { base, url: relative, .. } = first else { unreachable!() };
    assert_eq!([base, relative].concat(), [b"/".as_slice(), &vec![b'u'; 60_000], b"/x"].concat());
    assert_eq!(stored, page.as_bytes());

    let (_, _, notes) = esi("<esi:x>".repeat(50_000).as_bytes(), 4096, Options::default());
    assert_eq!(notes.len(), 10_000);
    let endless = format!("<esi:include src=\"{}", "x".repeat(1 << 20));
    let (_, _, notes) = esi(endless.as_bytes(), 4096, Options::default());
    assert_eq!(notes[0].to_string(), "ERR after 0 ESI 1.0 attribute value too long");
}

#[test]
fn bodies_without_esi_are_not_processed() {
    assert_eq!(seen("<a/>nothing"), "as is: <a/>nothing");
    assert_eq!(seen("{json: <esi:include src='/x'/>}"), "as is: {json: <esi:include src='/x'/>}");
    let text = "No ESI processing, first char not '<'. (See feature esi_disable_xml_check)";
    assert_eq!(errors("{json}"), [text]);
    let options = Options { disable_xml_check: true, ..Options::default() };
    assert!(esi(b"{<esi:include src='/x'/>}", 100, options).1.is_some());
}

#[test]
fn levels_of_errors_end_with_a_colon_in_varnish_9() {
    let in_9 = |body: &str| format!("{:#}", esi(body.as_bytes(), 4096, Options::default()).2[0]);
    assert_eq!(in_9("<esi:funny>"), "ERR: after 0 ESI 1.0 <esi:bogus> element");
    assert_eq!(in_9("<a/><esi:include src='/x'>"), "WARN: after 4 ESI 1.0 <esi:include> lacks final '/'");
    let text = "WARN: No ESI processing, first char not '<'. (See feature esi_disable_xml_check)";
    assert_eq!(in_9("{json}"), text);
}

#[test]
fn errors_in_markup_are_reported() {
    assert_eq!(errors("<a/><esi:include src='/x'>"), ["WARN after 4 ESI 1.0 <esi:include> lacks final '/'"]);
    assert_eq!(errors("<a/><esi:include/>"), ["ERR after 4 ESI 1.0 <esi:include> lacks src attr"]);
    assert_eq!(errors("<esi:remove/>"), ["ERR after 0 ESI 1.0 <esi:remove/> not legal"]);
    assert_eq!(errors("<esi:funny>"), ["ERR after 0 ESI 1.0 <esi:bogus> element"]);
    assert_eq!(errors("<a/><esi:inc"), ["ERR after 4 VEP ended inside a tag"]);
    let https = "ESI 1.0 <esi:include> with https:// ignored";
    assert_eq!(errors("<esi:include src='https://h/x'/>"), [format!("WARN after 0 {https}")]);
}

/// A control character would be sent to an origin in the first line of a request.
#[test]
fn control_characters_in_a_source_are_refused() {
    let control = "ERR after 4 ESI 1.0 <esi:include> has a control character in src= attribute";
    let whitespace = "ERR after 4 ESI 1.0 <esi:include> has whitespace in src= attribute";
    for c in (0..=0x20).chain([0x7f]) {
        let page = format!("<a/><esi:include src=\"/a{}b\"/>c", char::from(c));
        let expected = if b" \t\r\n".contains(&c) { whitespace } else { control };
        assert_eq!(errors(&page), [expected], "{c}");
        assert!(!seen(&page).contains('['), "{c}");
    }
    assert_eq!(seen("<a/><esi:include src='/a%00\u{e9}~'/>"), "<a/>[/a%00\u{e9}~ !]");
}

#[test]
fn the_program_does_not_depend_on_the_pieces() {
    let body = b"\xeb\xbb\xbf<html><!--esi a - -- b<esi:include src='/1' onerror='continue'/>---><!-- c -- d\
        --><![CDATA[ ]] ]]><esi:remove> r <b> </esi:remove> <esiX> <esi:comment text=\"x\"/><esi:bog >\
        <esi:include srcx='f' src=\"http://host/2\" other=x/>< <esi:include src=3/> </html><e";
    let options = Options { remove_bom: true, ..Options::default() };
    let whole = esi(body, body.len(), options);
    assert!(whole.1.is_some() && !whole.2.is_empty());
    for step in 1..body.len() {
        assert_eq!(esi(body, step, options), whole, "in pieces of {step}");
    }
}

/// Random texts of ESI keywords: the program does not depend on how the text is split.
#[test]
fn random_programs_do_not_depend_on_the_pieces() {
    const WORDS: [&str; 24] = [
        "<",
        ">",
        "<!--esi",
        "-->",
        "-",
        "--",
        "<!--",
        "<![CDATA[",
        "]]>",
        "<esi:",
        "</esi:",
        "include",
        "remove",
        "comment",
        " src=",
        "'/x'",
        "\"",
        "'",
        "/",
        " ",
        "onerror=",
        "continue",
        "text",
        "<b>",
    ];
    let mut random = Random(12345);
    for _ in 0..300 {
        let mut body = String::from("<");
        for _ in 0..40 {
            body.push_str(random.one(&WORDS));
        }
        let whole = esi(body.as_bytes(), body.len(), Options::default());
        for step in [1, 2, 3, 7] {
            assert_eq!(esi(body.as_bytes(), step, Options::default()), whole, "{body} by {step}");
        }
    }
}

#[test]
fn packed_parts_can_be_delivered_separately() {
    let long = "no two words alike, but many of them, ".repeat(300);
    let body = format!("<a>{long}<esi:include src='/1'/>{long}<esi:remove>{long}</esi:remove>{long}");
    for step in [1, 50, 100_000] {
        let mut filter = EsiGzip::new(b"/", Options::default(), 6);
        let (stored, program, _) = fed(&mut filter, body.as_bytes(), step);
        let program = program.unwrap();
        assert!(Steps::new(&program).is_gzip());
        let mut stream = splice::HEADER.to_vec();
        let mut sum = splice::Checksum::default();
        let mut at = 0;
        for step in Steps::new(&program) {
            match step {
                Step::Send { length, origin, crc } => {
                    stream.extend_from_slice(&stored[at..at + length as usize]);
                    at += length as usize;
                    sum.append(splice::Checksum { crc, length: origin });
                }
                Step::Skip { length } => at += length as usize,
                Step::Include { .. } => splice::wrap(b"", &mut stream),
            }
        }
        stream.extend_from_slice(&splice::trailer(sum));
        assert!(unpack(&stream) == format!("<a>{long}{long}{long}").as_bytes());
        assert!(unpack(&stored) == body.as_bytes());
    }
}
