//! Draws a snapshot: all panels if there is room for them, else the chosen one.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline};

use crate::panel::{Panel, heading, trouble};
use crate::table::{Look, clip, width};
use crate::view::{KEYS, View};
use lacquer_live::snapshot::Snapshot;

/// The least size that shows all panels.
const ALL_WIDTH: u16 = 80;
const ALL_HEIGHT: u16 = 40;
/// The least size that shows traffic, latency and one list.
const SOME_WIDTH: u16 = 60;
const SOME_HEIGHT: u16 = 24;
/// The height of the panels for traffic and latency, with their frames.
const UPPER: u16 = 14;

/// The abilities of the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    pub has_colors: bool,
    /// Whether it shows characters for lines and bars.
    pub has_unicode: bool,
}

const ASCII: border::Set<'_> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

impl Terminal {
    /// Returns a text as the terminal can show it.
    fn shown(self, text: &str) -> String {
        if self.has_unicode {
            return text.to_owned();
        }
        let ascii = |c: char| match c {
            '…' => '~',
            c if c.is_ascii() => c,
            _ => '?',
        };
        text.chars().map(ascii).collect()
    }

    fn colored(self, style: Style, color: Color) -> Style {
        if self.has_colors { style.fg(color) } else { style }
    }

    fn style(self, look: Look) -> Style {
        match look {
            Look::Title => self.colored(Style::new().add_modifier(Modifier::BOLD), Color::Cyan),
            Look::Normal => Style::new(),
            Look::Bad => self.colored(Style::new().add_modifier(Modifier::BOLD), Color::Red),
        }
    }
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, of: &Snapshot, view: &View, terminal: Terminal) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let trouble = trouble(of);
    let heights = [
        Constraint::Length(1),
        Constraint::Length(u16::from(trouble.is_some() && area.height > 3)),
        Constraint::Min(0),
        Constraint::Length(u16::from(area.height > 4 || view.typed.is_some() && area.height > 1)),
    ];
    let [top, middle, body, bottom] = Layout::vertical(heights).areas(area);
    let mut title = heading(of);
    if view.is_paused {
        title = format!("PAUSED {title}");
    }
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    put(frame, top, &title, reversed, terminal);
    if let Some(trouble) = trouble {
        // Without a line of its own, it is more important than the title.
        let place = if middle.height > 0 { middle } else { top };
        put(frame, place, &trouble, terminal.style(Look::Bad).patch(reversed), terminal);
    }
    put(frame, bottom, &footer(view, bottom.width.into()), Style::new(), terminal);
    match () {
        () if view.shows_help => help(frame, body, terminal),
        () if view.is_alone || area.width < SOME_WIDTH || area.height < SOME_HEIGHT => {
            alone(frame, body, of, view, terminal);
        }
        () if area.width < ALL_WIDTH || area.height < ALL_HEIGHT => some(frame, body, of, view, terminal),
        () => all(frame, body, of, view, terminal),
    }
}

/// Fills one line.
fn put(frame: &mut Frame<'_>, area: Rect, text: &str, style: Style, terminal: Terminal) {
    if area.height == 0 {
        return;
    }
    let room = usize::from(area.width);
    let text = terminal.shown(&clip(text, room));
    let blanks = " ".repeat(room.saturating_sub(width(&text)));
    frame.render_widget(Paragraph::new(Line::styled(text + &blanks, style)), area);
}

fn footer(view: &View, room: usize) -> String {
    if let Some(typed) = &view.typed {
        // The end of a long filter is what the user types.
        let mut shown = typed.as_str();
        while width(shown) + 2 > room && !shown.is_empty() {
            shown = &shown[shown.chars().next().map_or(0, char::len_utf8)..];
        }
        return format!("/{shown}_");
    }
    let full = "q quit  Tab panel  Enter alone  p pause  / filter  ? help";
    if width(full) <= room { full.to_owned() } else { "q ? Tab / p".to_owned() }
}

fn help(frame: &mut Frame<'_>, area: Rect, terminal: Terminal) {
    frame.render_widget(Clear, area);
    let indent = KEYS.iter().map(|(key, _)| key.len()).max().unwrap_or(0) + 2;
    let is_narrow = area.width < 40;
    let line = |(key, effect): &(&str, &str)| {
        let text = if is_narrow { format!("{key}: {effect}") } else { format!("  {key:<indent$}{effect}") };
        Line::raw(terminal.shown(&clip(&text, area.width.into())))
    };
    let mut lines = vec![Line::styled("Keys", terminal.style(Look::Title))];
    lines.extend(KEYS.iter().map(line));
    if !is_narrow {
        lines.push(Line::raw(""));
        for text in HELP {
            lines.push(Line::raw(terminal.shown(&clip(text, area.width.into()))));
        }
    }
    frame.render_widget(Paragraph::new(lines), area);
}

const HELP: [&str; 7] = [
    "  Traffic and connections are counters of the daemon. The lists and latencies are of the last",
    "  minute, from its log. A latency is the time until a response began. Hits include stale copies in",
    "  grace; misses include passes. The hit ratio is that of all lookups and passes.",
    "  errors: fetches that failed or had a status of 500 or above, in the last minute",
    "  failures: attempts to connect that failed or were not made, since the start",
    "  waiting: requests that wait for an origin",
    "  A filter counts from the moment when it is set.",
];

/// Draws the chosen panel without a frame.
fn alone(frame: &mut Frame<'_>, area: Rect, of: &Snapshot, view: &View, terminal: Terminal) {
    if area.height == 0 {
        return;
    }
    let [top, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let number = Panel::ALL.iter().position(|panel| *panel == view.panel).unwrap_or(0) + 1;
    let title = format!("{} {number}/{}", view.panel.title(), Panel::ALL.len());
    put(frame, top, &title, terminal.style(Look::Title), terminal);
    lines(frame, rest, of, view.panel, view.scroll, terminal);
}

/// Draws all panels.
fn all(frame: &mut Frame<'_>, area: Rect, of: &Snapshot, view: &View, terminal: Terminal) {
    let rows = [Constraint::Length(UPPER), Constraint::Fill(3), Constraint::Fill(2), Constraint::Length(9)];
    let rows: [Rect; 4] = Layout::vertical(rows).areas(area);
    let pairs = [
        [Panel::Traffic, Panel::Latency],
        [Panel::Busiest, Panel::Missed],
        [Panel::Slowest, Panel::Origins],
        [Panel::Storage, Panel::Connections],
    ];
    for (row, panels) in rows.into_iter().zip(pairs) {
        pair(frame, row, of, panels, view, terminal);
    }
}

/// Draws traffic, latency, and the chosen one of the other panels.
fn some(frame: &mut Frame<'_>, area: Rect, of: &Snapshot, view: &View, terminal: Terminal) {
    let [upper, lower] = Layout::vertical([Constraint::Length(UPPER), Constraint::Min(0)]).areas(area);
    pair(frame, upper, of, [Panel::Traffic, Panel::Latency], view, terminal);
    let panel = match view.panel {
        Panel::Traffic | Panel::Latency => Panel::Busiest,
        other => other,
    };
    framed(frame, lower, of, panel, view, terminal);
}

fn pair(
    frame: &mut Frame<'_>,
    area: Rect,
    of: &Snapshot,
    panels: [Panel; 2],
    view: &View,
    terminal: Terminal,
) {
    let halves: [Rect; 2] = Layout::horizontal([Constraint::Fill(1); 2]).areas(area);
    for (place, panel) in halves.into_iter().zip(panels) {
        framed(frame, place, of, panel, view, terminal);
    }
}

fn framed(frame: &mut Frame<'_>, area: Rect, of: &Snapshot, panel: Panel, view: &View, terminal: Terminal) {
    let is_chosen = view.panel == panel;
    let mut style = terminal.style(Look::Title);
    if is_chosen {
        style = style.add_modifier(Modifier::REVERSED);
    }
    let set = match (terminal.has_unicode, is_chosen) {
        (false, _) => ASCII,
        (true, false) => border::PLAIN,
        (true, true) => border::THICK,
    };
    let block = Block::bordered().border_set(set).title(Line::styled(format!(" {} ", panel.title()), style));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let scroll = if is_chosen { view.scroll } else { 0 };
    let mut inside = inside;
    if panel == Panel::Traffic && terminal.has_unicode && inside.width > 65 {
        let halves = [Constraint::Length(38), Constraint::Fill(1)];
        let [left, right] = Layout::horizontal(halves).areas(inside);
        let each = &of.traffic.each_second;
        let first = each.len().saturating_sub(right.width.into());
        let color = terminal.colored(Style::new(), Color::Green);
        frame.render_widget(Sparkline::default().data(&each[first..]).style(color), right);
        inside = left;
    }
    lines(frame, inside, of, panel, scroll, terminal);
}

/// Draws the lines of a panel. The titles of a list remain when it is scrolled.
fn lines(frame: &mut Frame<'_>, area: Rect, of: &Snapshot, panel: Panel, scroll: usize, terminal: Terminal) {
    let room = usize::from(area.height);
    let all = panel.lines(of, area.width.into());
    let titles = all.iter().take_while(|(look, _)| *look == Look::Title).count().min(room);
    let hidden = all.len().saturating_sub(room).min(scroll);
    let shown = all[..titles].iter().chain(all[titles..].iter().skip(hidden)).take(room);
    let line = |(look, text): &(Look, String)| Line::styled(terminal.shown(text), terminal.style(*look));
    frame.render_widget(Paragraph::new(shown.map(line).collect::<Vec<_>>()), area);
}
