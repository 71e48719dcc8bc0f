//! `lacquer run`: translates a few simple options to the daemon's, checks for common mistakes, prints
//! what is served and what to try once clients are served, by executing `lacquerd`.

use crate::admin::Admin;
use crate::args::Values;
use crate::attend;
use crate::check;
use crate::combinations;
use crate::config;
use crate::demo;
use crate::environment;
use crate::failure::Failure;
use crate::https::{self, Https};
use crate::instance;
use crate::listen::Listen;
use crate::parameters;
use crate::rules;
use crate::spec::{parse_backend, storage};
use crate::storage_room;
use crate::web::Web;
use crate::written_vcl::WrittenVcl;
use lacquer_inspect::access_log::Format;
use lacquer_inspect::directory::{RUN_PREFIX, folder_of_runs};
use lacquer_inspect::log_sink::Target;
use lacquer_manager::{ANNOUNCEMENT, ATTENDANT, OWN_FOLDER, show};
use std::io::{self, IsTerminal};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

const DEFAULT_LISTEN: &str = ":6081";

/// The origin of the cached pages.
enum Source {
    Backends(Vec<String>),
    Vcl(PathBuf),
    Demo,
}

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let values = &config::complete(environment::complete(
        values.clone(),
        |name| std::env::var(name).ok(),
        |file| Path::new(file).exists(),
    ))?;
    combinations::check(values)?;
    let log = log_format(values)?;
    let mut https = https::plan(values)?;
    let listens = match &https {
        Some(https) => https.plain().to_vec(),
        None => listens(values)?,
    };
    let storage = storage(values.one("storage"))?;
    parameters::check(values)?;
    let source = source(values)?;
    if values.has("print-vcl") {
        return print_vcl(values, &source, https.as_ref());
    }
    let daemon = sibling("lacquerd")?;
    if let Some(name) = values.one("name") {
        instance::refuse_running(name)?;
    }
    let low =
        https.as_ref().map_or("ports below 1024 are reserved for root; try --listen :8080", Https::port_hint);
    let secure = https.as_ref().map_or(&[][..], Https::listens);
    secure.iter().try_for_each(|listen| listen.check_free("https-listen", low))?;
    let all: Vec<&Listen> = secure.iter().chain(&listens).collect();
    check_options(values, &storage, &source, &all)?;
    listens.iter().try_for_each(|listen| listen.check_free("listen", low))?;
    let name = instance_folder(values.one("name"), secure.iter().chain(&listens).next())?;
    let (admin, web) = (Admin::of(values)?, Web::of(values)?);

    let mut command = daemon_command(&daemon, &name, &storage, values);
    if let Some(https) = &https {
        https.add_arguments(&mut command, matches!(source, Source::Vcl(_)));
    }
    for listen in &listens {
        command.arg("-a").arg(listen.argument());
    }
    if let Some(admin) = &admin {
        admin.add_arguments(&mut command);
    }
    if let Some(web) = &web {
        web.add_arguments(&mut command);
    }
    let is_demo = matches!(source, Source::Demo);
    let (origin, _written) = add_source(&mut command, values, source, https.as_ref(), &name)?;
    if let Some(https) = &mut https {
        https.prepare()?;
        https.warn();
    }
    let instance = name.display().to_string();
    let mut shown = Shown::of(https.as_ref(), &listens, &instance);
    shown.notes.extend(admin.map(|admin| admin.note(&instance)));
    shown.notes.extend(web.map(|web| web.note(&instance)));
    // The daemon prints it once it serves, so that it is never followed by a failure to start.
    command.env(ANNOUNCEMENT, banner(&shown, &origin, &storage, &instance, is_demo));
    if log.is_some() {
        // Standard output is for the log alone.
        command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned().map_err(Failure::new)?));
    }
    if log.is_some() || io::stdout().is_terminal() {
        command.env(ATTENDANT, attend::start(&instance, log)?.to_string());
    }
    let error = command.exec();
    Err(Failure::new(format_args!("cannot start {}: {error}", daemon.display())))
}

/// Returns the daemon with the options that need no preparation.
fn daemon_command(daemon: &Path, name: &Path, storage: &str, values: &Values) -> Command {
    let mut command = Command::new(daemon);
    command.arg("-F").arg("-n").arg(name).arg("-s").arg(storage);
    command.args(["-p", "upgrade_protocols=websocket", "-p", "feature=+rfc9111", "-p", "stale_if_error=1h"]);
    if let Some(url) = values.one("otlp") {
        command.arg("-w").arg(format!("otlp={url}")).args(["-p", "trace_rate=0.01"]);
    }
    for param in values.many("p") {
        command.arg("-p").arg(param);
    }
    command.envs((!values.has("name")).then_some((OWN_FOLDER, name)));
    command
}

/// Returns the format and the destination of the access log, if one is wanted.
fn log_format(values: &Values) -> Result<Option<(&str, &str)>, Failure> {
    let target = values.one("log-to").unwrap_or("stdout");
    Target::parse(target).map_err(|hint| {
        Failure::new(format_args!("--log-to {}: not a destination", target.escape_debug())).hint(hint)
    })?;
    let Some(log) = values.one("log") else { return Ok(None) };
    Format::parse(log).map_err(|hint| {
        Failure::new(format_args!("--log {}: not a format", log.escape_debug())).hint(hint)
    })?;
    Ok(Some((log, target)))
}

/// Prints the VCL that the options mean.
fn print_vcl(values: &Values, source: &Source, https: Option<&Https>) -> Result<ExitCode, Failure> {
    let backends = match source {
        Source::Backends(backends) => backends.clone(),
        Source::Demo => vec![DEMO.to_owned()],
        Source::Vcl(file) => {
            return Err(Failure::new(format_args!("--print-vcl: {} is VCL already", file.display()))
                .hint("it prints what the other options mean"));
        }
    };
    let site = rules::site(values, &backends)?;
    let rest = format!("{PREFACE}{}", site.vcl());
    let text = whole_vcl(https, &rest);
    let formatted = lacquer_tools::format("lacquer run", text.as_bytes());
    show(&formatted.map_or(text, |bytes| String::from_utf8_lossy(&bytes).into_owned()));
    Ok(ExitCode::SUCCESS)
}

const DEMO: &str = "127.0.0.1:8080";
const PREFACE: &str = "# Written by lacquer run --print-vcl. Change it, and start it with\n#   lacquer run --vcl FILE\n\
    # Where no rule returns, the built-in VCL obeys the web server's Cache-Control (RFC 9111).\n\n";

fn whole_vcl(https: Option<&Https>, rest: &str) -> String {
    https.map_or_else(|| format!("vcl 4.1;\n\n{rest}"), |https| https.vcl(rest))
}

/// Adds the origin and the rules to the daemon's arguments. Returns a description of the origin, and the VCL that was
/// written.
fn add_source(
    command: &mut Command,
    values: &Values,
    source: Source,
    https: Option<&Https>,
    name: &Path,
) -> Result<(String, Option<WrittenVcl>), Failure> {
    let (backends, origin) = match source {
        Source::Vcl(file) => {
            let origin = format!("the backends of {}", file.display());
            let Some(https) = https else {
                command.arg("-f").arg(&file);
                return Ok((origin, None));
            };
            let text = https.vcl(&format!("include \"{}\";\n", quotable(&file)?));
            return Ok((origin, Some(WrittenVcl::add(command, name, &text)?)));
        }
        Source::Backends(backends) => {
            rules::site(values, &backends)?;
            backends.iter().try_for_each(|backend| check_backend(backend))?;
            let origin = backends.join("\n                     ");
            (backends, origin)
        }
        Source::Demo => {
            rules::site(values, &[])?;
            let address = demo::start_child(&std::env::current_exe().map_err(Failure::new)?)?;
            (vec![address.to_string()], format!("the demonstration site (http://{address}/)"))
        }
    };
    let text = whole_vcl(https, &rules::site(values, &backends)?.vcl());
    Ok((origin, Some(WrittenVcl::add(command, name, &text)?)))
}

/// Returns a path for a text in quotes of VCL.
fn quotable(file: &Path) -> Result<&str, Failure> {
    let is_plain = |text: &&str| !text.contains(['"', '\n', '\r']);
    file.to_str().filter(is_plain).ok_or_else(|| {
        Failure::new(format_args!("{}: --https cannot use a file with such a name", file.display()))
            .hint("rename it; VCL cannot include it")
    })
}

fn listens(values: &Values) -> Result<Vec<Listen>, Failure> {
    match values.many("listen") {
        [] => Ok(vec![Listen::parse("listen", DEFAULT_LISTEN)?]),
        given => given.iter().map(|text| Listen::parse("listen", text)).collect(),
    }
}

fn source(values: &Values) -> Result<Source, Failure> {
    match (values.many("backend"), values.one("vcl")) {
        ([_, ..], Some(_)) => Err(Failure::new("--backend and --vcl cannot be combined")
            .hint("a VCL file defines its own backends: backend default { .host = \"…\"; }")),
        ([], Some(file)) => {
            rules::refuse_beside_vcl(values)?;
            vcl_file(file).map(Source::Vcl)
        }
        ([], None) => Ok(Source::Demo),
        (urls, None) => {
            urls.iter().map(|url| parse_backend(url)).collect::<Result<_, _>>().map(Source::Backends)
        }
    }
}

fn vcl_file(file: &str) -> Result<PathBuf, Failure> {
    check::ensure_correct(file)?;
    Path::new(file).canonicalize().map_err(|error| Failure::new(format_args!("{file}: {error}")))
}

/// Fails if the origin's name is unknown. Prints a warning if the origin does not accept connections yet, as it may be
/// started later.
fn check_backend(backend: &str) -> Result<(), Failure> {
    if backend.starts_with('/') {
        return Ok(());
    }
    let backend = backend.strip_prefix("https://").unwrap_or(backend);
    let reach = |addr: SocketAddr| TcpStream::connect_timeout(&addr, Duration::from_millis(500)).is_ok();
    match backend.to_socket_addrs() {
        Ok(mut addresses) => {
            if !addresses.any(reach) {
                eprintln!(
                    "lacquer: nothing accepts connections at {backend} yet;\n         until it does, visitors see an error page"
                );
            }
        }
        Err(error) => {
            let error = error.to_string();
            let why = error.strip_prefix("failed to lookup address information: ").unwrap_or(&error);
            return Err(Failure::new(format_args!("--backend: cannot resolve {backend}: {why}"))
                .hint("check the name of the server; nothing was started"));
        }
    }
    Ok(())
}

/// Fails if the storage does not fit on this machine, or a backend is one of the listeners.
fn check_options(
    values: &Values,
    storage: &str,
    source: &Source,
    listens: &[&Listen],
) -> Result<(), Failure> {
    if let Some(given) = values.one("storage") {
        storage_room::check(given, storage)?;
    }
    match source {
        Source::Backends(backends) => backends.iter().try_for_each(|backend| refuse_itself(backend, listens)),
        Source::Vcl(_) | Source::Demo => Ok(()),
    }
}

/// Fails if requests to a backend would reach this cache.
fn refuse_itself(backend: &str, listens: &[&Listen]) -> Result<(), Failure> {
    let address = backend.strip_prefix("https://").unwrap_or(backend);
    let own = if address.starts_with('/') {
        listens.iter().find(|listen| listen.is_socket(Path::new(address)))
    } else {
        // A name that cannot be resolved is reported later.
        let all: Vec<SocketAddr> = address.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
        listens.iter().find(|listen| all.iter().any(|one| listen.is_reached_at(*one)))
    };
    match own {
        None => Ok(()),
        Some(listen) => Err(Failure::new(format_args!(
            "--backend {backend}: this is where Lacquer listens itself ({})",
            listen.argument()
        ))
        .hint("give the address of your web server, and another one with --listen for Lacquer")),
    }
}

fn sibling(program: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::new)?;
    let path = own.with_file_name(program);
    if path.exists() {
        return Ok(path);
    }
    Err(Failure::new(format_args!("{} is missing", path.display()))
        .hint("lacquer and lacquerd must be in the same directory; cargo build creates both"))
}

/// Returns the instance's working directory. It is the same for every run on a port, so that log tools find it.
fn instance_folder(given: Option<&str>, first: Option<&Listen>) -> Result<PathBuf, Failure> {
    if let Some(dir) = given {
        return std::path::absolute(dir).map_err(Failure::new);
    }
    let id = first.map(Listen::id).unwrap_or_default();
    let folder = folder_of_runs().join(format!("{RUN_PREFIX}{id}"));
    // In a directory that everyone may write to, another user could have created this name first.
    let own = std::fs::metadata("/proc/self").map_err(Failure::new)?.uid();
    match std::fs::symlink_metadata(&folder) {
        Ok(meta) if !meta.is_dir() || meta.uid() != own => {
            Err(Failure::new(format_args!("{} belongs to another user", folder.display()))
                .hint("choose another directory with --name DIR"))
        }
        _ => Ok(folder),
    }
}

/// Returns what to try first: a slow page of the demonstration site, or the front page of another origin.
fn first_steps(curl: &str, place: &str, is_demo: bool) -> String {
    if is_demo {
        format!(
            "  curl -i {curl}{place}slow
      twice: the first response takes a second, the second comes from the cache at once;
      a browser at the address above shows more"
        )
    } else {
        format!(
            "  curl -i {curl}{place}
      twice: if X-Varnish then has two numbers, the response came from the cache;
      Age is its age in seconds"
        )
    }
}

/// The parts of the banner that depend on the listeners.
struct Shown {
    /// Where the site is, the first one for a try.
    places: Vec<String>,
    /// Options of curl.
    curl: String,
    /// The first place as an argument of `lacquer why`.
    why: String,
    /// Hints about certificates.
    notes: String,
}

impl Shown {
    fn of(https: Option<&Https>, listens: &[Listen], instance: &str) -> Shown {
        let places = https.map_or_else(|| listens.iter().map(Listen::curl).collect(), Https::places);
        // The first place of https is a URL, as `why` understands it.
        let why = match (https, listens.first()) {
            (None, Some(listen)) => listen.why(),
            _ => places.first().cloned().unwrap_or_default(),
        };
        let curl = https.map(Https::curl_options).unwrap_or_default();
        let notes = https.map(|https| https.notes(instance)).unwrap_or_default();
        Shown { places, curl, why, notes }
    }
}

fn banner(shown: &Shown, origin: &str, storage: &str, name: &str, is_demo: bool) -> String {
    let Shown { places, curl, why, notes } = shown;
    let first = places.first().map_or("", String::as_str);
    let steps = first_steps(curl, first, is_demo);
    let places = places.join("\n                     ");
    let notes = if notes.is_empty() { String::new() } else { format!("\n{notes}") };
    format!(
        "
Lacquer is serving   {places}
in front of          {origin}
with storage         {storage}
{notes}
Try:
{steps}
  lacquer why -n {name} {curl}{why}
      sends a request and explains why it was a hit or a miss
  lacquer log -n {name}
      lists the requests; `lacquer top` shows the traffic live
  lacquer ban -n {name} 'req.url ~ .'
      empties the cache

Ctrl-C ends it.

"
    )
}
