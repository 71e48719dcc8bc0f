//! `lacquer check`.

use std::fmt::Write as _;

use super::{Commands as _, Folder};

const GOOD: &str = "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; }\n";
const WRONG: &str = "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; .port = 80; }\n";
const WARNED: &str = "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv {\n  return (pass);\n  set req.url = \"/\";\n}\n";

#[test]
fn several_files_are_checked() {
    let folder = Folder::new("tools-several");
    folder.file("good.vcl", GOOD);
    folder.file("sub/wrong.vcl", WRONG);
    let ran = folder.lacquer("check good.vcl sub/wrong.vcl");
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.starts_with("good.vcl: correct\n"), "{ran:?}");
    assert!(
        ran.out.contains("--> sub/wrong.vcl:2:42") && ran.out.contains("write it in quotes: \"80\""),
        "{ran:?}"
    );
    assert!(ran.out.ends_with("sub/wrong.vcl: 1 error\n") && !ran.out.contains('\x1b'), "{ran:?}");
    assert_eq!(folder.with_input("check -", GOOD).out, "<stdin>: correct\n");
    assert_eq!(folder.lacquer("check good.vcl").code, Some(0));
}

#[test]
fn a_missing_file_does_not_hide_the_others() {
    let folder = Folder::new("tools-missing");
    folder.file("wrong.vcl", WRONG);
    folder.file("good.vcl", GOOD);
    let ran = folder.lacquer("check good.vcl missing.vcl wrong.vcl");
    assert_eq!(ran.code, Some(2));
    for part in ["good.vcl: correct\n", "error: Cannot be read: No such file", "wrong.vcl: 1 error\n"] {
        assert!(ran.out.contains(part), "{part}\n{ran:?}");
    }
}

#[test]
fn names_are_shown_as_they_were_given() {
    let folder = Folder::new("tools-names");
    folder.file("main.vcl", format!("{GOOD}include \"./part.vcl\";\n"));
    folder.file("part.vcl", "sub vcl_recv { set req.ulr = \"/\"; }\n");
    let ran = folder.lacquer("check main.vcl");
    assert!(ran.out.contains("--> part.vcl:1:20") && ran.out.contains("included from main.vcl:3"), "{ran:?}");
    let whole = folder.join("main.vcl").display().to_string();
    let ran = folder.lacquer(&format!("check {whole}"));
    assert!(ran.out.contains(&format!("included from {whole}:3")), "{ran:?}");
}

#[test]
fn warnings_fail_on_demand() {
    let folder = Folder::new("tools-deny");
    folder.file("warned.vcl", WARNED);
    assert_eq!(folder.lacquer("check warned.vcl").code, Some(0));
    let ran = folder.lacquer("check --deny warnings warned.vcl");
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("[unreachable]"), "{ran:?}");
    assert_eq!(folder.lacquer("check --deny errors warned.vcl").code, Some(2));
}

#[test]
fn programs_read_json_and_sarif() {
    let folder = Folder::new("tools-formats");
    folder.file("wrong.vcl", WRONG);
    folder.file("warned.vcl", WARNED);
    let ran = folder.lacquer("check --format json wrong.vcl warned.vcl");
    assert_eq!(ran.code, Some(1));
    let found: serde_json::Value = serde_json::from_str(&ran.out).expect("it is JSON");
    assert_eq!(found[0]["diagnostics"][0]["file"], "wrong.vcl");
    assert_eq!(found[0]["diagnostics"][0]["line"], 2);
    assert_eq!(found[1]["diagnostics"][0]["rule"], "unreachable");
    let ran = folder.lacquer("check --format=sarif wrong.vcl warned.vcl");
    let found: serde_json::Value = serde_json::from_str(&ran.out).expect("it is JSON");
    assert_eq!(found["runs"][0]["results"].as_array().map(Vec::len), Some(2));
    assert_eq!(folder.lacquer("check --format xml wrong.vcl").code, Some(2));
}

#[test]
fn unknown_hosts_and_other_folders_are_no_obstacle() {
    let folder = Folder::new("tools-offline");
    folder.file("far.vcl", "vcl 4.1;\nbackend b { .host = \"no.such.host.invalid\"; }\n");
    assert_eq!(folder.lacquer("check --offline far.vcl").code, Some(0));
    folder.file("parts/part.vcl", "");
    folder.file("main.vcl", format!("{GOOD}include \"part.vcl\";\n"));
    let ran = folder.lacquer("check main.vcl");
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("no folder of the parameter vcl_path"), "{ran:?}");
    let path = folder.join("parts").display().to_string();
    assert_eq!(folder.lacquer(&format!("check -p vcl_path={path} main.vcl")).code, Some(0));
    assert_eq!(folder.lacquer("check -p default_ttl=1 main.vcl").code, Some(2));
    folder.file("part.vcl", "");
    assert!(folder.lacquer("check main.vcl").out.contains("write \"./part.vcl\""));
}

#[test]
fn a_brace_that_is_never_closed_is_the_only_error() {
    let folder = Folder::new("tools-brace");
    folder.file(
        "open.vcl",
        format!("{GOOD}sub vcl_recv {{\n  if (true) {{\n    return (pass);\n}}\nsub vcl_hit {{\n}}\n"),
    );
    let ran = folder.lacquer("check open.vcl");
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("--> open.vcl:3:14") && ran.out.contains("never closed"), "{ran:?}");
    assert!(ran.out.ends_with("open.vcl: 1 error\n") && !ran.out.contains("<builtin>"), "{ran:?}");
}

#[test]
fn a_long_line_with_many_folded_entries_is_checked_quickly() {
    let folder = Folder::new("tools-fold");
    let mut entries = String::new();
    for n in 0..5000 {
        let _ = write!(entries, "\"10.0.{}.{}\";", n / 250, n % 250);
    }
    let text = format!(
        "{GOOD}acl many {{ {entries} }}\nsub vcl_recv {{ if (client.ip ~ many) {{ return (pass); }} }}\n"
    );
    folder.file("long.vcl", text);
    let ran = folder.lacquer("check long.vcl");
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains("more entries of ACLs are folded"), "{}", ran.out.len());
    assert!(ran.out.ends_with("long.vcl: correct, with 101 warnings\n"), "{}", ran.out.len());
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let folder = Folder::new("tools-large");
    let file = folder.file("large.vcl", GOOD);
    let large = std::fs::OpenOptions::new().write(true).open(file).expect("it exists");
    large.set_len((64 << 20) + 1).expect("the file system has holes");
    let ran = folder.lacquer("check large.vcl");
    assert!(ran.code == Some(2) && ran.out.contains("larger than 64 MiB"), "{ran:?}");
}
