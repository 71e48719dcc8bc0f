//! Certificates that the manager obtains itself: the settings from the options, and the client with what it has asked
//! for.

use std::fs::DirBuilder;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lacquer_acme::{
    Challenge, Client, Directory, Event, ExternalAccount, Folder, Inbox, Method, MethodChoice, Names, Rights,
    Settings, State, Status, Stored,
};
use lacquer_cli::json;
use lacquer_http::date;
use lacquer_params::Params;
use lacquer_tls::{Bundle, ChallengeCertificates, File, Files, Settings as TlsSettings};
use rustix::process::geteuid;

use super::catalogue::Wanted;
use super::config::Paths;
use super::on_demand::OnDemand;
use crate::complain::{Complain, Level};
use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::regular_file::{read_pem, read_vcl};
use crate::trust_store;
use crate::workdir::absolute;

/// The parameters that the client reads at its start.
pub const PARAMETERS: [&str; 8] = [
    "acme_ca_file",
    "acme_challenge",
    "acme_contact",
    "acme_directory",
    "acme_dns_hook",
    "acme_external_account",
    "acme_folder",
    "acme_on_demand",
];

/// The certificates that the options name, and how to obtain them.
#[derive(Debug)]
pub struct Plan {
    settings: Settings,
    folder: Folder,
    all: Vec<Names>,
    /// The names of stored certificates on demand.
    on_demand: Vec<Names>,
}

/// The responses to challenges that are pending, as the worker gets them.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    pub pages: Vec<(String, String)>,
    pub certificates: ChallengeCertificates,
}

/// The running client.
#[derive(Debug)]
pub struct Acme {
    client: Client,
    inbox: Inbox,
    responses: Responses,
}

fn wrong(name: &str, why: impl std::fmt::Display) -> Fault {
    Fault::usage(format!("{name}: {why}"))
}

/// Fails if an address for the account is none.
pub fn check_contacts(text: &str) -> Outcome<()> {
    contacts(text).map(drop)
}

/// Returns the addresses for the account as URLs.
fn contacts(text: &str) -> Outcome<Vec<String>> {
    let addresses = text.split(',').map(str::trim).filter(|address| !address.is_empty());
    addresses
        .map(|address| {
            let bare = address.strip_prefix("mailto:").unwrap_or(address);
            let is_address =
                bare.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
            if !is_address || bare.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return Err(wrong("acme_contact", format_args!("\"{address}\" is not a mail address")));
            }
            Ok(format!("mailto:{bare}"))
        })
        .collect()
}

/// Creates the folders if they do not exist. They belong to root if the manager can become root: the worker may have the
/// manager's user.
fn create(root: &Path, folder: &Folder, jail: &Jail) -> std::io::Result<()> {
    let _root = jail.raise();
    if let Some(parent) = root.parent() {
        DirBuilder::new().recursive(true).create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(root) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::metadata(root)?;
    // Others could put links to files there, which would be written through.
    if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(std::io::Error::other("it belongs to another user, or others may write to it"));
    }
    folder.create()
}

impl Plan {
    /// Evaluates the parameters. Returns `None` if no listener asks for certificates, and none are obtained on demand.
    /// `has_plain` is whether a listener without TLS can answer HTTP-01.
    pub fn new(
        (all, on_demand): (Vec<Names>, Option<&OnDemand>),
        has_plain: bool,
        params: &Params,
        jail: &Jail,
        complain: &Complain,
    ) -> Outcome<Option<Plan>> {
        if all.is_empty() && on_demand.is_none() {
            return Ok(None);
        }
        let directory =
            Directory::parse(&params.acme_directory).map_err(|why| wrong("acme_directory", why))?;
        let methods =
            MethodChoice::parse(&params.acme_challenge).map_err(|why| wrong("acme_challenge", why))?;
        let methods = match methods {
            MethodChoice::Auto if !has_plain => MethodChoice::Only(Method::TlsAlpn),
            other => other,
        };
        let hook = Some(&params.acme_dns_hook).filter(|hook| !hook.is_empty()).map(absolute);
        let needs_hook = |name: &&String| methods.method(name.starts_with("*."), 0) == Method::Dns;
        if let Some(name) = all.iter().flat_map(Names::all).find(needs_hook).filter(|_| hook.is_none()) {
            return Err(wrong(
                "acme",
                format_args!("{name} needs dns-01, and so the parameter acme_dns_hook"),
            ));
        }
        if on_demand.is_some() && methods.method(false, 0) == Method::Dns && hook.is_none() {
            return Err(wrong("acme_on_demand", "dns-01 needs the parameter acme_dns_hook"));
        }
        if params.acme_folder.is_empty() {
            return Err(wrong("acme_folder", "the name of a folder is missing"));
        }
        let root = absolute(&params.acme_folder);
        let folder = Folder::of(&root, &directory);
        let created = create(&root, &folder, jail);
        created.map_err(|error| {
            let why = os_error_text(&error);
            wrong(
                "acme_folder",
                format_args!("cannot create {}: {why}; name another folder", folder.path().display()),
            )
        })?;
        // Without a jail, the worker has the user of the folder.
        let is_readable = params.jail_read.split(':').any(|path| !path.is_empty() && root.starts_with(path));
        if jail.worker().is_none() && !geteuid().is_root() && (is_readable || !params.jail_files) {
            let text = "ACME: the worker runs as the same user; if it needs no files, keep it from the account's key \
                        with -p jail_read=/etc";
            complain.report(Level::Info, text);
        }
        let settings = Settings {
            directory,
            contacts: contacts(&params.acme_contact)?,
            external_account: external_account(&params.acme_external_account, jail)?,
            methods,
            hook,
            trusted: trusted(&params.acme_ca_file, complain)?,
        };
        let on_demand = stored_on_demand(&folder, &all, on_demand, jail);
        Ok(Some(Plan { settings, folder, all, on_demand }))
    }

    /// Returns the certificates that are stored. Those that cannot be used are obtained again.
    pub fn stored(&self, jail: &Jail) -> Vec<(Names, PathBuf)> {
        let _root = jail.raise();
        let paths = self
            .all
            .iter()
            .chain(&self.on_demand)
            .map(|names| (names.clone(), self.folder.certificate(names)));
        paths.filter(|(names, path)| matches!(Stored::read(path, names), Ok(Some(_)))).collect()
    }

    /// Starts the client, on a thread with the rights of the manager's user.
    pub fn start(self, jail: &Jail) -> std::io::Result<Acme> {
        let user = jail.manager().map(|user| (user.uid, user.gid));
        let jail = jail.clone();
        let with = move |work: &mut dyn FnMut()| {
            // The ids of this thread only.
            let _root = jail.raise();
            work();
        };
        let rights = Rights::new(with, user);
        let (client, inbox) = Client::start(self.settings, self.folder, self.all, self.on_demand, rights)?;
        Ok(Acme { client, inbox, responses: Responses::default() })
    }
}

/// Returns the names of the certificates on demand in the folder that the list still contains.
fn stored_on_demand(folder: &Folder, all: &[Names], on_demand: Option<&OnDemand>, jail: &Jail) -> Vec<Names> {
    let Some(on_demand) = on_demand else { return Vec::new() };
    let _root = jail.raise();
    folder.single_names(|names| on_demand.names(names.first()).is_some() && !all.contains(names))
}

/// Reads the key of the external account, which only root may be able to read.
fn external_account(file: &str, jail: &Jail) -> Outcome<Option<ExternalAccount>> {
    if file.is_empty() {
        return Ok(None);
    }
    let read = {
        let _root = jail.raise();
        read_pem(Path::new(file))
    };
    let parsed = read.map_err(|error| os_error_text(&error)).and_then(|text| ExternalAccount::parse(&text));
    parsed.map(Some).map_err(|why| wrong("acme_external_account", format_args!("{file}: {why}")))
}

/// Returns the authorities of the server's certificate. Without a trust store of the system, stored certificates are
/// still served.
fn trusted(file: &str, complain: &Complain) -> Outcome<Vec<u8>> {
    if !file.is_empty() {
        let pem = read_vcl(Path::new(file)).map_err(|error| os_error_text(&error));
        let pem = pem.and_then(|pem| lacquer_tls::origin::Authorities::read(&pem).map(|_| pem));
        return pem.map_err(|why| wrong("acme_ca_file", format_args!("{file}: {why}")));
    }
    Ok(trust_store::read().unwrap_or_else(|why| {
        complain.report(Level::Error, &format!("ACME: no certificate can be obtained: {why}"));
        Vec::new()
    }))
}

/// Returns the settings of a certificate in the catalogue.
pub fn wanted(names: &Names, path: PathBuf) -> Wanted {
    Wanted {
        id: Some(format!("acme:{}", names.id())),
        frontend: None,
        paths: Paths { certificate: path, ..Paths::default() },
        settings: Arc::new(TlsSettings::default()),
        default: false,
    }
}

impl Responses {
    /// Converts challenges to the form for the worker.
    pub fn of(challenges: Vec<Challenge>) -> Result<Responses, String> {
        let mut responses = Responses::default();
        for challenge in challenges {
            match challenge {
                Challenge::Page { token, content } => responses.pages.push((token, content)),
                Challenge::Certificate { name, pem } => {
                    let file = File { name: &name, bytes: pem.as_bytes() };
                    let files = Files { certificate: file, key: None, dh: None, staple: None };
                    let (bundle, _) = Bundle::load(files)?;
                    responses.certificates.all.push((name, bundle));
                }
            }
        }
        Ok(responses)
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.certificates.all.is_empty()
    }
}

impl Acme {
    /// Returns the descriptor that is readable while there are events.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.inbox.descriptor()
    }

    /// Removes and returns all events.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.inbox.take()
    }

    /// Returns the responses that the worker gives now.
    pub fn responses(&self) -> &Responses {
        &self.responses
    }

    pub fn set_responses(&mut self, responses: Responses) {
        self.responses = responses;
    }

    /// Renews the certificates with this first name, or all. Returns how many there are.
    pub fn renew(&self, name: Option<&str>) -> usize {
        self.client.renew(name)
    }

    /// Obtains a certificate for a name that a client asks for.
    pub fn want(&self, names: Names) {
        self.client.want(names);
    }

    /// Returns the list of certificates.
    pub fn list(&self) -> String {
        let line = |status: &Status| row(status).join("\t").trim_end().to_owned() + "\n";
        self.client.statuses().iter().map(line).collect()
    }

    /// Returns the list of certificates as elements of a JSON array. Times are seconds since the epoch.
    pub fn list_json(&self) -> String {
        let element = |status: &Status| {
            let names: Vec<String> = status.names.all().iter().map(|name| json::string(name)).collect();
            let next = match status.state {
                State::Busy => None,
                State::Waits(at) => Some(at),
            };
            let number = |time: Option<i64>| time.map_or("null".to_owned(), |time| time.to_string());
            let fault = status.fault.as_deref().map_or("null".to_owned(), json::string);
            format!(
                "  {{\"names\": [{}], \"not_after\": {}, \"next_attempt\": {}, \"failure\": {fault}}}",
                names.join(", "),
                number(status.not_after),
                number(next)
            )
        };
        self.client.statuses().iter().map(element).collect::<Vec<_>>().join(",\n")
    }
}

fn row(status: &Status) -> [String; 4] {
    let day = |time: i64| String::from_utf8_lossy(&date::format(time as f64)).into_owned();
    let end = status.not_after.map_or("no certificate".to_owned(), |time| format!("until {}", day(time)));
    let next = match status.state {
        State::Busy => "in progress".to_owned(),
        State::Waits(at) => format!("next {}", day(at)),
    };
    [status.names.to_string(), end, next, status.fault.clone().unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_are_mail_addresses() {
        let parsed = contacts("a@example.org, mailto:b@example.org,").unwrap();
        assert_eq!(parsed, ["mailto:a@example.org", "mailto:b@example.org"]);
        for bad in ["a", "@example.org", "a b@example.org", "a@host"] {
            assert!(contacts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn wildcards_need_a_hook() {
        let params = Params::default();
        let names = vec![Names::parse("*.example.org").unwrap()];
        let complain = Complain::new(false, "test");
        let fault = Plan::new((names, None), true, &params, &Jail::none(), &complain).unwrap_err();
        assert_eq!(fault.text(), "acme: *.example.org needs dns-01, and so the parameter acme_dns_hook");
        assert!(Plan::new((Vec::new(), None), true, &params, &Jail::none(), &complain).unwrap().is_none());
    }
}
