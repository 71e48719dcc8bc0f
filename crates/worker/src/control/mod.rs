//! The manager's requests to the worker. The main thread reads one request at a time, carries it out, and sends a
//! reply. Between requests, it cools and discards VCL programs.

pub mod bans;
pub mod panics;

mod backends;
mod certificates;
mod debug;
mod reply;
mod storages;
mod tags;
mod vcl_list;

use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use lacquer_cli::link::{self, FromWorker, Request, ToWorker};
use lacquer_cli::status;
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock;
pub use reply::Reply;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::accept::Entrance;
use crate::process::Process;
use crate::{handover, helpers, vcl_life};

/// The time between checks of programs that cool down, while no request arrives.
const ROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Serves requests until the manager closes the link, or the worker is drained. Both end the worker.
pub fn serve(process: &Arc<Process>, entrance: &Entrance, mut manager: UnixStream) -> ExitCode {
    let mut is_draining = false;
    loop {
        let has_request = wait_for_message(&manager);
        vcl_life::poll(process);
        certificates::poll(process);
        if is_draining && entrance.is_empty() {
            break;
        }
        if entrance.has_retired() && process.shared().drain().closes_idle(clock::monotonic()) {
            handover::drop_objects(process);
        }
        if !has_request {
            continue;
        }
        match link::receive(&mut manager) {
            Ok(ToWorker::Param(params)) => {
                certificates::tune(process, &params);
                process.shared().set_params(*params);
                helpers::params_changed();
            }
            Ok(ToWorker::Drain) => {
                process.shared().log().write(Tag::CLI, Vxid::NONE, b"Drain");
                entrance.close(process);
                is_draining = true;
            }
            Ok(ToWorker::Retire) => {
                process.shared().log().write(Tag::CLI, Vxid::NONE, b"Retire");
                entrance.retire(process);
                is_draining = true;
            }
            Ok(ToWorker::Request { id, body }) => {
                let Reply { status, text } = serve_request(process, body).within(reply::LONGEST_TEXT);
                if link::send(&mut manager, &FromWorker::Reply { id, status, text }).is_err() {
                    break;
                }
            }
            Ok(ToWorker::Configure(_)) => eprintln!("The manager sent a second configuration; ignored."),
            Err(_) => break,
        }
    }
    let why = if is_draining { "Drained, worker stops" } else { "EOF on CLI connection, worker stops" };
    process.shared().log().write(Tag::CLI, Vxid::NONE, why.as_bytes());
    // The companion of `lacquer run` reads them once this process has ended.
    entrance.publish_counts();
    helpers::publish_counts(process);
    process.disks().iter().for_each(|disk| disk.running().close());
    std::thread::sleep(lacquer_engine::knobs::shutdown_delay());
    ExitCode::SUCCESS
}

fn wait_for_message(manager: &UnixStream) -> bool {
    let mut fds = [PollFd::new(manager, PollFlags::IN)];
    match poll(&mut fds, Some(&ROUND)) {
        Ok(ready) => ready > 0,
        // The next read returns the error.
        Err(e) => e != Errno::INTR,
    }
}

pub fn serve_request(process: &Arc<Process>, body: Request) -> Reply {
    match body {
        Request::Barrier => return Reply::ok(""),
        Request::WantedNames => return certificates::wanted_names(process),
        Request::Addresses { changes } => return addresses(process, changes),
        _ => {}
    }
    let log = |text: &[u8]| process.shared().log().write(Tag::CLI, Vxid::NONE, text);
    log(&[b"Rd ", &*words_of(&body)].concat());
    let reply = carry_out(process, body);
    log(&[format!("Wr {:03} {} ", reply.status, reply.text.len()).as_bytes(), &reply.text].concat());
    reply
}

fn carry_out(process: &Arc<Process>, body: Request) -> Reply {
    match body {
        Request::LoadVcl { name, program, state, warm } => {
            vcl_life::load(process, &name, &program, state, warm)
        }
        Request::LabelVcl { label, target } => vcl_life::label(process, &label, &target),
        Request::SetVclState { name, state, warm } => vcl_life::set_state(process, &name, state, warm),
        Request::UseVcl { name } => vcl_life::use_for_new(process, &name),
        Request::DiscardVcl { name } => vcl_life::discard(process, &name),
        Request::Cli { argv } => command(process, &argv),
        Request::ListStorages { argv, methods } => storages::list(process, &argv, &methods),
        Request::Certificates { change } => certificates::change(process, &change),
        Request::Challenges { pages, certificates } => {
            certificates::set_challenges(process, pages, &certificates)
        }
        Request::Start => {
            process.begin_accepting();
            Reply::ok("")
        }
        Request::HandOver => handover::hand_over(process),
        Request::Resume => handover::resume(process),
        Request::LeaveDatagrams { sockets } => handover::leave_datagrams(process, sockets),
        Request::ReportUse => handover::report_use(process),
        Request::ReleaseMemory { all } => handover::release_memory(process, all),
        Request::Health => Reply::ok(backends::health(process)),
        Request::TakeHealth { text } => {
            backends::take_health(process, &text);
            Reply::ok("")
        }
        Request::Barrier => Reply::ok(""),
        Request::WantedNames => certificates::wanted_names(process),
        Request::Addresses { changes } => addresses(process, changes),
        Request::TakeAddresses { text } => {
            process.hosts().take_known(&text);
            Reply::ok("")
        }
        Request::Ping => Reply::ok(format!("PONG {} 1.0", clock::real() as i64)),
    }
}

/// Formats the request as a CLI line, for the log.
fn words_of(body: &Request) -> Vec<u8> {
    let temperature = |warm: &bool| u8::from(*warm);
    let words = match body {
        Request::Cli { argv } => return argv.join(&b' '),
        Request::LoadVcl { name, state, warm, .. } => {
            format!("vcl.load {name} {}{}", temperature(warm), state.word())
        }
        Request::LabelVcl { label, target } => format!("vcl.label {label} {target}"),
        Request::SetVclState { name, state, warm } => {
            format!("vcl.state {name} {}{}", temperature(warm), state.word())
        }
        Request::UseVcl { name } => format!("vcl.use {name}"),
        Request::DiscardVcl { name } => format!("vcl.discard {name}"),
        Request::ListStorages { argv, .. } => argv.join(" "),
        Request::Certificates { .. } => "tls.cert.commit".to_owned(),
        Request::Challenges { .. } => "acme.challenges".to_owned(),
        Request::Start => "start".to_owned(),
        Request::HandOver => "handover".to_owned(),
        Request::Resume => "resume".to_owned(),
        Request::LeaveDatagrams { sockets } => format!("handover.datagrams {sockets}"),
        Request::ReportUse
        | Request::ReleaseMemory { .. }
        | Request::Health
        | Request::TakeHealth { .. }
        | Request::TakeAddresses { .. } => "handover.progress".to_owned(),
        Request::Ping | Request::Barrier => "ping".to_owned(),
        Request::WantedNames => "acme.wanted".to_owned(),
        Request::Addresses { .. } => "backend.addresses".to_owned(),
    };
    words.into_bytes()
}

/// Returns the last good addresses of hosts after the number of their changes, or nothing if that is as given.
fn addresses(process: &Process, changes: u64) -> Reply {
    let known = process.hosts().known(changes);
    Reply::ok(known.map_or_else(String::new, |(changes, text)| format!("{changes}\n{text}")))
}

fn command(process: &Arc<Process>, argv: &[Vec<u8>]) -> Reply {
    match argv.split_first() {
        None => return Reply::error(status::SYNTAX, "Empty CLI command.\n"),
        Some((name, rest)) if name == b"ban" => return bans::add(process, rest),
        Some((name, rest)) if name == b"tag.purge" => return tags::purge(process, rest),
        Some(_) => {}
    }
    // The names in the others are UTF-8.
    let argv: Vec<String> = argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let (argv, rest) = (&argv[..], &argv[1..]);
    match argv[0].as_str() {
        "vcl.list" => vcl_list::list(process, argv),
        "ban.list" => bans::list(process, argv),
        "backend.list" => backends::list(process, argv),
        "backend.set_health" => backends::set_health(process, rest),
        other => match other.strip_prefix("debug.") {
            Some(what) => debug::command(process, what, rest),
            None => Reply::unknown(),
        },
    }
}
