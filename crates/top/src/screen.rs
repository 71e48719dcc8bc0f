//! The terminal: shows snapshots and reads keys until the user quits, or a signal arrives.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lacquer_inspect::Fault;
use lacquer_inspect::log_line::now as time_of_day;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use crate::draw::{Terminal, draw};
use crate::view::{Action, View};
use lacquer_live::source::Source;
use lacquer_live::state::State;

/// How long to wait for a key before the log is read again.
const PAUSE: Duration = Duration::from_millis(50);

/// Shows a daemon. `interval` is the time between two snapshots, and `is_over` is set by signals.
pub fn run(
    source: &mut Source,
    state: &mut State,
    interval: Duration,
    kind: Terminal,
    is_over: &AtomicBool,
) -> Result<(), Fault> {
    let failed = |error: io::Error| {
        Fault::new(
            format_args!("the terminal cannot be used: {error}"),
            "--once prints a snapshot, and --json prints snapshots as lines",
        )
    };
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let shown = show(&mut terminal, source, state, interval, kind, is_over);
    let restored = ratatui::try_restore();
    if is_over.load(Relaxed) {
        // The terminal may be gone.
        return Ok(());
    }
    shown.and(restored).map_err(failed)
}

fn show(
    terminal: &mut DefaultTerminal,
    source: &mut Source,
    state: &mut State,
    interval: Duration,
    kind: Terminal,
    is_over: &AtomicBool,
) -> io::Result<()> {
    let mut view = View::new(state.filter().is_some());
    let mut snapshot = state.snapshot(source.now(), time_of_day());
    let mut last = None;
    while !is_over.load(Relaxed) {
        let more = source.poll(state);
        let is_due = last.is_none_or(|last: Instant| last.elapsed() >= interval);
        let mut has_changed = is_due;
        if is_due && !view.is_paused {
            snapshot = state.snapshot(source.now(), time_of_day());
        }
        let mut pause = if more { Duration::ZERO } else { PAUSE };
        while event::poll(pause)? {
            pause = Duration::ZERO;
            has_changed = true;
            let Event::Key(key) = event::read()? else { continue };
            match view.key(key) {
                Action::Quit => return Ok(()),
                Action::Filter(filter) => {
                    state.set_filter(filter);
                    snapshot = state.snapshot(source.now(), time_of_day());
                }
                Action::Nothing => {}
            }
        }
        if has_changed {
            view.limit_scroll(view.panel.lines(&snapshot, lacquer_inspect::page::WIDTH).len());
            terminal.draw(|frame| draw(frame, &snapshot, &view, kind))?;
        }
        if is_due {
            last = Some(Instant::now());
        }
    }
    Ok(())
}
