//! Formats the VCL of all test cases: of this repository, and of Varnish if `VARNISH_CASES` names their folder. Formatting
//! is idempotent and changes neither a program nor whether a text is one.

use std::fs;
use std::path::{Path, PathBuf};

use lacquer_tools::{Offline, format};
use lacquer_vcl::{Catalogue, NoFiles, Options, compile};

/// Formats all texts. Returns the number of those that are programs with these modules.
pub fn check_all(catalogue: &dyn Catalogue) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    let cases = std::env::var_os("VARNISH_CASES").map(PathBuf::from);
    for folder in [root.join("tests/vtc"), root.join("crates")].into_iter().chain(cases) {
        collect(&folder, &mut texts);
    }
    let (mut programs, mut formatted) = (0, 0);
    for (name, text) in &texts {
        let (is_program, is_formatted) = check(name, text, catalogue);
        programs += usize::from(is_program);
        formatted += usize::from(is_formatted);
    }
    eprintln!("{} texts, {formatted} formatted, {programs} programs", texts.len());
    assert!(formatted >= programs);
    programs
}

/// Returns whether a text is a program, and whether it was formatted.
fn check(name: &str, text: &[u8], catalogue: &dyn Catalogue) -> (bool, bool) {
    let before = program(text, catalogue);
    let shown = String::from_utf8_lossy(text);
    let formatted = match format(name, text) {
        Ok(formatted) => formatted,
        Err(error) => {
            assert!(before.is_none(), "{name} is a program: {}\n{shown}", error.pretty());
            return (false, false);
        }
    };
    let again = format(name, &formatted).map_err(|error| error.pretty());
    assert_eq!(
        again.as_deref().map(String::from_utf8_lossy),
        Ok(String::from_utf8_lossy(&formatted)),
        "{name}: not idempotent\n{shown}"
    );
    let after = program(&formatted, catalogue);
    assert!(before == after, "{name} has changed:\n{shown}\n{}", String::from_utf8_lossy(&formatted));
    (before.is_some(), true)
}

/// Returns a program as text, without its sources and positions in them.
fn program(text: &[u8], catalogue: &dyn Catalogue) -> Option<String> {
    let mut options = Options::new(catalogue, &NoFiles, &Offline);
    let labels = ["label1", "vcl1", "lab1"].map(str::to_owned);
    let storages = ["s0", "s1", "Transient"].map(str::to_owned);
    (options.labels, options.storages, options.err_unref) = (&labels, &storages, false);
    let mut program = compile("test.vcl", text, &options).ok()?.program;
    program.sources.clear();
    let whole = format!("{program:?}");
    let mut parts = whole.split("At {");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    Some(out)
}

fn collect(folder: &Path, texts: &mut Vec<(String, Vec<u8>)>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).expect("readable").flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        let name = path.display().to_string();
        match path.extension().and_then(|e| e.to_str()) {
            _ if path.is_dir() => collect(&path, texts),
            Some("vcl") => texts.push((name, fs::read(&path).expect("readable"))),
            Some("vtc") => {
                let text = fs::read_to_string(&path).unwrap_or_default();
                texts.extend(programs_of_case(&text).into_iter().map(|vcl| (name.clone(), vcl.into_bytes())));
            }
            _ => {}
        }
    }
}

/// Returns the VCL in a case: the first group of braces after `-vcl` or `-vcl+backend`, and the one after the message
/// of `-errvcl`.
fn programs_of_case(case: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (option, head) in [("-vcl {", ""), ("-vcl+backend {", "+"), ("-errvcl ", "")] {
        for (at, _) in case.match_indices(option) {
            let rest = &case[at..];
            let Some(rest) = (if option == "-errvcl " { after_message(rest) } else { Some(rest) }) else {
                continue;
            };
            let Some(body) = rest.find('{').and_then(|open| braces(&rest[open..])) else { continue };
            let body = body.replace("\\\"", "\"");
            let head = if head.is_empty() { String::new() } else { backends() };
            found.push(format!("vcl 4.1;\n{head}{}", without_macros(&body)));
        }
    }
    found
}

fn backends() -> String {
    let all: Vec<String> = (0..10).map(|n| format!("backend s{n} none;\n")).collect();
    all.concat()
}

/// Returns what follows the message of `-errvcl`, in quotes or braces.
fn after_message(text: &str) -> Option<&str> {
    let rest = text["-errvcl ".len()..].trim_start();
    if rest.starts_with('{') {
        return Some(&rest[braces(rest)?.len() + 2..]);
    }
    let rest = rest.strip_prefix('"')?;
    Some(&rest[rest.find('"')? + 1..])
}

/// Returns the text in the braces that a text begins with.
fn braces(text: &str) -> Option<&str> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(&text[1..at]),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Replaces the macros of a case.
fn without_macros(text: &str) -> String {
    let mut parts = text.split("${");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        out.push_str(if name.ends_with("port") { "80" } else { "127.0.0.1" });
        out.push_str(rest);
    }
    out
}
