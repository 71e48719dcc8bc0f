//! The loaded VCL programs and labels, the active one, and the dependencies between them. Has no side effects: the
//! caller keeps the worker in step.

use lacquer_cli::glob;
use lacquer_cli::link::VclState;

use super::compile::Compiled;

/// A VCL program or a label.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The state that the user set: a temperature, or the mark of a label.
    pub state: VclState,
    /// Its temperature: warm or cold.
    pub warm: bool,
    /// The compiled program; a label has none.
    pub compiled: Option<Compiled>,
    /// Start of its idle time (monotonic seconds), if it is idle and may become cold.
    idle_since: Option<f64>,
}

impl Entry {
    /// Returns whether it is a label.
    pub fn is_label(&self) -> bool {
        self.state == VclState::Label
    }
}

/// The reason why entries cannot be discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CannotDiscard {
    /// This entry is active.
    Active(String),
    /// No entry matches this pattern.
    NoMatch(String),
    /// Entries that are not to be discarded depend on it.
    Needed {
        /// The entry that was to be discarded.
        name: String,
        /// Whether the entry is a label.
        label: bool,
        /// All entries that depend on it.
        by: Vec<String>,
    },
}

/// All programs and labels, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Catalogue {
    entries: Vec<Entry>,
    /// Pairs of dependent and dependency: a label depends on its program, a program on the labels it returns to.
    deps: Vec<(String, String)>,
    active: Option<String>,
}

impl Catalogue {
    /// All entries in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the entry with this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.name == name)
    }

    /// Returns the number of programs, without labels.
    pub fn programs(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.is_label()).count()
    }

    /// Returns the names of the labels.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|entry| entry.is_label()).map(|entry| entry.name.as_str())
    }

    /// The program or label for new requests.
    pub fn active(&self) -> Option<&str> {
        self.active.as_deref()
    }

    /// Returns the reason why the worker cannot be started, if there is one.
    pub fn unready_reason(&self) -> Option<&'static str> {
        match (&self.active, self.entries.is_empty()) {
            (_, true) => Some("No VCL loaded"),
            (None, _) => Some("No active VCL"),
            _ => None,
        }
    }

    /// Returns the entries that `name` depends on.
    pub fn depends_on<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.deps.iter().filter(move |(from, _)| from == name).map(|(_, to)| to.as_str())
    }

    /// Returns the entries that depend on `name`.
    pub fn dependents<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.deps.iter().filter(move |(_, to)| to == name).map(|(from, _)| from.as_str())
    }

    /// Returns the program that a label points to.
    pub fn target(&self, label: &str) -> Option<&str> {
        self.deps.iter().find(|(from, _)| from == label).map(|(_, to)| to.as_str())
    }

    /// Adds a program with the labels it returns to, or a label.
    pub fn add(&mut self, name: &str, state: VclState, compiled: Option<Compiled>) {
        let labels = compiled.as_ref().map(|compiled| compiled.labels.clone()).unwrap_or_default();
        self.entries.push(Entry {
            name: name.to_owned(),
            state,
            warm: state != VclState::Cold,
            compiled,
            idle_since: None,
        });
        for label in labels {
            self.depend(name, &label);
        }
    }

    /// Removes an entry and its dependencies. Nothing may depend on it.
    pub fn remove(&mut self, name: &str, now: f64) {
        let freed: Vec<String> = self.depends_on(name).map(str::to_owned).collect();
        self.deps.retain(|(from, _)| from != name);
        self.entries.retain(|entry| entry.name != name);
        for name in &freed {
            self.update_idle_time(name, now);
        }
    }

    fn depend(&mut self, from: &str, to: &str) {
        self.deps.push((from.to_owned(), to.to_owned()));
        for name in [from, to] {
            if let Some(entry) = self.get_mut(name) {
                entry.idle_since = None;
            }
        }
    }

    /// Points an existing label at a program.
    pub fn point(&mut self, label: &str, target: &str, now: f64) {
        let old = self.target(label).map(str::to_owned);
        self.deps.retain(|(from, _)| from != label);
        if let Some(old) = old {
            self.update_idle_time(&old, now);
        }
        self.depend(label, target);
    }

    /// Makes `name` active.
    pub fn activate(&mut self, name: &str, now: f64) {
        let old = self.active.replace(name.to_owned());
        for name in old.iter().map(String::as_str).chain([name]) {
            self.update_idle_time(name, now);
        }
    }

    /// Records the state and temperature of an entry.
    pub fn set_state(&mut self, name: &str, state: VclState, warm: bool) {
        if let Some(entry) = self.get_mut(name) {
            (entry.state, entry.warm) = (state, warm);
        }
    }

    /// Starts the idle time of `name`, or clears it if the entry is in use.
    pub fn update_idle_time(&mut self, name: &str, now: f64) {
        let used = self.active.as_deref() == Some(name)
            || self.depends_on(name).next().is_some()
            || self.dependents(name).next().is_some();
        if let Some(entry) = self.get_mut(name) {
            let idle = entry.state == VclState::Auto && entry.warm && !used;
            entry.idle_since = idle.then_some(now);
        }
    }

    /// Starts the idle times of all programs that are not in use.
    pub fn update_idle_times(&mut self, now: f64) {
        let names: Vec<String> = self.entries.iter().map(|entry| entry.name.clone()).collect();
        for name in &names {
            self.update_idle_time(name, now);
        }
    }

    /// Returns the programs that have been idle for longer than `cooldown`.
    pub fn idle_longer_than(&self, now: f64, cooldown: f64) -> Vec<String> {
        let cold = |entry: &&Entry| entry.idle_since.is_some_and(|since| since + cooldown < now);
        self.entries.iter().filter(cold).map(|entry| entry.name.clone()).collect()
    }

    /// Returns the dependency chain from `from` to `to`, one line for each step, if there is one.
    pub fn path(&self, from: &str, to: &str) -> Option<String> {
        if from == to {
            return Some(String::new());
        }
        self.depends_on(from).find_map(|next| {
            let chain = self.path(next, to)?;
            let line = if self.get(from).is_some_and(Entry::is_label) {
                format!("Label {from} points to vcl {next}\n")
            } else {
                format!("Vcl {from} uses Label {next}\n")
            };
            Some(chain + &line)
        })
    }

    /// Returns the names in an order in which every entry follows its dependencies.
    pub fn load_order(&self) -> Vec<String> {
        let mut order: Vec<String> = Vec::new();
        while order.len() < self.entries.len() {
            let before = order.len();
            for entry in &self.entries {
                let ready = self.depends_on(&entry.name).all(|dep| order.iter().any(|done| done == dep));
                if ready && !order.contains(&entry.name) {
                    order.push(entry.name.clone());
                }
            }
            if order.len() == before {
                break;
            }
        }
        order
    }

    /// Returns the entries that match the patterns, dependents first, or the reason why they cannot be discarded. If
    /// one pattern fails, nothing is to be discarded.
    pub fn to_discard(&self, patterns: &[String]) -> Result<Vec<String>, CannotDiscard> {
        let mut marked: Vec<&str> = Vec::new();
        for pattern in patterns {
            let mut any = false;
            for entry in self.entries.iter().filter(|entry| glob::matches(pattern, &entry.name)) {
                if self.active.as_deref() == Some(&entry.name) {
                    return Err(CannotDiscard::Active(entry.name.clone()));
                }
                any = true;
                if !marked.contains(&entry.name.as_str()) {
                    marked.push(&entry.name);
                }
            }
            if !any {
                return Err(CannotDiscard::NoMatch(pattern.clone()));
            }
        }
        for name in &marked {
            if self.dependents(name).any(|by| !marked.contains(&by)) {
                return Err(CannotDiscard::Needed {
                    name: (*name).to_owned(),
                    label: self.get(name).is_some_and(Entry::is_label),
                    by: self.dependents(name).map(str::to_owned).collect(),
                });
            }
        }
        let mut order = Vec::new();
        for name in marked {
            self.dependents_first(name, &mut order);
        }
        Ok(order)
    }

    fn dependents_first(&self, name: &str, order: &mut Vec<String>) {
        if order.iter().any(|done| done == name) {
            return;
        }
        self.dependents(name).for_each(|by| self.dependents_first(by, order));
        order.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(labels: &[&str]) -> Option<Compiled> {
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        Some(Compiled { labels, ..Compiled::default() })
    }

    /// vcl1 <- label <- vcl2 (by return (vcl(label))), vcl3 active.
    fn sample() -> Catalogue {
        let mut all = Catalogue::default();
        all.add("vcl1", VclState::Auto, program(&[]));
        all.add("label", VclState::Label, None);
        all.point("label", "vcl1", 0.0);
        all.add("vcl2", VclState::Auto, program(&["label"]));
        all.add("vcl3", VclState::Auto, program(&[]));
        all.activate("vcl3", 0.0);
        all
    }

    fn discard(all: &Catalogue, patterns: &[&str]) -> Result<Vec<String>, CannotDiscard> {
        all.to_discard(&patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn discarding_respects_dependencies() {
        let all = sample();
        assert_eq!(discard(&all, &["vcl[12]", "lab*"]).unwrap(), ["vcl2", "label", "vcl1"]);
        assert_eq!(discard(&all, &["*"]), Err(CannotDiscard::Active("vcl3".into())));
        assert_eq!(discard(&all, &["nope"]), Err(CannotDiscard::NoMatch("nope".into())));
        let needed = CannotDiscard::Needed { name: "label".into(), label: true, by: vec!["vcl2".into()] };
        assert_eq!(discard(&all, &["label"]), Err(needed));
    }

    #[test]
    fn order_and_loops() {
        let all = sample();
        assert_eq!(all.load_order(), ["vcl1", "label", "vcl2", "vcl3"]);
        let chain = all.path("vcl2", "vcl1").unwrap();
        assert_eq!(chain, "Label label points to vcl vcl1\nVcl vcl2 uses Label label\n");
        assert_eq!(all.path("vcl1", "vcl2"), None);
    }

    #[test]
    fn only_idle_programs_go_cold() {
        let mut all = sample();
        assert!(all.idle_longer_than(1e6, 1.0).is_empty());
        all.activate("vcl2", 10.0);
        assert_eq!(all.idle_longer_than(20.0, 5.0), ["vcl3"]);
        assert!(all.idle_longer_than(12.0, 5.0).is_empty());
        let mut all = sample();
        all.add("idle", VclState::Auto, program(&[]));
        all.add("warm", VclState::Warm, program(&[]));
        all.update_idle_times(0.0);
        assert_eq!(all.idle_longer_than(20.0, 5.0), ["idle"]);
    }
}
