//! `lacquer test`: the words reach the program that runs the tests. That program has tests of its own.

use std::path::Path;

use lacquer_testing::{Folder, copy_program, write_program};

use super::run;

/// Prints its words.
const ECHO: &str = "#!/bin/sh\necho \"$0\" \"$@\"\nexit 1\n";

#[test]
fn the_words_reach_the_program() {
    let folder = Folder::new("tools-test-words");
    let lacquer = folder.join("bin/lacquer");
    copy_program(Path::new(env!("CARGO_BIN_EXE_lacquer")), &lacquer);
    let words = "test site.vcl a.test b.test --filter=x --json --timeout 3 -p default_ttl=1 --verbose";
    let missing = run(&lacquer, &folder, words, "");
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.err.contains("lacquer-test cannot be started"), "{missing:?}");
    let passed = "--json --verbose --filter x --timeout 3 -p default_ttl=1 site.vcl a.test b.test\n";
    std::fs::create_dir_all(folder.join("libexec/lacquer")).expect("a folder can be created");
    for place in ["libexec/lacquer/lacquer-test", "bin/lacquer-test"] {
        write_program(&folder.join(place), ECHO);
        let ran = run(&lacquer, &folder, words, "");
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.out.ends_with(&format!("{place} {passed}")), "{ran:?}");
    }
    assert_eq!(run(&lacquer, &folder, "test", "").code, Some(2));
}
