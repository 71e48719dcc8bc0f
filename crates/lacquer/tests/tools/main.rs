//! The commands for VCL files and the first start, as users type them.

mod check;
#[path = "../../../tools/tests/corpus/mod.rs"]
mod corpus;
mod format;
mod start;
mod test;
mod upgrade_vcl;

use std::path::Path;
use std::process::Command;

use lacquer_testing::{Folder, Ran};

/// Commands that run in a folder.
trait Commands {
    /// Runs `lacquer` with these words.
    fn lacquer(&self, words: &str) -> Ran;
    fn with_input(&self, words: &str, input: &str) -> Ran;
    fn lacquerd(&self, words: &str) -> Ran;
}

impl Commands for Folder {
    fn lacquer(&self, words: &str) -> Ran {
        self.with_input(words, "")
    }

    fn with_input(&self, words: &str, input: &str) -> Ran {
        run(Path::new(env!("CARGO_BIN_EXE_lacquer")), self, words, input)
    }

    fn lacquerd(&self, words: &str) -> Ran {
        run(Path::new(env!("CARGO_BIN_EXE_lacquerd")), self, words, "")
    }
}

fn run(program: &Path, folder: &Path, words: &str, input: &str) -> Ran {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).current_dir(folder).env_remove("NO_COLOR");
    Ran::with_input(&mut command, input)
}

#[test]
fn formatting_does_not_change_programs_with_modules() {
    assert!(corpus::check_all(lacquer_vmods::catalogue()) > 50);
}
