//! Looks up users and groups by name: first in the system's files, then with `getent`, which also uses other sources
//! (LDAP and the like).

use std::fs;
use std::process::{Command, Stdio};

/// An entry of the user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Login group.
    pub gid: u32,
}

fn in_file(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find(|line| line.split(':').next() == Some(name)).map(str::to_owned)
}

fn by_getent(database: &str, name: &str) -> Option<String> {
    let output = Command::new("getent")
        .args([database, "--", name])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()?.lines().next().map(str::to_owned)
}

fn fields(database: &str, name: &str) -> Option<Vec<String>> {
    let plain = !name.is_empty() && !name.contains([':', '/', '\n', '\0']);
    let line = plain
        .then(|| in_file(&format!("/etc/{database}"), name).or_else(|| by_getent(database, name)))
        .flatten()?;
    Some(line.split(':').map(str::to_owned).collect())
}

/// Returns the user with this name.
pub fn user(name: &str) -> Option<User> {
    let fields = fields("passwd", name)?;
    Some(User { name: name.to_owned(), uid: fields.get(2)?.parse().ok()?, gid: fields.get(3)?.parse().ok()? })
}

/// Returns the id of the group with this name.
pub fn group(name: &str) -> Option<u32> {
    fields("group", name)?.get(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn root_is_found_and_bad_names_are_not() {
        let root = super::user("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(super::group("root"), Some(0));
        assert_eq!(super::user("///"), None);
        assert_eq!(super::user(""), None);
    }
}
