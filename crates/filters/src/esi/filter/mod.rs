//! ESI as body filters: one stores the body unchanged, the other stores it gzipped.

use flate2::{Compress, Compression, FlushCompress, Status};

use super::Options;
use super::layout::{Cut, Packer, Plain};
use super::parser::Parser;
use crate::gzip::{Direction, account};
use crate::{Filter, Flow, Report, take_front};

const WINDOW_BITS: u8 = 15;
const STEP: usize = 16 * 1024;

/// Ends the parser, if there is one. Moves its program and notes to the report and returns its packer.
fn finish<P: Packer>(parser: &mut Option<Parser<P>>, out: &mut Vec<u8>, report: &mut Report) -> Option<P> {
    let (program, notes, packer) = parser.take()?.finish(out);
    report.program = program;
    report.notes.extend(notes);
    Some(packer)
}

/// Parses until the output is a step long. If each byte of a body begins or ends a part, the compressed body grows by
/// a few bytes per part. So pieces of a quarter of a step are parsed at a time, and parsing stops at half a step.
fn parse<P: Packer>(
    parser: Option<&mut Parser<P>>,
    input: &mut &[u8],
    out: &mut Vec<u8>,
    step: usize,
) -> Flow {
    let Some(parser) = parser else { return Flow::Taken };
    while !input.is_empty() {
        if out.len() >= step / 2 {
            return Flow::Full;
        }
        parser.push(take_front(input, (step / 4).max(1)), out);
    }
    Flow::Taken
}

/// Finds the ESI markup in a body and stores the body unchanged.
pub struct Esi {
    parser: Option<Parser<Plain>>,
    report: Report,
}

impl Esi {
    pub fn new(url: &[u8], options: Options) -> Esi {
        Esi { parser: Some(Parser::new(url, options, Plain::default())), report: Report::default() }
    }
}

impl Filter for Esi {
    fn name(&self) -> &'static str {
        "esi"
    }

    fn push(&mut self, input: &mut &[u8], end: bool, out: &mut Vec<u8>, step: usize) -> Result<Flow, String> {
        let flow = parse(self.parser.as_mut(), input, out, step);
        if end && flow == Flow::Taken {
            finish(&mut self.parser, out, &mut self.report);
        }
        Ok(flow)
    }

    fn report(&mut self, report: &mut Report) {
        if let Some(parser) = &mut self.parser {
            report.notes.extend(parser.take_notes());
        }
        report.notes.append(&mut self.report.notes);
        report.program = self.report.program.take();
    }
}

/// A compressor whose stream can be cut into parts.
struct Zip {
    state: Compress,
}

impl Packer for Zip {
    const GZIP: bool = true;

    fn pack(&mut self, mut bytes: &[u8], cut: Cut, out: &mut Vec<u8>) -> u64 {
        let flush = match cut {
            Cut::None if bytes.is_empty() => return self.state.total_out(),
            Cut::None => FlushCompress::None,
            Cut::Align => FlushCompress::Sync,
            Cut::Reset => FlushCompress::Full,
            Cut::Finish => FlushCompress::Finish,
        };
        loop {
            out.reserve(STEP);
            let taken = self.state.total_in();
            let status = self.state.compress_vec(bytes, out, flush);
            bytes = &bytes[(self.state.total_in() - taken) as usize..];
            let has_room = out.len() < out.capacity();
            let stuck = !matches!(status, Ok(Status::Ok));
            if stuck || (bytes.is_empty() && has_room && cut != Cut::Finish) {
                return self.state.total_out();
            }
        }
    }
}

/// Finds the ESI markup in a body and stores the body gzipped, in parts that can be delivered separately.
pub struct EsiGzip {
    parser: Option<Parser<Zip>>,
    packed: Option<Zip>,
    report: Report,
}

impl EsiGzip {
    pub fn new(url: &[u8], options: Options, level: u32) -> EsiGzip {
        let zip = Zip { state: Compress::new_gzip(Compression::new(level), WINDOW_BITS) };
        EsiGzip { parser: Some(Parser::new(url, options, zip)), packed: None, report: Report::default() }
    }
}

impl Filter for EsiGzip {
    fn name(&self) -> &'static str {
        "esi_gzip"
    }

    fn push(&mut self, input: &mut &[u8], end: bool, out: &mut Vec<u8>, step: usize) -> Result<Flow, String> {
        let flow = parse(self.parser.as_mut(), input, out, step);
        if end && flow == Flow::Taken {
            self.packed = finish(&mut self.parser, out, &mut self.report);
        }
        Ok(flow)
    }

    fn report(&mut self, report: &mut Report) {
        let zip = match (&mut self.parser, &self.packed) {
            (Some(parser), _) => {
                report.notes.extend(parser.take_notes());
                parser.packer()
            }
            (None, Some(zip)) => zip,
            (None, None) => return,
        };
        let (from, to) = (zip.state.total_in(), zip.state.total_out());
        report.gzip.push(account(Direction::Pack, "G F E", from, to));
        if self.packed.is_some() {
            report.unpacked = Some(from);
        }
        report.notes.append(&mut self.report.notes);
        report.program = self.report.program.take();
    }
}

#[cfg(test)]
mod tests;
