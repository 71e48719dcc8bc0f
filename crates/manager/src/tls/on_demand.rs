//! Certificates on demand: the operator's list of names.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lacquer_acme::Names;
use lacquer_params::Params;
use lacquer_tls::NameList;

use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::listen::Listeners;
use crate::regular_file::read_vcl;

/// The maximum number of names in the list.
const MAX_NAMES: usize = 100_000;

/// The facts by which a changed file is recognized: its number, its length, and the time of its last change.
type Stamp = Option<(u64, u64, i64, i64)>;

/// The list, and its file.
#[derive(Clone, Debug)]
pub struct OnDemand {
    path: PathBuf,
    list: NameList,
    /// The file when it was read.
    read: Stamp,
    /// The file when it was looked at last.
    seen: Stamp,
}

fn stamp(path: &Path, jail: &Jail) -> Stamp {
    let _root = jail.raise();
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

impl OnDemand {
    /// Reads the list that the parameter names, if there is one.
    pub fn wanted(listeners: &Listeners, params: &Params, jail: &Jail) -> Outcome<Option<OnDemand>> {
        let file = &params.acme_on_demand;
        if file.is_empty() {
            return Ok(None);
        }
        if listeners.tls_names().next().is_none() {
            return Err(Fault::usage("acme_on_demand needs a listener with https".to_owned()));
        }
        let list = OnDemand::read(Path::new(file), jail);
        list.map(Some).map_err(|why| Fault::usage(format!("acme_on_demand: {why}")))
    }

    /// Reads the list. The error is a text for the operator.
    pub fn read(path: &Path, jail: &Jail) -> Result<OnDemand, String> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let stamp = stamp(&path, jail);
        let bytes = {
            let _root = jail.raise();
            read_vcl(&path)
        };
        let bytes = bytes.map_err(|error| format!("{}: {}", path.display(), os_error_text(&error)))?;
        let list = parse(&bytes).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(OnDemand { path, list, read: stamp, seen: stamp })
    }

    /// Reads the file again.
    pub fn renewed(&self, jail: &Jail) -> Result<OnDemand, String> {
        OnDemand::read(&self.path, jail)
    }

    /// Looks at the file. Returns the list that it contains now, if the file has changed, and not since the last look.
    /// The error is a text for the operator, which is returned once.
    pub fn look(&mut self, jail: &Jail) -> Option<Result<OnDemand, String>> {
        let found = stamp(&self.path, jail);
        let is_at_rest = std::mem::replace(&mut self.seen, found) == found;
        if !is_at_rest || found == self.read {
            return None;
        }
        self.read = found;
        Some(self.renewed(jail))
    }

    pub fn list(&self) -> &NameList {
        &self.list
    }

    /// Returns the names of a certificate on demand, if the list contains what a client has asked for.
    pub fn names(&self, wanted: &str) -> Option<Names> {
        let names = Names::parse(wanted).ok()?;
        let is_one_host = names.all().len() == 1 && !names.first().starts_with("*.");
        (is_one_host && self.list.contains(names.first())).then_some(names)
    }
}

/// Parses a list with one name in each line. `#` begins a comment.
fn parse(bytes: &[u8]) -> Result<NameList, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not a text".to_owned())?;
    let mut list = NameList::default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let names = (1..).zip(lines).filter(|(_, line)| !line.is_empty());
    for (count, (number, name)) in names.enumerate() {
        if count >= MAX_NAMES {
            return Err(format!("line {number}: a list has at most {MAX_NAMES} names"));
        }
        let parsed = Names::parse(name).map_err(|why| format!("line {number}: {why}"))?;
        if parsed.all().len() > 1 || name.contains(';') {
            return Err(format!("line {number}: write one name in each line"));
        }
        list.add(parsed.first());
    }
    if list.is_empty() {
        return Err("it contains no name".to_owned());
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_demand(text: &str) -> OnDemand {
        OnDemand { path: PathBuf::new(), list: parse(text.as_bytes()).unwrap(), read: None, seen: None }
    }

    #[test]
    fn a_changed_file_is_read_once_it_is_at_rest() {
        let path = std::env::temp_dir().join(format!("lacquer-on-demand-{}", std::process::id()));
        let jail = Jail::none();
        fs::write(&path, "a.example\n").unwrap();
        let mut list = OnDemand::read(&path, &jail).unwrap();
        assert!(list.look(&jail).is_none() && list.look(&jail).is_none());
        fs::write(&path, "*\n").unwrap();
        assert!(list.look(&jail).is_none(), "it may be in the middle of a change");
        assert!(list.look(&jail).unwrap().unwrap_err().contains("line 1"));
        assert!(list.look(&jail).is_none(), "the fault is reported once");
        fs::write(&path, "a.example\nb.example\n").unwrap();
        assert!(list.look(&jail).is_none());
        let renewed = list.look(&jail).unwrap().unwrap();
        assert!(renewed.names("b.example").is_some() && list.names("b.example").is_none());
        fs::remove_file(&path).unwrap();
        assert!(list.look(&jail).is_none());
        assert!(list.look(&jail).unwrap().unwrap_err().contains("No such file"));
        assert!(list.look(&jail).is_none());
    }

    #[test]
    fn only_hosts_of_the_list_get_certificates() {
        let list = on_demand("# Shops\nShop.example # ours\n\n*.users.example\n");
        for name in ["shop.example", "SHOP.example", "a.users.example"] {
            assert_eq!(list.names(name).unwrap().first(), name.to_ascii_lowercase());
        }
        for name in [
            "evil.example",
            "users.example",
            "a.b.users.example",
            "*.users.example",
            ".users.example",
            "shop.example;evil.example",
            "a_b.users.example",
            "../x.users.example",
            "",
        ] {
            assert_eq!(list.names(name), None, "{name}");
        }
    }

    #[test]
    fn wrong_lists_are_refused_with_the_line() {
        for (text, why) in [
            ("", "it contains no name"),
            ("# nothing\n", "it contains no name"),
            ("a.example\n*\n", "line 2: \"*\""),
            ("*.*.example", "line 1"),
            ("a.example b.example", "line 1"),
            ("a.example;b.example", "line 1: write one name"),
            ("127.0.0.1", "line 1"),
            ("a.example;a.example", "line 1: write one name"),
        ] {
            let found = parse(text.as_bytes()).unwrap_err();
            assert!(found.contains(why), "{text:?}: {found}");
        }
        assert_eq!(parse(b"\xff").unwrap_err(), "it is not a text");
        let many = "a.example\n".repeat(MAX_NAMES + 1);
        assert!(parse(many.as_bytes()).unwrap_err().contains("at most 100000"));
    }
}
