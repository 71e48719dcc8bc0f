//! `lacquer`: the program for newcomers, which requires no knowledge of varnishd's options. Each command is one
//! row of the table in this file and one module. The daemon is `lacquerd`, in the same directory.

#![forbid(unsafe_code)]

mod admin;
mod args;
mod attend;
mod check;
mod colors;
mod combinations;
mod config;
mod daemon_log;
mod demo;
mod doctor;
mod document;
mod environment;
mod failure;
mod findings;
mod format;
mod https;
mod instance;
mod invalidate;
mod listen;
mod log_counts;
mod losses;
mod lsp;
mod parameters;
mod params;
mod reference;
mod reload;
mod remote;
mod rules;
mod run;
mod run_options;
mod spec;
mod stat;
mod storage;
mod storage_room;
mod test;
mod top;
mod upgrade;
mod upgrade_vcl;
mod vcl;
mod web;
mod why;
mod written_vcl;

use args::{Command, Opt};
use std::process::ExitCode;

/// The options of commands for the management port.
const REMOTE: &[Opt] = &[remote::NAME, remote::ADDRESS, remote::SECRET, Opt::flag("json", "print JSON")];

// The hint for a daemon on another machine.
const WHY_ELSEWHERE: &str = "run `lacquer why` on that machine (ssh HOST lacquer why URL), or let its VCL send X-Lacquer-Why; see docs/why.md";
const LOG_ELSEWHERE: &str = "run `lacquer log` on that machine (ssh HOST lacquer log --follow), or let it send the lines: lacquer log --follow --to tcp:HOST:PORT";
const STAT_ELSEWHERE: &str = "run `lacquer stat` on that machine (ssh HOST lacquer stat), or start its daemon with -w ADDRESS, which serves /metrics; see docs/admin.md";
const TOP_ELSEWHERE: &str = "run `lacquer top` on that machine (ssh -t HOST lacquer top), or start its daemon with -w ADDRESS, which serves a dashboard; see docs/admin.md";

const COMMANDS: &[Command] = &[
    Command {
        name: "run",
        operand: None,
        summary: "serve and cache a web site, in the foreground",
        about: "Starts a cache in front of your web server and stays in the foreground; Ctrl-C ends it.\n\
                Without options it serves a small demonstration site on port 6081.",
        options: &run_options::ALL,
        examples: &[
            ("lacquer run", "serve the demonstration site"),
            ("lacquer run --backend http://localhost:3000", "cache your application"),
            (
                "lacquer run --backend :3000 --ignore-cookies --cache '*=60s' --except /admin",
                "cache all pages",
            ),
            ("lacquer run --https localhost", "serve the demonstration site over https"),
            ("sudo lacquer run --https example.org --backend :3000", "put your application on the internet"),
            ("lacquer run --vcl site.vcl --storage 2G --listen :80", "use your own rules"),
        ],
        run: run::run,
    },
    Command {
        name: "why",
        operand: Some(("URL", "a URL, such as http://www.example.org/page or /page")),
        summary: "send a request and explain why it was a hit, a miss or a pass",
        about: "Sends a request to the daemon on this machine, reads its records in the log and explains what\n\
                happened, step by step: the cache key, the line of the VCL that decided, the header that forbade\n\
                caching, how long the copy lives and why, and how long each part took. The last sentence says\n\
                what to change.",
        options: &[
            remote::NAME,
            remote::local_only("address", WHY_ELSEWHERE),
            remote::local_only("secret", WHY_ELSEWHERE),
            Opt::many("H", "'Name: value'", "a header of the request; may be repeated"),
            Opt::one("method", "METHOD", "the method; default GET"),
            Opt::one(
                "to",
                "HOST:PORT",
                "the listener to use, or the path of its UNIX socket; default the one with the URL's port, or the first",
            ),
            Opt::one("cacert", "FILE", "authorities to trust for an https URL, instead of the system's"),
            Opt::flag("insecure", "do not check the listener's certificate"),
            Opt::flag("http1.1", "use HTTP/1.1 although HTTP/2 is offered"),
            Opt::flag("http2", "use HTTP/2, without TLS too"),
            Opt::flag("proxy-header", "begin the connection with a PROXY header"),
            Opt::flag("json", "print JSON"),
        ],
        examples: &[
            ("lacquer why http://www.example.org/", "explain a page"),
            ("lacquer why /cart -H 'Cookie: id=1'", "explain a request with a cookie"),
        ],
        run: why::run,
    },
    Command {
        name: "log",
        operand: None,
        summary: "list requests, one on each line",
        about: "Prints the last requests in the daemon's log: time (UTC), client, request, status, how the cache\n\
                treated it, bytes sent and duration.",
        options: &[
            remote::NAME,
            remote::local_only("address", LOG_ELSEWHERE),
            remote::local_only("secret", LOG_ELSEWHERE),
            Opt::flag(
                "follow",
                "continue with new requests until Ctrl-C, also after the daemon was started again",
            ),
            Opt::one("lines", "N", "the number of past requests, or all; default 50"),
            Opt::one("url", "TEXT", "only requests whose host and URL contain this text"),
            Opt::one("status", "STATUS", "only requests with this status: 404, or a class: 5xx"),
            Opt::flag("misses", "only requests that the cache did not serve"),
            Opt::one("vxid", "N", "only the request with this number, which error pages show"),
            Opt::flag("json", "print each request as JSON"),
            Opt::one(
                "format",
                "FORMAT",
                "as --log of lacquer run: json:time,url,status, combined, '{client} {url}' and others",
            ),
            Opt::one(
                "to",
                "TARGET",
                "write to syslog, unix:/PATH or tcp:HOST:PORT instead of standard output",
            ),
        ],
        examples: &[
            ("lacquer log --follow", "watch the requests"),
            (
                "lacquer log --follow --format json:time,url,status --to syslog",
                "send them to the system's log",
            ),
            ("lacquer log --misses --url /news/", "see what is not served from the cache"),
        ],
        run: daemon_log::run,
    },
    Command {
        name: "stat",
        operand: Some(("[FIELD]...", "names of counters; * stands for any text, and MAIN. may be left out")),
        summary: "show the daemon's counters",
        about: "Prints the daemon's counters that are not zero, or those that are named.",
        options: &[
            remote::NAME,
            remote::local_only("address", STAT_ELSEWHERE),
            remote::local_only("secret", STAT_ELSEWHERE),
            Opt::flag("all", "also counters that are zero"),
            Opt::flag("json", "print JSON"),
        ],
        examples: &[("lacquer stat 'cache_*'", "show hits and misses")],
        run: stat::run,
    },
    Command {
        name: "top",
        operand: None,
        summary: "watch traffic, latency, URLs and origins live",
        about: "Shows what the daemon does now: requests, bandwidth and hit ratio, latencies of hits and misses,\n\
                the busiest, most missed and slowest URLs, origins, storage and connections. Tab chooses a panel,\n\
                / filters by host or URL, p pauses, ? lists the keys, q quits. The daemon may end and come back\n\
                meanwhile.",
        options: &[
            remote::NAME,
            remote::local_only("address", TOP_ELSEWHERE),
            remote::local_only("secret", TOP_ELSEWHERE),
            Opt::one("interval", "SECONDS", "time between snapshots; default 1 on the screen, else 5"),
            Opt::one("url", "TEXT", "only requests whose host and URL contain this text"),
            Opt::flag("once", "print one snapshot after the interval, as text"),
            Opt::flag("json", "print snapshots as lines of JSON; with --once, one"),
        ],
        examples: &[
            ("lacquer top", "watch the daemon"),
            ("lacquer top --once --interval 10", "print what happens within ten seconds"),
            ("lacquer top --json | jq .traffic.last_10_seconds.hit_ratio", "watch one value"),
        ],
        run: top::run,
    },
    Command {
        name: "purge",
        operand: Some(("URL", "a URL, such as http://www.example.org/page or /page")),
        summary: "remove a page from the cache",
        about: "Forbids to use the copies of a page that are in the cache now, all of its variants: a ban for its\n\
                host and URL, as vcl_recv leaves them. With a path alone, the page of every host. Needs no rule\n\
                in VCL.",
        options: REMOTE,
        examples: &[("lacquer purge http://www.example.org/news", "fetch a page again")],
        run: invalidate::purge,
    },
    Command {
        name: "tag",
        operand: Some(("TAG...", "tags, as origins send them in the header xkey")),
        summary: "remove all objects with a tag",
        about: "Removes the objects whose responses had one of these tags in the header xkey or X-HashTwo, or in the\n\
                header of `lacquer run --tags`. Needs no rule in VCL.",
        options: &[
            remote::NAME,
            remote::ADDRESS,
            remote::SECRET,
            Opt::flag("soft", "end their freshness, but keep them for grace"),
            Opt::flag("json", "print JSON"),
        ],
        examples: &[("lacquer tag article-17 front-page", "after an article was edited")],
        run: invalidate::tag,
    },
    Command {
        name: "ban",
        operand: Some(("EXPRESSION...", "a ban: FIELD OPERATOR VALUE, several joined by &&")),
        summary: "remove all objects that match an expression",
        about: "Forbids to use the objects in the cache that match. Fields are req.url, req.http.NAME, obj.status,\n\
                obj.http.NAME and obj.age; operators are ==, !=, ~, !~, and < or > for numbers.",
        options: REMOTE,
        examples: &[("lacquer ban 'req.url ~ ^/news/'", "remove a part of a site")],
        run: invalidate::ban,
    },
    Command {
        name: "vcl load",
        operand: Some(("FILE", "a VCL file")),
        summary: "load a VCL into the daemon",
        about: "Compiles a VCL and keeps it beside the present one. --use lets new requests use it at once.",
        options: &[
            remote::NAME,
            remote::ADDRESS,
            remote::SECRET,
            Opt::one("as", "NAME", "its name; default the file's name and the time"),
            Opt::flag("use", "let new requests use it"),
            Opt::flag("json", "print JSON"),
        ],
        examples: &[("lacquer vcl load --use /etc/varnish/default.vcl", "reload the rules")],
        run: vcl::load,
    },
    Command {
        name: "vcl use",
        operand: Some(("NAME", "a loaded VCL or a label")),
        summary: "let new requests use a loaded VCL",
        about: "Switches to a VCL that is loaded. Requests in progress end with the old one.",
        options: REMOTE,
        examples: &[("lacquer vcl use site2", "switch")],
        run: vcl::activate,
    },
    Command {
        name: "vcl list",
        operand: None,
        summary: "list the loaded VCLs",
        about: "Lists the loaded VCLs: state, temperature, users, name.",
        options: REMOTE,
        examples: &[("lacquer vcl list", "list them")],
        run: vcl::list,
    },
    Command {
        name: "vcl discard",
        operand: Some(("NAME...", "loaded VCLs that are not in use")),
        summary: "remove a loaded VCL",
        about: "Removes VCLs that are not in use. A pattern with * may name several.",
        options: REMOTE,
        examples: &[("lacquer vcl discard site1", "remove an old one")],
        run: vcl::discard,
    },
    Command {
        name: "param",
        operand: Some(("[NAME [VALUE]]...", "a parameter, and its new value")),
        summary: "show or set parameters of the daemon",
        about: "Without a name, lists all parameters; with a name, describes one; with a value, sets it until the\n\
                daemon ends. The daemon's option -p sets it for good.",
        options: &[
            remote::NAME,
            remote::ADDRESS,
            remote::SECRET,
            Opt::flag("reset", "set the parameter to its default"),
            Opt::flag("json", "print JSON"),
        ],
        examples: &[("lacquer param default_ttl 300", "keep pages for five minutes")],
        run: params::run,
    },
    Command {
        name: "cli",
        operand: Some(("COMMAND [WORD]...", "a command of the management port and its words")),
        summary: "send any command of the management port",
        about: "Sends a command to the daemon and prints its reply, as varnishadm does. `lacquer cli help` lists the\n\
                commands. Words that begin with - follow after --.",
        options: REMOTE,
        examples: &[
            ("lacquer cli backend.list", "show the backends and their health"),
            ("lacquer cli -- backend.list -p", "show their probes, too"),
        ],
        run: remote::send,
    },
    Command {
        name: "check",
        operand: Some(("FILE...", "VCL files, lacquer.toml, or - for standard input")),
        summary: "check whether VCL files or lacquer.toml are correct",
        about: "Compiles each VCL file as the daemon would, reads each .toml file as `lacquer run` would, and\n\
                prints the errors with their location, reason and a hint. Nothing is started. The exit code\n\
                is 0 when all files are correct, 1 when one is not, and 2 when one cannot be read.",
        options: &[
            Opt::one("format", "FORMAT", "text, json, or sarif for the checks of a code forge; default text"),
            Opt::one("deny", "WHAT", "`warnings`: the exit code is 1 when there is a warning"),
            Opt::flag("offline", "do not look up the names of backends"),
            Opt::many(
                "p",
                "vcl_path=DIR",
                "where relative includes are searched, as in the daemon's parameter",
            ),
            Opt::many("label", "NAME", "a label that return (vcl(NAME)) may use; may be repeated"),
            Opt::many(
                "storage",
                "NAME",
                "a storage of the daemon, in addition to s0 and Transient; may be repeated",
            ),
        ],
        examples: &[
            ("lacquer check /etc/varnish/default.vcl", "check a file before it is loaded"),
            ("lacquer check --offline --deny warnings *.vcl", "check in a build, far from the backends"),
        ],
        run: check::run,
    },
    Command {
        name: "fmt",
        operand: Some(("FILE...", "VCL files, or - to format standard input to standard output")),
        summary: "format VCL files",
        about: "Formats VCL files in place: one statement on each line, indented by four spaces. Comments, strings,\n\
                empty lines between groups and line breaks within expressions remain. A file that does not parse\n\
                is left alone, and the exit code is 1.",
        options: &[
            Opt::flag("check", "change nothing; list the files that are not formatted, with exit code 1"),
            Opt::flag("stdout", "print the result instead of changing the files"),
        ],
        examples: &[
            ("lacquer fmt /etc/varnish/default.vcl", "format a file"),
            ("lacquer fmt --check *.vcl", "fail a build if a file is not formatted"),
        ],
        run: format::run,
    },
    Command {
        name: "test",
        operand: Some(("FILE.vcl [TESTS]...", "a VCL file, and its test files; default FILE.test beside it")),
        summary: "run the tests of a VCL file",
        about: "Runs tests against a VCL: they send requests, say what the origins respond and how time passes, and\n\
                what is expected. The real engine runs them, with simulated origins and a simulated clock; nothing\n\
                listens or connects. The exit code is 1 when a test fails.",
        options: &[
            Opt::one("filter", "TEXT", "only the tests whose names contain this text"),
            Opt::flag("verbose", "also list the tests that pass"),
            Opt::one("timeout", "SECONDS", "the real time that a test may take; default 10"),
            Opt::many("p", "NAME=VALUE", "a parameter of the daemon, also vcl_path; may be repeated"),
            Opt::flag("json", "print JSON"),
        ],
        examples: &[
            ("lacquer test site.vcl", "run the tests in site.test"),
            ("lacquer test site.vcl tests/*.test --filter login", "run some tests"),
        ],
        run: test::run,
    },
    Command {
        name: "lsp",
        operand: None,
        summary: "serve an editor: errors while typing, completion, manual, rename",
        about: "Speaks the language server protocol on standard input and output. Editors start it; docs/editors.md\n\
                shows how. It reports what `lacquer check --offline` finds, and formats as `lacquer fmt` does.",
        options: &[
            Opt::flag("stdio", "use standard input and output, as always"),
            Opt::many(
                "p",
                "vcl_path=DIR",
                "where relative includes are searched, as in the daemon's parameter",
            ),
            Opt::many("label", "NAME", "a label that return (vcl(NAME)) may use; may be repeated"),
            Opt::many("storage", "NAME", "a storage of the daemon; may be repeated"),
        ],
        examples: &[("lacquer lsp", "the command for the settings of an editor")],
        run: lsp::run,
    },
    Command {
        name: "upgrade-vcl",
        operand: Some(("FILE", "a VCL file, or - for standard input")),
        summary: "rewrite VCL of versions 2, 3 and 4.0 to 4.1",
        about: "Prints a VCL file in today's language. Comments and layout remain. Where the old text has no exact\n\
                counterpart, a comment that begins with `# UPGRADE:` says what you must decide. The exit code is 3\n\
                when the result does not load yet, for the errors that are printed. A file of statements is a part\n\
                of a subroutine, which includes it. Such a file is not compiled alone.",
        options: &[
            Opt::one(
                "in",
                "NAME",
                "the subroutine that includes the file, such as vcl_fetch; default: found by the statements",
            ),
            Opt::many(
                "p",
                "vcl_path=DIR",
                "where relative includes are searched; default: beside the file, then as by the daemon",
            ),
        ],
        examples: &[
            ("lacquer upgrade-vcl old.vcl > new.vcl", "rewrite a file, and see whether it loads"),
            ("lacquer upgrade-vcl --in vcl_recv old.vcl > new.vcl", "rewrite a part of vcl_recv"),
        ],
        run: upgrade_vcl::run,
    },
    Command {
        name: "upgrade",
        operand: None,
        summary: "replace a running daemon by the new version of its program",
        about: "Lets the daemon replace itself by the program that is now in its file, without losing a request or a\n\
                cached object. Waits until that is done. If the new program cannot continue, the old one does, and\n\
                the exit code is 2.",
        options: &[remote::NAME, remote::OLDER_NAME],
        examples: &[("apt upgrade && lacquer upgrade", "install a new version and use it")],
        run: upgrade::run,
    },
    Command {
        name: "reload",
        operand: Some(("FILE", "the VCL file to load")),
        summary: "load a VCL file into a running daemon and use it",
        about: "Lets the daemon load a VCL file and use it for all further requests. Earlier files that were loaded\n\
                in this way are removed. If the file has an error, the daemon continues with what it has, and the\n\
                exit code is 2.",
        options: &[remote::NAME, remote::OLDER_NAME],
        examples: &[("lacquer reload --name /run/lacquer /etc/lacquer/default.vcl", "use a changed file")],
        run: reload::run,
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
    Command {
        name: "doctor",
        operand: None,
        summary: "find settings of this machine that limit the cache",
        about: "Compares the settings of the kernel, the limits and files of a daemon that runs, and the answers\n\
                of web servers with what a busy cache needs. Prints what is, what should be, why, and the command\n\
                that changes it; nothing is changed. The exit code is 1 if a setting is bad.",
        options: &[
            Opt::one(
                "name",
                "DIR",
                "working directory of the daemon, its option -n; default /run/lacquer if one runs there",
            ),
            Opt::many("backend", "URL", "a web server that should answer; may be repeated"),
            Opt::flag("fix", "print a file for /etc/sysctl.d instead"),
            Opt::flag("json", "print the findings in JSON"),
        ],
        examples: &[
            ("lacquer doctor --backend http://localhost:3000", "examine this machine and a web server"),
            ("lacquer doctor --fix > /etc/sysctl.d/60-lacquer.conf", "write better kernel settings"),
        ],
        run: doctor::run,
    },
    Command {
        name: "document",
        operand: Some(("FORMAT", "man, markdown, or a shell whose completion you want: bash, zsh or fish")),
        summary: "print a manual page or a shell completion",
        about: "Prints the manual page of a program or of a reference, or a program's completion for a shell.\n\
                Packages install them.",
        options: &[Opt::one(
            "program",
            "NAME",
            "lacquer or lacquerd, or a reference: lacquer-params, lacquer-counters, lacquer-tags, lacquer-vcl or lacquer-cli; default lacquer",
        )],
        examples: &[
            ("lacquer document man | man -l -", "read the manual"),
            ("lacquer document man --program lacquer-params | man -l -", "read about the parameters"),
            ("source <(lacquer document bash)", "complete commands and options in this shell"),
        ],
        run: document::run,
    },
    Command {
        name: "storage create",
        operand: Some(("PATH", "a file, a directory or a block device")),
        summary: "make a store for objects on a disk",
        about: "Makes an empty store, in a file whose space is reserved, or on a block device. In a directory, the\n\
                file is named lacquer.store. What an existing store contains is lost with --force.",
        options: &[
            Opt::one("size", "SIZE", "the size of the file, such as 100G; a device is used as a whole"),
            Opt::flag("force", "overwrite an existing store, or other data"),
        ],
        examples: &[("lacquer storage create --size 100G /var/cache/lacquer", "make a store in a file")],
        run: storage::create,
    },
    Command {
        name: "storage check",
        operand: Some(("PATH", "a file, a directory or a block device")),
        summary: "verify all checksums of a store",
        about: "Reads a whole store and verifies every checksum. The daemon must not be using the store. The exit\n\
                code is 1 when something is damaged; the daemon treats damaged objects as missing.",
        options: &[],
        examples: &[("lacquer storage check /dev/nvme1n1", "verify the store on a disk")],
        run: storage::check,
    },
    Command {
        name: "storage show",
        operand: Some(("PATH", "a file, a directory or a block device")),
        summary: "show what a store contains",
        about: "Reads the index of a store and prints version, size, fill and the sizes of its objects. The daemon\n\
                must not be using the store.",
        options: &[],
        examples: &[("lacquer storage show /var/cache/lacquer", "show a store in a directory")],
        run: storage::show,
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some((_, rest)) = words.split_first().filter(|(first, _)| *first == attend::NAME) {
        return attend::run(rest);
    }
    args::dispatch(COMMANDS, &words).unwrap_or_else(|failure| failure.report())
}
