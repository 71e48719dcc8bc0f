//! Starts the daemon from its command line: evaluates the options (second stage) in the order in which errors are
//! reported, then creates everything that must exist before the first request.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use lacquer_cli::pid_file;
use lacquer_cli::tokenize::{Rules, split};
use lacquer_params::{DebugBits, ParamSet};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::system::Uname;

use crate::admin::Admin;
use crate::bound_sockets::BoundSockets;
use crate::cli::{CliSockets, Master};
use crate::complain::{Complain, Level, announce, print_line};
use crate::daemon::{self, Background};
use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::leftovers::Leftovers;
use crate::listen::Listeners;
use crate::manager::{Child, Instance, Manager};
use crate::notify::{Change, notify};
use crate::options::raw_args::{Mode, Ordered, RawOptions};
use crate::secret::Secret;
use crate::service::{Service, Signals};
use crate::shm::Shm;
use crate::start_vcl::{StartVcl, compile_and_print, given_backend, load_vcl};
use crate::storage::{Opens, Storage, StorageArguments};
use crate::tls;
use crate::upgrade::{Adopted, Upgrade};
use crate::vcl::Catalogue;
use crate::vcl::compile::read_along;
use crate::version;
use crate::workdir::{self, OwnFolder, Owner, PidFile, Renewal, absolute};
use crate::worker::State;

const DEFAULT_LISTEN: &str = ":80";
const DEFAULT_CLI: &str = "localhost:0";

/// The options after the second stage.
struct ParsedOptions {
    params: ParamSet,
    listeners: Listeners,
    storages: StorageArguments,
    vcl: Vec<StartVcl>,
    init: Option<File>,
    tls: tls::Startup,
}

/// Sets the parameters whose defaults are those of the platform.
fn platform_defaults(params: &mut ParamSet) {
    let Ok(socket) = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None) else {
        return;
    };
    let mut set = |name: &str, value: Option<u64>| {
        if let Some(value) = value.filter(|value| *value > 0) {
            // A value beyond the parameter's bounds is ignored, and our own default remains.
            let _ = params.set_default(name, &value.to_string());
        }
    };
    set("tcp_keepalive_time", socket.tcp_keepalive_time().ok().map(|t| t.as_secs()));
    set("tcp_keepalive_intvl", socket.tcp_keepalive_interval().ok().map(|t| t.as_secs()));
    set("tcp_keepalive_probes", socket.tcp_keepalive_retries().ok().map(u64::from));
}

impl ParsedOptions {
    /// With `adopted`, uses its files and parameters, and reads no VCL.
    fn from(raw: &RawOptions, jail: &Jail, adopted: Option<&mut Adopted>) -> Outcome<ParsedOptions> {
        let mut parsed = ParsedOptions {
            params: ParamSet::new(),
            listeners: Listeners::default(),
            storages: StorageArguments::default(),
            vcl: raw.backend.as_deref().map(given_backend).into_iter().collect(),
            init: None,
            tls: tls::Startup::default(),
        };
        platform_defaults(&mut parsed.params);
        let reads_vcl = adopted.is_none();
        if let Some(adopted) = adopted {
            let fault = |error| Fault::plain(format!("Cannot use the sockets: {}", os_error_text(&error)));
            parsed.listeners.adopt(BoundSockets::adopt(adopted.take_listeners()).map_err(fault)?);
            parsed.storages.adopt(adopted.take_storages());
            parsed.vcl.clear();
        }
        // Varnish binds the listeners of -A first, which has an effect on names and on the first fault.
        for option in &raw.ordered {
            if let Ordered::Tls(path) = option {
                parsed.tls.configure(path, &mut parsed.listeners, jail)?;
            }
        }
        for option in &raw.ordered {
            if reads_vcl || !matches!(option, Ordered::Vcl(_) | Ordered::Init(_)) {
                parsed.take(option, jail)?;
            }
        }
        Ok(parsed)
    }

    fn take(&mut self, option: &Ordered, jail: &Jail) -> Outcome<()> {
        let wrong = |text: String| Fault::plain(one_line(&text));
        match option {
            Ordered::Listen(argument) => self.listeners.add(argument, jail),
            // Those of the admin listener are bound later.
            Ordered::Tls(_) | Ordered::Admin(_) => Ok(()),
            Ordered::Vcl(file) if file.is_empty() => Ok(()),
            Ordered::Vcl(file) => {
                let path = &self.params.values().vcl_path;
                let (path, text) = read_along(path, file)
                    .map_err(|error| cannot_read(file, path, &os_error_text(&error)))?;
                self.vcl.push(StartVcl { origin: path.display().to_string(), text });
                Ok(())
            }
            Ordered::Init(path) => {
                let _root = jail.raise();
                let file = File::open(path).map_err(|error| {
                    Fault::usage(format!("\tCan't open {path}: {}", os_error_text(&error)))
                })?;
                self.init = Some(file);
                Ok(())
            }
            Ordered::Param(_, None) => Err(Fault::usage("\t-p lacks '='")),
            Ordered::Param(name, Some(value)) => {
                self.params.set(name, value).map(drop).map_err(|error| wrong(error.text))
            }
            Ordered::ReadOnly(list) => {
                let names = split(list, Rules::LIST).map_err(|f| wrong(format!("Parse error: {f}")))?;
                names.iter().try_for_each(|name| self.params.protect(name).map_err(|e| wrong(e.text)))
            }
            Ordered::Storage(argument) => {
                let name = self.storages.add(argument)?.to_owned();
                self.params.add_storage(&name);
                Ok(())
            }
            Ordered::Extension(path) => {
                Err(Fault::plain(format!("extensions (-E {path}) are not supported")))
            }
        }
    }
}

/// Returns the fault for an unreadable `-f` file. Relative names are searched in the folders of `vcl_path` only, as in
/// varnishd, so the text suggests the absolute path of a file that exists in the current directory.
fn cannot_read(file: &str, path: &str, why: &str) -> Fault {
    let fault = format!("Cannot read -f file '{file}' ({why})");
    let hint = match std::env::current_dir() {
        Ok(here) if !file.starts_with('/') => {
            let whole = here.join(file);
            if whole.exists() { format!("; use -f {}", whole.display()) } else { format!(" in {path}") }
        }
        _ => String::new(),
    };
    Fault::usage(fault + &hint)
}

/// Joins the lines of an error text of the management port.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

fn identity(raw: &RawOptions, host: &str) -> Outcome<String> {
    let Some(identity) = raw.identity.as_deref().filter(|identity| !identity.is_empty()) else {
        return Ok(host.to_owned());
    };
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    match identity.chars().find(|c| !is_token(*c)) {
        Some(bad) => Err(Fault::usage(format!("Invalid character '{bad}' for -i"))),
        None => Ok(identity.to_owned()),
    }
}

/// Returns the secret of `-S`, or of the program before this one. `None` for `-S none` and without `-S`.
fn secret_of(raw: &RawOptions, adopted: Option<&mut Adopted>, jail: &Jail) -> Outcome<Option<Secret>> {
    if let Some(adopted) = adopted {
        return Ok(adopted.secret());
    }
    match raw.secret.as_deref() {
        None => Ok(None),
        Some("none") => {
            print_line("Warning: CLI authentication disabled.");
            Ok(None)
        }
        Some(path) => {
            let _root = jail.raise();
            match File::open(path) {
                // Relative paths refer to the directory in which the daemon was started.
                Ok(_) => Ok(Some(Secret::given(absolute(path)))),
                Err(error) => {
                    Err(Fault::usage(format!("Cannot open -S file ({path}): {}", os_error_text(&error))))
                }
            }
        }
    }
}

/// Returns the platform and the chosen methods for the banner, in varnishd's form.
fn platform(host: &Uname, jail: &Jail, storages: &[Storage], hash: &str) -> String {
    let stores: Vec<&str> = storages.iter().map(Storage::method).collect();
    format!(
        "{},{},{},-j{},-s{},-h{hash}",
        host.sysname().to_string_lossy(),
        host.release().to_string_lossy(),
        host.machine().to_string_lossy(),
        jail.name(),
        stores.join(",-s")
    )
}

/// Returns the working directory of `-C`, which is removed afterwards.
fn temporary_workdir() -> PathBuf {
    std::env::temp_dir().join(format!("varnishd_C_{}", std::process::id()))
}

/// Raises the limit on descriptors to the hard limit, because the usual soft limit is low.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Loads the certificates, and evaluates what listeners ask for by `acme=`. The parameters for that cannot be changed
/// afterwards.
fn certificates(
    startup: tls::Startup,
    listeners: &Listeners,
    params: &mut ParamSet,
    jail: &Jail,
    complain: &Complain,
    compile_only: bool,
) -> Outcome<tls::Tls> {
    if compile_only {
        return Ok(tls::Tls::default());
    }
    let all = listeners.acme().to_vec();
    let on_demand = tls::OnDemand::wanted(listeners, params.values(), jail)?;
    let plan =
        tls::Plan::new((all, on_demand.as_ref()), listeners.any_plain(), params.values(), jail, complain)?;
    for name in plan.iter().flat_map(|_| tls::PARAMETERS) {
        params.protect(name).map_err(|error| Fault::plain(error.text))?;
    }
    let unique = params.values().tls_err_dup_servername;
    let mut catalogue = startup.finish(listeners, unique, plan.as_ref(), jail, complain)?;
    catalogue.set_on_demand(on_demand);
    Ok(tls::Tls { catalogue, acme: None, plan })
}

/// Lets nobody but root inspect this process, which keeps private keys and the secret of tickets.
fn protect_memory(dumpable: bool) {
    if !dumpable {
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Sets everything up and serves until the end. Returns the exit code. `arguments` are those of the user. With
/// `adopted`, continues with the state of another program, or only checks it.
pub fn run(
    raw: &RawOptions,
    program: &OsString,
    arguments: &[OsString],
    mut adopted: Option<Adopted>,
    background: &mut Option<Background>,
) -> Outcome<u8> {
    raise_descriptor_limit();
    let name = daemon::basename(program);
    let complain = Complain::new(matches!(raw.mode, Mode::Debug | Mode::Foreground), &name);
    let upgrade = Upgrade::new(arguments);
    let jail = Jail::enter(raw.jail.as_deref())?;
    let is_check = adopted.as_ref().is_some_and(|adopted| adopted.is_check);
    // The daemon whose state is checked still uses its folder.
    let _own_folder = (!is_check).then(|| OwnFolder::new(&jail));
    let workdir = workdir_of(raw);
    let mut leftovers = Leftovers::watch(raw, &workdir, adopted.is_some(), &jail);
    let ParsedOptions { mut params, listeners, storages, vcl, init, tls } =
        ParsedOptions::from(raw, &jail, adopted.as_mut())?;
    restore_params(&mut params, adopted.as_ref(), &complain);
    let secret = secret_of(raw, adopted.as_mut(), &jail)?;
    let pid_paths: Vec<PathBuf> = raw.pid_files.iter().map(|path| workdir.join(path)).collect();

    protect_memory(params.values().jail_dumpable);
    let compile_only = raw.mode == Mode::Compile;
    let tls = certificates(tls, &listeners, &mut params, &jail, &complain, compile_only)?;
    let host = rustix::system::uname();
    let identity = identity(raw, &host.nodename().to_string_lossy())?;
    let hash = raw.hash_method()?;
    workdir::enter(&workdir, Owner::at_start(&workdir), &jail, &complain)?;
    if !compile_only && adopted.is_none() {
        workdir::prepare(&workdir, params.values().vsl_space, &jail)?;
    }
    let files: Vec<PathBuf> = storages.files().collect();
    let opens = if compile_only { Opens::NoDisk } else { Opens::Everything };
    let storages = leftovers.while_making(&files, || storages.make(opens, &jail, &complain))?;
    let instance = Instance {
        program: program.clone(),
        identity,
        platform: platform(&host, &jail, &storages, hash),
        workdir,
        secret,
        pid_files: Vec::new(),
        started: adopted.as_ref().map_or_else(Instant::now, Adopted::started),
        upgrade,
    };
    let mut manager = Manager {
        complain,
        jail,
        params,
        listeners,
        storages,
        tls,
        instance,
        renewal: Renewal::default(),
        shm: None,
        catalogue: Catalogue::default(),
        child: Child::default(),
        exit_status: 0,
    };
    if compile_only {
        leftovers.keep();
        return Ok(compile_and_print(&mut manager, &vcl));
    }
    prepare(&mut manager, adopted.as_mut(), &vcl, &pid_paths)?;
    if is_check {
        return check_rest(raw, &manager).map(|()| 0);
    }
    serve(manager, raw, init, adopted, (background, &mut leftovers))
}

/// Checks what would fail only after this program has replaced the old one.
fn check_rest(raw: &RawOptions, manager: &Manager) -> Outcome<()> {
    Master::new(&raw.masters)?;
    manager.instance.secret.as_ref().map_or(Ok(()), |secret| secret.check(&manager.jail))
}

/// Applies the parameters, after those of another program were set.
fn restore_params(params: &mut ParamSet, adopted: Option<&Adopted>, complain: &Complain) {
    for why in adopted.iter().flat_map(|adopted| adopted.restore_params(params)) {
        complain.report(Level::Info, &format!("Parameter {why}"));
    }
    complain.tune(params.values());
}

/// Returns the working directory.
fn workdir_of(raw: &RawOptions) -> PathBuf {
    let environment = std::env::var("VARNISH_DEFAULT_N").ok();
    let named = raw.workdir.as_deref().or(environment.as_deref());
    match named {
        None if raw.mode == Mode::Compile => temporary_workdir(),
        named => workdir::path(named),
    }
}

/// Finds room for objects, loads the VCL programs, locks the working directory and the files of `-P`, and binds the
/// default address if there is no `-a`.
fn prepare(
    manager: &mut Manager,
    adopted: Option<&mut Adopted>,
    vcl: &[StartVcl],
    pid_paths: &[PathBuf],
) -> Outcome<()> {
    find_room(manager)?;
    match adopted {
        Some(adopted) => {
            adopted.restore_vcls(manager)?;
            manager.instance.pid_files = adopted.pid_files()?;
        }
        None => {
            load_vcl(manager, vcl)?;
            for path in pid_paths.iter().chain([&manager.instance.workdir.join(pid_file::FILE)]) {
                manager.instance.pid_files.push(PidFile::open(path, &manager.jail)?);
            }
        }
    }
    if manager.listeners.is_empty() {
        manager.listeners.add(DEFAULT_LISTEN, &manager.jail)?;
    }
    Ok(())
}

/// Finds the objects of the last daemon, and room for them and for new ones.
fn find_room(manager: &mut Manager) -> Outcome<()> {
    manager.find_objects();
    manager.address_space().map(drop).map_err(|fault| Fault::plain(fault.to_string()))
}

fn serve(
    mut manager: Manager,
    raw: &RawOptions,
    init: Option<File>,
    mut adopted: Option<Adopted>,
    pending: (&mut Option<Background>, &mut Leftovers),
) -> Outcome<u8> {
    let mut shm = Shm::create(&manager.jail)?;
    shm.publish("-i", &manager.instance.identity)?;
    let is_upgrade = adopted.is_some();
    let master = if is_upgrade { Master::unresolved(&raw.masters) } else { Master::new(&raw.masters)? };
    let sockets = cli_sockets(raw, adopted.as_mut(), &manager.jail, &mut shm)?;
    let admin = Admin::open(raw.admin(), is_upgrade, &manager.jail, &mut shm)?;
    // After an upgrade, an end would be the end of a service that runs.
    let tolerate = |complain: &Complain, outcome: Outcome<()>| match outcome {
        Err(fault) if is_upgrade => {
            complain.report(Level::Error, fault.text());
            Ok(())
        }
        other => other,
    };
    for file in &mut manager.instance.pid_files {
        let fault = |error| Fault::plain(format!("Could not write pid-file: {}", os_error_text(&error)));
        tolerate(&manager.complain, file.write().map_err(fault))?;
    }
    if raw.secret.is_none() && adopted.is_none() {
        manager.instance.secret = Some(Secret::make(&manager.instance.workdir, &manager.jail)?);
    }
    if let Some(secret) = &manager.instance.secret {
        shm.publish("-S", &secret.path().to_string_lossy())?;
        tolerate(&manager.complain, secret.check(&manager.jail))?;
    }
    manager.shm = Some(shm);
    // Reported after all checks, so that a fault is reported in one line, without this.
    if let Some(notice) = manager.jail.notice() {
        manager.complain.report(Level::Routine, &notice);
    }
    if manager.jail.name() == "linux" && !workdir::is_on_tmpfs() {
        manager.complain.report(Level::Routine, "Working directory not mounted on tmpfs partition");
    }
    manager.complain.report(Level::Debug, &format!("Version: {}", version::SHORT));
    manager.complain.report(Level::Debug, &format!("Platform: {}", manager.instance.platform));
    let signals = Signals::watch()
        .map_err(|error| Fault::plain(format!("Cannot watch for signals: {}", os_error_text(&error))))?;
    if is_upgrade {
        lacquer_system::release_signals();
    }
    let mut service = Service::new(manager, sockets, master, admin, signals);
    let outcome = serve_until_the_end(&mut service, raw, init, adopted, pending);
    end(service);
    outcome
}

/// Listens on the addresses of `-T`, or takes over the sockets, and publishes their addresses.
fn cli_sockets(
    raw: &RawOptions,
    adopted: Option<&mut Adopted>,
    jail: &Jail,
    shm: &mut Shm,
) -> Outcome<CliSockets> {
    if let Some(adopted) = adopted {
        let (sockets, shown) = adopted.cli()?;
        if !shown.is_empty() {
            shm.publish("-T", &shown)?;
        }
        return Ok(sockets);
    }
    let mut sockets = CliSockets::default();
    let default_cli = [DEFAULT_CLI.to_owned()];
    let cli = if raw.cli.is_empty() { &default_cli[..] } else { &raw.cli[..] };
    for argument in cli.iter().filter(|argument| *argument != "none") {
        let shown = sockets.add(argument, jail)?;
        shm.publish("-T", &shown)?;
    }
    Ok(sockets)
}

fn serve_until_the_end(
    service: &mut Service,
    raw: &RawOptions,
    init: Option<File>,
    adopted: Option<Adopted>,
    (background, leftovers): (&mut Option<Background>, &mut Leftovers),
) -> Outcome<u8> {
    if raw.mode == Mode::Debug {
        service.attach_stdin()?;
    }
    if let Some(file) = init {
        service.run_file(file)?;
    }
    let manager = &mut service.manager;
    let is_upgrade = adopted.is_some();
    let code = match adopted {
        Some(adopted) => adopted.replace_worker(manager).map(|()| 0)?,
        None => first_launch(manager, raw),
    };
    if let Some(background) = background.take() {
        background.done(code);
    }
    if code != 0 {
        return Err(Fault::silent(code));
    }
    leftovers.keep();
    if !is_upgrade {
        announce();
    }
    notify(&Change::Ready);
    if raw.mode == Mode::Foreground {
        daemon::silence(rustix::stdio::dup2_stdin);
    }
    service.run();
    notify(&Change::Stopping("Ending".to_owned()));
    service.manager.complain.report(Level::Routine, "manager stopping child");
    service.manager.end();
    service.manager.complain.report(Level::Routine, "manager dies");
    Ok(service.manager.exit_status)
}

/// Starts the first worker, unless the daemon waits for commands. Returns the exit code.
fn first_launch(manager: &mut Manager, raw: &RawOptions) -> u8 {
    let why_not = manager.catalogue.unready_reason();
    if let Some(why) = why_not.filter(|_| raw.mode != Mode::Debug && !raw.has_vcl()) {
        manager.complain.report(Level::Error, why);
    }
    let starts = why_not.is_none() && raw.mode != Mode::Debug && manager.child.state == State::Stopped;
    // `launch` has reported a failure.
    if !starts || manager.launch().is_ok() { 0 } else { 2 }
}

/// Cleans up after success or failure.
fn end(service: Service) {
    let Service { mut manager, admin, .. } = service;
    manager.end();
    manager.settle_storages();
    if let Some(admin) = admin {
        admin.remove(&manager);
    }
    for file in std::mem::take(&mut manager.instance.pid_files) {
        file.remove(&manager.jail);
    }
    if let Some(secret) = &manager.instance.secret {
        secret.remove(&manager.jail);
    }
    let keep = manager.params.values().debug.has(DebugBits::VTC_MODE);
    if let Some(shm) = manager.shm.take().filter(|_| !keep) {
        shm.remove(&manager.jail);
    }
}
