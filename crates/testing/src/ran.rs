//! The outcome of a program that has ended.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::Value;

#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Runs a program without input.
    pub fn of(command: &mut Command) -> Ran {
        let output = command.stdin(Stdio::null()).output().expect("the program can be started");
        Ran::from_output(output)
    }

    /// Runs a program with this input, which it may leave unread.
    pub fn with_input(command: &mut Command, input: &str) -> Ran {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        let mut stdin = child.stdin.take().expect("it is a pipe");
        let input = input.to_owned();
        let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = child.wait_with_output().expect("the program ends");
        writer.join().expect("it writes");
        Ran::from_output(output)
    }

    /// Returns the JSON that the program has printed.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn from_output(Output { status, stdout, stderr }: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
        let ran = Ran { code: status.code(), out: text(stdout), err: text(stderr) };
        assert!(!ran.err.contains("panicked"), "{ran:?}");
        ran
    }
}
