//! Counters in shared memory: each set refers to its description, a text of JSON.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::directory::{Directory, Line};
use crate::fault::Fault;

// The head of a set: whether it is shown, where its values begin, and the number of its description.
const HEAD: usize = 24;
const SHOWN: u32 = 1;
/// The classes of sets, and of descriptions.
const SETS: &str = "Stat";
const TEXTS: &str = "StatDoc";
/// Maximum size of a description in bytes.
const MAX_TEXT: u64 = 4 << 20;

/// A counter and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// Such as `MAIN.cache_hit`.
    pub name: String,
    pub value: u64,
    /// `counter`, `gauge` or `bitmap`.
    pub semantics: String,
    pub oneliner: String,
}

/// A set of counters, and their values in the order of its description.
#[derive(Clone, Debug)]
pub struct Set {
    /// Such as `MAIN` or `VBE.boot.default`.
    pub ident: String,
    pub values: Vec<u64>,
    pub description: Arc<Description>,
}

/// The description of a kind of sets.
#[derive(Clone, Debug, Default)]
pub struct Description {
    pub elements: Vec<Element>,
}

/// The description of a counter.
#[derive(Clone, Debug)]
pub struct Element {
    pub name: String,
    /// Its place among the values.
    pub index: usize,
    /// `counter`, `gauge` or `bitmap`.
    pub semantics: String,
    pub oneliner: String,
}

impl Set {
    /// Returns the names in the set, such as `cache_hit`, and the values of its counters.
    pub fn counters(&self) -> impl Iterator<Item = (&Element, u64)> {
        let value = |element: &Element| self.values.get(element.index).copied();
        self.description.elements.iter().filter_map(move |element| Some((element, value(element)?)))
    }
}

/// Reads all counters that the daemon shows, in the order of their names.
pub fn read(directory: &Directory) -> Result<Vec<Counter>, Fault> {
    let mut all = BTreeMap::new();
    for set in read_sets(directory)? {
        for (element, value) in set.counters() {
            let name = format!("{}.{}", set.ident, element.name);
            let (semantics, oneliner) = (element.semantics.clone(), element.oneliner.clone());
            all.insert(name.clone(), Counter { name, value, semantics, oneliner });
        }
    }
    Ok(all.into_values().collect())
}

/// Reads all sets that the daemon shows, in no order.
pub fn read_sets(directory: &Directory) -> Result<Vec<Set>, Fault> {
    let all = read_chosen(directory, &|_| true)?;
    if all.is_empty() {
        let what = format!("the counters of {} cannot be read", directory.path().display());
        return Err(Fault::new(what, "run the command as root, as the daemon's user or in its group"));
    }
    Ok(all)
}

/// Reads the sets that the daemon shows and whose names are chosen, in no order.
pub fn read_chosen(directory: &Directory, is_chosen: &dyn Fn(&str) -> bool) -> Result<Vec<Set>, Fault> {
    let mut all = Vec::new();
    // Without a worker, there are those of the manager.
    let indexes = [Some(directory.manager_index()?), directory.index_of_any_worker()?];
    let lines: Vec<(&Path, Line<'_>)> = indexes
        .iter()
        .flatten()
        .flat_map(|index| index.lines().into_iter().map(|line| (index.folder(), line)))
        .collect();
    let texts: HashMap<&str, (&Path, Line<'_>)> = lines
        .iter()
        .rev()
        .filter(|(_, line)| line.class == TEXTS)
        .map(|found| (found.1.ident, *found))
        .collect();
    let mut files = Files::default();
    // Many sets have the same description.
    let mut descriptions = BTreeMap::new();
    for (folder, line) in lines.iter().filter(|(_, line)| line.class == SETS && is_chosen(line.ident)) {
        // A set may be removed while it is read.
        let Ok(Some((values, number))) = values(folder, line, &mut files) else { continue };
        let found = descriptions.entry(number).or_insert_with(|| {
            let (folder, text) = texts.get(&*format!("{number:x}"))?;
            let json = description(folder, text, &mut files).ok().flatten()?;
            Some(Arc::new(Description::parse(&json)))
        });
        if let Some(description) = found {
            let (ident, description) = (line.ident.to_owned(), Arc::clone(description));
            all.push(Set { ident, values, description });
        }
    }
    Ok(all)
}

/// The file that was opened last, as the sets of a VCL's backends are in one file, and the bytes that were read last.
#[derive(Default)]
struct Files<'a> {
    open: Option<(&'a Path, &'a str, File)>,
    bytes: Vec<u8>,
}

impl<'a> Files<'a> {
    /// Reads a segment.
    fn read(&mut self, folder: &'a Path, line: &Line<'a>) -> io::Result<&[u8]> {
        let is_open = |open: &(&Path, &str, File)| open.0 == folder && open.1 == line.name;
        if !self.open.as_ref().is_some_and(is_open) {
            self.open = Some((folder, line.name, File::open(folder.join(line.name))?));
        }
        let Some((_, _, file)) = &self.open else { return Err(io::ErrorKind::NotFound.into()) };
        self.bytes.resize(line.len.min(MAX_TEXT) as usize, 0);
        let read = file.read_at(&mut self.bytes, line.offset)?;
        self.bytes.truncate(read);
        Ok(&self.bytes)
    }
}

/// Returns the values of a set and the number of its description; `None` if it is hidden.
fn values<'a>(
    folder: &'a Path,
    line: &Line<'a>,
    files: &mut Files<'a>,
) -> io::Result<Option<(Vec<u64>, u64)>> {
    let bytes = files.read(folder, line)?;
    let word = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
    let ready = word(0).unwrap_or(0) as u32;
    let (Some(start), Some(number)) = (word(8), word(16)) else { return Ok(None) };
    let body = usize::try_from(start).ok().and_then(|start| bytes.get(start.max(HEAD)..));
    let Some(body) = body.filter(|_| ready == SHOWN) else { return Ok(None) };
    let values = body.chunks_exact(8).filter_map(|b| b.try_into().ok()).map(u64::from_ne_bytes).collect();
    Ok(Some((values, number)))
}

fn description<'a>(folder: &'a Path, line: &Line<'a>, files: &mut Files<'a>) -> io::Result<Option<Value>> {
    let text = files.read(folder, line)?.get(HEAD..).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(serde_json::from_slice(&text[..end]).ok())
}

impl Description {
    /// Parses a description. Counters without a valid place are left out.
    fn parse(json: &Value) -> Description {
        let element = |(name, counter): (&String, &Value)| {
            let text = |name: &str| counter[name].as_str().unwrap_or_default().to_owned();
            let index = usize::try_from(counter["index"].as_u64()?).ok()? / 8;
            Some(Element { name: name.clone(), index, semantics: text("type"), oneliner: text("oneliner") })
        };
        Description { elements: json["elem"].as_object().into_iter().flatten().filter_map(element).collect() }
    }
}

/// Returns whether a counter has one of these names; `MAIN.` may be left out, and `*` stands for any text.
pub fn is_wanted(name: &str, patterns: &[String]) -> bool {
    patterns.is_empty()
        || patterns.iter().any(|pattern| {
            lacquer_cli::glob::matches(pattern, name)
                || name.strip_prefix("MAIN.").is_some_and(|name| lacquer_cli::glob::matches(pattern, name))
        })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lacquer_shm::vsm::{CHILD_DIRNAME, MGT_DIRNAME};

    use super::*;

    #[test]
    fn an_index_that_cannot_be_read_is_not_taken_for_an_absent_worker() {
        let folder = lacquer_testing::Folder::new("counters");
        let path = folder.join("n");
        let index = |part: &str, text: &str| {
            fs::create_dir_all(path.join(part)).expect("it is writable");
            fs::write(path.join(part).join("_.index"), text).expect("it is writable");
        };
        index(MGT_DIRNAME, "# 1 1\n");
        let read = || read_chosen(&Directory::at(&path), &|_| true).map(|all| all.len());
        assert_eq!(read(), Ok(0));
        index(CHILD_DIRNAME, "# 2 2\n");
        assert_eq!(read(), Ok(0));
        index(CHILD_DIRNAME, "damaged");
        assert!(read().is_err());
    }

    #[test]
    fn counters_without_a_place_are_left_out() {
        let description = Description::parse(
            &serde_json::json!({"elem": {"a": {"index": 8}, "b": {"index": "x"}, "c": {}}}),
        );
        let found: Vec<_> = description.elements.iter().map(|e| (e.name.as_str(), e.index)).collect();
        assert_eq!(found, [("a", 1)]);
        assert!(
            is_wanted("MAIN.cache_hit", &["cache_*".into()])
                && is_wanted("SMA.s0.g_bytes", &["SMA.*".into()])
        );
        assert!(!is_wanted("MAIN.cache_hit", &["hit".into()]));
    }
}
