//! One connection of the CLI.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lacquer_cli::check::check;
use lacquer_cli::collector::{Collector, Command};
use lacquer_cli::{auth, frame, status};

use crate::complain::{Level, say_line};
use crate::fault::Fault;
use crate::manager::{Manager, Reply};
use crate::workdir::random;

/// Where a connection comes from, which decides what its end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Standard input of `-d`: its end is ours.
    Stdin,
    /// Somebody connected to `-T`.
    Telnet,
    /// We connected to `-M`.
    Master,
    /// The file of `-I`: what fails there is fatal.
    InitFile,
}

/// What is to become of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Keep,
    /// It ends.
    Close,
    /// The daemon ends.
    Fatal(Fault),
}

/// A connection.
pub struct Session {
    input: OwnedFd,
    output: Option<OwnedFd>,
    origin: Origin,
    ident: String,
    collector: Collector,
    challenge: Option<String>,
}

impl Session {
    /// Greets, or asks who is there. `output` is where answers go if not to where commands come from.
    pub fn begin(
        manager: &Manager,
        input: OwnedFd,
        output: Option<OwnedFd>,
        origin: Origin,
        ident: String,
    ) -> Session {
        let wants_secret = matches!(origin, Origin::Telnet | Origin::Master) && manager.secret.is_some();
        let mut bytes = [0; auth::CHALLENGE];
        let challenge = wants_secret.then(|| match random(&mut bytes) {
            Ok(()) => auth::challenge(bytes),
            // Without randomness nobody can get in.
            Err(_) => String::new(),
        });
        let session = Session { input, output, origin, ident, collector: Collector::default(), challenge };
        let greeting = match &session.challenge {
            Some(challenge) => Reply::no(status::AUTH, format!("{challenge}\n\nAuthentication required.\n")),
            None => Reply::ok(manager.banner()),
        };
        let _ = session.write(&greeting);
        session
    }

    /// What to poll for commands.
    pub fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    fn write(&self, reply: &Reply) -> std::io::Result<()> {
        let wire = frame::encode(reply.status, &reply.text);
        let output = self.output.as_ref().map_or(self.input.as_fd(), |output| output.as_fd());
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(output, rest) {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads what has come and runs the commands in it.
    pub fn read(&mut self, manager: &mut Manager) -> Verdict {
        let mut buffer = [0; 8192];
        let length = match rustix::io::read(&self.input, &mut buffer) {
            Ok(length) => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Verdict::Keep,
            Err(_) => 0,
        };
        if length == 0 {
            return self.ended();
        }
        for byte in &buffer[..length] {
            if let Some(command) = self.collector.feed(*byte, self.challenge.is_none()) {
                let verdict = self.execute(manager, &command);
                if verdict != Verdict::Keep {
                    return verdict;
                }
            }
        }
        Verdict::Keep
    }

    fn ended(&self) -> Verdict {
        if self.origin == Origin::InitFile && self.collector.unfinished().is_some() {
            return Verdict::Fatal(Fault::usage("-I file had incomplete CLI command at the end"));
        }
        Verdict::Close
    }

    fn execute(&mut self, manager: &mut Manager, command: &Command) -> Verdict {
        let from_file = self.origin == Origin::InitFile;
        if from_file {
            say_line(&format!("> {}", command.line));
        }
        manager.complain.say(Level::Cli, &format!("CLI {} Rd {}", self.ident, command.line));
        let knows_secret = self.challenge.is_none();
        let mut reply = match check(&command.words, knows_secret) {
            Ok(Some(found)) if found.spec.name == "auth" => self.authenticate(manager, command),
            checked => manager.run(checked, command, knows_secret),
        };
        manager
            .complain
            .say(Level::Cli, &format!("CLI {} Wr {:03} {}", self.ident, reply.status, reply.text));
        if from_file && reply.status != status::OK && !command.line.starts_with('-') {
            let text = format!("-I file CLI command failed ({})\n{}", reply.status, reply.text);
            return Verdict::Fatal(Fault::usage(text));
        }
        let limit = manager.params.values().cli_limit as usize;
        if frame::truncate(&mut reply.text.0, limit) && reply.status == status::OK {
            reply.status = status::TRUNCATED;
        }
        // Strangers are not given a second chance.
        let stranger = self.challenge.is_some() && reply.status != status::OK;
        if self.write(&reply).is_err() || reply.status == status::CLOSE || stranger {
            return Verdict::Close;
        }
        Verdict::Keep
    }

    fn authenticate(&mut self, manager: &Manager, command: &Command) -> Reply {
        let Some(secret_file) = &manager.secret else {
            return Reply::no(status::CANT, "Secret file not configured\n");
        };
        let secret = {
            let _root = manager.jail.raise();
            fs::read(secret_file)
        };
        let secret = match secret {
            Ok(secret) => secret,
            Err(error) => {
                let text = format!("Cannot open secret file ({})\n", crate::fault::words(&error));
                return Reply::no(status::CANT, text);
            }
        };
        let given = command.words.as_ref().ok().and_then(|words| words.get(1));
        let right = match self.challenge.as_deref() {
            Some("") => None,
            challenge => Some(auth::response(challenge.unwrap_or_default(), &secret)),
        };
        if given.zip(right).is_some_and(|(given, right)| auth::matches(&right, given)) {
            self.challenge = None;
            return Reply::ok(manager.banner());
        }
        let text = format!("CLI Authentication failure from {}", self.ident);
        manager.complain.say(Level::Security, &text);
        Reply::no(status::CLOSE, "")
    }
}
