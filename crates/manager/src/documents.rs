//! Texts that the program prints about itself: `-?` and `-x`.

use std::fmt::Write;

use lacquer_params::ParamSet;

use crate::fault::{Fault, Outcome};
use crate::options::raw_args::LETTERS;
use crate::workdir;

/// Options in groups: for each one its syntax and its meaning.
pub const OPTIONS: &[(&str, &[(&str, &str)])] = &[
    (
        "Basic options",
        &[
            ("[-a [name=][listen_address", "Where to accept HTTP: address, protocol, options."),
            ("     [,PROTO|,option=value,...]]", "Can be specified multiple times."),
            ("", "  default: \":80,HTTP\""),
            ("  options:", "PROTO is \"HTTP\" (default), \"PROXY\" or \"HTTPS\""),
            ("", "\"HTTPS,h3\" listens on UDP too, for HTTP/3"),
            ("    [,user=<u>][,group=<g>]", "user, group and mode are those"),
            ("    [,mode=<m>]", "  of a UNIX socket."),
            ("    [,acme=<names>]", "names whose certificates are obtained"),
            ("", "  (HTTPS; separated by semicolons)"),
            ("-A cfgfile", "Listeners with TLS and their certificates"),
            ("-b none", "No backend"),
            ("-b [addr[:port]|path]", "Backend address and port"),
            ("", "  or path of a UNIX socket"),
            ("-f vclfile", "VCL program"),
            ("", "Can be specified multiple times."),
            ("-n dir", "Working directory"),
        ],
    ),
    (
        "Documentation options",
        &[
            ("-?", "Print this help"),
            ("-x parameter", "List of parameters"),
            ("-x vsl", "List of log records"),
            ("-x cli", "List of CLI commands"),
            ("-x builtin", "The built-in VCL"),
            ("-x optstring", "Option letters, as for getopt"),
            ("-x options", "Options that depend on this build"),
        ],
    ),
    (
        "Operations options",
        &[
            ("-F", "Run in the foreground"),
            ("-T address[:port]", "Address of the CLI"),
            ("", "Can be specified multiple times."),
            ("-w address[,option=value,...]", "Address of the dashboard, metrics and REST"),
            ("    [,token=<file>]", "token of its clients; default one that"),
            ("", "  is written to the working directory"),
            ("    [,host=<names>]", "names by which clients may call it"),
            ("    [,user=<u>][,group=<g>]", "user, group and mode are those"),
            ("    [,mode=<m>]", "  of a UNIX socket"),
            ("-w otlp=http://host[:port][/path]", "Collector of metrics and traces"),
            ("    [,interval=<seconds>]", "time between metrics; 0: none"),
            ("", "Can be specified multiple times."),
            ("-M address:port", "Connect to this address for CLI commands"),
            ("", "Can be specified multiple times."),
            ("-P file", "PID file"),
            ("-i identity", "Name of this instance"),
            ("-I clifile", "CLI commands to run at startup"),
        ],
    ),
    (
        "Tuning options",
        &[
            ("-t TTL", "Default TTL"),
            ("-p param=value", "Set a parameter"),
            ("", "Can be specified multiple times."),
            ("-s [name=]kind[,options]", "Where to store objects"),
            ("", "Can be specified multiple times."),
            ("", "  -s default (=malloc)"),
            ("", "  -s malloc[,size]"),
            ("", "  -s file,path[,size]"),
            ("", "  -s disk,path[,size=s][,memory=s]"),
            ("", "      [,min=s][,max=s]"),
            ("-l size", "Size of the log in shared memory [80m]"),
        ],
    ),
    (
        "Security options",
        &[
            ("-r param[,param...]", "Make parameters read-only"),
            ("", "Can be specified multiple times."),
            ("-S secret-file", "Secret for the CLI"),
            ("-j jail[,options]", "How to drop privileges"),
            ("", "  -j linux[,user=<u>][,workuser=<w>]"),
            ("", "  -j unix[,user=<u>][,workuser=<w>]"),
            ("", "  -j none"),
        ],
    ),
    (
        "Advanced options",
        &[
            ("-d", "Stay in the foreground, CLI on stdin"),
            ("-C", "Compile the VCL, print it, exit"),
            ("-V", "Version"),
            ("-h kind[,options]", "Accepted for compatibility"),
            ("-W waiter", "Accepted for compatibility"),
        ],
    ),
];

/// Returns the text of `-?`.
pub fn usage(program: &str) -> String {
    let mut out = format!("Usage: {program} [options]\n");
    for (title, options) in OPTIONS {
        let _ = writeln!(out, "\n{title}:");
        for (option, meaning) in *options {
            let _ = writeln!(out, "  {option:35} # {meaning}");
        }
        if *title == "Basic options" {
            let _ = writeln!(out, "  {:35} #   default: {}", "", workdir::path(None).display());
            out.push_str("\n-b can be used only once, and not together with -f\n");
        }
    }
    out
}

fn tags() -> String {
    let mut out = String::from("\n.. The following is autogenerated output from -x vsl\n");
    for tag in lacquer_shm::Tag::ALL {
        let name = tag.name();
        let docs = if tag.docs().is_empty() { tag.oneliner() } else { tag.docs() };
        let _ = write!(out, "\n{name}\n{}\n\n{docs}\n", "-".repeat(name.len()));
    }
    out
}

fn options() -> String {
    format!(
        ".. _opt_n:\n\n-n workdir\n\n  Directory for shared memory and the like.\n\n  \
         The default is taken from the ``VARNISH_DEFAULT_N`` environment variable.\n\n  \
         Relative paths will be appended to ``{}``.\n\n  If neither ``VARNISH_DEFAULT_N`` nor ``-n`` are \
         present, the value is ``{}``.\n",
        workdir::STATE_DIR,
        workdir::path(None).display()
    )
}

/// Returns the text of `-x what`.
pub fn document(what: &str) -> Outcome<String> {
    Ok(match what {
        "parameter" => ParamSet::new().document(),
        "vsl" => tags(),
        "cli" => lacquer_cli::help::document(),
        "builtin" => lacquer_vcl::BUILTIN_VCL.to_owned() + "\n",
        "optstring" => format!("{LETTERS}\n"),
        "options" => options(),
        _ => return Err(Fault::usage("Invalid -x argument")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_explained() {
        let text = usage("lacquerd");
        for letter in LETTERS.chars().filter(|c| *c != ':' && *c != 'E') {
            assert!(text.contains(&format!("-{letter}")), "-{letter}");
        }
        assert!(document("foo").is_err());
        for what in ["parameter", "vsl", "cli", "builtin", "optstring", "options"] {
            assert!(document(what).unwrap().len() > 10, "{what}");
        }
    }
}
