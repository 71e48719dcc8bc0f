//! The choices of the user, changed by keys: the panel, its scroll position, the filter and so on.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::panel::Panel;

/// Maximum number of characters of a filter.
const MAX_FILTER: usize = 100;
const PAGE: usize = 10;

/// The keys and their effects, for the help.
pub const KEYS: [(&str, &str); 9] = [
    ("q", "quit"),
    ("Tab, arrows", "choose a panel"),
    ("up, down", "scroll the panel"),
    ("Enter", "the panel alone, or all"),
    ("p", "pause"),
    ("/", "filter by host or URL"),
    ("Esc", "end filter and help"),
    ("Home", "scroll to the top"),
    ("?", "this help"),
];

/// The part of a snapshot that the user sees.
#[derive(Clone, Debug)]
pub struct View {
    pub panel: Panel,
    /// The first line of the chosen panel that is shown.
    pub scroll: usize,
    /// Whether the chosen panel is shown alone.
    pub is_alone: bool,
    pub is_paused: bool,
    pub shows_help: bool,
    /// The filter that the user types.
    pub typed: Option<String>,
    /// Whether a filter is in effect.
    has_filter: bool,
}

/// The effect of a key on the program.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Only the view has changed.
    Nothing,
    Quit,
    /// Use another filter, or none.
    Filter(Option<String>),
}

impl View {
    pub fn new(has_filter: bool) -> View {
        View {
            panel: Panel::Traffic,
            scroll: 0,
            is_alone: false,
            is_paused: false,
            shows_help: false,
            typed: None,
            has_filter,
        }
    }

    /// Applies a key.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if with_control {
            return if key.code == KeyCode::Char('c') { Action::Quit } else { Action::Nothing };
        }
        if self.typed.is_some() {
            return self.type_filter(key.code);
        }
        match key.code {
            KeyCode::Char('q' | 'Q') => return Action::Quit,
            KeyCode::Tab | KeyCode::Right => self.choose(1),
            KeyCode::BackTab | KeyCode::Left => self.choose(Panel::ALL.len() - 1),
            KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(PAGE),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::Home => self.scroll = 0,
            KeyCode::Enter => self.is_alone = !self.is_alone,
            KeyCode::Char('p' | 'P') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.typed = Some(String::new()),
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Esc if self.has_filter => return self.filter(None),
            _ => {}
        }
        Action::Nothing
    }

    /// Limits the scroll position to a number of lines.
    pub fn limit_scroll(&mut self, lines: usize) {
        self.scroll = self.scroll.min(lines.saturating_sub(1));
    }

    fn choose(&mut self, places: usize) {
        self.panel = self.panel.step(places);
        self.scroll = 0;
        self.shows_help = false;
    }

    fn type_filter(&mut self, code: KeyCode) -> Action {
        let Some(typed) = &mut self.typed else { return Action::Nothing };
        match code {
            KeyCode::Char(c) if !c.is_control() && typed.chars().count() < MAX_FILTER => typed.push(c),
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Esc => self.typed = None,
            KeyCode::Enter => {
                let filter = self.typed.take().filter(|typed| !typed.is_empty());
                return self.filter(filter);
            }
            _ => {}
        }
        Action::Nothing
    }

    fn filter(&mut self, filter: Option<String>) -> Action {
        self.has_filter = filter.is_some();
        self.scroll = 0;
        Action::Filter(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(view: &mut View, codes: &[KeyCode]) -> Action {
        let mut action = Action::Nothing;
        for code in codes {
            action = view.key(KeyEvent::new(*code, KeyModifiers::NONE));
        }
        action
    }

    #[test]
    fn keys_choose_panels_and_end() {
        let mut view = View::new(false);
        press(&mut view, &[KeyCode::Tab, KeyCode::Right, KeyCode::Down, KeyCode::Down, KeyCode::Up]);
        assert_eq!((view.panel, view.scroll), (Panel::Busiest, 1));
        press(&mut view, &[KeyCode::Left, KeyCode::BackTab, KeyCode::BackTab, KeyCode::Up]);
        assert_eq!((view.panel, view.scroll), (Panel::Connections, 0));
        press(&mut view, &[KeyCode::Enter, KeyCode::Char('p'), KeyCode::Char('?'), KeyCode::Esc]);
        assert!(view.is_alone && view.is_paused && !view.shows_help);
        assert_eq!(press(&mut view, &[KeyCode::Char('q')]), Action::Quit);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.key(control), Action::Quit);
    }

    #[test]
    fn a_filter_is_typed() {
        let mut view = View::new(false);
        let typed = [
            KeyCode::Char('/'),
            KeyCode::Char('q'),
            KeyCode::Char('\x1b'),
            KeyCode::Char('x'),
            KeyCode::Backspace,
            KeyCode::Char('/'),
        ];
        assert_eq!(press(&mut view, &typed), Action::Nothing);
        assert_eq!(view.typed.as_deref(), Some("q/"));
        assert_eq!(press(&mut view, &[KeyCode::Enter]), Action::Filter(Some("q/".to_owned())));
        assert_eq!(press(&mut view, &[KeyCode::Esc]), Action::Filter(None));
        assert_eq!(press(&mut view, &[KeyCode::Esc]), Action::Nothing);
        let mut long = vec![KeyCode::Char('/')];
        long.extend([KeyCode::Char('é'); 1000]);
        press(&mut view, &long);
        assert_eq!(view.typed.as_ref().map(|typed| typed.chars().count()), Some(MAX_FILTER));
        assert_eq!(
            press(&mut view, &[KeyCode::Esc, KeyCode::Char('/'), KeyCode::Enter]),
            Action::Filter(None)
        );
    }
}
