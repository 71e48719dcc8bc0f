//! The documentation refers to files, pages and sections that exist: README.md, CHANGELOG.md and all pages below docs/.
//! The book contains each of these pages.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{report, root};

/// Folders of the repository whose files a page may name.
const FOLDERS: [&str; 8] = [".cargo", "bench", "conformance", "crates", "docs", "fuzz", "scripts", "tests"];

/// Endings of names that are files of this repository.
const ENDINGS: [&str; 6] = [".md", ".patch", ".rs", ".toml", ".tsv", ".vtc"];

#[test]
fn documents_name_files_that_exist() {
    let known: Vec<String> =
        FOLDERS.iter().flat_map(|folder| files(&root().join(folder))).map(|file| relative(&file)).collect();
    // A page may leave out the first folders of a path.
    let exists = |name: &str| {
        let (end, inside) = (format!("/{name}"), format!("/{name}/"));
        known.iter().any(|file| file.ends_with(&end) || file.contains(&inside)) || root().join(name).is_file()
    };
    let mut faults = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("pages are UTF-8");
        for (number, line) in text.lines().enumerate() {
            let quoted = line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace);
            let missing =
                quoted.map(|name| name.trim_end_matches('/')).filter(|name| is_path(name) && !exists(name));
            faults.extend(missing.map(|name| format!("{}:{}: {name}", relative(&page), number + 1)));
        }
    }
    report("name the file where it is now, at least from the folder of its crate on", &faults);
}

#[test]
fn links_between_documents_have_a_target() {
    let mut faults = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("pages are UTF-8");
        let links = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for link in links.filter(|link| !link.contains("://")) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let is_there = if section.is_empty() {
                target.exists()
            } else {
                fs::read_to_string(target).is_ok_and(|text| text.lines().any(|line| anchor(line) == section))
            };
            if !is_there {
                faults.push(format!("{}: {link}", relative(&page)));
            }
        }
    }
    report("link to a page, file or section that exists", &faults);
}

/// `make book` shows only what the summary lists.
#[test]
fn every_page_is_in_the_book_once() {
    let folder = root().join("docs");
    let summary = fs::read_to_string(folder.join("SUMMARY.md")).expect("readable");
    let mut listed: Vec<&str> =
        summary.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect();
    let mut faults = Vec::new();
    for page in pages().iter().filter_map(|page| page.strip_prefix(&folder).ok()) {
        let name = page.to_str().expect("names are UTF-8");
        let count = listed.iter().filter(|other| **other == name).count();
        if name != "SUMMARY.md" && count != 1 {
            faults.push(format!("/docs/{name}: {count} times"));
        }
    }
    report("list each page once in docs/SUMMARY.md", &faults);
    listed.retain(|name| !folder.join(name).is_file());
    assert!(listed.is_empty(), "docs/SUMMARY.md lists pages that do not exist: {listed:?}");
}

/// Returns whether a quoted word is a path of this repository, not a placeholder, a pattern or a name of something
/// else.
fn is_path(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let is_placeholder = name.contains("NAME") || name.contains("THEME");
    let in_folder = FOLDERS.iter().any(|folder| name.starts_with(&format!("{folder}/")));
    let is_file = ENDINGS.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending));
    is_plain && !is_placeholder && (in_folder || is_file || name.contains("/src/"))
}

/// Returns the anchor of a heading, or an empty string for any other line.
fn anchor(line: &str) -> String {
    let heading = line.trim_start_matches('#');
    if heading.len() == line.len() {
        return String::new();
    }
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn pages() -> Vec<PathBuf> {
    let below =
        files(&root().join("docs")).into_iter().filter(|file| file.extension().is_some_and(|e| e == "md"));
    below.chain(["README.md", "CHANGELOG.md"].map(|name| root().join(name))).collect()
}

/// Returns all files in a folder and in those below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("readable").flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns a path from the root of the repository on, with a slash before it.
fn relative(path: &Path) -> String {
    format!("/{}", path.strip_prefix(root()).expect("below the root").display())
}
