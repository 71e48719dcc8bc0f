//! The values of all counters, by labels that do not depend on VCL programs.
//!
//! A backend exists once in each program that defines it, as `PROGRAM.BACKEND`. Its series has the label `BACKEND`, and the
//! sum over all programs. A program that is discarded leaves what it has counted in the sum, so that the series does not
//! fall; the series ends with the last program that defines the backend. A program that becomes cold is hidden, and
//! continues where it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lacquer_inspect::counters::{Description, Set};

/// Maximum number of hidden sets whose last values are kept. The oldest are forgotten first.
const KEPT: usize = 20_000;

/// The name of a kind's label, and whether the first part of the instance is the name of a VCL program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label {
    name: &'static str,
    is_of_vcl: bool,
}

/// The kinds of sets with several instances. Others have the label `name`.
const LABELS: &[(&str, Label)] = &[
    ("DISK", Label { name: "storage", is_of_vcl: false }),
    ("LCK", Label { name: "lock", is_of_vcl: false }),
    ("MEMPOOL", Label { name: "pool", is_of_vcl: false }),
    ("SELECTOR", Label { name: "selector", is_of_vcl: true }),
    ("SMA", Label { name: "storage", is_of_vcl: false }),
    ("SMF", Label { name: "storage", is_of_vcl: false }),
    ("SMU", Label { name: "storage", is_of_vcl: false }),
    ("VBE", Label { name: "backend", is_of_vcl: true }),
    ("VCP", Label { name: "pool", is_of_vcl: false }),
    ("WAITER", Label { name: "waiter", is_of_vcl: false }),
];

/// The sets of a kind.
#[derive(Clone, Debug)]
pub struct Family {
    pub description: Arc<Description>,
    /// The name of the label, or `None` if there is one set without an instance.
    pub label: Option<&'static str>,
    /// The values by the value of the label, in the order of the description's elements.
    pub rows: BTreeMap<String, Row>,
}

#[derive(Clone, Debug, Default)]
pub struct Row {
    pub values: Vec<u64>,
    /// The last update that had a set of it.
    update: u64,
}

/// The last values of a set.
#[derive(Clone, Debug)]
struct Last {
    values: Vec<u64>,
    update: u64,
}

/// All series.
#[derive(Debug, Default)]
pub struct Series {
    families: BTreeMap<String, Family>,
    /// By the set's whole name.
    last: HashMap<String, Last>,
    update: u64,
}

impl Series {
    /// Adds the values of all sets that exist now. Series without a set end.
    pub fn update(&mut self, sets: Vec<Set>) {
        self.update += 1;
        for set in sets {
            self.add(set);
        }
        let update = self.update;
        for family in self.families.values_mut() {
            family.rows.retain(|_, row| row.update == update);
        }
        self.families.retain(|_, family| !family.rows.is_empty());
        self.forget();
    }

    fn add(&mut self, set: Set) {
        let (kind, instance) = set.ident.split_once('.').unwrap_or((&set.ident, ""));
        let label = label(kind, instance);
        let is_of_vcl = label.is_some_and(|label| label.is_of_vcl);
        let value = match instance.split_once('.') {
            Some((_, rest)) if is_of_vcl => rest,
            _ => instance,
        };
        let family = self.families.entry(kind.to_ascii_lowercase()).or_insert_with(|| Family {
            description: Arc::clone(&set.description),
            label: label.map(|label| label.name),
            rows: BTreeMap::new(),
        });
        family.description = Arc::clone(&set.description);
        let row = family.rows.entry(value.to_owned()).or_default();
        let is_first = std::mem::replace(&mut row.update, self.update) != self.update;
        let elements = &set.description.elements;
        row.values.resize(elements.len(), 0);
        let last = is_of_vcl.then(|| self.last.get(&set.ident)).flatten();
        for (at, element) in elements.iter().enumerate() {
            let present = set.values.get(element.index).copied().unwrap_or(0);
            let sum = &mut row.values[at];
            match element.semantics.as_str() {
                "counter" if is_of_vcl => {
                    let before = last.and_then(|last| last.values.get(element.index)).copied().unwrap_or(0);
                    // A set that was made again under the same name begins at zero.
                    *sum = sum.wrapping_add(if present >= before { present - before } else { present });
                }
                // The latest probes: how many of the 64 were good.
                "bitmap" => *sum = u64::from(present.count_ones()),
                _ if is_first => *sum = present,
                // States: the worst one of all programs.
                _ if element.name == "healthy" => *sum = present.min(*sum),
                _ if element.name == "set_health" => *sum = present.max(*sum),
                _ => *sum = sum.saturating_add(present),
            }
        }
        if is_of_vcl {
            self.last.insert(set.ident, Last { values: set.values, update: self.update });
        }
    }

    /// Forgets the sets that were hidden the longest.
    fn forget(&mut self) {
        let hidden = self.last.values().filter(|last| last.update != self.update).count();
        if hidden <= KEPT {
            return;
        }
        let mut updates: Vec<u64> =
            self.last.values().map(|last| last.update).filter(|update| *update != self.update).collect();
        updates.sort_unstable();
        let oldest = updates[hidden - KEPT / 2];
        self.last.retain(|_, last| last.update >= oldest);
    }

    /// Returns the families by their names, such as `main`.
    pub fn families(&self) -> impl Iterator<Item = (&str, &Family)> {
        self.families.iter().map(|(name, family)| (name.as_str(), family))
    }
}

fn label(kind: &str, instance: &str) -> Option<Label> {
    if instance.is_empty() {
        return None;
    }
    let known = LABELS.iter().find(|(name, _)| *name == kind).map(|(_, label)| *label);
    Some(known.unwrap_or(Label { name: "name", is_of_vcl: false }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_inspect::counters::Element;

    fn description() -> Arc<Description> {
        describe(&[("req", "counter"), ("conn", "gauge"), ("happy", "bitmap")])
    }

    fn describe(kinds: &[(&str, &str)]) -> Arc<Description> {
        let element = |(index, (name, semantics)): (usize, &(&str, &str))| Element {
            name: (*name).to_owned(),
            index,
            semantics: (*semantics).to_owned(),
            oneliner: String::new(),
        };
        Arc::new(Description { elements: kinds.iter().enumerate().map(element).collect() })
    }

    fn set(ident: &str, values: [u64; 3], description: &Arc<Description>) -> Set {
        Set { ident: ident.to_owned(), values: values.to_vec(), description: Arc::clone(description) }
    }

    fn row(series: &Series, backend: &str) -> Option<Vec<u64>> {
        series.families.get("vbe")?.rows.get(backend).map(|row| row.values.clone())
    }

    #[test]
    fn a_backend_is_one_series_whatever_programs_define_it() {
        let d = description();
        let mut series = Series::default();
        series.update(vec![set("VBE.boot.a.b(1.2.3.4:80)", [10, 2, 0b11], &d)]);
        assert_eq!(row(&series, "a.b(1.2.3.4:80)"), Some(vec![10, 2, 2]));
        for (sets, expected) in [
            // Another program is loaded, then counts.
            (vec![("VBE.boot.a", [10, 2, 3]), ("VBE.v2.a", [0, 0, 0])], Some(vec![10, 2, 0])),
            (vec![("VBE.boot.a", [11, 1, 3]), ("VBE.v2.a", [5, 1, 1])], Some(vec![16, 2, 1])),
            // The first one is hidden, counts no more, is shown again, and is discarded.
            (vec![("VBE.v2.a", [6, 1, 1])], Some(vec![17, 1, 1])),
            (vec![("VBE.boot.a", [11, 0, 3]), ("VBE.v2.a", [6, 1, 1])], Some(vec![17, 1, 1])),
            (vec![("VBE.v2.a", [7, 1, 1])], Some(vec![18, 1, 1])),
            // The worker starts again.
            (vec![("VBE.v2.a", [2, 0, 0])], Some(vec![20, 0, 0])),
            (vec![], None),
        ] {
            series.update(sets.into_iter().map(|(ident, values)| set(ident, values, &d)).collect());
            assert_eq!(row(&series, "a"), expected);
        }
    }

    #[test]
    fn the_health_of_a_backend_is_the_worst_one_of_all_programs() {
        let d = describe(&[("healthy", "gauge"), ("set_health", "gauge"), ("req", "counter")]);
        let mut series = Series::default();
        for (sets, expected) in [
            (vec![("VBE.boot.a", [1, 0, 0])], [1, 0]),
            (vec![("VBE.boot.a", [1, 0, 0]), ("VBE.v2.a", [1, 0, 0])], [1, 0]),
            (vec![("VBE.boot.a", [1, 1, 0]), ("VBE.v2.a", [0, 2, 0])], [0, 2]),
            (vec![("VBE.boot.a", [0, 2, 0]), ("VBE.v2.a", [1, 0, 0])], [0, 2]),
            (vec![("VBE.v2.a", [1, 0, 0])], [1, 0]),
        ] {
            series.update(sets.into_iter().map(|(ident, values)| set(ident, values, &d)).collect());
            assert_eq!(row(&series, "a").expect("a row")[..2], expected);
        }
    }

    #[test]
    fn many_backends_and_a_hundred_reloads_leave_no_series_behind() {
        let d = description();
        let mut series = Series::default();
        let (backends, reloads) = lacquer_testing::effort((1000, 100), (10_000, 100));
        let names: Vec<String> = (0..backends).map(|number| format!("b{number}")).collect();
        let sets = |reload: usize, count: u64| -> Vec<Set> {
            names.iter().map(|name| set(&format!("VBE.reload_{reload}.{name}"), [count, 1, 1], &d)).collect()
        };
        series.update(sets(0, 1));
        let before: Vec<String> = series.families["vbe"].rows.keys().cloned().collect();
        for reload in 1..=reloads {
            series.update(sets(reload, 1));
            assert_eq!(series.families["vbe"].rows.len(), backends);
        }
        assert!(series.families["vbe"].rows.keys().eq(&before));
        assert_eq!(row(&series, "b77"), Some(vec![reloads as u64 + 1, 1, 1]));
        assert!(series.last.len() <= backends + KEPT, "{}", series.last.len());
        series.update(vec![set("MAIN", [1, 2, 3], &d)]);
        assert_eq!(series.families().map(|(name, _)| name).collect::<Vec<_>>(), ["main"]);
    }
}
