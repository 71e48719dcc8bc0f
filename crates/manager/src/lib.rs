//! The manager: the privileged process that serves the management port and supervises the worker. It reads
//! the options and manages parameters, VCL programs, sockets and storage.

#![forbid(unsafe_code)]

mod address_space;
mod admin;
mod attendant;
mod bound_sockets;
mod check_values;
mod cli;
mod client_certificates;
mod commands;
mod complain;
mod daemon;
mod datagrams;
mod disk_storage;
mod documents;
mod environment;
mod fault;
mod file_identity;
mod file_storage;
mod jail;
mod leftovers;
mod listen;
mod lookup;
mod machine;
mod manager;
mod notify;
mod obtain;
mod old_dirs;
mod options;
mod regular_file;
mod renewal;
mod resolve;
mod secret;
mod service;
mod shm;
mod spawning;
mod start_vcl;
mod startup;
mod storage;
mod tls;
mod trust_store;
mod unix_socket;
mod upgrade;
mod users;
mod vcl;
mod version;
mod workdir;
mod worker;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;

pub use address_space::memory as machine_memory;
pub use attendant::ATTENDANT;
pub use check_values::{check_admin, check_contacts, check_storage, one_line};
pub use complain::ANNOUNCEMENT;
pub use documents::OPTIONS;
pub use machine::Machine;
pub use start_vcl::backend_vcl;
#[cfg(feature = "fuzzing")]
pub use tls::parse_file;
pub use upgrade::Refusal as UpgradeRefusal;
pub use upgrade::request as request_upgrade;
pub use workdir::path as working_directory;
pub use workdir::{OWN_FOLDER, WRITTEN_VCL};

use lacquer_vcl::program::Program;

use crate::daemon::Background;
use crate::fault::{Fault, Outcome};
use crate::options::raw_args::{self, LETTERS, Mode, Request};
use crate::upgrade::Adopted;

/// Runs the daemon with the process's arguments.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| "lacquerd".into());
    match run(&program, arguments.collect()) {
        Ok(code) => match unwritten() {
            None => ExitCode::from(code),
            Some(why) => {
                eprintln!("{why}");
                ExitCode::from(2)
            }
        },
        Err(fault) => {
            if complain::announcement().is_some() {
                eprint!("{}", fault.brief());
            } else {
                eprint!("{fault}");
            }
            ExitCode::from(fault.code())
        }
    }
}

/// Returns the variables of this process's environment that a program may read.
pub fn mentioned_variables(program: &Program) -> Vec<(String, Vec<u8>)> {
    environment::mentioned(std::env::vars_os(), program)
}

/// The first failure to write to standard output.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Writes to standard output. The reader may close it early; for other failures see [`unwritten`].
pub fn show(text: &str) {
    show_bytes(text.as_bytes());
}

/// Writes to standard output like [`show`].
pub fn show_bytes(text: &[u8]) {
    let mut out = std::io::stdout();
    if let Err(error) = out.write_all(text).and_then(|()| out.flush()) {
        note_unwritten(&error);
    }
}

/// Notes a failure to write to standard output, unless its reader has closed it.
pub fn note_unwritten(error: &std::io::Error) {
    if error.kind() != std::io::ErrorKind::BrokenPipe {
        let _ = UNWRITTEN.set(fault::os_error_text(error));
    }
}

/// Returns why standard output is incomplete, if it is. The command has failed then, whatever it returns.
pub fn unwritten() -> Option<String> {
    UNWRITTEN.get().map(|why| format!("cannot write to standard output: {why}"))
}

fn run(program: &OsString, mut arguments: Vec<OsString>) -> Outcome<u8> {
    let in_background = arguments.first().is_some_and(|first| first == daemon::ARGUMENT);
    if in_background {
        arguments.remove(0);
    }
    let adopted = match arguments.first() {
        Some(first) => Adopted::from_argument(first)?,
        None => None,
    };
    if adopted.is_some() {
        arguments.remove(0);
    }
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if words == ["--optstring"] {
        println!("{LETTERS}");
        return Ok(0);
    }
    let name = daemon::basename(program);
    match raw_args::parse(&words)? {
        Request::Version => {
            eprint!("{}", version::long(&name));
            Ok(0)
        }
        Request::Document(what) => {
            show(&documents::document(&what)?);
            Ok(0)
        }
        Request::Usage(complaint) => {
            match complaint {
                Some(complaint) => eprintln!("{name}: {complaint} ({name} -? lists the options)"),
                None => show(&documents::usage(&name)),
            }
            Ok(2)
        }
        Request::Run(raw) if raw.mode == Mode::Daemon && !in_background && adopted.is_none() => {
            daemon::background(program, &arguments)
        }
        Request::Run(raw) => {
            // The name that `ps` and `pgrep` show; starting through /proc/self/exe has set it to "exe".
            let _ = std::fs::write("/proc/self/comm", &name);
            let mut background = if in_background { Some(Background::begin()?) } else { None };
            let outcome = startup::run(&raw, program, &arguments, adopted, &mut background);
            match (outcome, background) {
                (Err(fault), Some(background)) => {
                    eprint!("{fault}");
                    background.done(fault.code());
                    Err(Fault::silent(fault.code()))
                }
                (outcome, _) => outcome,
            }
        }
    }
}
