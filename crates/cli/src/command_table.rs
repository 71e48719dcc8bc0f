//! Every command of the management protocol, defined once: the manager dispatches by this table, the
//! worker finds its own commands in it, and the help is made of it.

/// Which process answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// The manager.
    Manager,
    /// The worker, when it runs.
    Worker,
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// Its first word.
    pub name: &'static str,
    /// Its syntax.
    pub syntax: &'static str,
    /// Its purpose, for `help`.
    pub help: &'static str,
    /// More about it, or nothing.
    pub more: &'static str,
    /// Fewest arguments.
    pub min: usize,
    /// Most arguments.
    pub max: Option<usize>,
    /// Which process answers.
    pub home: Home,
    /// The command supports `-j`.
    pub json: bool,
    /// For debugging: shown by `help -d` only.
    pub debug: bool,
    /// Allowed before authentication.
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
        home: Home::Manager,
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
        self.home = Home::Worker;
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
    command("auth", "auth <response>", 1, 1, "Answer the challenge.").open(),
    command("backend.list", "backend.list [-j] [-p] [<backend_pattern>]", 0, 2, "List backends and their health.")
        .worker()
        .json()
        .more(
            "  ``-p`` adds details of the probes.\n\n  Columns: name; admin (``probe``, ``healthy``, ``sick`` or \
             ``deleted``: what decides); probe (good checks/checks, 0/0 without a probe); health; time of the \
             last change.",
        ),
    command(
        "backend.set_health",
        "backend.set_health <backend_pattern> [auto|healthy|sick]",
        2,
        2,
        "Say whether the backends that match are healthy.",
    )
    .worker()
    .more("  ``auto`` leaves the decision to the probe again."),
    command(
        "ban",
        "ban <field> <operator> <arg> [&& <field> <oper> <arg> ...]",
        3,
        3,
        "Outdate all objects for which all conditions hold.",
    )
    .worker()
    .any_number(),
    command("ban.list", "ban.list [-j]", 0, 0, "List the bans in effect.").worker().json().more(
        "  Columns: time of the ban; objects that refer to it; ``C`` when it is completed; the ban.",
    ),
    command("banner", "banner", 0, 0, "Say hello."),
    command("debug.fragfetch", "debug.fragfetch", 1, 1, "Fetch bodies in fragments of this size.").worker().debug(),
    command("debug.jail", "debug.jail", 0, 0, "Make the worker try to start a program, which its jail forbids.")
        .worker()
        .debug(),
    command("debug.listen_address", "debug.listen_address", 0, 0, "Report where connections are accepted.")
        .worker()
        .debug(),
    command("debug.panic.master", "debug.panic.master", 0, 0, "Make the manager panic.").debug(),
    command("debug.panic.worker", "debug.panic.worker", 0, 0, "Make the worker panic.").worker().debug(),
    command(
        "debug.persistent",
        "debug.persistent [<stevedore>] [<cmd>]",
        0,
        2,
        "Look into persistent storage; commands are sync and dump.",
    )
    .worker()
    .debug(),
    command("debug.reqpool.fail", "debug.reqpool.fail", 1, 1, "Let request allocations fail, one letter each, F fails.")
        .worker()
        .debug(),
    command("debug.shutdown.delay", "debug.shutdown.delay", 1, 1, "Let the worker take this long to stop.")
        .worker()
        .debug(),
    command("debug.srandom", "debug.srandom", 0, 1, "Seed the random numbers.").worker().debug(),
    command("debug.vmod", "debug.vmod", 0, 0, "Show the modules in use.").worker().debug(),
    command(
        "debug.xid",
        "debug.xid [<xid> [<cachesize>]]",
        0,
        2,
        "Show or set the next transaction id, and how many a thread takes at a time.",
    )
    .worker()
    .debug(),
    command("help", "help [-j|<command>]", 0, 1, "Show the commands, or help on one of them.").json().open(),
    command("panic.clear", "panic.clear [-z]", 0, 1, "Forget the last panic; with -z also in the counters."),
    command("panic.show", "panic.show [-j]", 0, 0, "Show the last panic of the worker.").json(),
    command("param.reset", "param.reset [-j] <param>", 1, 1, "Set a parameter to its default.")
        .json()
        .more("  With ``-j`` the reply is that of ``param.show -j <param>``."),
    command("param.set", "param.set [-j] <param> <value>", 2, 2, "Set a parameter.")
        .json()
        .more("  With ``-j`` the reply is that of ``param.show -j <param>``."),
    command("param.show", "param.show [-l|-j] [<param>|changed]", 0, 2, "Show parameters and their values.")
        .json()
        .more("  ``-l`` adds default, bounds and documentation. ``changed`` leaves defaults out."),
    command("pid", "pid [-j]", 0, 0, "Show the process ids of manager and worker.").json(),
    command("ping", "ping [-j] [<timestamp>]", 0, 1, "Keep the connection alive.").json().open(),
    command("quit", "quit", 0, 0, "Close the connection.").open(),
    command("start", "start", 0, 0, "Start the worker."),
    command("status", "status [-j]", 0, 0, "Show whether the worker runs.").json(),
    command("stop", "stop", 0, 0, "Stop the worker."),
    command("storage.list", "storage.list [-j]", 0, 0, "List the storages.").json(),
    command("vcl.deps", "vcl.deps [-j]", 0, 0, "List VCL programs and labels with what they depend on.").json(),
    command("vcl.discard", "vcl.discard <name_pattern>...", 1, 1, "Forget VCL programs and labels.")
        .any_number()
        .more(
            "  All that match are forgotten in the right order, or none when something that stays depends on one \
             of them. Each pattern must match something.",
        ),
    command(
        "vcl.inline",
        "vcl.inline <configname> <quoted_VCLstring> [auto|cold|warm]",
        2,
        3,
        "Compile VCL text and load it under this name.",
    )
    .more("  Longer programs are best given as a here-document."),
    command("vcl.label", "vcl.label <label> <configname>", 2, 2, "Point a label at a VCL program.")
        .more("  A label is needed when one program is to hand requests over to another."),
    command("vcl.list", "vcl.list [-j]", 0, 0, "List VCL programs and labels.").json().more(
        "  Columns: status (active, available or discarded); state (auto, cold, warm or label); temperature; \
         references; name; and ``->`` program for a label, ``<-`` (labels) for a labelled program.",
    ),
    command(
        "vcl.load",
        "vcl.load <configname> <filename> [auto|cold|warm]",
        2,
        3,
        "Compile a VCL file and load it under this name.",
    ),
    command("vcl.show", "vcl.show [-v] [<configname>]", 0, 2, "Show the source of a VCL program.")
        .more("  ``-v`` also shows what it includes."),
    command("vcl.state", "vcl.state <configname> auto|cold|warm", 2, 2, "Keep a VCL program warm or cold."),
    command("vcl.symtab", "vcl.symtab", 0, 0, "Show the symbols that VCL programs define.").debug(),
    command("vcl.use", "vcl.use <configname|label>", 1, 1, "Serve new requests by this VCL program."),
];

/// The command of that name.
pub fn find(name: &str) -> Option<&'static CommandSpec> {
    COMMANDS.binary_search_by_key(&name, |spec| spec.name).ok().map(|at| &COMMANDS[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands of Varnish 7.7 to 9.0; TLS commands come with TLS.
    const KNOWN: &str = "auth backend.list backend.set_health ban ban.list banner help panic.clear panic.show \
        param.reset param.set param.show pid ping quit start status stop storage.list vcl.deps vcl.discard \
        vcl.inline vcl.label vcl.list vcl.load vcl.show vcl.state vcl.symtab vcl.use debug.listen_address \
        debug.xid debug.srandom debug.fragfetch debug.reqpool.fail debug.shutdown.delay debug.panic.worker \
        debug.panic.master debug.vmod debug.persistent";

    #[test]
    fn every_known_command_is_here_and_found() {
        let missing: Vec<&str> = KNOWN.split_whitespace().filter(|name| find(name).is_none()).collect();
        assert!(missing.is_empty(), "missing: {missing:?}");
        assert!(COMMANDS.windows(2).all(|pair| pair[0].name < pair[1].name), "sorted by name");
        assert!(COMMANDS.iter().all(|spec| spec.syntax.starts_with(spec.name)));
    }
}
