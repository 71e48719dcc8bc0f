//! The environment of a worker. Variables that are meant for the manager, such as secrets, do not reach the worker. The
//! values that VCL reads with std.getenv() are sent with the program instead.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use lacquer_vcl::program::Program;

/// Variables that the C library needs in the worker: language, time zone, name resolution. `*` ends a prefix.
const ALWAYS: &str = "HOSTALIASES LANG LANGUAGE LC_* LOCALDOMAIN RES_OPTIONS TZ TZDIR";

/// Returns whether a list contains the name, or a prefix of it that ends with `*`.
fn is_listed(name: &[u8], list: &str) -> bool {
    list.split([' ', ',', '\t']).filter(|word| !word.is_empty()).any(|word| match word.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix.as_bytes()),
        None => name == word.as_bytes(),
    })
}

/// Returns the variables of a worker. `more` is the value of the parameter `jail_environment`.
pub fn for_worker(
    all: impl Iterator<Item = (OsString, OsString)>,
    more: &str,
) -> impl Iterator<Item = (OsString, OsString)> {
    all.filter(move |(name, _)| {
        let name = name.as_bytes();
        is_listed(name, ALWAYS) || is_listed(name, more)
    })
}

/// Returns whether a text contains a name as a whole word.
fn mentions(text: &[u8], name: &[u8]) -> bool {
    let inside = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let mut places = text.windows(name.len().max(1)).enumerate().filter(|(_, window)| *window == name);
    places.any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !inside(before) && !inside(text.get(at + name.len()))
    })
}

fn calls_getenv(program: &Program) -> bool {
    program.modules.functions.iter().any(|function| {
        let import = program.modules.imports.get(function.import as usize);
        function.name == "getenv" && import.is_some_and(|import| import.module == "std")
    })
}

/// Returns the variables whose names occur in the sources of a program that calls std.getenv().
pub fn mentioned(
    all: impl Iterator<Item = (OsString, OsString)>,
    program: &Program,
) -> Vec<(String, Vec<u8>)> {
    if !calls_getenv(program) {
        return Vec::new();
    }
    let sources = || program.sources.iter().filter(|source| !source.builtin);
    all.filter(|(name, _)| sources().any(|source| mentions(source.text.as_ref(), name.as_bytes())))
        .filter_map(|(name, value)| Some((text(&name)?, value.as_bytes().to_vec())))
        .collect()
}

fn text(name: &OsStr) -> Option<String> {
    name.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> std::vec::IntoIter<(OsString, OsString)> {
        let owned: Vec<_> = pairs.iter().map(|(name, value)| (name.into(), value.into())).collect();
        owned.into_iter()
    }

    #[test]
    fn only_listed_variables_reach_a_worker() {
        let all = [
            ("AWS_SECRET", "x"),
            ("LC_ALL", "C"),
            ("TZ", "UTC"),
            ("TZX", ""),
            ("APP_A", "1"),
            ("LD_PRELOAD", ""),
        ];
        let names =
            |more: &str| -> Vec<OsString> { for_worker(variables(&all), more).map(|(n, _)| n).collect() };
        assert_eq!(names(""), ["LC_ALL", "TZ"]);
        assert_eq!(names("APP_*, TZX"), ["LC_ALL", "TZ", "TZX", "APP_A"]);
    }

    #[test]
    fn names_are_whole_words() {
        for (text, wanted) in [
            ("std.getenv(\"HOME\")", true),
            ("HOME", true),
            ("HOMES", false),
            ("MY_HOME", false),
            ("HOM", false),
            ("HOMES HOME", true),
            ("", false),
        ] {
            assert_eq!(mentions(text.as_bytes(), b"HOME"), wanted, "{text}");
        }
    }
}
