//! The operator's program that adds and removes DNS records for DNS-01.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::rights::Rights;

/// The maximum time of a call. A record must be visible everywhere when it ends.
const LIMIT: Duration = Duration::from_mins(10);
const ROUND: Duration = Duration::from_millis(20);
/// The maximum number of bytes of its messages that are kept, and the number that an error shows: the last ones.
const READ: usize = 64 << 10;
const SHOWN: usize = 300;
const PIECE: usize = 4096;
/// The time without a message after which none is expected of a program that has ended.
const QUIET: Duration = Duration::from_secs(1);
/// The variables that it gets.
const VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Calls the program with `add` or `remove`, the name of the record and its value.
pub fn call(program: &Path, rights: &Rights, arguments: [&str; 3]) -> Result<(), Fault> {
    let [action, record, _] = arguments;
    let shown = program.display();
    let failed = |why: String| Fault::new(format_args!("acme_dns_hook {shown} {action} {record}: {why}"));
    let variables = VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some((uid, gid)) = rights.user() {
        // All ids of the program: it cannot become root again.
        command.uid(uid).gid(gid);
    }
    let mut child = rights.run(|| command.spawn()).map_err(|error| failed(error.to_string()))?;
    let written = collect(child.stderr.take());
    let ended = wait(&mut child).map_err(|error| failed(error.to_string()))?;
    match ended {
        None => Err(failed(format!("it did not end within {} s, and was killed", LIMIT.as_secs()))),
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let output = messages(&written);
            let last = &output[output.len().saturating_sub(SHOWN)..];
            Err(failed(format!("{status}: {}", String::from_utf8_lossy(last).trim())))
        }
    }
}

/// Reads messages beside the program, which would otherwise block when the pipe is full.
fn collect(stderr: Option<ChildStderr>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let Some(mut stderr) = stderr else { return };
        let (mut piece, mut kept) = ([0; PIECE], 0);
        while let Ok(len) = stderr.read(&mut piece)
            && len > 0
        {
            if kept < READ {
                kept += len;
                let _ = sender.send(piece[..len].to_vec());
            }
        }
    });
    receiver
}

/// Returns the messages of a program that has ended. A process that it has left in the background may keep the pipe open.
fn messages(written: &Receiver<Vec<u8>>) -> Vec<u8> {
    let mut output = Vec::new();
    while let Ok(piece) = written.recv_timeout(QUIET) {
        output.extend(piece);
    }
    output
}

/// Waits for the end of the program. Kills it when the time is over.
fn wait(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(ROUND);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_show_the_reason() {
        let run = |program: &str| {
            call(Path::new(program), &Rights::unchanged(), ["add", "_acme-challenge.a.example", "v"])
        };
        let text = |program: &str| run(program).unwrap_err();
        assert!(text("/nonexistent/hook").text().contains("No such file"));
        assert!(
            text("/bin/false").text().contains("/bin/false add _acme-challenge.a.example: exit status: 1")
        );
        assert_eq!(run("/bin/true"), Ok(()));
    }

    #[test]
    fn a_process_in_the_background_does_not_delay_the_reason() {
        let folder = lacquer_testing::Folder::new("hook");
        let program = folder.join("hook");
        lacquer_testing::write_program(&program, "#!/bin/sh\nsleep 30 &\necho no zone >&2\nexit 3\n");
        let begun = Instant::now();
        let fault =
            call(&program, &Rights::unchanged(), ["add", "_acme-challenge.a.example", "v"]).unwrap_err();
        assert!(fault.text().contains("no zone"), "{}", fault.text());
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
