//! `lacquer run --https`: names with certificates of Let's Encrypt, or localhost with one of an authority of this user's
//! own. Plain HTTP redirects to https.

mod redirect;
mod trust;

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use lacquer_acme::Names;
use lacquer_acme::local::{self, LocalFiles};
use redirect::Site;

use crate::args::Values;
use crate::failure::Failure;
use crate::listen::{self, Listen};

const HTTPS: u16 = 443;
const HTTP: u16 = 80;
/// The ports for localhost if this user may not use those below 1024.
const HIGH_HTTPS: u16 = 8443;
const HIGH_HTTP: u16 = 8080;
pub const LOCALHOST: &str = "localhost";
/// The file with the listeners of localhost, for `-A`.
const OPTIONS: &str = "tls.conf";
/// The folder for certificates of a daemon that root starts.
const SYSTEM_FOLDER: &str = "/var/lib/lacquer/acme";

/// The origin of the certificates.
#[derive(Debug)]
enum Source {
    /// One certificate for each element.
    Acme {
        names: Vec<Names>,
        folder: PathBuf,
        email: Option<String>,
        is_staging: bool,
    },
    Local {
        folder: PathBuf,
        files: LocalFiles,
    },
}

/// The settings of `--https` and its companions.
#[derive(Debug)]
pub struct Https {
    source: Source,
    listens: Vec<Listen>,
    plain: Vec<Listen>,
    has_hsts: bool,
    /// The reasons for which addresses have no HTTP/3.
    without_http3: Vec<String>,
}

/// Evaluates the options, whose combinations are checked. Returns `None` without `--https`.
pub fn plan(values: &Values) -> Result<Option<Https>, Failure> {
    let given = values.many("https");
    if given.is_empty() {
        return Ok(None);
    }
    let is_local = given.iter().any(|names| names == LOCALHOST);
    let parse = |(option, default): (&str, Listen)| match values.many(option) {
        [] => Ok(vec![default]),
        given => given.iter().map(|text| Listen::parse(option, text)).collect(),
    };
    let (https, http) = default_ports(is_local);
    let host = if is_local { LOCALHOST } else { "" };
    let mut listens = parse((listen::HTTPS, Listen::tcp(host, https)))?;
    let plain = parse(("listen", Listen::tcp(host, http)))?;
    let without_http3 = if values.has("no-http3") {
        Vec::new()
    } else {
        listens.iter_mut().filter_map(|listen| listen.add_http3().err()).collect()
    };
    let source = if is_local { local_source()? } else { acme_source(values)? };
    Ok(Some(Https { source, listens, plain, has_hsts: values.has("hsts"), without_http3 }))
}

/// Returns the ports for https and http. Public names need those that browsers and certificate authorities use.
fn default_ports(is_local: bool) -> (u16, u16) {
    let is_denied = |port| {
        let bound = TcpListener::bind((LOCALHOST, port));
        bound.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    if is_local && is_denied(HTTPS) { (HIGH_HTTPS, HIGH_HTTP) } else { (HTTPS, HTTP) }
}

/// Returns a folder below the user's home, or the one that `variable` names.
fn user_folder(variable: &str, below_home: &str) -> Result<PathBuf, Failure> {
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(below_home));
    let base = named.or_else(home).ok_or_else(|| {
        Failure::new("there is no folder for certificates").hint(format_args!("set HOME or {variable}"))
    })?;
    Ok(base.join("lacquer"))
}

fn local_source() -> Result<Source, Failure> {
    let folder = user_folder("XDG_CONFIG_HOME", ".config")?.join(LOCALHOST);
    Ok(Source::Local { files: local::files(&folder), folder })
}

/// Returns the block of a listener in a file of `-A`.
fn frontend(listen: &Listen) -> String {
    let address = listen.argument();
    match address.rsplit_once(':') {
        Some((host, port)) if listen.has_http3() => {
            let host = if host.is_empty() { "*" } else { host };
            format!("{{ host = \"{host}\" port = \"{port}\" h3 = on }}")
        }
        _ => format!("\"{address}\""),
    }
}

/// Fails if the value of `--https` names nothing that can have a certificate.
pub fn check_names(text: &str) -> Result<(), Failure> {
    if text == LOCALHOST { Ok(()) } else { parse_names(text).map(drop) }
}

fn parse_names(text: &str) -> Result<Names, Failure> {
    let names = Names::parse(text).map_err(|why| Failure::new(format_args!("--https {why}")))?;
    if let Some(name) = names.all().iter().find(|name| name.starts_with("*.")) {
        let hint = "start lacquerd with acme= and the parameter acme_dns_hook; see docs/acme.md";
        return Err(Failure::new(format_args!("--https {name}: a wildcard needs DNS records")).hint(hint));
    }
    if let Some(name) = names.all().iter().find(|name| !name.contains('.')) {
        return Err(Failure::new(format_args!("--https {name}: no public authority signs this name"))
            .hint("write a whole name such as www.example.org, or localhost"));
    }
    Ok(names)
}

fn acme_source(values: &Values) -> Result<Source, Failure> {
    let names = values.many("https").iter().map(|text| parse_names(text)).collect::<Result<Vec<_>, _>>()?;
    let own = fs::metadata("/proc/self").map_err(Failure::new)?.uid();
    let folder = match own {
        0 => PathBuf::from(SYSTEM_FOLDER),
        _ => user_folder("XDG_STATE_HOME", ".local/state")?.join("acme"),
    };
    let email = values.one("email").map(str::to_owned);
    Ok(Source::Acme { names, folder, email, is_staging: values.has("staging") })
}

impl Https {
    /// Returns the addresses with TLS.
    pub fn listens(&self) -> &[Listen] {
        &self.listens
    }

    /// Returns the addresses that redirect to https.
    pub fn plain(&self) -> &[Listen] {
        &self.plain
    }

    /// Makes the authority and the certificate of localhost, after all checks: a start that fails leaves no files.
    pub fn prepare(&mut self) -> Result<(), Failure> {
        let Source::Local { folder, files } = &mut self.source else { return Ok(()) };
        *files = local::make(folder).map_err(Failure::new)?;
        let mut text = format!("pem-file = \"{}\"\n", files.certificate.display());
        for listen in &self.listens {
            text.extend(["frontend = ", &frontend(listen), "\n"]);
        }
        let options = folder.join(OPTIONS);
        fs::write(&options, text)
            .map_err(|error| Failure::new(format_args!("{}: {error}", options.display())))
    }

    /// Prints why addresses have no HTTP/3.
    pub fn warn(&self) {
        for why in &self.without_http3 {
            eprintln!("lacquer: https is served without HTTP/3: {why}");
        }
    }

    /// Adds the arguments of the daemon. `reads_files` is whether VCL may read files.
    pub fn add_arguments(&self, command: &mut Command, reads_files: bool) {
        command.args(["-p", "feature=+http2"]);
        if !reads_files {
            // A worker with this user's rights could otherwise read the keys of accounts and authorities.
            command.args(["-p", "jail_read=/etc"]);
        }
        match &self.source {
            Source::Local { folder, .. } => {
                command.arg("-A").arg(folder.join(OPTIONS));
            }
            Source::Acme { names, folder, email, is_staging } => {
                let names = names.iter().map(|names| format!(",acme={}", names.all().join(";")));
                let names: String = names.collect();
                for listen in &self.listens {
                    let http3 = if listen.has_http3() { ",h3" } else { "" };
                    command.arg("-a").arg(format!("{},https{http3}{names}", listen.argument()));
                }
                command.arg("-p").arg(format!("acme_folder={}", folder.display()));
                if *is_staging {
                    command.args(["-p", "acme_directory=letsencrypt-staging"]);
                }
                if let Some(email) = email {
                    command.arg("-p").arg(format!("acme_contact={email}"));
                }
            }
        }
    }

    /// Returns a whole VCL: the redirection, and `rest` with the backends.
    pub fn vcl(&self, rest: &str) -> String {
        let hosts = match &self.source {
            Source::Local { .. } => [LOCALHOST, "127.0.0.1", "[::1]"].map(str::to_owned).to_vec(),
            Source::Acme { names, .. } => names.iter().flat_map(Names::all).cloned().collect(),
        };
        Site { hosts, port: self.listens.iter().find_map(Listen::port), has_hsts: self.has_hsts }.vcl(rest)
    }

    /// Returns the addresses to show, the first of them for a try.
    pub fn places(&self) -> Vec<String> {
        let suffix = |listen: &Listen| match listen.port() {
            Some(HTTPS) | None => String::new(),
            Some(port) => format!(":{port}"),
        };
        let port = self.listens.first().map(suffix).unwrap_or_default();
        let place = |name: &String| format!("https://{name}{port}/");
        let mut places: Vec<String> = match &self.source {
            Source::Local { .. } => vec![place(&LOCALHOST.to_owned())],
            Source::Acme { names, .. } => names.iter().flat_map(Names::all).map(place).collect(),
        };
        let with_http3 = self.listens.iter().filter(|listen| listen.has_http3()).filter_map(Listen::port);
        places
            .extend(with_http3.map(|port| format!("HTTP/3 on UDP port {port} (--no-http3 switches it off)")));
        places.extend(self.plain.iter().map(|listen| format!("{} (redirects to https)", listen.curl())));
        places
    }

    /// Returns the arguments that make curl trust the certificate.
    pub fn curl_options(&self) -> String {
        match &self.source {
            Source::Local { files, .. } => format!("--cacert {} ", files.authority.display()),
            Source::Acme { is_staging: true, .. } => "--insecure ".to_owned(),
            Source::Acme { .. } => String::new(),
        }
    }

    /// Returns what the user should know about the certificates.
    pub fn notes(&self, name: &str) -> String {
        match &self.source {
            Source::Local { files, .. } => trust::notes(files),
            Source::Acme { names, folder, is_staging, .. } => {
                let what = if names.len() == 1 { "The certificate comes" } else { "The certificates come" };
                let mut text = format!(
                    "{what} from Let's Encrypt, whose terms you accept (https://letsencrypt.org/repository/),\n\
                     and {} kept in {}. The names must lead to this machine. Browsers are\n\
                     refused until the first one has arrived, which takes some seconds. To see its state:\n  \
                     lacquer cli -n {name} acme.list\n",
                    if names.len() == 1 { "is" } else { "are" },
                    folder.display()
                );
                if *is_staging {
                    text += "With --staging, no browser trusts it.\n";
                }
                text
            }
        }
    }

    /// Returns a hint for a port that this user may not use.
    pub fn port_hint(&self) -> &'static str {
        match self.source {
            Source::Local { .. } => {
                "choose others with --https-listen localhost:8443 --listen localhost:8080"
            }
            Source::Acme { .. } => {
                "start it with sudo; or, if ports 443 and 80 are forwarded here: --https-listen :8443 --listen :8080"
            }
        }
    }
}
