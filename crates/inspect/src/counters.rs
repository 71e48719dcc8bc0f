//! Counters in shared memory: each set refers to its description, a text of JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::directory::{Block, Directory};
use crate::fault::Fault;

// The head of a set: whether it is shown, where its values begin, and the number of its description.
const HEAD: usize = 24;
const SHOWN: u32 = 1;
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

/// Reads all counters that the daemon shows, in the order of their names.
pub fn read(directory: &Directory) -> Result<Vec<Counter>, Fault> {
    let mut all = BTreeMap::new();
    let mut blocks = [directory.manager_blocks("Stat")?, directory.manager_blocks("StatDoc")?];
    if let (Ok(sets), Ok(texts)) = (directory.worker_blocks("Stat"), directory.worker_blocks("StatDoc")) {
        blocks[0].extend(sets);
        blocks[1].extend(texts);
    }
    let [sets, texts] = blocks;
    // Many sets have the same description.
    let mut descriptions = BTreeMap::new();
    for set in sets {
        // A set may be removed while it is read.
        let Ok(Some((values, number))) = values(&set) else { continue };
        let found = descriptions.entry(number).or_insert_with(|| {
            let ident = format!("{number:x}");
            let text = texts.iter().find(|text| text.ident == ident)?;
            description(text).ok().flatten()
        });
        if let Some(description) = found {
            add(&mut all, &set.ident, &values, description);
        }
    }
    if all.is_empty() {
        let what = format!("the counters of {} cannot be read", directory.path().display());
        return Err(Fault::new(what, "run the command as root, as the daemon's user or in its group"));
    }
    Ok(all.into_values().collect())
}

fn block(of: &Block) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; of.len.min(MAX_TEXT) as usize];
    let read = File::open(&of.file)?.read_at(&mut bytes, of.offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Returns the values of a set and the number of its description; `None` if it is hidden.
fn values(of: &Block) -> io::Result<Option<(Vec<u64>, u64)>> {
    let bytes = block(of)?;
    let word = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
    let ready = word(0).unwrap_or(0) as u32;
    let (Some(start), Some(number)) = (word(8), word(16)) else { return Ok(None) };
    let body = usize::try_from(start).ok().and_then(|start| bytes.get(start.max(HEAD)..));
    let Some(body) = body.filter(|_| ready == SHOWN) else { return Ok(None) };
    let values = body.chunks_exact(8).filter_map(|b| b.try_into().ok()).map(u64::from_ne_bytes).collect();
    Ok(Some((values, number)))
}

fn description(of: &Block) -> io::Result<Option<Value>> {
    let bytes = block(of)?;
    let text = bytes.get(HEAD..).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(serde_json::from_slice(&text[..end]).ok())
}

fn add(all: &mut BTreeMap<String, Counter>, set: &str, values: &[u64], description: &Value) {
    for (key, counter) in description["elem"].as_object().into_iter().flatten() {
        let text = |name: &str| counter[name].as_str().unwrap_or_default().to_owned();
        let index = counter["index"].as_u64().unwrap_or(u64::MAX) / 8;
        let value = usize::try_from(index).ok().and_then(|index| values.get(index));
        if let Some(&value) = value {
            let name = format!("{set}.{key}");
            let new =
                Counter { name: name.clone(), value, semantics: text("type"), oneliner: text("oneliner") };
            all.insert(name, new);
        }
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
    use super::*;

    #[test]
    fn counters_without_a_value_are_left_out() {
        let description =
            serde_json::json!({"elem": {"a": {"index": 0}, "b": {"index": 800}, "c": {"index": "x"}}});
        let mut all = BTreeMap::new();
        add(&mut all, "MAIN", &[7], &description);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["MAIN.a"]);
        assert!(
            is_wanted("MAIN.cache_hit", &["cache_*".into()])
                && is_wanted("SMA.s0.g_bytes", &["SMA.*".into()])
        );
        assert!(!is_wanted("MAIN.cache_hit", &["hit".into()]));
    }
}
