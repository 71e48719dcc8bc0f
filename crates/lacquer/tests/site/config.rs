//! The file `lacquer.toml`, wrong options, and the help.

use std::fs;

use lacquer_testing::Folder;

use crate::{App, Site, Text as _, lacquer};

#[test]
fn a_file_says_the_same_as_options() {
    let app = App::start("Content-Type: text/html\r\nCache-Control: no-cache\r\n");
    let text = format!(
        "backend = \"{}\"\ncache = [\"/a=60s\"]\nexcept = \"/admin\"\nignore-cookies = true\n[param]\ndefault_ttl = 7\n",
        app.url()
    );
    let site = Site::start(&[], &[("lacquer.toml", &text)]);
    assert_eq!(site.get("/a"), site.get("/a"));
    assert_ne!(site.get("/b"), site.get("/b"));
    let name = site.folder.join("instance").display().to_string();
    let (_, shown, _) = lacquer(&site.folder, &["param", "default_ttl", "-n", &name]);
    assert!(shown.contains("7.000"), "{shown}");
    drop(site);
    let site =
        Site::start(&["--config", "other", "--cache", "/b=60s", "-p", "default_ttl=8"], &[("other", &text)]);
    assert_ne!(site.get("/a"), site.get("/a"));
    assert_eq!(site.get("/b"), site.ask("GET", "/b", "Cookie: a=b\r\n").text());
}

#[test]
fn mistakes_are_found_before_the_start() {
    let folder = Folder::new("site");
    let run = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        lacquer(&folder, &words)
    };
    for (text, expected) in [
        ("\nbakend = \"x\"\n", "lacquer.toml:2:1"),
        ("backend = \"ftp://x\"\n", "ftp is not supported"),
        ("listen = \":x\"\n", "is not a port"),
        ("storage = \"12\"\n", "not a size"),
        ("storage = \"ram,1G\"\n", "there is no storage of the kind ram"),
        ("log = \"xml\"\n", "write json, text"),
        ("vcl = \"a.vcl\"\nstale = \"1h\"\n", "cannot be combined with stale"),
    ] {
        fs::write(folder.join("lacquer.toml"), text).expect("it can be written");
        let (code, out, err) = run("run");
        assert_eq!((code, out.as_str()), (Some(2), ""), "{text}: {err}");
        assert!(err.contains(expected) && err.contains("lacquer.toml: 1 error"), "{text}: {err}");
        let (code, out, _) = run("check lacquer.toml");
        assert!(code == Some(1) && out.contains(expected), "{text}: {out}");
    }
    fs::write(folder.join("lacquer.toml"), "stale = \"1h\"\n").expect("it can be written");
    assert_eq!(run("check lacquer.toml").1, "lacquer.toml: correct\n");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lacquer.toml");
    assert_eq!(run(&format!("check {example}")).0, Some(0));
    fs::remove_file(folder.join("lacquer.toml")).expect("it exists");
    for (words, expected) in [
        ("run --config none.toml", "none.toml: No such file"),
        ("run --cache *.jpg", "--cache *.jpg: a rule needs a time"),
        ("run --except admin", "'/admin'"),
        ("run --tags xkey", "--purge-from"),
        ("run --log xml", "write json, text"),
        ("run --vcl x.vcl --stale 1h", "--stale and --vcl cannot be combined"),
        ("run --print-vcl --vcl /dev/null", ""),
    ] {
        let (code, out, err) = run(words);
        assert!(code == Some(2) && out.is_empty() && err.contains(expected), "{words}: {err}");
    }
}

#[test]
fn no_line_of_the_help_is_wide() {
    let folder = Folder::new("site");
    for words in [&["run", "--help"][..], &["check", "--help"], &["--help"]] {
        let (code, out, _) = lacquer(&folder, words);
        let wide = out.lines().find(|line| line.chars().count() > 100);
        assert!(code == Some(0) && wide.is_none() && !out.contains('\x1b'), "{wide:?}");
    }
}
