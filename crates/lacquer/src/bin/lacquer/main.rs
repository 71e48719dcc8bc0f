//! `lacquer`: the program for newcomers, which requires no knowledge of varnishd's options. Each command is one
//! row of the table in this file and one module. The daemon is `lacquerd`, in the same directory.

#![forbid(unsafe_code)]

mod args;
mod check;
mod demo;
mod failure;
mod run;

use args::{Command, Opt};
use std::process::ExitCode;

const COMMANDS: &[Command] = &[
    Command {
        name: "run",
        operand: None,
        summary: "serve and cache a web site, in the foreground",
        about: "Starts a cache in front of your web server and stays in the foreground; Ctrl-C ends it.\n\
                Without options it serves a small demonstration site on port 6081.",
        options: &[
            Opt::many(
                "listen",
                "ADDR",
                "address for clients: 8000, :8000, 127.0.0.1:8000, [::1]:8000 or /path/socket; default :6081",
            ),
            Opt::one(
                "backend",
                "URL",
                "the web server to cache: http://localhost:3000, app.example:8080, or unix:/path/socket",
            ),
            Opt::one("vcl", "FILE", "read backends and caching rules from a VCL file instead of --backend"),
            Opt::one(
                "storage",
                "SPEC",
                "memory for the cache, such as 512M or 4G, or an argument of varnishd -s; default 256M",
            ),
            Opt::one(
                "name",
                "DIR",
                "working directory, for varnishlog -n and similar tools; the default depends on the port",
            ),
        ],
        examples: &[
            ("lacquer run", "serve the demonstration site"),
            ("lacquer run --backend http://localhost:3000", "cache your application"),
            ("lacquer run --vcl site.vcl --storage 2G --listen :80", "use your own rules"),
        ],
        run: run::run,
    },
    Command {
        name: "check",
        operand: Some(("FILE", "a VCL file, or - for standard input")),
        summary: "check whether a VCL file is correct",
        about: "Compiles a VCL file as the daemon would and prints its errors with their location, reason and\n\
                a hint. Nothing is started. The exit code is 0 when the file is correct and 1 when it is not.",
        options: &[
            Opt::many("label", "NAME", "a label that return (vcl(NAME)) may use; may be repeated"),
            Opt::many(
                "storage",
                "NAME",
                "a storage of the daemon, in addition to s0 and Transient; may be repeated",
            ),
        ],
        examples: &[("lacquer check /etc/varnish/default.vcl", "check a file before it is loaded")],
        run: check::run,
    },
    Command {
        name: "demo-origin",
        operand: None,
        summary: "run a small web server whose pages demonstrate caching",
        about: "Serves pages with different caching headers, to try a cache with.",
        options: &[Opt::one("listen", "ADDR", "address to listen on; default 127.0.0.1:8080")],
        examples: &[("lacquer demo-origin --listen 127.0.0.1:9000", "use another port")],
        run: demo::run,
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    args::dispatch(COMMANDS, &words).unwrap_or_else(|failure| failure.report())
}
