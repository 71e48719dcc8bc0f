//! The ESI program of a body is the same however the network splits the body, and covers it exactly.
#![no_main]

use lacquer_filters::esi::{Esi, Options, Step, Steps};
use lacquer_filters::{Filter, Flow, Report};
use libfuzzer_sys::fuzz_target;

fn program(options: Options, parts: &[&[u8]]) -> Report {
    let mut filter = Esi::new(b"/dir/page", options);
    let (mut stored, mut report) = (Vec::new(), Report::default());
    let mut push = |mut part: &[u8], end| {
        while filter.push(&mut part, end, &mut stored, 1 << 24).expect("ESI never fails") == Flow::Full {}
    };
    parts.iter().for_each(|part| push(part, false));
    push(&[], true);
    assert_eq!(stored, parts.concat());
    filter.report(&mut report);
    report
}

fuzz_target!(|bytes: &[u8]| {
    let Some(([bits, cut], body)) = bytes.split_first_chunk() else { return };
    let options = Options {
        ignore_https: bits & 1 != 0,
        disable_xml_check: bits & 2 != 0,
        ignore_other_elements: bits & 4 != 0,
        remove_bom: bits & 8 != 0,
    };
    let (a, b) = body.split_at((*cut as usize).min(body.len()));
    let whole = program(options, &[body]);
    let cut = program(options, &[a, b]);
    assert_eq!(whole.program, cut.program);
    assert_eq!(whole.notes, cut.notes);
    if let Some(program) = whole.program {
        let length = |step| match step {
            Step::Send { length, .. } | Step::Skip { length } => length,
            Step::Include { .. } => 0,
        };
        assert_eq!(Steps::new(&program).map(length).sum::<u64>(), body.len() as u64);
    }
});
