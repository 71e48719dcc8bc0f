//! The table of all commands of the management protocol. The manager dispatches by this table, the
//! worker looks up its own commands in it, and the help is generated from it.

/// The process that runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The manager.
    Manager,
    /// The worker, when it runs.
    Worker,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// The first word.
    pub name: &'static str,
    /// The syntax.
    pub syntax: &'static str,
    /// The purpose, for `help`.
    pub help: &'static str,
    /// Further documentation, or an empty string.
    pub more: &'static str,
    /// Minimum number of arguments.
    pub min: usize,
    /// Maximum number of arguments; `None` for no limit.
    pub max: Option<usize>,
    /// The process that runs it.
    pub process: Process,
    /// Whether the command supports `-j`.
    pub json: bool,
    /// Whether it is for debugging, and shown by `help -d` only.
    pub debug: bool,
    /// Whether it is allowed before authentication.
    pub open: bool,
}

const fn command(
    name: &'static str,
    syntax: &'static str,
    min: usize,
    max: usize,
    help: &'static str,
) -> CommandSpec {
    CommandSpec {
        name,
        syntax,
        help,
        more: "",
        min,
        max: Some(max),
        process: Process::Manager,
        json: false,
        debug: false,
        open: false,
    }
}

impl CommandSpec {
    const fn json(mut self) -> CommandSpec {
        self.json = true;
        self
    }
    const fn worker(mut self) -> CommandSpec {
        self.process = Process::Worker;
        self
    }
    const fn debug(mut self) -> CommandSpec {
        self.debug = true;
        self
    }
    const fn open(mut self) -> CommandSpec {
        self.open = true;
        self
    }
    const fn any_number(mut self) -> CommandSpec {
        self.max = None;
        self
    }
    const fn more(mut self, text: &'static str) -> CommandSpec {
        self.more = text;
        self
    }
}

/// All commands by name.
pub const COMMANDS: &[CommandSpec] = &[
    command("acme.list", "acme.list [-j]", 0, 0, "List the certificates that the daemon obtains itself.")
        .json()
        .more("  Columns: names; end of the certificate; next attempt; why the last attempt has failed."),
    command("acme.renew", "acme.renew [<name>]", 0, 1, "Obtain certificates again, now.")
        .more("  The name is the first one of a certificate. Without a name, all are renewed."),
    command("auth", "auth <response>", 1, 1, "Respond to the challenge with a digest of the secret.").open(),
    command("backend.list", "backend.list [-j] [-p] [<backend_pattern>]", 0, 2, "List backends and their health.")
        .worker()
        .json()
        .more(
            "  ``-p`` adds details of the probes.\n\n  Columns: name; admin (``probe``, ``healthy``, ``sick`` or \
             ``deleted``: the source of the health); probe (good checks/checks, 0/0 without a probe); health; time of the \
             last change.",
        ),
    command(
        "backend.set_health",
        "backend.set_health <backend_pattern> [auto|healthy|sick]",
        2,
        2,
        "Set the health of the backends that match.",
    )
    .worker()
    .more("  ``auto`` lets the probe decide again."),
    command(
        "ban",
        "ban <field> <operator> <arg> [&& <field> <oper> <arg> ...]",
        3,
        3,
        "Invalidate all objects for which all conditions hold.",
    )
    .worker()
    .any_number(),
    command("ban.list", "ban.list [-j]", 0, 0, "List the bans in effect.").worker().json().more(
        "  Columns: time of the ban; number of objects that refer to it; ``C`` if it is completed; the ban.",
    ),
    command("banner", "banner", 0, 0, "Show the banner."),
    command("debug.fragfetch", "debug.fragfetch", 1, 1, "Fetch bodies in fragments of this size.").worker().debug(),
    command("debug.jail", "debug.jail", 0, 0, "Make the worker try to start a program, which its jail forbids.")
        .worker()
        .debug(),
    command("debug.listen_address", "debug.listen_address", 0, 0, "Show the listening addresses.")
        .worker()
        .debug(),
    command("debug.panic.master", "debug.panic.master", 0, 0, "Make the manager panic.").debug(),
    command("debug.panic.worker", "debug.panic.worker", 0, 0, "Make the worker panic.").worker().debug(),
    command(
        "debug.persistent",
        "debug.persistent [<stevedore>] [<cmd>]",
        0,
        2,
        "Inspect persistent storage; commands are sync and dump.",
    )
    .worker()
    .debug(),
    command("debug.reqpool.fail", "debug.reqpool.fail", 1, 1, "Make request allocations fail: one letter for each, F fails.")
        .worker()
        .debug(),
    command("debug.shutdown.delay", "debug.shutdown.delay", 1, 1, "Delay the worker's stop by this time.")
        .worker()
        .debug(),
    command("debug.srandom", "debug.srandom", 0, 1, "Seed the random numbers.").worker().debug(),
    command("debug.vmod", "debug.vmod", 0, 0, "Show the modules in use.").worker().debug(),
    command(
        "debug.xid",
        "debug.xid [<xid> [<cachesize>]]",
        0,
        2,
        "Show or set the next transaction id, and how many a thread reserves at a time.",
    )
    .worker()
    .debug(),
    command("help", "help [-j|<command>]", 0, 1, "Show the commands, or help for one of them.").json().open(),
    command("panic.clear", "panic.clear [-z]", 0, 1, "Clear the last panic; with -z also its counter."),
    command("panic.show", "panic.show [-j]", 0, 0, "Show the last panic of the worker.").json(),
    command("param.reset", "param.reset [-j] <param>", 1, 1, "Set a parameter to its default.")
        .json()
        .more("  With ``-j`` the reply is that of ``param.show -j <param>``."),
    command("param.set", "param.set [-j] <param> <value>", 2, 2, "Set a parameter.")
        .json()
        .more("  With ``-j`` the reply is that of ``param.show -j <param>``."),
    command("param.show", "param.show [-l|-j] [<param>|changed]", 0, 2, "Show parameters and their values.")
        .json()
        .more("  ``-l`` adds default, bounds and documentation. ``changed`` omits parameters that have their default."),
    command("pid", "pid [-j]", 0, 0, "Show the process ids of manager and worker.").json(),
    command("ping", "ping [-j] [<timestamp>]", 0, 1, "Keep the connection alive.").json().open(),
    command("quit", "quit", 0, 0, "Close the connection.").open(),
    command("start", "start", 0, 0, "Start the worker."),
    command("status", "status [-j]", 0, 0, "Show whether the worker runs.").json(),
    command("stop", "stop", 0, 0, "Stop the worker."),
    command("storage.list", "storage.list [-j]", 0, 0, "List the storages, with their figures while the worker runs.")
        .json()
        .more(
            "  With ``-j``, ``ages`` contains the number of objects in a sample of those in memory that are up to each of ``limits`` \
             seconds old, and last that of older ones.",
        ),
    command("tag.purge", "tag.purge [-s] <tag> [<tag>...]", 1, 1, "Purge all objects with one of these tags.")
        .worker()
        .any_number()
        .more(
            "  The tags of an object are in the headers ``xkey`` and ``X-HashTwo`` of its response. ``-s`` ends the freshness \
             of the objects but keeps them for grace.",
        ),
    command("tls.cert.commit", "tls.cert.commit", 0, 0, "Put the staged changes of certificates into effect."),
    command("tls.cert.discard", "tls.cert.discard <cert-id>", 1, 1, "Stage the removal of a certificate.")
        .more("  Connections that use it continue."),
    command("tls.cert.list", "tls.cert.list [-j] [-s]", 0, 1, "List the certificates.").json().more(
        "  Columns: listener (``default`` for all of them); id; status (active, staged or discard); common name. ``-s`` \
         shows those that the next commit adds or removes.",
    ),
    command(
        "tls.cert.load",
        "tls.cert.load [cert-id] <filename> [-f frontend-name] [-k private-key-filename] [-p protos] [-c ciphers] [-s \
         cipher-suites] [-r ocsp-response-filename] [-o] [-d]",
        1,
        1,
        "Load a certificate from a file, for the next commit.",
    )
    .any_number()
    .more(
        "  The file contains the certificate, its chain and its key in PEM.\n\n  ``-f`` loads it for one listener only.\n  \
         ``-k`` names another file for the key.\n  ``-p`` lists the protocols: ``-p TLSv1.2,TLSv1.3``.\n  ``-c`` lists the \
         ciphers of TLS 1.2, ``-s`` those of TLS 1.3.\n  ``-r`` names a file with an OCSP response in DER, which clients \
         get with the certificate.\n  ``-o`` prefers the server's order of ciphers.\n  ``-d`` makes it the default for \
         clients that ask for no known name.",
    ),
    command("tls.cert.reload", "tls.cert.reload", 0, 0, "Read all certificates from their files again.").more(
        "  A failure leaves all of them as they are. There must be no staged changes.",
    ),
    command("tls.cert.rollback", "tls.cert.rollback", 0, 0, "Forget the staged changes of certificates."),
    command("upgrade", "upgrade", 0, 0, "Replace the running program by the one in its file, without losing a request.")
        .more("  The reply comes before the upgrade; this connection is then closed. ``upgrade.show`` shows the result."),
    command("upgrade.show", "upgrade.show", 0, 0, "Show the result of the last upgrade."),
    command("vcl.deps", "vcl.deps [-j]", 0, 0, "List VCL programs and labels with their dependencies.").json(),
    command("vcl.discard", "vcl.discard <name_pattern>...", 1, 1, "Discard VCL programs and labels.")
        .any_number()
        .more(
            "  All that match are discarded in the order of their dependencies, or none if a remaining one depends on one \
             of them. Each pattern must have a match.",
        ),
    command(
        "vcl.inline",
        "vcl.inline <configname> <quoted_VCLstring> [auto|cold|warm]",
        2,
        3,
        "Compile VCL text and load it under this name.",
    )
    .more("  Use a here-document for longer programs."),
    command("vcl.label", "vcl.label <label> <configname>", 2, 2, "Point a label at a VCL program.")
        .more("  A label is required for one program to pass requests to another."),
    command("vcl.list", "vcl.list [-j]", 0, 0, "List VCL programs and labels.").json().more(
        "  Columns: status (active, available or discarded); state (auto, cold, warm or label); temperature; \
         references; name; and ``->`` program for a label, ``<-`` (labels) for a labeled program.",
    ),
    command(
        "vcl.load",
        "vcl.load <configname> <filename> [auto|cold|warm]",
        2,
        3,
        "Compile a VCL file and load it under this name.",
    ),
    command("vcl.show", "vcl.show [-v] [<configname>]", 0, 2, "Show the source of a VCL program.")
        .more("  ``-v`` also shows included files."),
    command("vcl.state", "vcl.state <configname> auto|cold|warm", 2, 2, "Keep a VCL program warm or cold."),
    command("vcl.symtab", "vcl.symtab", 0, 0, "Show the symbols that VCL programs define.").debug(),
    command("vcl.use", "vcl.use <configname|label>", 1, 1, "Use this VCL program for new requests."),
];

/// Returns the command with this name.
pub fn find(name: &str) -> Option<&'static CommandSpec> {
    COMMANDS.binary_search_by_key(&name, |spec| spec.name).ok().map(|at| &COMMANDS[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands of Varnish 7.7 to 9.0.
    const KNOWN: &str = "auth backend.list backend.set_health ban ban.list banner help panic.clear panic.show \
        param.reset param.set param.show pid ping quit start status stop storage.list tls.cert.commit tls.cert.discard \
        tls.cert.list tls.cert.load tls.cert.reload tls.cert.rollback vcl.deps vcl.discard \
        vcl.inline vcl.label vcl.list vcl.load vcl.show vcl.state vcl.symtab vcl.use debug.listen_address \
        debug.xid debug.srandom debug.fragfetch debug.reqpool.fail debug.shutdown.delay debug.panic.worker \
        debug.panic.master debug.vmod debug.persistent";

    #[test]
    fn every_command_of_varnish_is_found() {
        let missing: Vec<&str> = KNOWN.split_whitespace().filter(|name| find(name).is_none()).collect();
        assert!(missing.is_empty(), "missing: {missing:?}");
        assert!(COMMANDS.windows(2).all(|pair| pair[0].name < pair[1].name), "sorted by name");
        assert!(COMMANDS.iter().all(|spec| spec.syntax.starts_with(spec.name)));
    }
}
