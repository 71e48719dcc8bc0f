//! The program as users run it: passing and failing tests, and mistakes in VCL and test files.

mod documents;
mod upgraded;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lacquer_testing::{Folder, Ran};

/// Runs the program in a folder.
fn run_in(folder: &Folder, words: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer-test"));
    Ran::of(command.args(words).current_dir(&**folder))
}

const VCL: &str = "vcl 4.1;\nbackend b { .host = \"192.0.2.1\"; }\nsub vcl_recv {\n  if (req.url ~ \"^/x\") {\n    return (pass);\n  }\n}\nsub vcl_deliver {\n  set resp.http.X-A = \"1\";\n}\n";

/// Runs a test text against a VCL.
fn run(name: &str, vcl: &str, test: impl AsRef<[u8]>, more: &[&str]) -> Ran {
    let folder = Folder::new(&format!("vcl-test-{name}"));
    folder.file("site.vcl", vcl);
    folder.file("site.test", test);
    run_in(&folder, &[&["site.vcl"], more].concat())
}

#[test]
fn all_parts_of_the_format_work() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let vcl = here.join("shop.vcl");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer-test"));
    let output = command.arg(vcl).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("0 failed"), "{text}");
}

#[test]
fn failures_show_the_difference_and_the_line_of_vcl() {
    let test = "test \"it is cached\"\n  GET /x\n  GET /x\n  expect hit 404\n    X-A: 2\n    no X-B\n  expect fetch b /y\n  expect 2 fetches\n";
    let ran = run("failures", VCL, test, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for part in [
        "FAIL it is cached  (site.test:1)",
        "site.test:4: status\n    - expected: 404\n    + got:      200",
        "GET /x: 200, pass-vcl",
        "VCL decided so at line 5 of site.vcl, in\n",
        "site.test:5: X-A\n    - expected: 2\n    + got:      1",
        "X-A was set at line 9 of site.vcl",
        "site.test:7: fetch\n    - expected: b /y\n    + got:      b GET /x",
        "site.test:8: number of fetches\n    - expected: 2\n    + got:      1: b GET /x",
        "0 passed, 1 failed: 2 requests",
    ] {
        assert!(ran.out.contains(part), "{part}\n{}", ran.out);
    }
    assert!(!ran.out.contains('\x1b') && !ran.out.contains("X-B"), "{}", ran.out);
}

#[test]
fn results_are_json_and_tests_are_chosen() {
    let test = "test \"one\"\n  GET /\n  expect 200\ntest \"two\"\n  GET /\n  expect 201\n";
    let ran = run("json", VCL, test, &["--json", "--filter", "two"]);
    let value: serde_json::Value = serde_json::from_str(&ran.out).expect("it is JSON");
    assert_eq!((ran.code, &value["passed"], &value["failed"]), (Some(1), &0.into(), &1.into()));
    let found = &value["files"][0]["tests"][0];
    assert_eq!((&found["name"], &found["line"], &found["passed"]), (&"two".into(), &4.into(), &false.into()));
    assert_eq!(
        (&found["failures"][0]["expected"], &found["failures"][0]["got"]),
        (&"201".into(), &"200".into())
    );
    assert_eq!(run("one", VCL, test, &["--filter", "one"]).code, Some(0));
    let none = run("none", VCL, test, &["--filter", "three"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.contains("no test has run"), "{none:?}");
}

#[test]
fn mistakes_are_explained() {
    let good = "test \"a\"\n GET /\n expect 200\n";
    for (name, vcl, test, expected) in [
        (
            "syntax",
            VCL,
            "test \"a\"\n GTE /\n expcet 200\n",
            "site.test:3: there is no statement `expcet`: did you mean expect?",
        ),
        ("module", "vcl 4.1;\nimport nothing;\nbackend b none;\n", good, "--> site.vcl:2:8"),
        ("include", "vcl 4.1;\ninclude \"./gone.vcl\";\n", good, "site.vcl:2"),
        ("inline", "vcl 4.1;\nbackend b none;\nsub vcl_recv { C{ }C }\n", good, "site.vcl:3"),
        ("bytes", VCL, "\u{1}\n", "site.test:1: the line contains"),
    ] {
        let ran = run(name, vcl, test, &[]);
        assert_eq!(ran.code, Some(2), "{name}: {ran:?}");
        assert!(ran.err.contains(expected) && !ran.err.contains("panicked"), "{name}: {}", ran.err);
    }
    let folder = Folder::new("vcl-test-missing");
    folder.file("site.vcl", VCL);
    assert_eq!(run_in(&folder, &["site.vcl"]).code, Some(2));
    assert_eq!(run_in(&folder, &["gone.vcl", "gone.test"]).code, Some(2));
    assert_eq!(run_in(&folder, &[]).code, Some(2));
    assert_eq!(run_in(&folder, &["--what"]).code, Some(2));
}

#[test]
fn failures_of_the_vcl_fail_the_test_only() {
    let init = "vcl 4.1;\nimport std;\nbackend b { .host = \"192.0.2.1\"; }\nsub vcl_init { return (fail(\"no way\")); }\n";
    let ran = run("init", init, "test \"a\"\n GET /\n expect 200\n", &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("no way"), "{ran:?}");
    let test = "test \"a\"\n backend c sick\ntest \"b\"\n param nothing 1\ntest \"c\"\n ban nonsense\ntest \"d\"\n GET /\n expect 200\n";
    let ran = run("words", VCL, test, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for part in ["the VCL has no backend c", "param nothing", "the ban is refused", "1 passed, 3 failed"] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
}

#[test]
fn a_test_that_does_not_end_is_ended() {
    let vcl = "vcl 4.1;\nbackend b { .host = \"192.0.2.1\"; }\n";
    let begun = Instant::now();
    // Each simulated second takes real time.
    let test = "test \"a\"\n GET /\n expect 200\n".to_owned() + &" after 9s\n".repeat(300_000);
    let ran = run("endless", vcl, test, &["--timeout", "1"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("does not end within 1 s"), "{ran:?}");
    assert!(begun.elapsed() < Duration::from_mins(1));
}

#[test]
fn long_times_pass_quickly_and_nothing_connects() {
    // 192.0.2.1 is an address for documentation; a real connection would take its timeout.
    let test = "test \"a\"\n GET /\n after 2y\n GET /\n expect miss\ntest \"b\"\n origin hangs\n GET /\n expect 503\n  took 60s\n";
    let begun = Instant::now();
    let ran = run("years", VCL, test, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// The rate that a user may rely on, for an optimized build on an idle machine. Others reach a part of it.
#[test]
fn thousands_of_requests_take_seconds() {
    let mut test = "origin 200\n  Cache-Control: max-age=60\n".to_owned();
    for number in 0..200 {
        let _ = writeln!(test, "test \"{number}\"");
        for request in 0..10 {
            let _ = write!(test, "  GET /{request}\n  expect miss 200\n    X-A: 1\n");
        }
    }
    let begun = Instant::now();
    let ran = run("rate", VCL, test.replace("GET /1", "GET /x1").replace("expect miss", "expect"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("2000 requests"), "{ran:?}");
    let limit = if cfg!(debug_assertions) { 120 } else { 10 };
    assert!(begun.elapsed() < Duration::from_secs(limit), "{}", ran.out);
    eprintln!("{}", ran.out);
}
