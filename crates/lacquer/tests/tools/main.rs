//! The commands for VCL files and the first start, as users type them.

mod check;
#[path = "../../../tools/tests/corpus/mod.rs"]
mod corpus;
mod format;
mod start;
mod test;
mod upgrade_vcl;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder that is removed at the end. Commands run in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("lacquer-tools-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder can be created");
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("it can be created");
        fs::write(&path, text).expect("the file can be written");
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("the file can be read")
    }

    /// Runs `lacquer` with these words.
    fn lacquer(&self, words: &str) -> Ran {
        self.with_input(words, "")
    }

    fn with_input(&self, words: &str, input: &str) -> Ran {
        run(Path::new(env!("CARGO_BIN_EXE_lacquer")), &self.0, words, input)
    }

    fn lacquerd(&self, words: &str) -> Ran {
        run(Path::new(env!("CARGO_BIN_EXE_lacquerd")), &self.0, words, "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The outcome of a command.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(program: &Path, folder: &Path, words: &str, input: &str) -> Ran {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).current_dir(folder).env_remove("NO_COLOR");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program can be started");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let input = input.to_owned();
    // The program may end without reading it.
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let Output { status, stdout, stderr } = child.wait_with_output().expect("the program ends");
    writer.join().expect("it writes");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    let ran = Ran { code: status.code(), out: text(stdout), err: text(stderr) };
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    ran
}

#[test]
fn formatting_does_not_change_programs_with_modules() {
    assert!(corpus::check_all(lacquer_vmods::catalogue()) > 50);
}
