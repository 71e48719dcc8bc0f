//! The output does not depend on the step or on how the input is split.

use lacquer_testing::Random;

use super::{Chain, STEP_MAX};
use crate::esi::{Esi, EsiGzip, Options};
use crate::gzip::pack;
use crate::{Filter, Gunzip, Gzip, RangeOf, TestGunzip};

/// Feeds a body in pieces of `cut` bytes. Returns the output; no single output is longer than the maximum step.
fn through(filters: Vec<Box<dyn Filter>>, body: &[u8], cut: usize, step: u64) -> Result<Vec<u8>, String> {
    let mut chain = Chain::new(filters, step);
    let mut all = Vec::new();
    for piece in body.chunks(cut) {
        drain(&mut chain, piece, false, &mut all)?;
        if chain.is_done() {
            return Ok(all);
        }
    }
    drain(&mut chain, &[], true, &mut all)?;
    Ok(all)
}

fn drain(chain: &mut Chain, mut piece: &[u8], end: bool, all: &mut Vec<u8>) -> Result<(), String> {
    while let Some(out) = chain.next(&mut piece, end)? {
        assert!(!out.is_empty() && out.len() <= STEP_MAX, "{} bytes in one step", out.len());
        all.extend_from_slice(out);
        if chain.is_done() {
            return Ok(());
        }
    }
    assert!(piece.is_empty(), "input was not consumed");
    Ok(())
}

/// Texts that compress well, badly and not at all, with lengths close to those of steps.
fn texts() -> Vec<Vec<u8>> {
    let mut random = Random(4711);
    let mut noise = |n: usize| (0..n).map(|_| random.below(256) as u8).collect::<Vec<u8>>();
    let mut texts = vec![Vec::new(), b"short".to_vec(), vec![0; 1_000_000], noise(100_000)];
    for n in [2047, 2048, 2049, 65_535, 65_536, 65_537] {
        texts.push((0..n).map(|i| (i / 9) as u8).collect());
    }
    texts
}

fn cuts() -> impl Iterator<Item = (usize, u64)> {
    [7, 4096, 1 << 20].into_iter().flat_map(|cut| [1, 2048, 5000, 32_768, 1 << 30].map(|step| (cut, step)))
}

#[test]
fn gzip_round_trips_with_every_step() {
    for text in texts() {
        let packed = pack(&text, 6);
        for (cut, step) in cuts() {
            let back = || -> Vec<Box<dyn Filter>> { vec![Box::new(Gunzip::new())] };
            assert!(through(back(), &packed, cut, step).unwrap() == text, "{} by {cut}, {step}", text.len());
            let for_delivery: Vec<Box<dyn Filter>> = vec![Box::new(Gunzip::for_delivery())];
            assert!(through(for_delivery, &packed, cut, step).unwrap() == text);
            let tested: Vec<Box<dyn Filter>> = vec![Box::new(TestGunzip::new())];
            assert!(through(tested, &packed, cut, step).unwrap() == packed);
            let both: Vec<Box<dyn Filter>> = vec![Box::new(Gzip::new(1)), Box::new(Gunzip::new())];
            assert!(through(both, &text, cut, step).unwrap() == text);
        }
    }
}

#[test]
fn a_range_of_an_unpacked_body_does_not_depend_on_the_step() {
    let text: Vec<u8> = (0..400_000u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
    let packed = pack(&text, 6);
    for (cut, step) in cuts().filter(|(cut, _)| *cut > 7) {
        for (from, to) in [(0, 1), (65_535, 65_537), (1000, 900_000), (1_599_999, 1_600_000)] {
            let filters: Vec<Box<dyn Filter>> =
                vec![Box::new(Gunzip::for_delivery()), Box::new(RangeOf::new(from, to))];
            let part = through(filters, &packed, cut, step).unwrap();
            assert!(part == text[from as usize..to as usize], "{from}-{to} by {cut}, {step}");
        }
    }
}

#[test]
fn stored_esi_does_not_depend_on_the_step() {
    let page = "<a>some text</a><esi:include src=\"/x\"/><esi:remove>no</esi:remove>".repeat(3000);
    for (cut, step) in cuts().filter(|(cut, _)| *cut > 7) {
        let plain: Vec<Box<dyn Filter>> = vec![Box::new(Esi::new(b"/", Options::default()))];
        assert!(through(plain, page.as_bytes(), cut, step).unwrap() == page.as_bytes());
        let packed: Vec<Box<dyn Filter>> =
            vec![Box::new(EsiGzip::new(b"/", Options::default(), 1)), Box::new(Gunzip::new())];
        assert!(through(packed, page.as_bytes(), cut, step).unwrap() == page.as_bytes());
    }
}

#[test]
fn a_decompression_bomb_uses_one_step_of_memory() {
    let bomb = pack(&vec![0; 30_000_000], 9);
    let mut chain = Chain::new(vec![Box::new(Gunzip::new()), Box::new(Gzip::new(0))], 1 << 20);
    let (mut rest, mut steps) = (bomb.as_slice(), 0);
    while chain.next(&mut rest, true).unwrap().is_some() {
        steps += 1;
        let held: usize = chain.stages.iter().map(|s| s.out.capacity()).sum();
        assert!(held <= 2 * STEP_MAX + 4096, "{held} bytes are held");
    }
    assert!(steps >= 30_000_000 / STEP_MAX);
}

#[test]
fn errors_do_not_depend_on_the_step() {
    let mut packed = pack(&vec![b'x'; 500_000], 6);
    packed.extend_from_slice(b"junk");
    for (cut, step) in cuts() {
        let gunzip = || -> Vec<Box<dyn Filter>> { vec![Box::new(Gunzip::new())] };
        assert_eq!(through(gunzip(), &packed, cut, step), Err("Junk after gzip data".to_owned()));
        let short = &packed[..packed.len() - 10];
        assert_eq!(through(gunzip(), short, cut, step), Err("Gunzip error at the very end".to_owned()));
    }
}
