//! The bench's own programs: servers, origins and load generators. `floor` is an HTTP server with the least possible
//! cost, `origin` is a fast web server behind the caches, and `load` sends a number of requests, where wrk runs for a
//! duration; `http3` runs for a duration. The others are smaller helpers. `bench/run` starts them.

#![forbid(unsafe_code)]

mod awake;
mod client;
mod floor;
mod forward;
mod hold;
mod http3;
mod load;
mod options;
mod origin;
mod paced;
mod pages;
mod secure;
mod server;
mod syslog;

use options::Options;
use std::process::ExitCode;

const USAGE: &str = "usage:
  lacquer-bench floor  --listen ADDR --size BYTES [--sendfile] [--close]
  lacquer-bench origin --listen ADDR [--size BYTES] [--cache-control TEXT] [--cpu-ms N] [--delay-ms N] [--close]
                       /1400/page returns 1400 bytes; a path that contains /zero/ or /private/ returns a
                       Cache-Control that prevents caching; /asked returns the number of requests so far;
                       requests with a header X-Warm take no CPU time
  lacquer-bench forward --listen ADDR --to ADDR [--close]
  lacquer-bench load   --connect ADDR [--count N] [--seconds S] [--connections N] [--path /o/{}] [--first N]
                       [--header LINE] [--rate N]
  lacquer-bench http3  --connect ADDR --trust PEM [--seconds S] [--connections N] [--path /o]
  lacquer-bench hold   --connect ADDR [--idle N] [--slow N] [--tls N --trust PEM --path /o]
  lacquer-bench syslog --socket PATH
  lacquer-bench awake
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((program, rest)) = words.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcome = Options::parse(rest).and_then(|options| match program.as_str() {
        "floor" => floor::run(&options),
        "forward" => forward::run(&options),
        "origin" => origin::run(&options),
        "load" => load::run(&options),
        "hold" => hold::run(&options),
        "http3" => http3::run(&options),
        "awake" => awake::run(),
        "syslog" => syslog::run(&options),
        _ => Err(format!("no program {program}\n{USAGE}")),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("lacquer-bench: {message}");
            ExitCode::from(2)
        }
    }
}
