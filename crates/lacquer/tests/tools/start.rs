//! The first start: nothing is announced that then fails, and errors are short.

use std::fs::File;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use super::{Commands as _, Folder};

#[test]
fn a_start_that_fails_announces_nothing() {
    let folder = Folder::new("tools-start");
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("there is a free port").port();
    for (words, expected) in [
        ("--backend http://no.such.host.invalid:1", "cannot resolve no.such.host.invalid:1"),
        ("--backend 127.0.0.1:9 --storage shelf,1G", "shelf"),
        ("--backend 127.0.0.1:9 --storage 900T", "--storage 900T: there are "),
        ("--backend 127.0.0.1:9 --storage 100000G", "--storage 100000G: there are "),
        ("--backend 127.0.0.1:9 --storage disk,no.such", "write --storage disk,no.such,size=10G"),
        ("--backend :PORT", "this is where Lacquer listens itself"),
        ("--backend http://localhost:PORT", "this is where Lacquer listens itself"),
        ("--backend 127.0.0.1:9 --storage file,/dev/null/x,1G", "/dev/null/x"),
    ] {
        let name = folder.join("name").display().to_string();
        let words = words.replace("PORT", &port.to_string());
        let ran = folder.lacquer(&format!("run --listen 127.0.0.1:{port} --name {name} {words}"));
        assert_eq!(ran.code, Some(2), "{words}: {ran:?}");
        assert!(ran.err.contains(expected), "{words}: {ran:?}");
        assert!(!ran.out.contains("serving") && !ran.err.contains("-?"), "{words}: {ran:?}");
        assert!(
            ran.err.lines().all(|line| line.starts_with("lacquer: ") || line.starts_with("     ")),
            "{ran:?}"
        );
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let folder = Folder::new("tools-full");
    folder.file("old.vcl", "backend b { .host = \"127.0.0.1\"; }\n");
    let ran = |words: &str, out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer"));
        command.args(words.split_whitespace()).current_dir(&*folder).stdout(out).stderr(Stdio::piped());
        let output = command.output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for words in
        ["run --print-vcl", "upgrade-vcl old.vcl", "check --format json old.vcl", "--help", "document man"]
    {
        let full = File::options().write(true).open("/dev/full").expect("it exists");
        let (code, err) = ran(words, full.into());
        let expected = "lacquer: cannot write to standard output: No space left on device\n";
        assert!(code == Some(2) && err.contains(expected), "{words}: {code:?} {err}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (code, err) = ran(words, writer.into());
        assert!(code != Some(2) && !err.contains("cannot write"), "{words}: {code:?} {err}");
    }
}

#[test]
fn an_unknown_option_is_answered_in_one_line() {
    let folder = Folder::new("tools-option");
    let ran = folder.lacquerd("-B");
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert_eq!(ran.err, "lacquerd: invalid option -- 'B' (lacquerd -? lists the options)\n");
    assert!(folder.lacquerd("-?").out.starts_with("Usage: lacquerd [options]"));
}

#[test]
fn an_old_vcl_behind_a_unix_socket_has_a_reason() {
    let folder = Folder::new("tools-unix");
    folder.file("old.vcl", "vcl 4.0;\nbackend b { .host = \"127.0.0.1\"; }\n");
    let (name, socket) = (folder.join("name"), folder.join("socket"));
    let file = folder.join("old.vcl");
    let words = format!("-F -n {} -a {} -f {}", name.display(), socket.display(), file.display());
    let ran = folder.lacquerd(&words);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("Compiled VCL version (4.0) not supported.") && ran.err.contains("vcl 4.1;"),
        "{ran:?}"
    );
}
