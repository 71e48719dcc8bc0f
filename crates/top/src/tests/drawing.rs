//! Drawing on terminals of several sizes.

use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::*;
use crate::draw::{Terminal, draw};
use crate::panel::{Panel, text};
use crate::table::width;
use crate::view::View;
use lacquer_live::snapshot::Status;

const PLAIN: Terminal = Terminal { has_colors: false, has_unicode: true };

/// Draws on a terminal of a size. Returns its lines.
fn drawn(of: &Snapshot, view: &View, size: (u16, u16), kind: Terminal) -> Vec<String> {
    let mut terminal = ratatui::Terminal::new(TestBackend::new(size.0, size.1)).expect("it is in memory");
    terminal.draw(|frame| draw(frame, of, view, kind)).expect("it is in memory");
    let buffer = terminal.backend().buffer();
    for cell in &buffer.content {
        assert!(!cell.symbol().contains(char::is_control), "{cell:?}");
        assert!(kind.has_colors || cell.fg == Color::Reset && cell.bg == Color::Reset, "{cell:?}");
        assert!(kind.has_unicode || cell.symbol().is_ascii(), "{cell:?}");
    }
    let rows = buffer.content.chunks(usize::from(size.0).max(1));
    rows.map(|row| row.iter().map(Cell::symbol).collect::<String>()).collect()
}

fn at(panel: Panel) -> View {
    let mut view = View::new(false);
    view.panel = panel;
    view
}

fn has(lines: &[String], texts: &[&str]) {
    for text in texts {
        assert!(lines.iter().any(|line| line.contains(text)), "{text}: {lines:#?}");
    }
}

#[test]
fn every_size_is_drawn() {
    let hostile = ["日本語/日本語/🦀🦀🦀", "host/a\\x1b[2J", &"x".repeat(400), "h/2"];
    let mut snapshot = busy("/run/日本語", &hostile);
    for trouble in [false, true] {
        if trouble {
            snapshot.daemon.status = Status::Waiting("the daemon has ended\x1b".into());
        }
        for wide in [0, 1, 2, 5, 19, 20, 21, 59, 60, 80, 200] {
            for high in [0, 1, 2, 3, 4, 5, 23, 24, 40, 41] {
                for panel in Panel::ALL {
                    let mut view = at(panel);
                    view.scroll = usize::from(high);
                    drawn(&snapshot, &view, (wide, high), PLAIN);
                    view.is_alone = true;
                    view.typed = Some("é".repeat(90));
                    let kind = Terminal { has_colors: true, has_unicode: true };
                    drawn(&snapshot, &view, (wide, high), kind);
                }
            }
        }
    }
}

#[test]
fn a_large_terminal_shows_all_panels() {
    let lines = drawn(&busy("/run/x", &["a.example/1"]), &View::new(false), (120, 45), PLAIN);
    has(&lines, &["lacquer top /run/x", "Traffic", "Latency", "Busiest URLs", "Most missed URLs"]);
    has(&lines, &["Slowest URLs", "Origins", "Storage", "Connections", "q quit", "boot.default", "37.5"]);
    has(&lines, &["75.0 %", "a.example/1", "p99", "evictions/s"]);
}

#[test]
fn a_common_terminal_shows_traffic_latency_and_a_list() {
    let snapshot = busy("/run/x", &["a.example/1"]);
    let lines = drawn(&snapshot, &View::new(false), (80, 24), PLAIN);
    has(&lines, &["Traffic", "Latency", "Busiest URLs", "a.example/1", "requests/s", "p95"]);
    let lines = drawn(&snapshot, &at(Panel::Origins), (80, 24), PLAIN);
    has(&lines, &["Origins", "boot.default", "sick"]);
}

#[test]
fn twenty_columns_are_enough() {
    let snapshot = busy("/run/x", &["a.example/1"]);
    let lines = drawn(&snapshot, &at(Panel::Traffic), (20, 12), PLAIN);
    has(&lines, &["Traffic 1/8", "requests/s", "37.5", "hit ratio", "q ? Tab / p"]);
    let lines = drawn(&snapshot, &at(Panel::Busiest), (20, 6), PLAIN);
    has(&lines, &["Busiest URLs 3/8", "a.example/1"]);
    let lines = drawn(&snapshot, &at(Panel::Latency), (20, 8), PLAIN);
    has(&lines, &["p99", "250ms"]);
    let lines = drawn(&snapshot, &at(Panel::Origins), (20, 8), PLAIN);
    has(&lines, &["boot.default"]);
}

#[test]
fn help_filter_pause_and_trouble_are_shown() {
    let mut snapshot = busy("/run/x", &["a.example/1"]);
    let mut view = View::new(false);
    for code in [KeyCode::Char('?'), KeyCode::Char('p'), KeyCode::Char('/'), KeyCode::Char('n')] {
        view.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    has(&drawn(&snapshot, &view, (100, 30), PLAIN), &["Keys", "filter by host", "PAUSED", "/n_"]);
    has(&drawn(&snapshot, &view, (20, 12), PLAIN), &["q: quit", "?: this help"]);
    snapshot.daemon.status = Status::Waiting("the daemon has ended".into());
    snapshot.daemon.overruns = 1;
    let lines = drawn(&snapshot, &View::new(false), (100, 30), PLAIN);
    has(&lines, &["Waiting: the daemon has ended", "the log was too fast 1 time"]);
}

#[test]
fn terminals_without_unicode_get_ascii() {
    let ascii = Terminal { has_colors: true, has_unicode: false };
    let lines =
        drawn(&busy("/run/x", &["a.example/1", &"語".repeat(90)]), &View::new(false), (120, 45), ascii);
    has(&lines, &["+ Traffic -", "|"]);
}

#[test]
fn lists_scroll_below_their_titles() {
    let urls: Vec<String> = (10..60).map(|number| format!("h/{number}")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let snapshot = busy("x", &urls);
    let mut view = at(Panel::Busiest);
    view.scroll = 5;
    let lines = drawn(&snapshot, &view, (40, 10), PLAIN);
    has(&lines, &["URL", "h/15"]);
    assert!(!lines.iter().any(|line| line.contains("h/14")), "{lines:#?}");
    view.scroll = 1000;
    has(&drawn(&snapshot, &view, (40, 10), PLAIN), &["h/59"]);
}

#[test]
fn text_fits_a_page() {
    let long = "語".repeat(300);
    let text = text(&busy("/run/x", &[&long, "a/1"]));
    assert!(text.lines().all(|line| width(line) <= 100), "{text}");
    for panel in Panel::ALL {
        assert!(text.contains(&format!("\n{}\n", panel.title())), "{text}");
    }
    assert!(crate::panel::text(&Snapshot::default()).contains("  none\n"));
}
