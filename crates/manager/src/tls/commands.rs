//! The commands `tls.cert.*`, with the texts of Varnish 9.

use std::path::PathBuf;
use std::sync::Arc;

use lacquer_tls::{Change, Settings};

use super::catalogue::{Catalogue, Renewed, Wanted};
use super::config::Paths;
use super::files::{self, Recent};
use super::refusal::Refusal;
use super::report_validity;
use crate::complain::Complain;
use crate::jail::Jail;

/// The arguments of `tls.cert.load`.
#[derive(Debug, Default)]
struct LoadArguments {
    id: Option<String>,
    frontend: Option<String>,
    paths: Paths,
    settings: Settings,
    default: bool,
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(text))
}

impl LoadArguments {
    /// Parses the arguments after the command. The first is the id if another one without a dash follows.
    fn parse(args: &[String]) -> Result<LoadArguments, Refusal> {
        let mut parsed = LoadArguments::default();
        let is_value = |arg: Option<&String>| arg.is_some_and(|arg| !arg.starts_with('-'));
        let (file, rest) = if is_value(args.get(1)) {
            parsed.id = Some(args[0].clone());
            (&args[1], &args[2..])
        } else {
            (&args[0], &args[1..])
        };
        parsed.paths.certificate = PathBuf::from(file);
        let mut rest = rest.iter();
        while let Some(flag) = rest.next() {
            match flag.as_str() {
                "-d" => parsed.default = true,
                "-o" => parsed.settings.prefer_server_ciphers = true,
                "-f" | "-c" | "-k" | "-s" | "-p" | "-r" => {
                    let Some(value) = rest.next().filter(|value| flag == "-p" || !value.starts_with('-'))
                    else {
                        return refuse(format!("No value specified for: {flag}"));
                    };
                    parsed.set(flag, value)?;
                }
                other => return refuse(format!("Unknown TLS option: {other}")),
            }
        }
        Ok(parsed)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), Refusal> {
        match flag {
            "-f" => self.frontend = Some(value.to_owned()),
            "-c" => value.clone_into(&mut self.settings.ciphers),
            "-k" => self.paths.key = Some(value.into()),
            "-s" => value.clone_into(&mut self.settings.ciphersuites),
            "-r" => self.paths.staple = Some(value.into()),
            _ => {
                for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                    if !self.settings.protocols.add(name) {
                        return refuse(format!("Unknown protocol specifier: {name}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The parts of the manager that commands on certificates use.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub jail: &'a Jail,
    pub complain: &'a Complain,
    /// Whether names must be new: `tls_err_dup_servername`.
    pub unique: bool,
}

/// The result of a command.
pub enum Step {
    /// The reply.
    Done(Result<String, Refusal>),
    /// The worker must apply the change. If it does, `complete` ends the command.
    Send(Change, Completion),
}

/// The end of a command whose change the worker has applied.
pub enum Completion {
    Commit,
    Renew(Renewed),
}

/// Runs a command `tls.cert.*`. `json` is whether its reply is JSON.
pub fn run(catalogue: &mut Catalogue, context: Context<'_>, name: &str, args: &[String], json: bool) -> Step {
    if !catalogue.is_configured() {
        return Step::Done(refuse("TLS has not been configured"));
    }
    let nothing = |()| String::new();
    match name {
        "tls.cert.load" => Step::Done(load(catalogue, context, args).map(nothing)),
        "tls.cert.commit" => Step::Send(catalogue.pending(), Completion::Commit),
        "tls.cert.discard" if catalogue.discard(&args[0]) => Step::Done(Ok(String::new())),
        "tls.cert.discard" => Step::Done(refuse("ID not found")),
        "tls.cert.rollback" => {
            catalogue.rollback();
            Step::Done(Ok(String::new()))
        }
        "tls.cert.reload" => match reload(catalogue, context) {
            Ok((change, renewed)) => Step::Send(change, Completion::Renew(renewed)),
            Err(refusal) => Step::Done(Err(refusal)),
        },
        _ => {
            let only_staged = args.first().is_some_and(|arg| arg == "-s");
            Step::Done(Ok(if json { catalogue.list_json(only_staged) } else { catalogue.list(only_staged) }))
        }
    }
}

/// Ends a command whose change the worker has applied, or will apply when it starts.
pub fn complete(catalogue: &mut Catalogue, completion: Completion) {
    match completion {
        Completion::Commit => catalogue.commit(),
        Completion::Renew(renewed) => catalogue.renew(renewed),
    }
}

fn load(catalogue: &mut Catalogue, context: Context<'_>, args: &[String]) -> Result<(), Refusal> {
    let LoadArguments { id, frontend, paths, settings, default } = LoadArguments::parse(args)?;
    if let Some(id) = id.as_deref().filter(|id| catalogue.has(id)) {
        return refuse(format!("Id: \"{id}\" already exists"));
    }
    let path = paths.certificate.display();
    let frontend = match &frontend {
        None => None,
        Some(name) => match catalogue.frontend(name) {
            None => return refuse(format!("{path}: Frontend '{name}' not found\n")),
            found => found,
        },
    };
    settings.check().or_else(|why| refuse(format!("{path}: {why}\n")))?;
    let loaded = files::load(&paths, context.jail, catalogue.recent())?;
    report_validity(context.complain, &paths.certificate, &loaded);
    let wanted = Wanted { id, frontend, paths, settings: Arc::new(settings), default };
    let mut taken = context.unique.then(|| catalogue.taken());
    catalogue.stage(wanted, loaded, taken.as_mut())
}

/// Reads all files again. On failure, the old certificates stay.
fn reload(catalogue: &mut Catalogue, context: Context<'_>) -> Result<(Change, Renewed), Refusal> {
    if catalogue.has_pending() {
        return refuse("There are staged changes, please commit or rollback staged changes first.\n");
    }
    let (mut read, mut recent) = (Vec::new(), Recent::default());
    for wanted in catalogue.wanted() {
        let loaded = files::load(&wanted.paths, context.jail, &mut recent)?;
        report_validity(context.complain, &wanted.paths.certificate, &loaded);
        read.push(loaded);
    }
    let clients: Result<Vec<_>, String> =
        catalogue.client_options().map(|options| options.load(context.jail)).collect();
    let clients = clients.map_err(|why| Refusal::new(format!("{why}\n")))?;
    let on_demand = catalogue.on_demand().map(|on_demand| on_demand.renewed(context.jail)).transpose();
    let on_demand = on_demand.map_err(|why| Refusal::new(format!("acme_on_demand: {why}\n")))?;
    Ok(catalogue.renewed(read, clients, on_demand))
}
