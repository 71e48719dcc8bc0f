//! `lacquer test`: the words reach the program that runs the tests. That program has tests of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Folder, run};

/// Writes a program that prints its words.
fn echo(folder: &Folder, name: &str) {
    let path = folder.file(name, "#!/bin/sh\necho \"$0\" \"$@\"\nexit 1\n");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the rights can be set");
}

#[test]
fn the_words_reach_the_program() {
    let folder = Folder::new("tools-test-words");
    let lacquer = folder.join("bin/lacquer");
    fs::create_dir_all(folder.join("bin")).expect("the folder can be created");
    fs::copy(Path::new(env!("CARGO_BIN_EXE_lacquer")), &lacquer).expect("the program can be copied");
    let words = "test site.vcl a.test b.test --filter=x --json --timeout 3 -p default_ttl=1 --verbose";
    let missing = run(&lacquer, &folder, words, "");
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.err.contains("lacquer-test cannot be started"), "{missing:?}");
    let passed = "--json --verbose --filter x --timeout 3 -p default_ttl=1 site.vcl a.test b.test\n";
    for place in ["libexec/lacquer/lacquer-test", "bin/lacquer-test"] {
        echo(&folder, place);
        let ran = run(&lacquer, &folder, words, "");
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.out.ends_with(&format!("{place} {passed}")), "{ran:?}");
    }
    assert_eq!(run(&lacquer, &folder, "test", "").code, Some(2));
}
