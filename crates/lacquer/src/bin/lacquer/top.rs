//! `lacquer top`: shows what a daemon does, on the screen, or as text or JSON for a pipe.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use lacquer_inspect::log_line::now as time_of_day;
use lacquer_live::snapshot::{Snapshot, Status};
use lacquer_live::source::Source;
use lacquer_live::state::State;
use lacquer_top::draw::Terminal;
use lacquer_top::{panel, screen};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::Values;
use crate::colors;
use crate::failure::Failure;
use crate::remote;

const PAUSE: Duration = Duration::from_millis(20);
/// Seconds between two snapshots, on the screen and elsewhere.
const ON_SCREEN: f64 = 1.0;
const PRINTED: f64 = 5.0;
const MAX_INTERVAL: f64 = 86_400.0;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let is_printed = values.has("once") || values.has("json");
    let interval = match values.one("interval") {
        Some(word) => interval(word)?,
        None => Duration::from_secs_f64(if is_printed { PRINTED } else { ON_SCREEN }),
    };
    if !is_printed {
        check_terminal()?;
    }
    let mut source = Source::open(remote::directory(values)?).map_err(Failure::of)?;
    let mut state = State::new(&source.name(), source.now());
    state.set_filter(values.one("url").map(str::to_owned));
    if is_printed {
        return print(&mut source, &mut state, interval, values);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, is_over.clone())
            .map_err(|error| Failure::new(format_args!("cannot handle signals: {error}")))?;
    }
    let kind = Terminal { has_colors: colors::wanted(true), has_unicode: has_unicode() };
    screen::run(&mut source, &mut state, interval, kind, &is_over).map_err(Failure::of)?;
    Ok(ExitCode::SUCCESS)
}

fn interval(word: &str) -> Result<Duration, Failure> {
    let seconds = word.strip_suffix('s').unwrap_or(word).parse::<f64>().ok();
    match seconds.filter(|seconds| (0.1..=MAX_INTERVAL).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err(Failure::new("--interval needs a number of seconds, from 0.1 to 86400")
            .hint("lacquer top --interval 2")),
    }
}

fn check_terminal() -> Result<(), Failure> {
    let hint = "--once prints a snapshot, and --json prints snapshots as lines";
    if !io::stdout().is_terminal() {
        return Err(Failure::new("the output is not a terminal").hint(hint));
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err(Failure::new("this terminal cannot show a screen (TERM)").hint(hint));
    }
    Ok(())
}

/// Returns whether the user's locale has the characters for lines and bars.
fn has_unicode() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.into_iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Prints a snapshot after each interval, or one, until the reader of the output closes it.
fn print(
    source: &mut Source,
    state: &mut State,
    interval: Duration,
    values: &Values,
) -> Result<ExitCode, Failure> {
    loop {
        let next = Instant::now() + interval;
        while Instant::now() < next {
            if !source.poll(state) {
                thread::sleep(PAUSE.min(next.saturating_duration_since(Instant::now())));
            }
        }
        source.finish(state);
        let is_once = values.has("once");
        if let Status::Waiting(why) = state.status()
            && is_once
        {
            return Err(Failure::new(lacquer_inspect::page::plain(why.as_bytes()))
                .hint("repeat the command when the daemon runs"));
        }
        let snapshot = state.snapshot(source.now(), time_of_day());
        if !write(&snapshot, values.has("json")) || is_once {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Returns whether the output is still open.
fn write(snapshot: &Snapshot, is_json: bool) -> bool {
    let text = if is_json { format!("{}\n", snapshot.json()) } else { panel::text(snapshot) };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(interval("0.5").ok(), Some(Duration::from_millis(500)));
        assert_eq!(interval("2s").ok(), Some(Duration::from_secs(2)));
        for wrong in ["", "0", "-1", "nan", "inf", "1e9", "x", "1 \x1b[2J"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
