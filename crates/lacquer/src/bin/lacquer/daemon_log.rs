//! `lacquer log`: prints requests, one on each line.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use lacquer_inspect::access_log::Format;
use lacquer_inspect::log_line::{Filter, LogLine};
use lacquer_inspect::log_sink::{Sink, Target};
use lacquer_inspect::parts::Parts;
use lacquer_inspect::request_log::RequestLog;
use lacquer_inspect::transaction::Transaction;
use lacquer_manager::note_unwritten;

use crate::args::Values;
use crate::colors;
use crate::failure::Failure;
use crate::losses::Losses;
use crate::remote;

const PAUSE: Duration = Duration::from_millis(50);
const LINES: usize = 50;
/// Maximum number of past requests that are kept for printing.
const MAX_LINES: usize = 1_000_000;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let filter = Filter {
        url: values.one("url").map(str::to_owned),
        status: values.one("status").map(status).transpose()?,
        only_misses: values.has("misses"),
        vxid: values.one("vxid").map(vxid).transpose()?,
    };
    let count = match values.one("lines") {
        None => LINES,
        Some("all") => MAX_LINES,
        Some(word) => word.parse().map_err(|_| {
            Failure::new(format_args!("--lines {word} is not a number")).hint("write a number, or all")
        })?,
    };
    let directory = remote::directory(values)?;
    let format = format(values)?;
    let mut requests = RequestLog::open(&directory, format.needs()).map_err(Failure::of)?;
    let has_colors = colors::wanted(io::stdout().is_terminal());
    let mut last = VecDeque::new();
    let mut collect = |line: String| {
        last.push_back(line);
        if last.len() > count.min(MAX_LINES) {
            last.pop_front();
        }
    };
    let line_of = |parts: &Parts<'_>, records: &Transaction| {
        let mut line = String::new();
        format.add_line(&mut line, parts, records, has_colors);
        line
    };
    read(&mut requests, &filter, &line_of, &mut collect)?;
    let mut sink = Sink::new(target(values)?);
    if write(&mut sink, last).inspect_err(note_unwritten).is_err() {
        return Ok(ExitCode::SUCCESS);
    }
    if values.has("follow") {
        return follow(&mut requests, &filter, &line_of, &mut sink);
    }
    if sink.finish().inspect_err(note_unwritten).is_err() {
        return Ok(ExitCode::SUCCESS);
    }
    match sink.dropped() + sink.waiting() {
        0 => Ok(ExitCode::SUCCESS),
        number => Err(Failure::new(format_args!("{number} lines were dropped: {}", why_dropped(&sink)))),
    }
}

/// Writes lines, and waits for a slow reader. If a socket accepts nothing for long, the lines without room are dropped.
fn write(sink: &mut Sink, lines: VecDeque<String>) -> io::Result<()> {
    let mut is_read = true;
    for line in lines {
        sink.write(&line)?;
        is_read = is_read && sink.make_room()?;
    }
    Ok(())
}

/// Returns why lines are dropped.
fn why_dropped(sink: &Sink) -> &'static str {
    if *sink.target() == Target::Stdout { "nobody reads standard output" } else { "--to does not read them" }
}

fn format(values: &Values) -> Result<Format, Failure> {
    match (values.one("format"), values.has("json")) {
        (Some(_), true) => Err(Failure::new("--format and --json exclude each other")),
        (Some(text), false) => Format::parse(text).map_err(|hint| {
            Failure::new(format_args!("--format {}: not a format", text.escape_debug())).hint(hint)
        }),
        (None, true) => Ok(Format::json()),
        (None, false) => Ok(Format::Text),
    }
}

fn target(values: &Values) -> Result<Target, Failure> {
    let text = values.one("to").unwrap_or("stdout");
    Target::parse(text).map_err(|hint| {
        Failure::new(format_args!("--to {}: not a destination", text.escape_debug())).hint(hint)
    })
}

/// Writes new requests until the reader of the output closes it. Waits for the next worker or daemon after the end of one.
fn follow(
    requests: &mut RequestLog,
    filter: &Filter,
    line_of: &dyn Fn(&Parts<'_>, &Transaction) -> String,
    sink: &mut Sink,
) -> Result<ExitCode, Failure> {
    let mut reported = Reported::of(requests);
    loop {
        let mut is_open = true;
        let read = read(requests, filter, line_of, &mut |line| {
            is_open = is_open && sink.write(&line).inspect_err(note_unwritten).is_ok();
        });
        if sink.flush().inspect_err(note_unwritten).is_err() || !is_open {
            return Ok(ExitCode::SUCCESS);
        }
        reported.report(read, requests, sink);
        thread::sleep(PAUSE);
    }
}

/// The counts that were last reported to the user.
struct Reported {
    missed: u64,
    dropped: u64,
    /// The reports about them.
    overruns: Losses,
    drops: Losses,
    restarts: u64,
    /// Whether the daemon has ended, and the next one has not been found.
    is_gone: bool,
}

impl Reported {
    fn of(requests: &RequestLog) -> Reported {
        Reported {
            missed: requests.missed(),
            dropped: 0,
            overruns: Losses::default(),
            drops: Losses::default(),
            restarts: requests.restarts(),
            is_gone: false,
        }
    }

    /// Writes a line about each event since the last call, but lines about losses once a minute.
    fn report(&mut self, read: Result<(), Failure>, requests: &RequestLog, sink: &Sink) {
        if requests.restarts() > self.restarts {
            self.restarts = requests.restarts();
            let who = if self.is_gone { "the daemon runs again" } else { "another worker runs" };
            eprintln!("lacquer: {who}; its requests follow");
            self.is_gone = false;
        }
        // Between two looks for the daemon, there is no failure.
        if let Some(failure) = read.err().filter(|_| !self.is_gone) {
            self.is_gone = true;
            eprintln!("lacquer: {}; waiting until it runs again", failure.texts().0);
        }
        let now = Instant::now();
        self.overruns.add(now, requests.missed() - self.missed);
        self.drops.add(now, sink.dropped() - self.dropped);
        (self.missed, self.dropped) = (requests.missed(), sink.dropped());
        if self.overruns.due(now).is_some() {
            eprintln!("lacquer: some requests were overwritten before they were read; raise vsl_space");
        }
        if let Some(total) = self.drops.due(now) {
            eprintln!("lacquer: lines were dropped, {total} so far: {}", why_dropped(sink));
        }
    }
}

fn read(
    requests: &mut RequestLog,
    filter: &Filter,
    line_of: &dyn Fn(&Parts<'_>, &Transaction) -> String,
    each: &mut dyn FnMut(String),
) -> Result<(), Failure> {
    let is_filtered = *filter != Filter::default();
    let read = requests.read_with(&mut |parts, records| {
        if !is_filtered || filter.accepts(&LogLine::of_parts(records.vxid, parts)) {
            each(line_of(parts, records));
        }
    });
    read.map_err(Failure::of)
}

fn vxid(word: &str) -> Result<u64, Failure> {
    word.parse().map_err(|_| {
        Failure::new(format_args!("--vxid {}: not a number", word.escape_debug()))
            .hint("write the number of a request, as an error page shows it")
    })
}

fn status(word: &str) -> Result<String, Failure> {
    let is_status = word.len() == 3
        && word.starts_with(|c| matches!(c, '1'..='5' | 'x' | 'X'))
        && word.chars().all(|c| c.is_ascii_digit() || matches!(c, 'x' | 'X'));
    if is_status {
        return Ok(word.to_owned());
    }
    Err(Failure::new("--status needs a status of three digits from 100 to 599")
        .hint("write 404, or 5xx for a class"))
}
