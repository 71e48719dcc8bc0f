//! `lacquer log`: prints requests, one on each line.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use lacquer_inspect::directory::Directory;
use lacquer_inspect::log_line::{Filter, LogLine};
use lacquer_inspect::request_log::RequestLog;

use crate::args::Values;
use crate::colors;
use crate::failure::Failure;
use crate::remote;

const PAUSE: Duration = Duration::from_millis(50);
/// Number of pauses between two looks whether the daemon still runs.
const ROUNDS: u32 = 20;
const LINES: usize = 50;
/// Maximum number of past requests that are kept for printing.
const MAX_LINES: usize = 1_000_000;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let filter = Filter {
        url: values.one("url").map(str::to_owned),
        status: values.one("status").map(status).transpose()?,
        only_misses: values.has("misses"),
    };
    let count = match values.one("lines") {
        None => LINES,
        Some("all") => MAX_LINES,
        Some(word) => word.parse().map_err(|_| {
            Failure::new(format_args!("--lines {word} is not a number")).hint("write a number, or all")
        })?,
    };
    let directory = remote::directory(values)?;
    let mut requests = RequestLog::open(&directory).map_err(Failure::of)?;
    let mut last = VecDeque::new();
    let mut collect = |line: LogLine| {
        last.push_back(line);
        if last.len() > count.min(MAX_LINES) {
            last.pop_front();
        }
    };
    read(&mut requests, &filter, &mut collect)?;
    let has_colors = colors::wanted(io::stdout().is_terminal());
    let mut is_open = true;
    let mut print = |line: LogLine| {
        let text = if values.has("json") { line.json().to_string() } else { line.text(has_colors) };
        is_open = is_open && writeln!(io::stdout().lock(), "{text}").is_ok();
        is_open
    };
    for line in last.drain(..) {
        if !print(line) {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if values.has("follow") {
        return follow(&directory, &mut requests, &filter, &mut print);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints new requests until the reader of the output closes it or the daemon ends.
fn follow(
    directory: &Directory,
    requests: &mut RequestLog,
    filter: &Filter,
    print: &mut dyn FnMut(LogLine) -> bool,
) -> Result<ExitCode, Failure> {
    let (mut missed, mut round) = (requests.missed(), 0);
    loop {
        let mut is_open = true;
        read(requests, filter, &mut |line| is_open = is_open && print(line))?;
        if !is_open {
            return Ok(ExitCode::SUCCESS);
        }
        if requests.missed() > missed {
            missed = requests.missed();
            eprintln!("lacquer: some requests were overwritten before they were read; raise vsl_space");
        }
        round += 1;
        if round % ROUNDS == 0 {
            Directory::find(directory.path().to_str()).map_err(Failure::of)?;
            requests.reopen(directory);
        }
        thread::sleep(PAUSE);
    }
}

fn read(requests: &mut RequestLog, filter: &Filter, each: &mut dyn FnMut(LogLine)) -> Result<(), Failure> {
    let read = requests.read(&mut |line| {
        if filter.accepts(&line) {
            each(line);
        }
    });
    read.map_err(|error| {
        Failure::new(format_args!("the log cannot be read: {error}")).hint("repeat the command")
    })
}

fn status(word: &str) -> Result<String, Failure> {
    let is_status = word.len() == 3 && word.chars().all(|c| c.is_ascii_digit() || matches!(c, 'x' | 'X'));
    if is_status {
        return Ok(word.to_owned());
    }
    Err(Failure::new("--status needs a status of three digits").hint("write 404, or 5xx for a class"))
}
