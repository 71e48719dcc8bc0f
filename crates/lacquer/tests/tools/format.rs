//! `lacquer fmt`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use super::{Commands as _, Folder};

const UGLY: &str = "vcl 4.1;\nbackend b{.host=\"127.0.0.1\";}\nsub vcl_recv{return(pass);} # why\n";
const NICE: &str =
    "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; }\n\nsub vcl_recv {\n    return (pass);\n} # why\n";

#[test]
fn files_are_formatted_in_place() {
    let folder = Folder::new("tools-place");
    let path = folder.file("a.vcl", UGLY);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("it is ours");
    symlink("a.vcl", folder.join("link.vcl")).expect("it can be made");
    let ran = folder.lacquer("fmt link.vcl");
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "link.vcl: formatted\n"), "{ran:?}");
    assert_eq!(folder.read("a.vcl"), NICE);
    let mode = fs::metadata(&path).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(fs::symlink_metadata(folder.join("link.vcl")).expect("it exists").is_symlink());
    let again = folder.lacquer("fmt a.vcl link.vcl");
    assert_eq!((again.code, again.out.as_str()), (Some(0), ""));
    assert_eq!(fs::read_dir(&*folder).expect("it is ours").count(), 2, "no other file remains");
}

#[test]
fn a_check_and_a_stream_change_nothing() {
    let folder = Folder::new("tools-check");
    folder.file("ugly.vcl", UGLY);
    folder.file("nice.vcl", NICE);
    let ran = folder.lacquer("fmt --check ugly.vcl nice.vcl");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), "ugly.vcl: not formatted\n"));
    assert_eq!(folder.lacquer("fmt --check nice.vcl").code, Some(0));
    assert_eq!(folder.lacquer("fmt --stdout ugly.vcl").out, NICE);
    assert_eq!(folder.with_input("fmt -", UGLY).out, NICE);
    assert_eq!(folder.read("ugly.vcl"), UGLY);
    assert_eq!(folder.lacquer("fmt --check --stdout ugly.vcl").code, Some(2));
    assert_eq!(folder.lacquer("fmt").code, Some(2));
}

#[test]
fn a_file_that_does_not_parse_is_left_alone() {
    let folder = Folder::new("tools-wrong");
    let wrong = "vcl 4.1;\nsub vcl_recv {\nset req.url = ;\n}\n";
    folder.file("wrong.vcl", wrong);
    folder.file("right.vcl", UGLY);
    folder.file("c.vcl", "vcl 4.1;\nC{ int i; }C\n");
    let ran = folder.lacquer("fmt wrong.vcl c.vcl right.vcl");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("--> wrong.vcl:3:15") && ran.err.contains("wrong.vcl: not changed"), "{ran:?}");
    assert!(ran.err.contains("inline C") && !ran.err.contains('\x1b'), "{ran:?}");
    assert_eq!((folder.read("wrong.vcl").as_str(), folder.read("right.vcl").as_str()), (wrong, NICE));
    let missing = folder.lacquer("fmt missing.vcl");
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("missing.vcl: No such file"), "{missing:?}");
    for bytes in ["\0", "\u{feff}vcl 4.1;", "/* ", "sub x {\"", "((((("] {
        let ran = folder.with_input("fmt -", bytes);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{bytes:?}");
    }
}

#[test]
fn a_long_text_is_formatted_quickly() {
    let body = "    # comment\n    if (req.url ~ \"^/a\" && !req.http.Cookie) {\n        set req.http.x = regsub(req.url, \"a\", \"b\") + \"c\";\n    }\n";
    let text = format!("vcl 4.1;\n\nbackend b none;\n\nsub vcl_recv {{\n{}}}\n", body.repeat(1250));
    let measure = || {
        let start = Instant::now();
        let formatted = lacquer_tools::format("long.vcl", text.as_bytes()).expect("it parses");
        let took = start.elapsed();
        assert!(formatted == text.as_bytes(), "it is formatted already");
        eprintln!("{} lines in {took:?}", text.lines().count());
        took
    };
    // Without optimization, and on a busy machine, which may stall.
    assert!((0..5).any(|_| measure() < Duration::from_secs(2)));
}

#[test]
fn a_file_that_cannot_be_read_stops_no_other() {
    let folder = Folder::new("fmt-unreadable");
    folder.file("ugly.vcl", UGLY);
    let ran = folder.lacquer("fmt nothing.vcl ugly.vcl");
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("nothing.vcl: "), "{}", ran.err);
    assert_eq!(folder.read("ugly.vcl"), NICE);
}
