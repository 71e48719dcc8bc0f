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

/// Returns the ids of the groups of a user, its login group included. Those of a user that is not in the system's files may
/// be from other sources, too.
pub fn groups(user: &User) -> Vec<u32> {
    let mut all = vec![user.gid];
    all.extend(memberships(&fs::read_to_string("/etc/group").unwrap_or_default(), &user.name));
    if in_file("/etc/passwd", &user.name).is_none() {
        let line = by_getent("initgroups", &user.name).unwrap_or_default();
        all.extend(line.split_whitespace().skip(1).filter_map(|word| word.parse::<u32>().ok()));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the ids of the groups that name a user as a member, in a text like that of /etc/group.
fn memberships<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = u32> + 'a {
    text.lines().filter_map(move |line| {
        let mut fields = line.split(':').skip(2);
        let (gid, members) = (fields.next()?, fields.next()?);
        let is_member = members.split(',').any(|member| !member.is_empty() && member.trim() == name);
        is_member.then(|| gid.parse().ok())?
    })
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

    #[test]
    fn groups_with_the_user_as_a_member_are_found() {
        let text = "root:x:0:\nvarnish:x:120:vcache\nwww-data:x:33:nginx,varnish\nssl-cert:x:110:varnish, postgres\n\
                    # a comment\nvarnish-admin:x:121:varnish2\nwrong:x:many:varnish\nshort:x\n\nvcl:x:122:varnish";
        let of = |name| super::memberships(text, name).collect::<Vec<_>>();
        assert_eq!(of("varnish"), [33, 110, 122]);
        assert_eq!(of("vcache"), [120]);
        assert_eq!(of(""), [0; 0]);
        let user = super::User { name: "nobody-of-this-name".to_owned(), uid: 4711, gid: 4712 };
        assert_eq!(super::groups(&user), [4712]);
    }
}
