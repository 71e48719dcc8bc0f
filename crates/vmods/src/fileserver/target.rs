//! The path of a file from the target of a request.

use std::path::{Path, PathBuf};

/// Returns the path of the file within the folder. The query is ignored, and `..` never leaves the folder. Returns
/// `None` for names that no file can have.
pub(super) fn file(root: &Path, target: &str) -> Option<PathBuf> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for part in path.split('/') {
        let part = decoded(part.as_bytes());
        match &part[..] {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            name if name.contains(&b'/') || name.contains(&0) => return None,
            _ => parts.push(part),
        }
    }
    let mut file = root.to_owned();
    for part in parts {
        file.push(std::str::from_utf8(&part).ok()?);
    }
    Some(file)
}

/// Replaces `%41` by `A`. Other uses of `%` stay as they are.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|b| char::from(*b).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((16 * high + low) as u8);
                rest = &after[2..];
            }
            _ => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_target_leaves_the_folder() {
        let of = |target| file(Path::new("/srv/www"), target).map(|path| path.to_string_lossy().into_owned());
        let table = [
            ("/a/b", Some("/srv/www/a/b")),
            ("/a//./b/", Some("/srv/www/a/b")),
            ("/a/../../../etc/passwd", Some("/srv/www/etc/passwd")),
            ("/%2e%2e/%2E./etc/passwd", Some("/srv/www/etc/passwd")),
            ("/..%2fetc", None),
            ("/a%00b", None),
            ("/a%ffb", None),
            ("/a%20b%2?x=/../y", Some("/srv/www/a b%2")),
            ("/%252e%252e/x", Some("/srv/www/%2e%2e/x")),
            ("http:///etc", Some("/srv/www/http:/etc")),
            ("", Some("/srv/www")),
            ("*", Some("/srv/www/*")),
        ];
        for (target, expected) in table {
            assert_eq!(of(target).as_deref(), expected, "{target}");
        }
    }
}
