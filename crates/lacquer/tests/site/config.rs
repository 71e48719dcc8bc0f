//! The file `lacquer.toml`, wrong options, and the help.

use std::fs;

use lacquer_testing::Folder;

use crate::{App, Site, Text as _, lacquer};

#[test]
fn a_file_says_the_same_as_options() {
    let app = App::start("Content-Type: text/html\r\nCache-Control: no-cache\r\n");
    let text = format!(
        "backend = \"{}\"\ncache = [\"/a=60s\"]\nexcept = \"/admin\"\nignore-cookies = true\n[param]\n\
         default_ttl = 7\nthread_pool_min = 6000\nthread_pool_max = 7000\n",
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

/// A file with a mistake of each kind. Behind each line: the column of the mistake and a part of its hint.
const WRONG: [(&str, usize, &str); 18] = [
    ("listen = \":x\"", 10, "a port from 1 to 65535"),
    ("bakend = \"http://a\"", 1, "did you mean `backend`?"),
    ("backend = \"ftp://a\"", 11, "only http:// and https://"),
    ("stale = \"soon\"", 9, "such as 30s, 10m"),
    ("cache = [\"*.jpg=1 day\", \"x=1d\"]", 10, "such as 30s, 10m"),
    ("storage = \"s1=disk,/x,sise=1G\"", 11, "disk,FILE,size=10G"),
    ("purge-from = [\"127.0.0.1\", \"10.0.0.0/40\"]", 28, "127.0.0.1, ::1 or 10.0.0.0/8"),
    ("https = [\"example.org\", \"internal\"]", 25, "a whole name such as www.example.org"),
    ("email = \"me\"", 9, "me@example.org"),
    ("admin = \"/socket\"", 9, "write a port, or an address"),
    ("web = \"6083,tokn=/t\"", 7, "docs/admin.md"),
    ("otlp = \"collector\"", 8, "docs/otlp.md"),
    ("log = \"xml\"", 7, "write json, text"),
    ("compress = \"yes\"", 12, "compress = true"),
    ("hsts true", 6, "NAME = VALUE"),
    ("[param]", 0, ""),
    ("thread_pool_maxx = 10", 1, "did you mean `thread_pool_max`?"),
    ("thread_pool_max = 5", 19, "the least value"),
];

#[test]
fn all_mistakes_of_a_file_are_reported_at_once() {
    let folder = Folder::new("site");
    let text: String = WRONG.iter().flat_map(|(line, ..)| [line, "\n"]).collect();
    fs::write(folder.join("lacquer.toml"), text).expect("it can be written");
    let (code, shown, _) = lacquer(&folder, &["check", "lacquer.toml"]);
    // One line has two mistakes, and that of the table none.
    let verdict = format!("lacquer.toml: {} errors\n", WRONG.len());
    assert!(code == Some(1) && shown.ends_with(&verdict), "{shown}");
    for (number, (line, column, hint)) in (1..).zip(WRONG).filter(|(_, (_, column, _))| *column > 0) {
        let place = format!("--> lacquer.toml:{number}:{column}\n    |\n{number:>3} | {line}\n");
        assert!(shown.contains(&place) && shown.contains(hint), "{place}{hint}\n{shown}");
    }
    let (code, out, err) = lacquer(&folder, &["run"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert_eq!(err.strip_suffix(&format!("lacquer: {verdict}")), shown.strip_suffix(&verdict), "{err}");
    let (code, out, _) = lacquer(&folder, &["check", "--format", "json", "lacquer.toml"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    let all = json[0]["diagnostics"].as_array().expect("a list");
    assert!(code == Some(1) && all.len() == WRONG.len() && all[1]["line"] == 2, "{out}");
    assert_eq!(all[1]["hint"], "did you mean `backend`?");
    let (code, out, _) = lacquer(&folder, &["check", "--format", "sarif", "lacquer.toml"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    let results = json["runs"][0]["results"].as_array().expect("a list");
    assert!(code == Some(1) && results.len() == WRONG.len() && results[0]["ruleId"] == "settings", "{out}");
}

#[test]
fn settings_that_need_others_are_found_with_their_lines() {
    let folder = Folder::new("site");
    for (text, expected) in [
        ("\nlog-to = \"syslog\"\n", "log-to: needs log"),
        ("\nhsts = true\n", "hsts: needs https"),
        ("\nhttps = \"localhost\"\nemail = \"me@example.org\"\n", "https: localhost cannot be combined"),
        ("https = \"localhost\"\nhsts = true\n", "hsts: cannot be used for localhost"),
        ("\nsecret = \"/etc/hostname\"\n", "secret: needs admin"),
        ("\nstale = \"1.2345s\"\n", "more than 3 decimals"),
        ("purge-from = \"127.0.0.1\"\ntags = \"Content-Length\"\n", "tags: this header has another meaning"),
    ] {
        folder.file("lacquer.toml", text);
        let (code, out, _) = lacquer(&folder, &["check", "lacquer.toml"]);
        assert!(
            code == Some(1) && out.contains(expected) && out.contains("lacquer.toml:2:"),
            "{text}: {out}"
        );
        let (code, out, err) = lacquer(&folder, &["run"]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{text}: {err}");
        assert!(err.contains(expected) && err.contains("lacquer.toml:2:"), "{text}: {err}");
    }
    // An option may be the one that a setting needs.
    folder.file("lacquer.toml", "log-to = \"syslog\"\n");
    let (code, out, err) = lacquer(&folder, &["run", "--log", "json", "--print-vcl"]);
    assert!(code == Some(0) && out.contains("vcl 4.1;"), "{err}");
}

#[test]
fn wrong_parameters_are_found_before_the_start() {
    let folder = Folder::new("site");
    for (param, expected) in [
        (
            "thread_pool_maxx=10",
            "there is no parameter `thread_pool_maxx`\n         did you mean `thread_pool_max`?",
        ),
        ("nonsense=1", "docs/reference/params.md"),
        ("default_ttl=soon", "`default_ttl` cannot be soon: Invalid duration unit (soon)"),
        ("vsl_space=1k", "Must be at least 1M"),
        ("feature=+http9", "its words are "),
        ("default_ttl", "write NAME=VALUE"),
    ] {
        let (code, out, err) = lacquer(&folder, &["run", "-p", param]);
        assert!(code == Some(2) && out.is_empty() && err.contains(expected), "{err}");
        assert!(err.starts_with(&format!("lacquer: -p {param}: ")), "{err}");
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
